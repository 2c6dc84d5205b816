"""Consistency of criteria, curves and outliers: names, labels, units, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from rackproof.core.architecture.criterion import (
    Alternative,
    Bar,
    Criterion,
    Curve,
    Entry,
    LinkShare,
    Outlier,
    Quantity,
    Reduce,
    Reference,
    Statistic,
)
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem, known
from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS, Metric
from rackproof.core.nearest import suggestion
from rackproof.core.recipes import RECIPES
from rackproof.core.units import SHARES, UnitError, check, same_dimension
from rackproof.core.wording import exact

SPREADS = frozenset({Reduce.MIN_OVER_MEDIAN, Reduce.MAX_OVER_MEDIAN, Reduce.SPREAD_OVER_MEDIAN})
"""Reductions to a ratio between members, for any unit of the metric."""

_BEST_OF = {"ge": "max", "le": "min"}
_BEST = {
    "ge": (Statistic.MAX, Statistic.P90, Statistic.P95, Statistic.P99),
    "le": (Statistic.MIN, Statistic.P1, Statistic.P5, Statistic.P10),
}
"""Statistics of the good end of the samples."""
_BEST_MEMBERS = {"ge": (Reduce.MAX, Reduce.MAX_OVER_MEDIAN), "le": (Reduce.MIN, Reduce.MIN_OVER_MEDIAN)}
"""Reductions to the good members."""


def entry_problems(architecture: Architecture) -> Iterator[Problem]:
    """Contradictions in the three lists, in the order of the file."""
    ids: dict[str, str] = {}
    for base, entry in each_entry(architecture):
        if entry.id in ids:
            yield Problem((*base, "id"), f"'{entry.id}' is another entry's id already, in {ids[entry.id]}")
        ids.setdefault(entry.id, str(base[0]))
        yield from known((*base, "members"), entry.members, groups(architecture), "role")
        if entry.measure is not None:
            yield from known((*base, "measure"), entry.measure, RECIPES, "recipe")
        for key in ("published", "changed"):
            if getattr(entry, key) is not None and entry.id not in architecture.overrides:
                yield Problem((*base, key), "is set by overrides, never in a file")
        if isinstance(entry, Criterion):
            yield from _criterion(architecture, base, entry)
        elif isinstance(entry, Curve):
            yield from _curve(architecture, base, entry)
        else:
            yield from _outlier(architecture, base, entry)
    yield from _levels(architecture)


def each_entry(architecture: Architecture) -> Iterator[tuple[KeyPath, Entry]]:
    """Criteria, curves and outliers with their paths, in the order of the file."""
    for section in ("criteria", "curves", "outliers"):
        for index, entry in enumerate(getattr(architecture, section)):
            yield (section, index), entry


def groups(architecture: Architecture) -> tuple[str, ...]:
    return (*architecture.roles, "all")


def _criterion(architecture: Architecture, base: KeyPath, criterion: Criterion) -> Iterator[Problem]:
    yield from _asked(architecture, base, criterion, criterion.reduce, criterion.pass_)
    for index, alternative in enumerate(criterion.any_of):
        yield from _asked(architecture, (*base, "any_of", index), alternative, alternative.reduce, alternative.pass_)


def _asked(
    architecture: Architecture, base: KeyPath, quantity: Criterion | Alternative, reduce: Reduce, bar: Bar
) -> Iterator[Problem]:
    """A quantity, its reduction and its bar."""
    yield from _quantity(architecture, base, quantity.metric, quantity.scope, _listed(quantity.where))
    yield from _of_several(base, quantity, reduce, bar)
    yield from _scatter(base, quantity.max_cv_pct, quantity.min_samples)
    metric = METRICS.get(quantity.metric)
    if metric is None:
        return
    yield from _numbers((*base, "pass"), bar)
    yield from _cannot_fail(base, quantity, reduce, bar, metric)
    yield from _units((*base, "pass"), reduce, metric, bar)
    if isinstance(bar.of, Reference):
        yield from _reference(architecture, (*base, "pass", "of"), quantity, reduce, bar, bar.of, metric)
    elif isinstance(bar.of, LinkShare):
        yield from known((*base, "pass", "of", "link"), bar.of.link, architecture.links, "link")


def _curve(architecture: Architecture, base: KeyPath, curve: Curve) -> Iterator[Problem]:
    yield from _quantity(architecture, base, curve.metric, Scope.RACK, {k: (v,) for k, v in curve.where.items()})
    metric = METRICS.get(curve.metric)
    if metric is not None and curve.over not in metric.labels:
        yield Problem(
            (*base, "over"), f"{metric.name} has no label '{curve.over}'; {suggestion(curve.over, metric.labels)}"
        )
    yield from _no_best(base, metric, curve.statistic)
    yield from _scatter(base, curve.max_cv_pct, curve.min_samples)
    if curve.over in curve.where:
        yield Problem((*base, "where", curve.over), "is the curve's own axis (over)")
    for index, (before, after) in enumerate(pairwise(curve.points), 1):
        if after <= before:
            yield Problem((*base, "points", index), f"expected more than {before}, actual {after}")
    if curve.points[0] < 1:
        yield Problem((*base, "points", 0), f"expected at least 1, actual {curve.points[0]}")
    if curve.baseline not in curve.points:
        yield Problem((*base, "baseline"), f"{curve.baseline} is none of the points")
    if curve.r2_min is not None and len(curve.points) < 3:
        yield Problem((*base, "r2_min"), "two points always fit a line; name three or more")
    if curve.efficiency_min is None and curve.r2_min is None and not curve.no_negative_step:
        yield Problem(base, "has no requirement: set efficiency_min, r2_min or no_negative_step")


def _outlier(architecture: Architecture, base: KeyPath, outlier: Outlier) -> Iterator[Problem]:
    yield from _quantity(architecture, base, outlier.metric, outlier.scope, _listed(outlier.where))
    if outlier.scope is Scope.RACK:
        yield Problem((*base, "scope"), "the rack has no peers")
    metric = METRICS.get(outlier.metric)
    yield from _no_best(base, metric, outlier.statistic)
    yield from _scatter(base, outlier.max_cv_pct, outlier.min_samples)


def _no_best(base: KeyPath, metric: Metric | None, statistic: Statistic) -> Iterator[Problem]:
    if metric is not None and statistic in _BEST["ge" if metric.higher_is_better else "le"]:
        yield Problem((*base, "statistic"), f"'{statistic}' judges the best of several tries")


def _listed(where: Mapping[str, str | tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {key: (value,) if isinstance(value, str) else value for key, value in where.items()}


def _levels(architecture: Architecture) -> Iterator[Problem]:
    level, used = architecture.level, False
    for index, criterion in enumerate(architecture.criteria):
        bars: dict[KeyPath, Bar] = {("pass",): criterion.pass_}
        bars |= {("any_of", number, "pass"): alternative.pass_ for number, alternative in enumerate(criterion.any_of)}
        for path, bar in bars.items():
            if not bar.levels:
                continue
            used = True
            if level is None:
                where = ("criteria", index, *path, "levels")
                yield Problem(where, "needs a level: say at the top of the file which one must be reached")
            else:
                yield from known(("level",), level, bar.levels, "level")
    if level is not None and not used:
        yield Problem(("level",), "no bar has levels")


def _cannot_fail(base: KeyPath, quantity: Quantity, reduce: Reduce, bar: Bar, metric: Metric) -> Iterator[Problem]:
    """Bars that cannot fail, have the wrong direction, or use the good end only."""
    good = "ge" if metric.higher_is_better else "le"
    yield from _direction((*base, "pass", "op"), reduce, bar, metric)
    if bar.op == "ge":
        for key, number in (("value", bar.value), *((f"levels.{name}", number) for name, number in bar.levels.items())):
            if number == 0:
                yield Problem((*base, "pass", *key.split(".", 1)), "at least 0 cannot be missed")
    if bar.op == "range":
        if quantity.statistic not in (Statistic.MEDIAN, Statistic.MEAN):
            yield Problem((*base, "statistic"), f"'range' is about the median or the mean, not '{quantity.statistic}'")
        if reduce not in (Reduce.EACH, Reduce.SUM, Reduce.MEDIAN):
            yield Problem((*base, "reduce"), f"'range' is about each, their median or their sum, not '{reduce}'")
    elif bar.op == "eq":
        if quantity.statistic in _BEST[good]:
            yield Problem(
                (*base, "statistic"), f"'{quantity.statistic}' of {metric.name} judges the best of several tries"
            )
        if reduce in _BEST_MEMBERS[good]:
            yield Problem((*base, "reduce"), f"'{reduce}' of {metric.name} judges only the best member")


def _direction(path: KeyPath, reduce: Reduce, bar: Bar, metric: Metric) -> Iterator[Problem]:
    better = "more" if metric.higher_is_better else "less"
    if reduce in SPREADS:
        expected = "ge" if reduce is Reduce.MIN_OVER_MEDIAN else "le"
        if bar.op in ("ge", "le") and bar.op != expected:
            yield Problem(path, f"'{bar.op}' with '{reduce}' asks for unlike members; expected '{expected}'")
    elif bar.op in ("ge", "le") and (bar.op == "ge") is not metric.higher_is_better:
        yield Problem(path, f"{better} is better for {metric.name}: use 'range', or another metric")


def _of_several(base: KeyPath, quantity: Quantity, reduce: Reduce, bar: Bar) -> Iterator[Problem]:
    best = _BEST_OF.get(bar.op)
    if quantity.scope is Scope.RACK and reduce is not Reduce.EACH:
        yield Problem((*base, "reduce"), f"scope rack is one number, '{reduce}' has nothing to reduce")
    if quantity.statistic in _BEST.get(bar.op, ()):
        yield Problem((*base, "statistic"), f"'{quantity.statistic}' with '{bar.op}' judges the best of several tries")
    if reduce in (Reduce.MIN, Reduce.MAX) and reduce.value == best:
        yield Problem((*base, "reduce"), f"'{best}' with '{bar.op}' judges only the best member")


def _scatter(base: KeyPath, max_cv_pct: float | None, min_samples: int) -> Iterator[Problem]:
    if max_cv_pct is not None and min_samples < 2:
        yield Problem(
            (*base, "max_cv_pct"), f"one sample has no scatter: min_samples is {min_samples}, expected 2 or more"
        )


def _quantity(
    architecture: Architecture,
    base: KeyPath,
    name: str,
    scope: Scope,
    where: Mapping[str, Iterable[str]],
) -> Iterator[Problem]:
    """The metric exists and has this scope and these labels."""
    metric = METRICS.get(name)
    if metric is None:
        yield Problem((*base, "metric"), f"unknown metric '{name}'; {suggestion(name, METRICS)}")
        return
    if scope not in metric.scopes:
        scopes = " or ".join(s.value for s in metric.scopes)
        yield Problem((*base, "scope"), f"{name} is measured for {scopes}, not for {scope.value}")
    for key, values in where.items():
        path = (*base, "where", key)
        listed = tuple(values)
        for value in dict.fromkeys(value for value in listed if listed.count(value) > 1):
            yield Problem(path, f"'{value}' is listed twice")
        if key not in metric.labels:
            yield Problem(path, f"{name} has no label '{key}'; {suggestion(key, metric.labels)}")
        elif key in ("storage", "workload"):
            names = architecture.storage if key == "storage" else architecture.workloads
            for value in listed:
                yield from known(path, value, names, key)


def _numbers(base: KeyPath, bar: Bar) -> Iterator[Problem]:
    if bar.levels:
        yield from _level_values(base, bar)
    elif bar.op == "range":
        if bar.low is None or bar.high is None:
            yield Problem((*base, "op"), "'range' needs low and high")
        elif bar.low >= bar.high:
            yield Problem((*base, "low"), f"expected less than high, {exact(bar.high)}, actual {exact(bar.low)}")
        if bar.value is not None:
            yield Problem((*base, "value"), "'range' uses low and high, not value")
    else:
        if bar.value is None:
            yield Problem((*base, "op"), f"'{bar.op}' needs a value")
        for key, number in (("low", bar.low), ("high", bar.high)):
            if number is not None:
                yield Problem((*base, key), f"belongs to 'range', '{bar.op}' uses value")
    for key, number in (("value", bar.value), ("low", bar.low), ("high", bar.high), ("warn", bar.warn)):
        if number is not None and number < 0:
            yield Problem((*base, key), f"no metric can be negative, actual {exact(number)}")
    if bar.warn is None:
        return
    if bar.op not in ("ge", "le"):
        yield Problem((*base, "warn"), f"has no meaning with '{bar.op}'")
    elif bar.value is not None and (bar.warn < bar.value if bar.op == "ge" else bar.warn > bar.value):
        side = "at or above" if bar.op == "ge" else "at or below"
        yield Problem((*base, "warn"), f"expected {side} value, {exact(bar.value)}, actual {exact(bar.warn)}")


def _level_values(base: KeyPath, bar: Bar) -> Iterator[Problem]:
    if bar.op not in ("ge", "le"):
        yield Problem((*base, "levels"), f"have no meaning with '{bar.op}'")
    for key in ("value", "low", "high", "warn"):
        if getattr(bar, key) is not None:
            yield Problem((*base, key), "levels say what must be reached")
    for (name, before), (next_name, after) in pairwise(bar.levels.items()):
        if not (after > before if bar.op == "ge" else after < before):
            yield Problem(
                (*base, "levels", next_name),
                f"expected more demanding than {name}, {exact(before)}, actual {exact(after)}",
            )


def _units(base: KeyPath, reduce: Reduce, metric: Metric, bar: Bar) -> Iterator[Problem]:
    path = (*base, "unit")
    try:
        check(bar.unit)
    except UnitError as error:
        yield Problem(path, str(error))
        return
    if reduce in SPREADS:
        if bar.of is not None:
            yield Problem((*base, "of"), f"{reduce.value} is a share already")
        if bar.unit not in SHARES:
            yield Problem(path, f"{reduce.value} gives a percent or a ratio, not {bar.unit}")
    elif bar.of is not None:
        if bar.unit not in SHARES:
            yield Problem(path, f"a share of another quantity is a percent or a ratio, not {bar.unit}")
    elif not same_dimension(bar.unit, metric.unit):
        if bar.unit in SHARES:
            yield Problem(path, f"a {bar.unit} needs 'of': what is {metric.name} a share of?")
        else:
            yield Problem(path, f"{metric.unit} expected or something convertible to it, actual {bar.unit}")


def _reference(
    architecture: Architecture,
    base: KeyPath,
    quantity: Quantity,
    reduce: Reduce,
    bar: Bar,
    of: Reference,
    metric: Metric,
) -> Iterator[Problem]:
    yield from _quantity(architecture, base, of.metric, of.scope, {k: (v,) for k, v in of.where.items()})
    yield from _scatter(base, of.max_cv_pct, quantity.min_samples if of.min_samples is None else of.min_samples)
    if of.statistic in _BEST.get({"ge": "le", "le": "ge"}.get(bar.op, ""), ()):
        yield Problem((*base, "statistic"), f"'{of.statistic}' takes a share of the worst of several tries")
    if of.reduce in SPREADS:
        yield Problem((*base, "reduce"), f"{of.reduce.value} is a ratio and nothing to take a share of")
    if of.reduce is Reduce.EACH and of.scope is not Scope.RACK:
        if of.scope is not quantity.scope:
            yield Problem(
                (*base, "reduce"),
                f"a {quantity.scope.value} has no {of.scope.value} of its own; say how to reduce them to one number",
            )
        elif reduce is not Reduce.EACH:
            yield Problem((*base, "reduce"), f"the criterion reduces its members ({reduce.value}), 'each' cannot")
    same = (of.metric, of.scope, _listed(of.where)) == (quantity.metric, quantity.scope, _listed(quantity.where))
    warmup = quantity.warmup if of.warmup is None else of.warmup
    alike = (of.statistic, warmup) == (quantity.statistic, quantity.warmup)
    if same and alike and (of.reduce is reduce or of.scope is Scope.RACK):
        yield Problem((*base, "metric"), "is the criterion's own quantity: a share of itself is always 100 %")
    reference_metric = METRICS.get(of.metric)
    if reference_metric is not None and not same_dimension(metric.unit, reference_metric.unit):
        yield Problem(
            (*base, "metric"),
            f"{of.metric} is in {reference_metric.unit}, {metric.name} in {metric.unit}: neither is a share of the"
            " other",
        )
