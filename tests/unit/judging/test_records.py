"""Judging what a run has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rackproof.core.evidence import GENESIS, CheckResult, Kind, make_record
from rackproof.core.judging.judge import judge, judge_records
from rackproof.core.status import Outcome, Status
from rackproof.errors import RunError
from tests.unit.judging import (
    CHECKED,
    GPU,
    architecture,
    bar,
    check,
    criterion,
    measurement,
    recorded,
    run_info,
    verdicts,
    whole,
)
from tests.unit.judging import VALIDATE_BEGIN as BEGIN
from tests.unit.judging import VALIDATE_END as END

MADE = architecture(criterion())


def status_of(*answers: Any, before: Sequence[Any] = ()) -> Status:
    """Verdicts on ``base.x`` on gpu-01, after a validation that ends."""
    result = judge_records(MADE, recorded(run_info(), *before, BEGIN, *CHECKED, *answers, END))
    return verdicts(result, "base.x")["gpu-01"].status


def test_records_are_judged_like_the_evidence_in_them() -> None:
    taken = [measurement("gpu-01", 30.0), measurement("gpu-02", 12.5, 13.5)]
    records = whole(MADE, "a note", *taken)
    result = judge_records(MADE, records)
    places = {verdict.subject: verdict.records for verdict in verdicts(result).values()}
    seqs = [record.seq for record in records if record.kind is Kind.MEASUREMENT]
    assert places == {"gpu-01": (seqs[0],), "gpu-02": (seqs[1],)}
    results = [CheckResult.model_validate(record.body) for record in records if record.kind is Kind.CHECK]
    plain = judge(MADE, run_info(), taken, results).verdicts
    of_run = ("run.", "rack.profile")
    assert [v.model_copy(update={"records": ()}) for v in result.verdicts if not v.id.startswith(of_run)] == list(plain)
    assert result.outcome is Outcome.NOT_CERTIFIED


def test_a_resumed_run_measures_again_and_the_latest_number_counts() -> None:
    first = [measurement("gpu-01", reason="not reached"), measurement("gpu-02", 99.0)]
    again = [measurement("gpu-01", 30.0), measurement("gpu-02", 1.0)]
    result = judge_records(MADE, recorded(run_info(), *CHECKED, *first, "resumed", *again))
    assert {s: v.status.value for s, v in verdicts(result).items()} == {"gpu-01": "PASS", "gpu-02": "FAIL"}


def x(outcome: str) -> CheckResult:
    return check("gpu-01", "base.x", outcome)


def test_a_stage_that_begins_again_replaces_its_answers() -> None:
    assert status_of(x("passed"), before=(BEGIN, x("failed"), END)) is Status.PASS
    assert status_of(x("failed"), before=(BEGIN, x("passed"), END)) is Status.FAIL


def test_a_later_look_that_saw_nothing_does_not_leave_an_old_pass_standing() -> None:
    assert status_of(x("unmeasured"), before=(BEGIN, x("passed"), END)) is Status.UNMEASURED


def test_an_interrupted_validation_replaces_no_failed_result() -> None:
    chain = recorded(run_info(), BEGIN, *CHECKED, x("failed"), END, BEGIN, *CHECKED, x("passed"))
    assert verdicts(judge_records(MADE, chain), "base.x")["gpu-01"].status is Status.FAIL


def test_a_whole_validation_leaves_no_result_of_an_earlier_one() -> None:
    """The item may belong to a device that is no longer there."""
    chain = recorded(run_info(), BEGIN, *CHECKED, x("passed"), END, BEGIN, *CHECKED, END)
    assert verdicts(judge_records(MADE, chain), "base.x") == {}


def test_within_one_stage_the_worst_answer_counts() -> None:
    assert status_of(x("failed"), x("passed")) is Status.FAIL
    assert status_of(x("unmeasured"), x("passed"), before=(BEGIN, x("failed"))) is Status.UNMEASURED


def test_without_a_run_there_is_nothing_to_judge() -> None:
    with pytest.raises(RunError, match="no run record"):
        judge_records(MADE, [])


def test_two_runs_are_not_mixed() -> None:
    """A second one with fewer nodes must not shrink what has to be measured."""
    with pytest.raises(RunError, match="two runs are mixed: record 1 begins another one"):
        judge_records(MADE, recorded(run_info(), run_info("gpu-01", "sto-01"), *CHECKED))


def test_a_record_that_cannot_be_understood_is_named() -> None:
    broken = make_record(7, "t", Kind.MEASUREMENT, {"metric": "storage.read_bandwidth"}, GENESIS)
    with pytest.raises(RunError, match=r"^record 7 is not a valid measurement: scope: Field required$"):
        judge_records(MADE, [*recorded(run_info()), broken])


def test_a_truncated_record_is_named() -> None:
    whole = measurement("gpu-01", 30.0).model_dump(mode="json")
    broken = make_record(1, "t", Kind.MEASUREMENT, whole | {"samples": [30.0, ""]}, GENESIS)
    with pytest.raises(RunError, match=r"^record 1 is not a valid measurement: samples\.1: "):
        judge_records(MADE, [*recorded(run_info()), broken])


def test_evidence_that_ends_early_leaves_what_is_missing_unmeasured() -> None:
    taken = [measurement("gpu-01", 30.0), measurement("gpu-02", 30.0)]
    chain = whole(MADE, *taken)
    assert judge_records(MADE, chain).outcome is Outcome.CERTIFIED
    for length in range(1, len(chain)):
        assert judge_records(MADE, chain[:length]).outcome is not Outcome.CERTIFIED


def test_an_unknown_metric_answers_nothing() -> None:
    """A later version of the kit may have measured it."""
    unknown = measurement("gpu-01", 1.0).model_copy(update={"metric": "storage.dreams", "unit": "dreams/s"})
    taken = [measurement("gpu-01", 30.0), measurement("gpu-02", 30.0)]
    result = judge_records(MADE, whole(MADE, unknown, *taken))
    assert result.outcome is Outcome.CERTIFIED
    assert not any(v.metric == "storage.dreams" for v in result.verdicts)


@pytest.mark.parametrize(("cache", "status"), [("cold", Status.PASS), ("warm", Status.INVALID), (None, Status.INVALID)])
def test_a_reference_may_ask_how_it_was_measured(cache: str | None, status: Status) -> None:
    of = {
        "metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node", "reduce": "each",
        "conditions": {"cache": "cold"},
    }  # fmt: skip
    made = architecture(criterion(bar=bar("ge", 50, "percent", of=of)))
    local = [measurement(name, 40.0, storage="local", block_bytes="1048576") for name in GPU]
    if cache is not None:
        local = [m.model_copy(update={"conditions": {"cache": cache}}) for m in local]
    chain = recorded(run_info(), *CHECKED, *local, *(measurement(name, 30.0) for name in GPU))
    assert {v.status for v in verdicts(judge_records(made, chain)).values()} == {status}
