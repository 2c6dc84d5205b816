"""Evidence: append-only, chained, readable whatever happens."""

from __future__ import annotations

import errno
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from rackproof.core.evidence import PROOFS, CommandRecord, DeployRecord, Kind, NodeChanges, make_record
from rackproof.errors import EvidenceWriteError, RunError
from rackproof.evidence.store import (
    EVIDENCE,
    RAW,
    EvidenceStore,
    answer_of,
    lost_outputs,
    read_raw,
    read_records,
    read_trusted,
)
from rackproof.remote.command import CommandResult
from tests.unit.judging import check, info_of_nodes
from tests.unit.refusals import error_of

RUN = info_of_nodes([]).model_dump(mode="json", by_alias=True)
PASSED = check("gpu-01").model_dump(mode="json")
DEPLOY = DeployRecord(
    inventory="i", deploy="d", exit_status=0, ok=True, nodes=(NodeChanges(node="a", reached=True),), elapsed_s=1.0
).model_dump(mode="json")


def fill(folder: Path, count: int) -> None:
    with EvidenceStore(folder) as store:
        for k in range(count):
            store.append(Kind.NOTE, {"text": f"note {k}"})


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    records = read_records(tmp_path)
    assert [r.body["text"] for r in records] == ["note 0", "note 1", "note 2"]
    assert [r.prev for r in records[1:]] == [r.hash for r in records[:-1]]


def test_a_second_part_continues_the_chain(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    fill(tmp_path, 2)
    assert [r.seq for r in read_records(tmp_path)] == [0, 1, 2, 3]


def test_a_line_that_a_killed_run_left_half_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with (tmp_path / EVIDENCE).open("ab") as handle:
        handle.write(b'{"seq":2,"time":"2026-')
    assert len(read_records(tmp_path)) == 2
    fill(tmp_path, 1)
    assert [r.seq for r in read_records(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: [lines[0].replace("note 0", "note X"), *lines[1:]], "was changed after it was written"),
        (lambda lines: [lines[0], lines[2]], "expected record 1, actual record 2"),
        (lambda lines: [lines[1], lines[0], lines[2]], "expected record 0, actual record 1"),
        (lambda lines: [lines[0], "{rubbish", *lines[1:]], ": line 2 is damaged"),
        (
            lambda lines: [lines[0].replace('{"text"', '{"text":"another note","text"'), *lines[1:]],
            ": line 1 is damaged",
        ),
    ],
)
def test_tampering_is_noticed(tmp_path: Path, change, reason: str) -> None:  # type: ignore[no-untyped-def]
    fill(tmp_path, 3)
    path = tmp_path / EVIDENCE
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(RunError, match=reason):
        read_records(tmp_path)


def test_the_record_of_a_deploy_on_a_large_rack_is_read_again(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    first = read_records(tmp_path)[0]
    long = make_record(1, first.time, Kind.NOTE, {"text": "x" * 20_000_000}, first.hash)
    with (tmp_path / EVIDENCE).open("ab") as handle:
        handle.write(long.model_dump_json().encode() + b"\n")
    assert len(read_records(tmp_path)[1].body["text"]) == 20_000_000


def test_a_record_that_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 1)
    monkeypatch.setattr("rackproof.evidence.store.LINE", 1000)
    with EvidenceStore(tmp_path) as written, pytest.raises(EvidenceWriteError, match="a note record has"):
        written.append(Kind.NOTE, {"text": "x " * 500})
    assert len(read_records(tmp_path)) == 1


def test_only_one_process_writes_a_run(tmp_path: Path) -> None:
    with EvidenceStore(tmp_path), pytest.raises(RunError, match="another process is writing"):
        EvidenceStore(tmp_path)


def test_a_full_disk_is_one_clear_error_and_earlier_evidence_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 2)
    with EvidenceStore(tmp_path) as store:

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("rackproof.evidence.store.os.fsync", full)
        with pytest.raises(EvidenceWriteError, match="No space left on device") as caught:
            store.append(Kind.NOTE, {"text": "lost"})
        assert "--resume" in str(caught.value)
        with pytest.raises(EvidenceWriteError):
            store.raw(b"lost too")
    assert [r.body["text"] for r in read_records(tmp_path)] == ["note 0", "note 1"]
    assert not list((tmp_path / "raw").iterdir())


