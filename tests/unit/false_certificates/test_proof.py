"""Evidence that was edited and whose hash chain was made anew: its raw outputs do not give what it says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof import __version__
from rackproof.cli.main import cli
from rackproof.cli.proof import prove
from rackproof.core.evidence import Kind, Record
from rackproof.core.starvation import OF_CONTROLLER
from rackproof.core.status import Outcome, Status
from rackproof.core.wording import exact
from rackproof.evidence.folder import info_of, kit_digest, stored_architecture
from rackproof.report.document import plain
from tests.unit.false_certificates.edited import (
    certificate,
    chained,
    copy,
    edited,
    example,
    example_folder,
    headline,
    of_kind,
    with_body,
)

pytestmark = pytest.mark.few(2)


@cache
def measured() -> list[Record]:
    return [record for record in of_kind(Kind.MEASUREMENT) if record.body["samples"]]


def local_read() -> Record:
    return next(
        record
        for record in measured()
        if record.body["metric"] == "storage.read_bandwidth" and record.body["labels"]["storage"] == "local"
    )


def faults_of(change: Callable[[Record], dict[str, Any] | None]) -> dict[int, str]:
    """Contradictions that reading the example again finds once the measurements are edited, by ``seq``."""
    edits = {record.seq: change(record) for record in measured()}
    records = edited(lambda record: record.body | (edits.get(record.seq) or {}))
    return prove(records, example_folder(), stored_architecture(example_folder(), info_of(records))).faults


def test_the_unedited_evidence_is_certified_and_every_number_is_read_again() -> None:
    made = certificate(example())
    assert made.outcome is Outcome.CERTIFIED
    assert "run.proof" not in {verdict.id for verdict in made.verdicts}
    assert not any("cannot be evaluated again" in note for note in made.notes)


def test_reading_again_says_how_much_it_read_and_how_long_it_took(tmp_path: Path) -> None:
    folder = copy(tmp_path / "whole", example())
    result = CliRunner().invoke(cli, ["judge", str(folder)])
    assert result.exit_code == 0
    assert re.search(r"^read \d+ results again from their raw outputs in \d+\.\d s$", result.stderr, re.MULTILINE)


def test_a_number_that_was_edited_is_invalid_with_both_values(tmp_path: Path) -> None:
    number = local_read()
    folder = copy(tmp_path / "edited", with_body(number.seq, samples=[9999.0]))
    result = CliRunner().invoke(cli, ["judge", str(folder)])
    assert result.exit_code == 2
    assert "INVALID Results match their raw outputs" in result.output
    document = plain(json.loads((folder / "certificate.json").read_text()))
    (verdict,) = [v for v in document["verdicts"] if v["id"] == "run.proof"]
    assert verdict["status"] == "INVALID"
    assert f"recorded 9999 MB/s, its raw output gives {exact(number.body['samples'][0])} MB/s" in verdict["message"]
    (own,) = [
        v
        for v in document["verdicts"]
        if number.seq in v["records"] and v["metric"] == "storage.read_bandwidth" and v["subject"] == "gpu-01"
    ][:1]
    assert own["status"] == "INVALID"


def test_a_contradiction_of_another_kits_evidence_names_both_kits() -> None:
    """That kit may have read the output differently; this kit's own evidence has no such excuse."""
    number = local_read()
    own = headline(certificate(with_body(number.seq, samples=[9999.0])))
    assert "recorded by rackproof" not in own.message

    def change(record: Record) -> dict[str, Any] | None:
        if record.seq == 0:
            return record.body | {"rackproof": "0.0.1", "kit_sha256": "ab" * 32}
        return record.body | {"samples": [9999.0]} if record.seq == number.seq else None

    other = headline(certificate(edited(change)))
    kits = f"recorded by rackproof 0.0.1 (build abababababab), read again by {__version__} (build {kit_digest()[:12]})"
    assert (other.status, kits in other.message) == (Status.INVALID, True)
    assert other.hint.startswith("Judge with rackproof 0.0.1 (build abababababab)")


