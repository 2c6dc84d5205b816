"""Evidence that was edited and whose hash chain was made anew: its raw outputs do not give what it says."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.cli.main import cli
from rackproof.core.evidence import Kind, Record
from rackproof.core.status import Outcome, Status
from tests.unit.false_certificates.edited import (
    certificate,
    chained,
    copy,
    edited,
    example,
    headline,
    of_kind,
    with_body,
)

MEASURED = [record for record in of_kind(Kind.MEASUREMENT) if record.body["samples"]]
LOCAL_READ = next(
    record
    for record in MEASURED
    if record.body["metric"] == "storage.read_bandwidth" and record.body["labels"]["storage"] == "local"
)


def test_the_unedited_evidence_is_certified_and_every_number_is_read_again() -> None:
    made = certificate(example())
    assert made.outcome is Outcome.CERTIFIED
    assert "run.proof" not in {verdict.id for verdict in made.verdicts}


def test_reading_again_says_how_much_it_read_and_how_long_it_took(tmp_path: Path) -> None:
    folder = copy(tmp_path / "whole", example())
    result = CliRunner().invoke(cli, ["judge", str(folder)])
    assert result.exit_code == 0
    assert re.search(r"^read \d+ results again from their raw outputs in \d+\.\d s$", result.stderr, re.MULTILINE)


def test_a_number_that_was_edited_is_invalid_with_both_values(tmp_path: Path) -> None:
    folder = copy(tmp_path / "edited", with_body(LOCAL_READ.seq, samples=[9999.0]))
    result = CliRunner().invoke(cli, ["judge", str(folder)])
    assert result.exit_code == 2
    assert "INVALID Results as their raw outputs give them" in result.output
    document = json.loads((folder / "certificate.json").read_text())
    (verdict,) = [v for v in document["verdicts"] if v["id"] == "run.proof"]
    assert verdict["status"] == "INVALID"
    assert "recorded 9999 MB/s, its raw output gives 472.739 MB/s" in verdict["message"]
    (own,) = [
        v
        for v in document["verdicts"]
        if LOCAL_READ.seq in v["records"] and v["metric"] == "storage.read_bandwidth" and v["subject"] == "gpu-01"
    ][:1]
    assert own["status"] == "INVALID"


@settings(max_examples=12)
@given(
    record=st.sampled_from(MEASURED),
    position=st.integers(0, 9),
    factor=st.floats(0.0, 100.0).filter(lambda factor: abs(factor - 1) > 1e-6),
)
def test_no_edited_sample_is_certified(record, position: int, factor: float) -> None:  # type: ignore[no-untyped-def]
    samples = list(record.body["samples"])
    at = position % len(samples)
    samples[at] = samples[at] * factor if samples[at] else factor + 1.0
    made = certificate(with_body(record.seq, samples=samples))
    assert made.outcome is not Outcome.CERTIFIED
    assert headline(made).records == (record.seq,)


@settings(max_examples=12)
@given(record=st.sampled_from([r for r in MEASURED if r.body["companions"]]), data=st.data())
def test_no_edited_companion_is_certified(record, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    companions = dict(record.body["companions"])
    name = data.draw(st.sampled_from(sorted(companions)))
    companions[name] = [value * 2 + 1 for value in companions[name]]
    made = certificate(with_body(record.seq, companions=companions))
    assert headline(made).status is Status.INVALID
    assert name in headline(made).message


@settings(max_examples=12)
@given(record=st.sampled_from(MEASURED), data=st.data())
def test_no_edited_condition_is_certified(record, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    conditions = dict(record.body["conditions"])
    name = data.draw(st.sampled_from(sorted(conditions)))
    conditions[name] = "something else"
    made = certificate(with_body(record.seq, conditions=conditions))
    assert f"condition {name}: recorded something else" in headline(made).message


@settings(max_examples=12)
@given(data=st.data())
def test_no_two_measurements_with_exchanged_labels_are_certified(data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(MEASURED))
    others = [r for r in MEASURED if r.body["metric"] == one.body["metric"] and r.body["labels"] != one.body["labels"]]
    if not others:
        return
    other = data.draw(st.sampled_from(others))
    swap = {one.seq: other.body["labels"], other.seq: one.body["labels"]}
    made = certificate(edited(lambda r: r.body | {"labels": swap[r.seq]} if r.seq in swap else None))
    assert made.outcome is not Outcome.CERTIFIED


@pytest.mark.parametrize("field", ["step", "unit", "metric", "reader", "raw", "members"])
def test_a_measurement_that_names_something_else_is_invalid(field: str) -> None:
    value = {
        "step": "storage/cephfs/read",
        "unit": "GB/s",
        "metric": "storage.write_bandwidth",
        "reader": "links",
        "raw": [*LOCAL_READ.body["raw"], MEASURED[0].body["raw"][0]],
        "members": ["gpu-02"],
    }[field]
    assert headline(certificate(with_body(LOCAL_READ.seq, **{field: value}))).status is Status.INVALID


def test_a_run_that_records_its_readers_needs_one_for_every_number() -> None:
    """Evidence of this kit without the name of a reader."""
    info = example()[0].body | {"proofs": ["readers"]}
    made = certificate(edited(lambda record: info if record.kind is Kind.RUN else None))
    assert made.outcome is not Outcome.CERTIFIED
    assert "recorded without the name of its reader" in headline(made).message


def test_outputs_that_two_nodes_exchanged_are_found() -> None:
    """The outputs of one command on two nodes change places, in the commands and in the measurements."""
    host = {
        record.body["node"]: record
        for record in of_kind(Kind.COMMAND)
        if record.body["command"].startswith("runuser -u rackproof -- mkdir")
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
    assert headline(made).message.count(f"{check} on gpu-0") == 1


def test_a_result_that_was_moved_out_of_its_validation_is_invalid() -> None:
    result = checks(check="base.sysctl", node="gpu-01")[0]
    moved = [record for record in example() if record.seq != result.seq]
    bench = next(at for at, record in enumerate(moved) if record.body.get("stage") == "bench")
    bodies = [(record.kind, record.body) for record in (*moved[: bench + 1], result, *moved[bench + 1 :])]
    assert "in stage bench, nothing recorded there shows it" in headline(certificate(chained(bodies))).message


def test_what_an_older_kit_did_not_record_is_named_on_the_page() -> None:
    notes = [note for note in certificate(example()).notes if "cannot be evaluated again" in note]
    assert len(notes) == 1
    assert "fabric.address" in notes[0]


PROVABLE = [r for r in checks() if r.body["raw"] and r.body["check"] not in ("base.kernel", "node.reachable")]


def test_with_the_inventory_every_check_is_proven(recorded_inventory: tuple[Path, list[Record]]) -> None:
    folder, records = recorded_inventory
    made = certificate(records, folder)
    assert made.outcome is Outcome.CERTIFIED
    (note,) = [note for note in made.notes if "cannot be evaluated again" in note]
    assert "base.kernel" in note
    assert "fabric" not in note


@settings(max_examples=12)
@given(at=st.integers(0, len(PROVABLE) - 1))
def test_no_check_whose_answers_are_gone_passes(recorded_inventory: tuple[Path, list[Record]], at: int) -> None:
    folder, records = recorded_inventory
    result = PROVABLE[at]

    def emptied(record: Record) -> dict[str, object] | None:
        if record.kind is not Kind.COMMAND or record.body["node"] != result.body["node"]:
            return None
        gone = record.body["stdout"] in result.body["raw"]
        return record.body | {"stdout": hashlib.sha256(b"").hexdigest(), "stdout_bytes": 0} if gone else None

    made = certificate(edited(emptied, records), folder)
    assert made.outcome is not Outcome.CERTIFIED
    assert result.seq in headline(made).records