def test_a_record_that_fits_in_part_is_removed_and_not_written_again(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    before = (tmp_path / EVIDENCE).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EvidenceStore(tmp_path) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        try:
            with pytest.raises(EvidenceWriteError, match="File too large"):
                store.append(Kind.NOTE, {"text": "lost"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / EVIDENCE).read_bytes() == before


def test_a_command_is_recorded_with_its_outputs(tmp_path: Path) -> None:
    with EvidenceStore(tmp_path) as store:
        store.command(CommandResult("gpu-01", "echo hi", 0, b"hi\n", b"\xff\x00", 0.1, 5))
    (record,) = read_records(tmp_path)
    assert record.body["rc"] == 0
    assert read_raw(tmp_path, record.body["stdout"]) == b"hi\n"
    assert read_raw(tmp_path, record.body["stderr"]) == b"\xff\x00"


@pytest.mark.parametrize("elapsed_s", [0.1, 13.510031938552856, 1e-7])
def test_a_result_is_returned_as_it_is_read_again(tmp_path: Path, elapsed_s: float) -> None:
    """A number that is made of it would otherwise contradict the evidence."""
    with EvidenceStore(tmp_path) as store:
        told = store.command(CommandResult("gpu-01", "echo hi", 0, b"hi\n", b"password: hunter2\n", elapsed_s, 5))
    (record,) = read_records(tmp_path)
    assert answer_of(CommandRecord.model_validate(record.body), lambda name: read_raw(tmp_path, name)) == told


def test_an_output_that_was_changed_is_refused(tmp_path: Path) -> None:
    with EvidenceStore(tmp_path) as store:
        name = store.raw(b"17.2 MB/s")
    (tmp_path / "raw" / name).write_bytes(b"99.9 MB/s")
    with pytest.raises(RunError, match="was changed"):
        read_raw(tmp_path, name)


def test_each_line_is_one_json_object(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    for line in (tmp_path / EVIDENCE).read_text().splitlines():
        assert set(json.loads(line)) == {"seq", "time", "kind", "body", "prev", "hash"}


@pytest.mark.parametrize(("position", "kept"), [(0, 0), (2, 2), (4, 4)])
def test_what_stands_before_a_break_can_still_be_read(tmp_path: Path, position: int, kept: int) -> None:
    fill(tmp_path, 5)
    path = tmp_path / EVIDENCE
    lines = path.read_text().splitlines()
    lines[position] = lines[position].replace('"time":"2', '"time":"3')
    path.write_text("\n".join(lines) + "\n")
    trusted = read_trusted(tmp_path)
    assert len(trusted.records) == kept
    assert trusted.broken == f"record {position} was changed after it was written"


def test_a_line_that_was_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    path = tmp_path / EVIDENCE
    path.write_bytes(path.read_bytes()[:-20])
    trusted = read_trusted(tmp_path)
    assert (len(trusted.records), trusted.broken, trusted.cut_off) == (2, None, True)


NOTE = b'{"text":"note 2"}'


@pytest.mark.parametrize(
    "line",
    [
        lambda line: line.replace(NOTE, b'{"text":1e999}'),  # read as infinity, which JSON cannot hold
        lambda line: line.replace(b"note 2", b"\\ud800"),
        lambda line: b'{"seq":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        lambda line: line.replace(NOTE, b'{"text":' + b"1" * 5000 + b"}"),
        lambda line: b"null",
    ],
    ids=["overflow", "half a character", "nested", "endless number", "no record"],
)
def test_a_line_that_the_kit_cannot_write_is_damaged(tmp_path: Path, line) -> None:  # type: ignore[no-untyped-def]
    fill(tmp_path, 4)
    path = tmp_path / EVIDENCE
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line(lines[2]), *lines[3:]]) + b"\n")
    trusted = read_trusted(tmp_path)
    assert (len(trusted.records), trusted.broken) == (2, "line 3 is damaged")


def test_of_two_breaks_the_first_counts(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    path = tmp_path / EVIDENCE
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace("note 1", "note X"), lines[2], "{rubbish"]) + "\n")
    trusted = read_trusted(tmp_path)
    assert (len(trusted.records), trusted.broken) == (1, "record 1 was changed after it was written")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (Kind.COMMAND, {}, "command: node: Field required"),
        (Kind.DEPLOY, {}, "deploy: inventory: Field required"),
        (Kind.CHECK, {}, "check: check: Field required"),
        (Kind.MEASUREMENT, {}, "measurement: metric: Field required"),
        (Kind.STEP, {"step": "x", "status": "done", "elapsed_s": 1}, "step: digest: Field required"),
        (Kind.CHECK, {k: v for k, v in PASSED.items() if k != "required"}, "check: required: Field required"),
        (Kind.CHECK, PASSED | {"elapsed_s": "0.0"}, "check: elapsed_s: not as the kit writes it"),
        (Kind.DEPLOY, DEPLOY | {"nodes": [{"node": "a", "reached": True}]}, "deploy: nodes.0.changed: Field required"),
        (Kind.STAGE, {}, "stage: stage: Field required"),
        (Kind.STAGE, {"stage": "bench", "event": "end"}, "stage: elapsed_s: Field required"),
        (Kind.STEP, {"step": "x", "status": 5, "elapsed_s": 1}, "step: status: Input should be"),
        (Kind.NOTE, {"text": 5}, "note: text: Input should be a valid string"),
        (Kind.NOTE, {"text": "x", "a\nb": 1}, r"note: a\nb: Extra inputs are not permitted"),
    ],
)
def test_a_body_that_does_not_fit_its_kind_is_of_another_format(
    tmp_path: Path, kind: Kind, body: dict[str, Any], words: str
) -> None:
    with EvidenceStore(tmp_path) as store:
        store.append(Kind.RUN, RUN)
        store.append(kind, body)
        store.append(Kind.NOTE, {"text": "after"})
    message = error_of(RunError, read_trusted, tmp_path)
    path = tmp_path / EVIDENCE
    assert message.startswith(f"{path}: evidence of another format (record 1 is not a valid {words}")
    assert message.endswith("judge it with the kit that wrote it: rackproof 0, build 000000000000")
    assert message.isprintable()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema": "rackproof.evidence/v9"}, "its format is rackproof.evidence/v9, this kit reads rackproof.evid"),
        ({"schema": None}, "its format is None, this kit reads"),
        ({"schema": "a\nb"}, r"its format is a\\nb, this kit"),
        ({"proofs": ["end", "guard"]}, "it lacks the proofs checks, identity, readers, planned, ports, storage"),
        ({"proofs": None}, "it lacks the proofs checks, end, guard, identity, readers, planned, ports, storage"),
        ({"proofs": [*PROOFS, "moon"]}, "this kit does not know its proofs moon"),
        ({"nodes": 5}, "record 0 is not a valid run: nodes: Input should be a valid tuple"),
        ({"kit_sha256": ""}, "record 0 is not a valid run: kit_sha256: String should match pattern"),
    ],
)
def test_evidence_of_another_format_is_refused_in_one_line(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with EvidenceStore(tmp_path) as store:
        store.append(Kind.RUN, RUN | fields | {"rackproof": "0.0.9"})
    with pytest.raises(RunError, match=rf"evidence of another format \({words}") as caught:
        read_trusted(tmp_path)
    build = "" if fields.get("kit_sha256") == "" else ", build 000000000000"
    assert str(caught.value).startswith(f"{tmp_path / EVIDENCE}: ")
    assert str(caught.value).endswith(f"; judge it with the kit that wrote it: rackproof 0.0.9{build}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["../evidence.jsonl", "", "a\x00b", "x" * 5000, "A" * 64, f"{'0' * 64}\n"])
def test_only_a_sha256_names_an_output(tmp_path: Path, name: str) -> None:
    fill(tmp_path, 1)
    with pytest.raises(RunError, match="outputs have a sha256 for a name") as caught:
        read_raw(tmp_path, name)
    assert str(caught.value).isprintable()


def test_outputs_that_are_lost_are_told_with_who_named_them(tmp_path: Path) -> None:
    with EvidenceStore(tmp_path) as store:
        store.command(CommandResult("gpu-01", "echo hi", 0, b"hi\n", b"", 0.1, 5))
        store.command(CommandResult("gpu-01", "echo ho", 0, b"ho\n", b"", 0.1, 5))
    records = read_records(tmp_path)
    assert lost_outputs(tmp_path, records) == []
    first, second = (record.body["stdout"] for record in records)
    (tmp_path / RAW / first).unlink()
    (tmp_path / RAW / second).write_bytes(b"HO\n")
    assert lost_outputs(tmp_path, records) == [
        f"output {first[:12]} is missing (No such file or directory), of the command in record 0",
        f"output {second[:12]} was changed after it was recorded, of the command in record 1",
    ]
