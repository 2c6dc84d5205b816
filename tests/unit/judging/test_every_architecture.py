"""Every entry of the architectures that come with the kit: it can be met, it can be missed, and nothing meets it alone.

The evidence is made up from the entry itself: numbers on its bar, under its conditions, with numbers that satisfy its
gates. An entry that cannot be met that way asks for something that no rack could show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.core.architecture import (
    Alternative,
    Architecture,
    Bar,
    Criterion,
    Curve,
    LinkShare,
    Outlier,
    Quantity,
    Reduce,
    Reference,
)
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.evidence import Measurement, NodeInfo, RunInfo, Scope
from rackproof.core.judging.bars import settled
from rackproof.core.judging.ceilings import Capacity, capacity
from rackproof.core.judging.judge import judge
from rackproof.core.judging.members import Members
from rackproof.core.judging.numbers import NODE_COUNTS
from rackproof.core.metrics import METRICS
from rackproof.core.status import Outcome, Status
from rackproof.core.units import convert
from rackproof.core.verdict import Verdict
from tests.unit.judging import info_of_nodes
from tests.unit.published import EVERY

pytestmark = pytest.mark.few(5)

PEERS, FEW = 9, 3
"""Nodes of every role: enough to compare them, and where nothing compares them."""
COMPANIONS = {
    "iops": 1000.0,
    "latency_s": 0.064,
    "outstanding": 64.0,
    "application_bytes": 1e9,
    "counter_bytes": 1e9,
    "dataset_bytes": 1e13,
    "client_ram_bytes": 1e12,
    "bytes_read": 1e13,
    "cached_bytes_start": 0.0,
    "clients_read_bytes": 1e9,
    "server_drives_bytes": 1e9,
}


@cache
def architecture(name: str) -> Architecture:
    return load(name).model


def run(made: Architecture) -> RunInfo:
    """With as many nodes as the largest curve counts."""
    points = [point for curve in made.curves if curve.over in ("nodes", "clients") for point in curve.points]
    compared = made.outliers or made.curves or any(entry.reduce in SPREADS for entry in made.criteria)
    numbers = range(1, max(PEERS if compared else FEW, *points, FEW) + 1)
    nodes = [NodeInfo(name=f"{role}-{number}", groups=(role,)) for role in made.roles for number in numbers]
    return info_of_nodes(nodes)


def alone(made: Architecture, entry: Criterion | Curve | Outlier) -> Architecture:
    kinds: dict[type, str] = {Criterion: "criteria", Curve: "curves", Outlier: "outliers"}
    return made.model_copy(update={key: (entry,) if isinstance(entry, kind) else () for kind, key in kinds.items()})


def labels(where: dict[str, Any]) -> Iterator[dict[str, str]]:
    listed = [(value,) if isinstance(value, str) else value for value in where.values()]
    for values in product(*listed):
        yield dict(zip(where, values, strict=True))


def taken(
    asks: Quantity | Curve | Reference, scope: Scope, members: tuple[str, ...], where: dict[str, str], value: float
) -> Measurement:
    """``value`` is in the metric's unit; conditions and companions are what is asked for."""
    count = max(100, asks.min_samples or 0) + (asks.warmup or 10)  # a reference may leave both to its criterion
    conditions: dict[str, Any] = {}
    for key, wanted in asks.conditions.items():
        conditions[key[:-4] if key.endswith(("_min", "_max")) else key] = (
            wanted[0] if isinstance(wanted, tuple) else wanted
        )
    return Measurement(
        metric=asks.metric,
        scope=scope,
        members=members,
        labels=where,
        unit=METRICS[asks.metric].unit,
        samples=(value,) * count,
        conditions=conditions,
        companions={name: (number,) * count for name, number in COMPANIONS.items()},
        raw=("00",),
        step="s",
    )


def on_the_bar(made: Architecture, bar: Bar, metric: str, factor: float) -> float:
    """A number in the metric's unit that is ``factor`` times what the bar asks for."""
    bar = settled(bar, made.level)
    if bar.op == "range":
        assert bar.low is not None
        assert bar.high is not None
        wanted = (bar.low + bar.high) / 2 if factor == 1 else bar.high * 10 + 1
    else:
        assert bar.value is not None
        wanted = bar.value if bar.warn is None or factor != 1 else bar.warn
        wanted = wanted * factor if wanted else float(factor != 1)
    unit = METRICS[metric].unit
    if bar.of is None:
        return convert(wanted, bar.unit, unit)
    whole = 50.0
    if isinstance(bar.of, LinkShare):
        limit = capacity(made, bar.of, unit)
        assert isinstance(limit, Capacity), limit
        whole = limit.value
    return convert(wanted, bar.unit, "ratio") * whole


def use_of(where: Mapping[str, Any]) -> str:
    """Use of the drives, where one is asked for."""
    use = where.get("use", "")
    return use if isinstance(use, str) else ""