@settings(max_examples=3)
@given(position=st.integers(0, 9), factor=st.floats(0.0, 100.0).filter(lambda factor: abs(factor - 1) > 1e-6))
def test_no_edited_sample_is_proven(position: int, factor: float) -> None:
    def change(record: Record) -> dict[str, Any]:
        samples = list(record.body["samples"])
        at = position % len(samples)
        samples[at] = samples[at] * factor if samples[at] else factor + 1.0
        return {"samples": samples}

    assert faults_of(change).keys() == {record.seq for record in measured()}


@pytest.mark.few(2)
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("companions", lambda values: [value * 2 + 1 for value in values], "{}"),
        ("conditions", lambda value: "something else", "condition {}: recorded something else"),
    ],
)
def test_no_edited_companion_or_condition_is_proven(
    field: str, change: Callable[[Any], Any], words: str, turn: int
) -> None:
    """One of every measurement, another one in each turn and measurement."""
    names = {r.seq: sorted(r.body[field].keys() - set(OF_CONTROLLER)) for r in measured() if r.body[field]}
    chosen = {seq: given[(at + turn) % len(given)] for at, (seq, given) in enumerate(names.items())}

    def edit(record: Record) -> dict[str, Any] | None:
        name, values = chosen.get(record.seq), record.body[field]
        return {field: values | {name: change(values[name])}} if name else None

    faults = faults_of(edit)
    assert faults.keys() == chosen.keys()
    assert all(words.format(name) in faults[seq] for seq, name in chosen.items())


@pytest.mark.few(1)
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_no_measurements_with_exchanged_labels_are_proven(distance: int) -> None:
    labels: dict[int, dict[str, str]] = {}
    for metric in {record.body["metric"] for record in measured()}:
        alike = [record for record in measured() if record.body["metric"] == metric]
        others = (*alike[distance:], *alike[:distance])
        pairs = zip(alike, others, strict=True)
        labels |= {one.seq: other.body["labels"] for one, other in pairs if one.body["labels"] != other.body["labels"]}
    assert labels
    assert labels.keys() <= faults_of(lambda record: {"labels": labels.get(record.seq, record.body["labels"])}).keys()


@pytest.mark.few(2)
@pytest.mark.parametrize("field", ["step", "unit", "metric", "reader", "raw", "members"])
def test_a_measurement_that_names_something_else_is_invalid(field: str) -> None:
    number = local_read()
    value = {
        "step": "storage/cephfs/read",
        "unit": "GB/s",
        "metric": "storage.write_bandwidth",
        "reader": "links",
        "raw": [*number.body["raw"], measured()[0].body["raw"][0]],
        "members": ["gpu-02"],
    }[field]
    assert headline(certificate(with_body(number.seq, **{field: value}))).status is Status.INVALID


def test_a_number_without_the_name_of_its_reader_is_invalid() -> None:
    message = headline(certificate(with_body(local_read().seq, reader=""))).message
    assert "recorded without the name of its reader" in message


def test_outputs_that_two_nodes_exchanged_are_found() -> None:
    """The outputs of one command on two nodes change places, in the commands and in the measurements."""
    host = {
        record.body["node"]: record
        for record in of_kind(Kind.COMMAND)
        if record.body["command"].startswith("cd / && runuser -u rackproof -- fio")
    }
    first, second = host["gpu-01"], host["gpu-02"]
    exchanged = {first.seq: second.body["stdout"], second.seq: first.body["stdout"]}
    made = certificate(edited(lambda r: r.body | {"stdout": exchanged[r.seq]} if r.seq in exchanged else None))
    assert headline(made).status is Status.INVALID


def checks(**fields: str) -> list[Record]:
    """Results of checks with these fields."""
    return [r for r in of_kind(Kind.CHECK) if all(r.body[key] == value for key, value in fields.items())]


