"""Checks: every result has a verdict, and so has every result that should be there."""

from __future__ import annotations

from itertools import permutations

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckResult, RunInfo
from rackproof.core.judging.judge import judge
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Judgement
from tests.unit.judging import CHECKED, architecture, check, run_info, verdicts

MADE = architecture()


def judged(*results: CheckResult, made: Architecture = MADE, run: RunInfo | None = None) -> Judgement:
    """Beside one passing check on every node."""
    return judge(made, run or run_info(), (), (*CHECKED, *results))


@pytest.mark.parametrize(
    ("outcome", "status", "of_the_run"),
    [
        ("passed", Status.PASS, Outcome.CERTIFIED),
        ("failed", Status.FAIL, Outcome.NOT_CERTIFIED),
        ("unmeasured", Status.UNMEASURED, Outcome.INCOMPLETE),
    ],
)
def test_a_result_becomes_a_verdict(outcome: str, status: Status, of_the_run: Outcome) -> None:
    result = judged(check("gpu-01", "base.sysctl", outcome, "vm.swappiness", reads="system.sysctl", raw=("ab",)))
    verdict = verdicts(result, "base.sysctl[vm.swappiness]")["gpu-01"]
    assert (verdict.kind, verdict.status, verdict.required) == ("check", status, True)
    assert verdict.title == "base.sysctl: vm.swappiness"
    assert (verdict.reason, verdict.hint, verdict.source, verdict.raw) == (
        "Everything.",
        "Look.",
        "system.sysctl",
        ("ab",),
    )
    assert result.outcome is of_the_run


@pytest.mark.parametrize(
    ("severities", "results_own", "required"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"base.sysctl": "advisory"}, True, False),
        ({"base.sysctl": "required"}, False, True),
        ({"base.sysctl[a]": "advisory", "base.sysctl": "required"}, True, False),
        ({"base.sysctl[b]": "advisory"}, True, True),
    ],
)
def test_the_architecture_has_the_last_word_on_severity(
    severities: dict[str, str], results_own: bool, required: bool
) -> None:
    made = architecture(checks=severities)
    result = judged(check("gpu-01", "base.sysctl", "failed", "a", required=results_own), made=made)
    verdict = verdicts(result, "base.sysctl[a]")["gpu-01"]
    assert (verdict.status, verdict.required) == (Status.FAIL, required)
    assert result.outcome is (Outcome.NOT_CERTIFIED if required else Outcome.CERTIFIED)


@pytest.mark.parametrize("order", list(permutations(("passed", "unmeasured", "failed"))))
def test_of_results_that_cannot_be_told_apart_the_worst_counts(order: tuple[str, ...]) -> None:
    result = judged(*(check("gpu-01", "base.x", outcome) for outcome in order))
    assert verdicts(result, "base.x")["gpu-01"].status is Status.FAIL


def test_a_check_that_the_architecture_asks_for_by_name_must_be_there() -> None:
    made = architecture(required_checks={"gpu": ["gpu.count", "base.kernel"], "all": ["base.time"]})
    result = judged(check("gpu-01", "gpu.count", item="8"), check("sto-01", "base.time"), made=made)
    assert verdicts(result, "gpu.count")["gpu-02"].status is Status.UNMEASURED
    assert set(verdicts(result, "gpu.count")) == {"gpu-02"}
    assert set(verdicts(result, "base.time")) == {"gpu-01", "gpu-02", "sto-01"}
    missing = verdicts(result, "base.time")["gpu-01"]
    assert missing.message == "no result of base.time, which every node of all must have"
    assert result.outcome is Outcome.INCOMPLETE


def test_an_advisory_check_that_is_missing_does_not_decide() -> None:
    made = architecture(required_checks={"gpu": ["gpu.count"]}, checks={"gpu.count": "advisory"})
    result = judged(made=made)
    assert {v.required for v in verdicts(result, "gpu.count").values()} == {False}
    assert result.outcome is Outcome.CERTIFIED


def test_a_node_that_nobody_looked_at_is_unmeasured() -> None:
    result = judge(MADE, run_info(), (), [c for c in CHECKED if c.node != "gpu-02"])
    (verdict,) = verdicts(result, "rack.checked").values()
    assert (verdict.subject, verdict.status) == ("gpu-02", Status.UNMEASURED)
    assert verdict.message == "no check ran on gpu-02"
    assert result.outcome is Outcome.INCOMPLETE


def test_being_reached_and_deployed_is_not_being_looked_at() -> None:
    arrived = [check(name, id_) for name in ("gpu-01", "sto-01") for id_ in ("node.reachable", "deploy.converged")]
    result = judge(MADE, run_info("gpu-01", "sto-01"), (), arrived)
    assert set(verdicts(result, "rack.checked")) == {"gpu-01", "sto-01"}


def test_no_evidence_at_all_is_incomplete() -> None:
    result = judge(MADE, run_info(), (), ())
    assert result.outcome is Outcome.INCOMPLETE
    assert set(verdicts(result, "rack.checked")) == {"gpu-01", "gpu-02", "sto-01"}


def test_a_failure_on_a_node_that_is_not_in_the_run_is_not_lost() -> None:
    result = judged(check("gpu-09", "base.x", "failed"))
    assert verdicts(result, "base.x")["gpu-09"].status is Status.FAIL


@pytest.mark.parametrize(
    ("count", "status", "message"),
    [
        ({"min": 2}, Status.PASS, "expected ≥ 2 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 3}, Status.FAIL, "expected ≥ 3 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 1, "max": 1}, Status.FAIL, "expected = 1 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 1, "max": 4}, Status.PASS, "expected 1 to 4 nodes of gpu, actual 2 (gpu-[01-02])"),
    ],
)
def test_the_number_of_nodes_of_a_role(count: dict[str, int], status: Status, message: str) -> None:
    made = architecture(roles={"gpu": {"count": count}, "storage": {"count": {"min": 0}}})
    (verdict,) = verdicts(judged(made=made), "rack.count[gpu]").values()
    assert (verdict.subject, verdict.status, verdict.message) == ("rack", status, message)
    assert verdict.value == 2


def test_a_role_without_nodes_fails() -> None:
    result = judged(run=run_info("gpu-01"))
    (verdict,) = verdicts(result, "rack.count[storage]").values()
    assert verdict.message == "expected = 1 nodes of storage, actual 0 (no node)"
    assert result.outcome is Outcome.NOT_CERTIFIED


def test_answers_of_simulated_gpus_are_marked_and_others_of_the_node_are_not() -> None:
    run = run_info("gpu-01", "gpu-02", "sto-01", simulated=("gpu-01",))
    result = judged(*(check(name, "gpu.count") for name in ("gpu-01", "gpu-02")), run=run)
    assert [v.simulated for v in verdicts(result, "gpu.count").values()] == [True, False]
    assert not any(v.simulated for v in verdicts(result, "base.kernel").values())
