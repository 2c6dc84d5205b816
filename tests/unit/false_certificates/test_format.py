"""Evidence that lacks a field, or a part of what proves it: refused or not certified, whatever it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.core.evidence import GENESIS, PROOFS, Kind, make_record
from rackproof.core.planned_checks import PlannedChecks, planned
from rackproof.core.status import Outcome
from rackproof.errors import RunError
from rackproof.evidence.store import read_trusted
from tests.unit.false_certificates.edited import (
    certificate,
    chained,
    copy,
    example,
    headline,
    of_kind,
    with_body,
    write,
)

pytestmark = pytest.mark.few(1)

DATA = {"companions", "conditions", "controller", "expected", "inventory_data", "labels", "node_data"}
"""Fields whose keys are data."""


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all fields of a body; of a list, those of its first entry."""
    if isinstance(value, dict) and (not path or path[-1] not in DATA):
        for key, inner in value.items():
            yield (*path, key)
            yield from fields_of(inner, (*path, key))
    if isinstance(value, list) and value:
        yield from fields_of(value[0], (*path, 0))


def without(value: Any, path: tuple[Any, ...]) -> Any:
    head, *rest = path
    if not rest:
        return {key: inner for key, inner in value.items() if key != head}
    if isinstance(value, list):
        return [without(value[0], tuple(rest)), *value[1:]]
    return value | {head: without(value[head], tuple(rest))}


def test_without_any_one_field_the_evidence_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    kinds = {record.kind for record in example()}
    assert kinds >= {Kind.RUN, Kind.PLANNED, Kind.IDENTITY, Kind.END, Kind.DEPLOY, Kind.STEP, Kind.MEASUREMENT}
    count = 0
    for kind in kinds:
        last = of_kind(kind)[-1]
        for path in fields_of(last.body):
            before = [] if kind is Kind.RUN else [example()[0]]
            prev = before[-1].hash if before else GENESIS
            write(folder, [*before, make_record(len(before), last.time, kind, without(last.body, path), prev)])
            with pytest.raises(RunError, match=r"evidence of another format \(.*; judge it with the kit that wrote it"):
                read_trusted(folder)
            count += 1
    assert count > 80


@pytest.mark.few(2)
@pytest.mark.parametrize("proof", PROOFS)
def test_without_any_one_proof_every_command_refuses_the_run(tmp_path: Path, proof: str) -> None:
    records = with_body(0, proofs=[name for name in PROOFS if name != proof])
    run = str(copy(tmp_path / "run", records))
    for words in (["judge", run], ["compare", run, run], ["validate", "--from", run], ["diff", run, run]):
        result = CliRunner().invoke(cli, words)
        assert isinstance(result.exception, RunError | SystemExit), words
        assert result.exit_code != 0
        assert f"it lacks the proofs {proof}" in f"{result.exception}{result.output}", words
    assert not (tmp_path / "run/certificate.json").exists()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [Kind.PLANNED, Kind.IDENTITY, Kind.END, Kind.DEPLOY, Kind.COMMAND])
def test_without_any_one_kind_of_proof_nothing_is_certified(kind: Kind) -> None:
    records = chained((record.kind, record.body) for record in example() if record.kind is not kind)
    assert certificate(records).outcome is Outcome.INCOMPLETE


def test_a_plan_that_leaves_checks_out_is_invalid() -> None:
    (plan,) = of_kind(Kind.PLANNED)
    cases = [case for case in PlannedChecks.model_validate(plan.body).cases() if case[0] != "base.kernel"]
    made = certificate(with_body(plan.seq, **planned(cases).model_dump(mode="json")))
    assert made.outcome is Outcome.INCOMPLETE
    assert "it lacks 3 checks of the validators, the first: base.kernel on gpu-01" in headline(made).message
