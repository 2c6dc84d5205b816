"""Which results of a run with repetitions count: never a mixture, never a better one from a part."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.evidence import Kind, Record, make_record
from rackproof.core.judging.judge import judge_records
from rackproof.core.status import Status
from tests.unit.judging import GPU, architecture, check, criterion, measurement, recorded, run_info, verdicts
from tests.unit.judging import VALIDATE_BEGIN as BEGIN
from tests.unit.judging import VALIDATE_END as END

MADE = architecture(criterion())
RANK = {"passed": Status.PASS, "failed": Status.FAIL, "unmeasured": Status.UNMEASURED}

passes = st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(RANK))), min_size=1, max_size=6)
attempts = st.lists(st.tuples(*(st.sampled_from((None, 1.0, 30.0, 40.0)) for _ in GPU)), min_size=1, max_size=5)


@given(passes)
def test_a_result_is_the_worst_since_the_last_whole_validation(several: list[tuple[bool, str]]) -> None:
    bodies: list[Any] = []
    for whole, outcome in several:
        bodies += [BEGIN, check("gpu-01", "base.x", outcome), *([END] if whole else [])]
    last = max((index for index, (whole, _) in enumerate(several) if whole), default=0)
    expected = max((RANK[outcome] for _, outcome in several[last:]), key=lambda status: status.rank)
    judgement = judge_records(MADE, recorded(run_info(), *bodies))
    assert verdicts(judgement, "base.x")["gpu-01"].status is expected
    failed_before = any(outcome == "failed" for _, outcome in several[:last])
    assert bool(verdicts(judgement, "run.replaced")) is failed_before


def chain(several: list[tuple[float | None, ...]], **fields: Any) -> list[Record]:
    """Attempts at one step, with a number of each node or none."""
    records = recorded(run_info())

    def add(kind: Kind, body: dict[str, Any]) -> None:
        records.append(make_record(len(records), "2026-01-02T03:04:05Z", kind, body, records[-1].hash))

    for numbers in several:
        for node, number in zip(GPU, numbers, strict=True):
            samples, reason = ((), "it did not answer") if number is None else ((number,), None)
            one = measurement(node, *samples, reason=reason, **fields)
            add(Kind.MEASUREMENT, one.model_dump(mode="json"))
        missing = numbers.count(None)
        status = "done" if not missing else "failed" if missing == len(numbers) else "partial"
        add(Kind.STEP, {"step": "s", "status": status, "elapsed_s": 1.0, "digest": ""})
    return records


@given(attempts)
def test_numbers_of_a_step_come_from_one_attempt_the_most_complete_and_latest(
    several: list[tuple[float | None, ...]],
) -> None:
    judgement = judge_records(MADE, chain(several))
    best = max(range(len(several)), key=lambda index: (len(GPU) - several[index].count(None), index))
    actual = tuple(verdicts(judgement)[node].value for node in GPU)
    assert actual == several[best]
    others = [numbers for index, numbers in enumerate(several) if index != best]
    assert bool(verdicts(judgement, "run.replaced")) is any(set(numbers) != {None} for numbers in others)


DAMAGE = "storage.damaged_places"
COUNTED = architecture(criterion(metric=DAMAGE, scope="node", bar={"op": "eq", "value": 0, "unit": "1"}))
counts = st.lists(st.tuples(*(st.sampled_from((None, 0.0, 3.0, 7.0)) for _ in GPU)), min_size=1, max_size=5)


@given(counts)
def test_wrong_content_counts_in_whichever_attempt_it_was(several: list[tuple[float | None, ...]]) -> None:
    result = verdicts(judge_records(COUNTED, chain(several, metric=DAMAGE)))
    for node, numbers in zip(GPU, zip(*several, strict=True), strict=True):
        largest = max((number for number in numbers if number is not None), default=0.0)
        assert (result[node].status is Status.FAIL) is (largest > 0)
        assert not largest or result[node].value == largest
