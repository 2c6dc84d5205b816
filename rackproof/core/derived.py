"""Compare verdicts whose value derives from several numbers: shares, spreads, curves, distances from peers.

Such a value may stay the same when all of its numbers change: all nodes may be slower and share as fairly as before. So
the values are compared, not their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rackproof.core.architecture import Alternative, Architecture, Bar, Criterion, Outlier, Reduce
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.comparison import Change, ValueChange, moved, not_comparable, simulated_once
from rackproof.core.judging.bars import bar_text, settled
from rackproof.core.metrics import METRICS
from rackproof.core.noise import ONE_SAMPLE_PCT, Noise, noise_between
from rackproof.core.status import Status
from rackproof.core.units import convert
from rackproof.core.verdict import Verdict, name_of

UNKNOWN_NOISE = "derived from several numbers, noise unknown: the threshold alone decides"

_RELATIVE = ("percent", "ratio", "1")


class _Made(NamedTuple):
    """One verdict's value and how it was derived."""

    value: float
    unit: str
    bar: Bar | None
    higher_is_better: bool
    """Whether more is better; counts only for a value without a bar."""
    whole: float
    """Reference of the value, in its unit, where it is larger than the value; else 0.

    A spread that grows from 1 % to 1.3 % of the median is 0.3 % worse, not a third."""
    samples: tuple[float, ...]
    """Samples of the value itself; none where only its parts have samples."""


def derived_ids(architecture: Architecture) -> Mapping[str, Criterion | Outlier | None]:
    """Entries with derived values by id, without ``[item]``; None for a curve."""
    derived: dict[str, Criterion | Outlier | None] = {c.id: c for c in architecture.criteria if _is_derived(c)}
    derived |= {curve.id: None for curve in architecture.curves}
    derived |= {outlier.id: outlier for outlier in architecture.outliers}
    return derived


def _is_derived(criterion: Criterion) -> bool:
    return bool(criterion.any_of) or criterion.reduce is not Reduce.EACH or criterion.pass_.of is not None


def values(
    architecture: Architecture, before: Iterable[Verdict], after: Iterable[Verdict], threshold_pct: float | None
) -> Iterator[ValueChange]:
    """One change per verdict of a derived entry in either run, sorted by id and subject."""
    entries = derived_ids(architecture)
    olds, news = (
        {(v.id, v.subject): v for v in verdicts if v.kind == "criterion" and name_of(v.id) in entries}
        for verdicts in (before, after)
    )
    for key in sorted(olds.keys() | news.keys()):
        old, new = olds.get(key), news.get(key)
        some = new or old
        assert some is not None  # noqa: S101  (the key is from one of the two)
        entry = entries[name_of(key[0])]
        made = [_made(verdict, entry, architecture.level) for verdict in (old, new)]
        yield ValueChange(
            id=key[0],
            subject=key[1],
            required=any(v is not None and v.required for v in (old, new)),
            before=made[0].value if made[0] else None,
            after=made[1].value if made[1] else None,
            unit=next((m.unit for m in made[::-1] if m), some.unit or ""),
            **_outcome(old, new, made, threshold_pct),
        )


def _made(verdict: Verdict | None, entry: Criterion | Outlier | None, level: str | None) -> _Made | None:
    """None where the verdict has no usable value."""
    if verdict is None or verdict.value is None or verdict.status in (Status.INVALID, Status.UNMEASURED):
        return None
    if isinstance(entry, Outlier):
        if not verdict.ceiling:
            return None
        of_median = 100 * verdict.value / verdict.ceiling  # both in the unit of the metric
        return _Made(of_median, "percent", None, METRICS[entry.metric].higher_is_better, 100.0, ())
    unit = verdict.unit or "1"
    if entry is None:
        return _Made(verdict.value, unit, None, True, _one(unit), ())
    way, bar = _way(entry, verdict, level)
    return _Made(
        verdict.value,
        unit,
        bar,
        True,
        _one(unit) if way.reduce in SPREADS else 0.0,
        _own_samples(verdict) if way.reduce is Reduce.EACH else (),
    )


def _one(unit: str) -> float:
    return convert(1.0, "ratio", unit) if unit in _RELATIVE[:2] else 1.0


def _way(criterion: Criterion, verdict: Verdict, level: str | None) -> tuple[Criterion | Alternative, Bar]:
    """The alternative of the criterion that the verdict is about."""
    everyone: tuple[Criterion | Alternative, ...] = (criterion, *criterion.any_of)
    ways = [(way, settled(way.pass_, level)) for way in everyone]
    for way, bar in ways:
        if way.metric == verdict.metric and verdict.bar == bar_text(bar, level):
            return way, bar
    return ways[0]


def _own_samples(verdict: Verdict) -> tuple[float, ...]:
    """Samples; of a share, as shares of the same reference."""
    if verdict.measured_unit is None or not verdict.samples:
        return verdict.samples
    if not verdict.measured or verdict.value is None:
        return ()
    return tuple(sample * verdict.value / verdict.measured for sample in verdict.samples)


def _outcome(
    old: Verdict | None, new: Verdict | None, made: Sequence[_Made | None], threshold_pct: float | None
) -> dict[str, Any]:
    before, after = made
    if before is None or after is None:
        return _without(old, new, before, after)
    if old is not None and new is not None and (remark := simulated_once(old, new)):
        return not_comparable(remark)
    if old is not None and new is not None and (before.unit, before.bar) != (after.unit, after.bar):
        return not_comparable(f"met by another alternative: {old.bar}, then {new.bar}")
    gain = _merit(after) - _merit(before)
    noise = _noise(before, after, after if gain > 0 else before, threshold_pct)
    samples = {"samples": (len(before.samples), len(after.samples))}
    return samples | moved(after.value - before.value, gain, before.value, noise)


def _without(old: Verdict | None, new: Verdict | None, before: _Made | None, after: _Made | None) -> dict[str, Any]:
    if before is None and after is None:
        # the step of a curve from 0 has no size, but both verdicts are known
        same_status = old is not None and new is not None and old.status is new.status
        settled_ = same_status and new is not None and new.status not in (Status.INVALID, Status.UNMEASURED)
        return {"change": Change.SAME if settled_ else Change.NOT_COMPARABLE, "remark": "no value in either run"}
    side = "B" if after is None else "A"
    return {"change": Change.ONLY_A if after is None else Change.ONLY_B, "remark": f"no value in {side}"}


def _merit(made: _Made) -> float:
    """Larger is better, in the unit of the value."""
    bar, value = made.bar, made.value
    if bar is None:
        return value if made.higher_is_better else -value
    if bar.op == "range" and bar.low is not None and bar.high is not None:
        return min(0.0, value - bar.low, bar.high - value)  # all values inside are equal
    if bar.op == "eq" and bar.value is not None:
        return -abs(value - bar.value)
    return -value if bar.op == "le" else value


def _noise(before: _Made, after: _Made, better: _Made, threshold_pct: float | None) -> Noise:
    whole = max(abs(better.value), better.whole)
    if before.samples and after.samples:
        return noise_between(before.samples, after.samples, whole, threshold_pct)
    percent = ONE_SAMPLE_PCT if threshold_pct is None else threshold_pct
    return Noise(percent / 100 * whole, UNKNOWN_NOISE)