def taking_part(scope: Scope, members: tuple[str, ...], where: Mapping[str, Any]) -> tuple[str, ...]:
    """Nodes of a number of the rack: as many as its labels count."""
    counts = [int(where[name]) for name in NODE_COUNTS if name in where and scope is Scope.RACK]
    return members[: min(counts, default=len(members))]


def evidence(made: Architecture, group: str, asks: Criterion | Alternative, factor: float) -> Iterator[Measurement]:
    members = Members(made, run(made).nodes)
    names, bar = members.group(group), asks.pass_
    subjects = list(members.subjects(asks.scope, names, use_of(asks.where)))
    value = 50.0
    if asks.reduce not in SPREADS:
        value = on_the_bar(made, bar, asks.metric, factor)
        value /= len(subjects) if asks.reduce is Reduce.SUM else 1
    for where in labels(asks.where):
        for index, subject in enumerate(subjects):
            # one that is far from the others, where they are compared
            odd = asks.reduce in SPREADS and factor != 1 and index == 0
            part = taking_part(asks.scope, subject, where)
            yield taken(asks, asks.scope, part, where, value * (100 if bar.op == "le" else 0.001) if odd else value)
    if isinstance(bar.of, Reference):
        of, unit = bar.of, METRICS[asks.metric].unit
        whole = convert(50.0, unit, METRICS[of.metric].unit)
        everyone = list(members.subjects(of.scope, names, use_of(of.where)))
        whole /= len(everyone) if of.reduce is Reduce.SUM else 1
        own = (of.metric, of.scope, dict(of.where)) == (asks.metric, asks.scope, asks.where)
        for subject in everyone[own:]:  # a share of the median of all: the first one is far from it
            yield taken(of, of.scope, taking_part(of.scope, subject, of.where), dict(of.where), whole)


def all_evidence(made: Architecture, entry: Criterion | Curve | Outlier, good: bool) -> list[Measurement]:
    members = Members(made, run(made).nodes)
    names = members.group(entry.members)
    if isinstance(entry, Criterion):
        ways: tuple[Criterion | Alternative, ...] = (entry, *entry.any_of)
        factors = [1.0 if good else 0.5 if way.pass_.op == "ge" else 2.0 for way in ways]
        return [m for way, f in zip(ways, factors, strict=True) for m in evidence(made, entry.members, way, f)]
    if isinstance(entry, Outlier):
        higher = METRICS[entry.metric].higher_is_better
        return [
            taken(entry, entry.scope, subject, where, 50 if good or index else 0.5 if higher else 5000)
            for where in labels(entry.where)
            for index, subject in enumerate(members.subjects(entry.scope, names, use_of(entry.where)))
        ]
    measured = []
    for point in sorted({*entry.points, entry.baseline}):
        part = names[:point] if entry.over in ("nodes", "clients") else names
        value = 50.0 * (point if good else 1 / point)
        measured.append(taken(entry, Scope.RACK, part, {**entry.where, entry.over: str(point)}, value))
    return measured


def entries(made: Architecture) -> tuple[Criterion | Curve | Outlier, ...]:
    return (*made.criteria, *made.curves, *made.outliers)


def judged_alone(made: Architecture, entry: Criterion | Curve | Outlier, good: bool) -> list[Verdict]:
    only = alone(made, entry)
    result = judge(only, run(only), all_evidence(only, entry, good), ())
    return [v for v in result.verdicts if v.kind == "criterion" and v.id != "rack.numbers"]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EVERY)
def test_every_entry_can_be_met(name: str) -> None:
    made = architecture(name)
    for entry in entries(made):
        verdicts = judged_alone(made, entry, good=True)
        assert verdicts
        for verdict in verdicts:
            assert verdict.status is Status.PASS, (verdict.id, verdict.subject, verdict.message)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EVERY)
def test_every_entry_can_be_missed(name: str) -> None:
    made = architecture(name)
    for entry in entries(made):
        statuses = {verdict.status for verdict in judged_alone(made, entry, good=False)}
        assert statuses - {Status.PASS, Status.WARN}, entry.id


@pytest.mark.parametrize("name", EVERY)
def test_without_evidence_nothing_is_met(name: str) -> None:
    made = architecture(name)
    few = run(made.model_copy(update={"curves": ()}))
    result = judge(made, few, (), ())
    assert result.outcome is not Outcome.CERTIFIED
    assert {v.status for v in result.verdicts if v.kind == "criterion"} <= {Status.UNMEASURED}
    without_nodes = judge(made, few.model_copy(update={"nodes": ()}), (), ())
    assert {v.status for v in without_nodes.verdicts if v.kind == "criterion"} <= {Status.UNMEASURED}
    assert without_nodes.outcome is not Outcome.CERTIFIED
