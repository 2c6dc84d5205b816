"""Verdicts on curves: how a quantity of the rack grows with nodes, GPUs or clients.

Verdicts are ``id[efficiency@16]`` for every point but the baseline, ``id[r2]`` and ``id[steps]``, all on the rack. The
label ``over`` gives the point; where it counts nodes, clients or GPUs, it must agree with the nodes that took part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from rackproof.core.architecture import Architecture, Curve
from rackproof.core.evidence import Scope
from rackproof.core.judging.bars import amount, number_text
from rackproof.core.judging.entry import about
from rackproof.core.judging.numbers import (
    MEASURE_AGAIN,
    NODE_COUNTS,
    Number,
    Numbers,
    counted,
    first_starved,
    question,
    unusable,
)
from rackproof.core.judging.select import NoNumber, sources_of
from rackproof.core.judging.statistics import ratio_of
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.core.wording import exact

LEAST_POINTS = 3
"""Minimum for a line: two points always fit one."""

MOST_EFFICIENCY = 2.0
"""Maximum efficiency: above twice linear growth the baseline is wrong."""

_ROUNDING = 1e-9

Points = Mapping[int, Number | NoNumber]


def judge_curve(architecture: Architecture, curve: Curve, numbers: Numbers) -> Iterator[Verdict]:
    """One verdict per requirement of the curve."""
    points = {point: _at(architecture, curve, point, numbers) for point in sorted({*curve.points, curve.baseline})}
    judged = _Judged(curve, points)
    if curve.efficiency_min is not None:
        for point in points:
            if point != curve.baseline:
                yield judged.efficiency(point, curve.efficiency_min)
    if curve.r2_min is not None:
        yield judged.fit(curve.r2_min)
    if curve.no_negative_step:
        yield judged.steps()


def _at(architecture: Architecture, curve: Curve, point: int, numbers: Numbers) -> Number | NoNumber:
    """The number at one point; INVALID if the number of participants is wrong."""
    names = numbers.members.group(curve.members)
    if not names:
        return NoNumber(Status.UNMEASURED, f"no node in group {curve.members}")
    if not METRICS[curve.metric].higher_is_better:
        return NoNumber(Status.UNMEASURED, f"{curve.metric} has no efficiency: less of it is better")
    where = {**curve.where, curve.over: str(point)}
    number, members = numbers.ask_part(question(curve, Scope.RACK, where), names)
    if isinstance(number, NoNumber):
        return number
    if not number.value:
        return unusable(number, Status.INVALID, f"{curve.metric} is 0, so no growth can be computed")
    needed = _nodes_needed(architecture, curve.over, point)
    if len(members) < needed or (curve.over in NODE_COUNTS and len(members) > needed):
        why = f"expected {point} {curve.over} on {needed} nodes, actual {len(members)} nodes took part"
        return unusable(number, Status.INVALID, why)
    return number


def _nodes_needed(architecture: Architecture, over: str, point: int) -> int:
    """Nodes that a point needs; 0 where the architecture does not give the number per node."""
    if over in NODE_COUNTS:
        return point
    per_node = architecture.gpu.count if over == "gpus" and architecture.gpu else 0
    return -(-point // per_node) if per_node else 0


class _Judged:
    def __init__(self, curve: Curve, points: Points) -> None:
        self.curve, self.points = curve, points
        self.unit = METRICS[curve.metric].unit
        self.over = curve.over

    def efficiency(self, point: int, least: float) -> Verdict:
        """Verdicts on efficiency, ``X(n)/n`` over ``X(b)/b`` with the baseline b."""
        baseline = self.curve.baseline
        concerned = {n: self.points[n] for n in (baseline, point)}
        bar = f"≥ {number_text(least)}"
        common = self._common(f"efficiency@{point}", bar, "ratio", concerned, least)
        if gap := self._gap(common, concerned):
            return gap
        values = self._values(concerned)
        measured, linear = values[point], values[baseline] * point / baseline
        try:
            value = ratio_of(measured, linear)
        except ZeroDivisionError:
            return _invalid(common, f"{self.curve.metric} at {baseline} {self.over}, the baseline, is 0")
        if value > MOST_EFFICIENCY * (1 + _ROUNDING):
            why = (
                f"efficiency {number_text(value, MOST_EFFICIENCY)} ({amount(measured, self.unit)} of"
                f" {amount(linear, self.unit)} at {point}), more than {exact(MOST_EFFICIENCY)}:"
                f" the baseline, {baseline} {self.over}, is broken"
            )
            return _invalid(common, why)
        passed = value >= least * (1 - _ROUNDING)
        starved, starved_baseline = (self._starved({n: self.points[n]}) for n in (point, baseline))
        # a starved baseline is too low, which helps the point, unless that is too low as well
        cause = (starved_baseline if not starved else "") if passed else starved_baseline or starved
        if cause:
            return _invalid(common, cause)
        of = f"linear growth from {baseline} {self.over}"
        return Verdict(
            **common,
            status=Status.PASS if passed else Status.FAIL,
            message=(
                f"expected {bar} of {of}, actual {amount(value, 'ratio', least)} ({amount(measured, self.unit)} of"
                f" {amount(linear, self.unit)} at {point}); {self._counted(concerned)}"
            ),
            value=value,
            distance_pct=100 * (value - least) / least,
            measured=measured,
            ceiling=linear,
            ceiling_unit=self.unit,
            ceiling_of=of,
        )

    def fit(self, least: float) -> Verdict:
        """R² of the least-squares line. A falling line fails."""
        bar = f"≥ {number_text(least)}"
        common = self._common("r2", bar, "1", self.points, least)
        if gap := self._gap(common, self.points):
            return gap
        if len(self.points) < LEAST_POINTS:
            why = f"expected {LEAST_POINTS} or more points, actual {len(self.points)}"
            return Verdict(**common, status=Status.UNMEASURED, message=why)
        values = self._values(self.points)
        slope, value = _line(values)
        if value is None:
            why = f"the line has no R²: all {len(values)} points are {amount(values[self.curve.baseline], self.unit)}"
            return _invalid(common, why)
        passed = slope > 0 and value >= least * (1 - _ROUNDING)
        if cause := self._flattered() if passed else self._starved(self.points):
            return _invalid(common, cause)
        falls = "" if slope > 0 else ", of a falling line"
        return Verdict(
            **common,
            status=Status.PASS if passed else Status.FAIL,
            message=(
                f"expected R² {bar} of a line through {len(values)} points, actual {number_text(value, least)}{falls}"
                f" ({self._listed(values)}); {self._counted(self.points)}"
            ),
            value=value,
            distance_pct=100 * (value - least) / least,
        )

    def steps(self) -> Verdict:
        """Verdict on the steps from every point to the next."""
        common = self._common("steps", "≥ 0 %", "percent", self.points, 0.0)
        if gap := self._gap(common, self.points):
            return gap
        values = self._values(self.points)
        steps = [(_step(values[a], values[b]), a, b) for a, b in pairwise(values)]
        down = [(a, b) for step, a, b in steps if step < -100 * _ROUNDING]
        if cause := self._starved(self.points) if down else self._flattered():
            return _invalid(common, cause)
        texts = "; ".join(
            f"{amount(values[a], self.unit, values[b])} → {amount(values[b], self.unit, values[a])}"
            f" from {a} to {b} {self.over}"
            for a, b in down
        )
        return Verdict(
            **common,
            status=Status.FAIL if down else Status.PASS,
            message=f"expected no step down, actual {texts or self._listed(values)}; {self._counted(self.points)}",
            value=min((step for step, _, _ in steps if math.isfinite(step)), default=None),
        )

    def _common(self, item: str, bar: str, unit: str, points: Points, bar_value: float) -> dict[str, Any]:
        samples = tuple(answer.value for answer in points.values() if isinstance(answer, Number))
        return {
            **about(self.curve, f"{self.curve.id}[{item}]"),
            "subject": "rack",
            "metric": self.curve.metric,
            "labels": dict(self.curve.where),
            "unit": unit,
            "bar": bar,
            "bar_value": bar_value,
            "samples": samples,
            "measured_unit": self.unit,
            "statistic": f"{self.curve.statistic} at each point",
            **sources_of(points.values()),
        }

    def _gap(self, common: dict[str, Any], points: Points) -> Verdict | None:
        """The verdict where points have no number: UNMEASURED, or INVALID where all of these were measured."""
        for status in (Status.UNMEASURED, Status.INVALID):
            bad = {n: a.why for n, a in points.items() if isinstance(a, NoNumber) and a.status is status}
            if bad:
                why = f"{status.value.lower()} at {', '.join(map(str, bad))} {self.over}: {next(iter(bad.values()))}"
                return Verdict(**common, status=status, message=why)
        return None

    def _starved(self, points: Points) -> str:
        """Why the numbers of these points may be too low; empty where nothing says so."""
        return first_starved(points.values())

    def _flattered(self) -> str:
        """Why points before others may be too low, so that the growth looks better than it is."""
        causes = [self._starved({n: answer}) for n, answer in self.points.items()]
        return next((before for before, after in pairwise(causes) if before and not after), "")

    def _values(self, points: Points) -> dict[int, float]:
        return {n: answer.value for n, answer in points.items() if isinstance(answer, Number)}

    def _listed(self, values: Mapping[int, float]) -> str:
        return ", ".join(f"{n}: {amount(value, self.unit)}" for n, value in values.items())

    def _counted(self, points: Points) -> str:
        texts = {counted(self.curve.statistic, len(a.samples)) for a in points.values() if isinstance(a, Number)}
        return f"{' or '.join(sorted(texts))} at each point"


def _step(before: float, after: float) -> float:
    """The step in percent of ``before``; from 0 it is infinite or 0."""
    if not before:
        return math.inf if after else 0.0
    return 100 * (after - before) / before


def _line(values: Mapping[int, float]) -> tuple[float, float | None]:
    """Slope of the least-squares line and its R²; None where all values are the same."""
    n, x_mean, y_mean = len(values), math.fsum(values) / len(values), math.fsum(values.values()) / len(values)
    xx = math.fsum((x - x_mean) ** 2 for x in values)
    xy = math.fsum((x - x_mean) * (y - y_mean) for x, y in values.items())
    yy = math.fsum((y - y_mean) ** 2 for y in values.values())
    if n < 2 or min(values.values()) == max(values.values()) or not yy:
        return 0.0, None
    return xy / xx, min(1.0, xy * xy / (xx * yy))


def _invalid(common: dict[str, Any], why: str) -> Verdict:
    return Verdict(**{**common, "hint": MEASURE_AGAIN}, status=Status.INVALID, message=why)
