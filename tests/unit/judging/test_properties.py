"""Properties of the judge for any evidence.

"Better" and "worse" are about a bar: with ``ge`` a smaller sample is worse, with ``le`` a larger one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.status import Outcome, Status
from tests.unit.judging import (
    GPU,
    architecture,
    bar,
    check,
    criterion,
    document,
    judged,
    measurement,
    run_info,
    verdicts,
)

bandwidths = st.floats(min_value=0.5, max_value=200).map(lambda value: round(value, 3))
samples = st.lists(bandwidths, min_size=1, max_size=6)
outcomes = st.sampled_from(("passed", "failed", "unmeasured"))
STATISTICS = ("median", "mean", "min", "max")
REFERENCE = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node"}
BARS: dict[str, dict[str, Any]] = {
    "ge": {"op": "ge", "value": 50, "warn": 80, "unit": "MB/s"},
    "le": {"op": "le", "value": 50, "warn": 20, "unit": "MB/s"},
    "share": {"op": "ge", "value": 50, "unit": "percent", "of": {**REFERENCE, "reduce": "each"}},
}
ORDER = [Status.PASS, Status.WARN, Status.FAIL]
"""From good to bad, of what was measured and is valid."""


def made(op: str = "ge", **fields: Any) -> Architecture:
    if fields.get("max_cv_pct") is not None:
        fields.setdefault("min_samples", 2)  # one sample has no scatter
    asked = criterion(bar=BARS[op], **fields)
    # the loader refuses a bandwidth that must be small; the judge only compares
    return Architecture.model_validate(document(asked)) if op == "le" else architecture(asked)


def local(name: str, *values: float) -> Measurement:
    return measurement(name, *values, storage="local", block_bytes="1048576")


def status(declared: Architecture, values: list[float], **more: Any) -> Status:
    result = judged(declared, measurement("gpu-01", *values, **more), local("gpu-01", 100.0))
    return verdicts(result)["gpu-01"].status


@given(values=samples, factor=st.floats(0, 1), op=st.sampled_from(("ge", "le", "share")), data=st.data())
def test_a_worse_sample_never_improves_a_verdict(values: list[float], factor: float, op: str, data: Any) -> None:
    """Without a limit on scatter. Worse means no better than any sample that is there."""
    best = "min" if op == "le" else "max"
    declared = made(op, statistic=data.draw(st.sampled_from([s for s in STATISTICS if s != best])))
    worse = max(values) * (2 - factor) if op == "le" else min(values) * factor
    before, after = status(declared, values), status(declared, [*values, worse])
    assert ORDER.index(after) >= ORDER.index(before)


@given(values=samples, factor=st.floats(0, 1), limit=st.floats(1, 60))
def test_with_limited_scatter_a_worse_sample_makes_no_failure_pass(
    values: list[float], factor: float, limit: float
) -> None:
    """A further sample may make scatter smaller, so that what was INVALID is judged; a FAIL stays without a PASS."""
    declared = made(max_cv_pct=limit)
    before, after = status(declared, values), status(declared, [*values, min(values) * factor])
    if before is Status.FAIL:
        assert after in (Status.FAIL, Status.INVALID)
    if before is Status.WARN:
        assert after is not Status.PASS


@given(
    values=st.lists(bandwidths, min_size=10, max_size=24),
    factor=st.floats(0, 1),
    case=st.sampled_from([("ge", "p10"), ("ge", "p5"), ("ge", "p1"), ("le", "p90"), ("le", "p95"), ("le", "p99")]),
)
def test_a_worse_sample_never_improves_a_percentile(values: list[float], factor: float, case: tuple[str, str]) -> None:
    """A number that was unmeasured for want of samples may be judged with one more."""
    op, statistic = case
    declared = made(op, statistic=statistic)
    worse = max(values) * (2 - factor) if op == "le" else min(values) * factor
    before, after = status(declared, values), status(declared, [*values, worse])
    assert before is Status.UNMEASURED or ORDER.index(after) >= ORDER.index(before)


RACK_GPUS = ("gpu-01", "gpu-02", "gpu-03")
members = st.fixed_dictionaries(
    {}, optional={(name, storage): st.one_of(st.none(), samples) for name in RACK_GPUS for storage in ("nfs", "local")}
)
RACK = run_info(*RACK_GPUS, "sto-01")
CRITERIA = architecture(
    criterion(id="each", max_cv_pct=40, min_samples=2),
    criterion(id="share", bar=BARS["share"]),
    criterion(id="share-of-all", bar={**BARS["share"], "of": {**REFERENCE, "reduce": "max"}}),
    criterion(id="least", reduce="min"),
    criterion(id="sum", reduce="sum", min_samples=2),
    criterion(id="fair", reduce="min_over_median", bar=bar("ge", 50, "percent")),
    criterion(id="rack", scope="rack"),
)


def evidence(drawn: dict[tuple[str, str], list[float] | None]) -> list[Measurement]:
    """None stands for a measurement without samples."""
    measurements = [
        measurement(name, *(values or ()), storage=storage, block_bytes="1048576")
        for (name, storage), values in drawn.items()
    ]
    took_part = tuple(sorted({name for name, storage in drawn if storage == "nfs"}))
    if took_part:
        measurements.append(measurement(took_part, 30.0, scope=Scope.RACK, storage="nfs", block_bytes="1048576"))
    return measurements


@given(drawn=members, data=st.data())
def test_removing_evidence_makes_nothing_pass(drawn: dict[tuple[str, str], list[float] | None], data: Any) -> None:
    """Evidence that answers each question once; a measurement that was repeated hides the ones before it."""
    whole = evidence(drawn)
    kept = [taken for taken in whole if data.draw(st.booleans())]
    before, after = judged(CRITERIA, *whole, run=RACK), judged(CRITERIA, *kept, run=RACK)
    assert {(v.id, v.subject) for v in before.verdicts} == {(v.id, v.subject) for v in after.verdicts}
    for old, new in zip(before.verdicts, after.verdicts, strict=True):
        if new.status in (Status.PASS, Status.WARN):
            assert old.status == new.status, (old, new)
    if after.outcome is Outcome.CERTIFIED:
        assert before.outcome is Outcome.CERTIFIED


@given(drawn=members, data=st.data())
def test_the_order_of_different_measurements_does_not_matter(
    drawn: dict[tuple[str, str], list[float] | None], data: Any
) -> None:
    whole = evidence(drawn)
    checks = [check(name, item=item, outcome=data.draw(outcomes)) for name in GPU for item in ("a", "b")]
    first = judge(CRITERIA, RACK, whole, checks).model_dump_json()
    assert first == judge(CRITERIA, RACK, whole, checks).model_dump_json()
    whole, checks = data.draw(st.permutations(whole)), data.draw(st.permutations(checks))
    assert first == judge(CRITERIA, RACK, whole, checks).model_dump_json()


@given(
    values=samples,
    op=st.sampled_from(("ge", "le", "share")),
    units=st.sampled_from([("GB/s", 1e-3), ("kB/s", 1e3), ("Mb/s", 8.0), ("MiB/s", 1e6 / 2**20), ("B/s", 1e6)]),
    limit=st.sampled_from([None, 5.0, 30.0]),
)
def test_the_unit_of_the_evidence_does_not_matter(
    values: list[float], op: str, units: tuple[str, float], limit: float | None
) -> None:
    declared = made(op, max_cv_pct=limit)
    unit, factor = units
    assert status(declared, values) is status(declared, [value * factor for value in values], unit=unit)


@given(value=st.sampled_from([20.0, 50.0, 80.0]), unit=st.sampled_from([("GB/s", 1e-3), ("MiB/s", 1e6 / 2**20)]))
def test_a_number_exactly_on_a_bar_stays_on_it_in_any_unit(value: float, unit: tuple[str, float]) -> None:
    for op in BARS:
        assert status(made(op), [value]) is status(made(op), [value * unit[1]], unit=unit[0])


@given(values=st.lists(bandwidths, min_size=1, max_size=6), bad=st.sampled_from([float("nan"), float("inf"), -1.0]))
def test_an_impossible_sample_never_passes(values: list[float], bad: float) -> None:
    for op in BARS:
        for place in range(len(values) + 1):
            assert status(made(op), [*values[:place], bad, *values[place:]]) is Status.INVALID


@given(values=st.lists(st.one_of(st.none(), st.just([60.0, 61.0])), min_size=6, max_size=6))
def test_certified_means_that_every_member_has_a_number(values: list[list[float] | None]) -> None:
    drawn = dict(zip(((name, s) for name in RACK_GPUS for s in ("nfs", "local")), values, strict=True))
    result = judged(CRITERIA, *evidence(drawn), run=RACK)
    assert (result.outcome is Outcome.CERTIFIED) == all(values)
    for verdict in result.verdicts:
        if verdict.kind == "criterion" and verdict.status is Status.PASS:
            assert verdict.value is not None
            assert verdict.samples
            assert verdict.raw
