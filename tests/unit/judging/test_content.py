"""Wrong content is FAIL with its place, whatever else the node did."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.status import Outcome, Status
from tests.unit.judging import GPU, architecture, bar, criterion, judged, measurement, verdicts

METRIC = "storage.damaged_places"
MADE = architecture(criterion(metric=METRIC, scope="node", bar=bar("eq", 0, "1")))
WHERE = [f"/mnt/nfs/rackproof.0, offset {4096 * n}, written by gpu-02, read by gpu-01" for n in range(4)]


@pytest.mark.parametrize("spoilt", [{}, {"steal_pct": 60.0}, {"in_use": "gpu-01: job 7"}])
def test_a_flipped_byte_is_fail_with_file_and_offset(spoilt: dict[str, object]) -> None:
    wrong = measurement("gpu-01", 4.0, metric=METRIC, conditions={"damage": WHERE, **spoilt})
    result = verdicts(judged(MADE, wrong, measurement("gpu-02", 0.0, metric=METRIC)))
    assert result["gpu-01"].status is Status.FAIL
    assert WHERE[0] in result["gpu-01"].message
    assert WHERE[3] not in result["gpu-01"].message
    assert result["gpu-02"].status is Status.PASS


def test_a_slow_number_of_a_starved_machine_is_still_no_failure() -> None:
    made = architecture(criterion())
    slow = measurement("gpu-01", 0.001, conditions={"steal_pct": 60.0})
    assert verdicts(judged(made, slow))["gpu-01"].status is Status.INVALID


WRONG = "collective.wrong_values"


def wrong(count: float, size: str = "1024", **fields: Any) -> Measurement:
    """A count of the rack unless told otherwise."""
    own = {"metric": WRONG, "scope": Scope.RACK, "op": "all_reduce", "bytes": size, "engine": "mpi"}
    return measurement(fields.pop("members", GPU), count, **(own | fields))


def small() -> Architecture:
    """Only the smallest size has a criterion."""
    where = {"op": "all_reduce", "bytes": 1024}
    own = {"metric": WRONG, "scope": "rack", "members": "gpu", "where": where, "bar": bar("eq", 0, "1")}
    return architecture(criterion(id="correct", **own))


@pytest.mark.parametrize(
    ("number", "metric", "subject", "words"),
    [
        (wrong(3, "4096"), WRONG, "rack", "expected 0, actual 3 (bytes=4096,engine=mpi,op=all_reduce)"),
        (wrong(1, "4096", op="alltoall"), WRONG, "rack", "op=alltoall"),
        (wrong(2, members=("gpu-01",), scope=Scope.NODE, algorithm="NVLS"), WRONG, "gpu-01", "algorithm=NVLS"),
        (wrong(5, metric="collective.rail_wrong_values", rail="1"), "collective.rail_wrong_values", "rack", "rail=1"),
        (
            measurement("gpu-01/gpu3", 7, metric="gpu.wrong_values", op="matmul", precision="bf16"),
            "gpu.wrong_values", "gpu-01/gpu3", "actual 7 (op=matmul,precision=bf16)",
        ),
        (wrong(3, "4096", conditions={"steal_pct": 60.0}), WRONG, "rack", "actual 3"),
        (wrong(3, "4096", conditions={"in_use": "gpu-01: job 7"}), WRONG, "rack", "actual 3"),
    ],
)  # fmt: skip
def test_wrong_content_that_no_criterion_names_is_fail(
    number: Measurement, metric: str, subject: str, words: str
) -> None:
    judgement = judged(small(), wrong(0), number)
    (verdict,) = verdicts(judgement, f"content[{metric}]").values()
    assert (verdict.status, verdict.required, verdict.subject) == (Status.FAIL, True, subject)
    assert words in verdict.message
    assert judgement.outcome is Outcome.NOT_CERTIFIED
    assert verdicts(judgement, "correct")["rack"].status is Status.PASS


def test_a_criterion_that_fails_is_not_said_twice_and_zero_is_not_said_at_all() -> None:
    assert verdicts(judged(small(), wrong(0), wrong(0, "4096")), f"content[{WRONG}]") == {}
    judgement = judged(small(), wrong(3), wrong(0, "4096"))
    assert verdicts(judgement, "correct")["rack"].status is Status.FAIL
    assert verdicts(judgement, f"content[{WRONG}]") == {}


def test_several_sizes_are_one_verdict_with_the_largest_count_first() -> None:
    numbers = [wrong(count, size) for count, size in ((1, "4096"), (9, "65536"), (2, "16384"))]
    (verdict,) = verdicts(judged(small(), wrong(0), *numbers), f"content[{WRONG}]").values()
    assert verdict.value == 9
    assert verdict.message.startswith("expected 0, actual 9 (bytes=65536,engine=mpi,op=all_reduce)")
    assert "2 further measurements: bytes=16384,engine=mpi,op=all_reduce; bytes=4096" in verdict.message


def test_an_advisory_criterion_does_not_cover_wrong_content() -> None:
    where = {"op": "all_reduce", "bytes": 1024}
    own = {"metric": WRONG, "scope": "rack", "members": "gpu", "where": where, "bar": bar("eq", 0, "1")}
    made = architecture(criterion(id="correct", severity="advisory", **own), criterion())
    (verdict,) = verdicts(judged(made, wrong(3)), f"content[{WRONG}]").values()
    assert (verdict.status, verdict.required) == (Status.FAIL, True)


def test_a_criterion_of_the_rack_does_not_cover_runs_inside_a_node() -> None:
    inside = wrong(2, members=("gpu-02",), scope=Scope.NODE, algorithm="Ring").model_copy(update={"raw": ("b" * 64,)})
    judgement = judged(small(), wrong(3), inside)
    assert verdicts(judgement, "correct")["rack"].status is Status.FAIL
    (verdict,) = verdicts(judgement, f"content[{WRONG}]").values()
    assert (verdict.subject, verdict.value, verdict.raw) == ("gpu-02", 2, ("b" * 64,))
