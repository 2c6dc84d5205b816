"""Evidence that was edited and whose hash chain was made anew: its raw outputs do not give what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.cli.main import cli
from rackproof.core.evidence import Kind
from rackproof.core.status import Outcome, Status
from tests.unit.false_certificates.edited import (
    certificate,
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