def test_a_check_that_failed_and_was_edited_to_passed_is_invalid(tmp_path: Path) -> None:
    """One node's answers are another's: the recorded results passed, the recorded answers do not."""
    folder = copy(tmp_path / "edited", example())
    link = next(
        record
        for record in of_kind(Kind.COMMAND)
        if record.body["node"] == "gpu-01" and record.body["command"].startswith("ip ") and record.body["stdout_bytes"]
    )
    broken = (folder / "raw" / link.body["stdout"]).read_bytes().replace(b"9000", b"1500")
    name = hashlib.sha256(broken).hexdigest()
    (folder / "raw" / name).write_bytes(broken)
    records = edited(
        lambda record: (
            record.body | {"stdout": name}
            if record.kind is Kind.COMMAND and record.body["stdout"] == link.body["stdout"]
            else record.body | {"raw": [name if raw == link.body["stdout"] else raw for raw in record.body["raw"]]}
            if record.kind is Kind.CHECK
            else None
        )
    )
    made = certificate(records, folder)
    assert made.outcome is not Outcome.CERTIFIED
    assert "recorded as passed, its recorded answers fail" in headline(made).message
    assert {v.status for v in made.verdicts if v.id == "fabric.mtu[fabric0]" and v.subject == "gpu-01"} == {
        Status.INVALID
    }


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"required": False, "outcome": "failed"}, "recorded as not required, the check is required"),
        ({"reads": "system.sysctl.other", "expected": 3}, "recorded reads"),
        ({"expected": "anything", "outcome": "passed"}, "recorded expected"),
    ],
)
def test_a_check_that_says_something_else_of_itself_is_invalid(fields: dict[str, object], words: str) -> None:
    result = checks(check="base.sysctl", node="gpu-01")[0]
    made = certificate(with_body(result.seq, **fields))
    assert made.outcome is not Outcome.CERTIFIED
    assert words in headline(made).message


@pytest.mark.parametrize("check", ["node.reachable", "deploy.converged"])
def test_results_outside_of_a_validation_follow_from_what_was_recorded_beside_them(check: str) -> None:
    result = checks(check=check, node="gpu-02")[0]
    kind = Kind.COMMAND if check == "node.reachable" else Kind.DEPLOY

    def fail(record: Record) -> dict[str, object] | None:
        if record.kind is not kind or record.seq > result.seq or record.body.get("dry"):
            return None
        if kind is Kind.DEPLOY:
            nodes = [node | {"failed": ["Base | Files"]} for node in record.body["nodes"]]
            return record.body | {"nodes": nodes, "ok": False}
        return record.body | {"rc": 1} if record.body["node"] == "gpu-02" else None

    made = certificate(edited(fail))
    assert made.outcome is not Outcome.CERTIFIED
    named = "gpu-01: failed: recorded 1" if kind is Kind.DEPLOY else f"{check} on gpu-0"
    assert headline(made).message.count(named) == 1


def test_a_result_that_was_moved_out_of_its_validation_is_invalid() -> None:
    result = checks(check="base.sysctl", node="gpu-01")[0]
    moved = [record for record in example() if record.seq != result.seq]
    bench = next(at for at, record in enumerate(moved) if record.body.get("stage") == "bench")
    bodies = [(record.kind, record.body) for record in (*moved[: bench + 1], result, *moved[bench + 1 :])]
    assert "in stage bench, no record of that stage proves it" in headline(certificate(chained(bodies))).message


@cache
def provable() -> list[Record]:
    """Results of validators."""
    return [record for record in checks() if record.body["raw"] and record.body["reads"]]


@settings(max_examples=3)
@given(st.data())
def test_no_check_whose_answers_are_gone_passes(data: st.DataObject) -> None:
    by_node = {record.body["node"]: record for record in provable()}
    results = [
        data.draw(st.sampled_from([record for record in provable() if record.body["node"] == node])) for node in by_node
    ]
    gone = {(result.body["node"], raw) for result in results for raw in result.body["raw"]}

    def emptied(record: Record) -> dict[str, object] | None:
        if record.kind is not Kind.COMMAND or (record.body["node"], record.body["stdout"]) not in gone:
            return None
        return record.body | {"stdout": hashlib.sha256(b"").hexdigest(), "stdout_bytes": 0}

    made = certificate(edited(emptied))
    assert made.outcome is not Outcome.CERTIFIED
    assert {result.seq for result in results} <= {*headline(made).records}
