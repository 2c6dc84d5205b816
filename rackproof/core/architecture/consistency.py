"""What a reference architecture must get right beyond the types of its keys.

Names must refer to something that exists, bars must be comparable with what is measured, and nothing may pick
the best of several tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rackproof.core.architecture import Architecture, Bar, Criterion, Reduce, Reference, Statistic, Storage
from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS, Metric
from rackproof.core.nearest import suggestion
from rackproof.core.units import SHARES, UnitError, check, same_dimension

SPREADS = frozenset({Reduce.MIN_OVER_MEDIAN, Reduce.MAX_OVER_MEDIAN})
"""Reductions whose result is a ratio between members, whatever the metric's unit."""

_BEST_OF = {"ge": "max", "le": "min"}


KeyPath = tuple[str | int, ...]
"""A way through a file, keys and list positions, as the file spells them."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: KeyPath
    message: str


def problems(architecture: Architecture) -> Iterator[Problem]:
    """Everything that contradicts itself, in the order of the file."""
    yield from _system(architecture)
    seen: dict[str, str] = {}
    for name, storage in architecture.storage.items():
        yield from _storage(architecture, name, storage)
        if storage.mountpoint in seen:
            other = seen[storage.mountpoint]
            yield Problem(("storage", name, "mountpoint"), f"{storage.mountpoint} is storage {other}'s already")
        seen.setdefault(storage.mountpoint, name)
    for name, profile in architecture.profiles.items():
        if profile.storage:
            path = ("profiles", name, "storage", "storages")
            yield from _each_known(path, profile.storage.storages or (), architecture.storage, "storage")
        sizes = profile.collectives
        if sizes and sizes.min_bytes > sizes.max_bytes:
            yield Problem(("profiles", name, "collectives", "max_bytes"), "smaller than min_bytes")
    ids: set[str] = set()
    for index, criterion in enumerate(architecture.criteria):
        if criterion.id in ids:
            yield Problem(("criteria", index, "id"), f"'{criterion.id}' is another criterion's id already")
        ids.add(criterion.id)
        yield from _criterion(architecture, index, criterion)
    for role in architecture.required_checks:
        yield from _known(("required_checks", role), role, _groups(architecture), "role")


def _system(architecture: Architecture) -> Iterator[Problem]:
    if not architecture.roles:
        yield Problem(("roles",), "a rack without roles has nothing to certify")
    for name, role in architecture.roles.items():
        if role.count.max is not None and role.count.max < role.count.min:
            yield Problem(("roles", name, "count", "max"), f"{role.count.max} is less than min, {role.count.min}")
    server = architecture.system.time.server_role
    if server is not None:
        yield from _known(("system", "time", "server_role"), server, architecture.roles, "role")


def _storage(architecture: Architecture, name: str, storage: Storage) -> Iterator[Problem]:
    here = ("storage", name)
    if not storage.mountpoint.startswith("/"):
        yield Problem((*here, "mountpoint"), f"expected an absolute path, actual '{storage.mountpoint}'")
    if storage.server_role is not None:
        yield from _known((*here, "server_role"), storage.server_role, architecture.roles, "role")
    yield from _each_known((*here, "client_roles"), storage.client_roles, architecture.roles, "role")
    for index, option in enumerate(storage.options_forbidden):
        if option in storage.options or option in storage.options_required:
            yield Problem((*here, "options_forbidden", index), f"'{option}' is set or required as well")
    for index, option in enumerate(storage.options):
        key, _, value = option.partition("=")
        if key == "nconnect" and value != str(storage.connections or ""):
            yield Problem(
                (*here, "options", index), f"connections says {storage.connections}, this option says {value}"
            )


def _criterion(architecture: Architecture, index: int, criterion: Criterion) -> Iterator[Problem]:
    here: KeyPath = ("criteria", index)
    yield from _known((*here, "source"), criterion.source, architecture.metadata.sources, "source")
    yield from _known((*here, "members"), criterion.members, _groups(architecture), "role")
    listed = {key: (value,) if isinstance(value, str) else value for key, value in criterion.where.items()}
    yield from _quantity(architecture, here, criterion.metric, criterion.scope, listed)
    yield from _of_several(here, criterion)
    metric = METRICS.get(criterion.metric)
    if metric is None:
        return
    bar = criterion.pass_
    yield from _numbers((*here, "pass"), bar)
    yield from _units((*here, "pass"), criterion, metric)
    if bar.of is not None:
        yield from _reference(architecture, (*here, "pass", "of"), criterion, bar.of, metric)


def _of_several(here: KeyPath, criterion: Criterion) -> Iterator[Problem]:
    best = _BEST_OF.get(criterion.pass_.op)
    if criterion.scope is Scope.RACK and criterion.reduce is not Reduce.EACH:
        yield Problem((*here, "reduce"), f"scope rack is one number already, there is nothing to {criterion.reduce}")
    if criterion.statistic in (Statistic.MIN, Statistic.MAX) and criterion.statistic.value == best:
        yield Problem((*here, "statistic"), f"'{best}' with '{criterion.pass_.op}' judges the best of several tries")
    if criterion.reduce in (Reduce.MIN, Reduce.MAX) and criterion.reduce.value == best:
        yield Problem((*here, "reduce"), f"'{best}' with '{criterion.pass_.op}' judges the best member only")


def _quantity(
    architecture: Architecture,
    here: KeyPath,
    name: str,
    scope: Scope,
    where: Mapping[str, Iterable[str]],
) -> Iterator[Problem]:
    """A metric, a scope that it has and labels that it has."""
    metric = METRICS.get(name)
    if metric is None:
        yield Problem((*here, "metric"), f"unknown metric '{name}'; {suggestion(name, METRICS)}")
        return
    if scope not in metric.scopes:
        scopes = " or ".join(s.value for s in metric.scopes)
        yield Problem((*here, "scope"), f"{name} is measured for {scopes}, not for {scope.value}")
    for key, values in where.items():
        path = (*here, "where", key)
        if key not in metric.labels:
            yield Problem(path, f"{name} has no label '{key}'; {suggestion(key, metric.labels)}")
        elif key == "storage":
            for value in values:
                yield from _known(path, value, architecture.storage, "storage")


def _numbers(here: KeyPath, bar: Bar) -> Iterator[Problem]:
    if bar.op == "range":
        if bar.low is None or bar.high is None:
            yield Problem((*here, "op"), "'range' needs low and high")
        elif bar.low >= bar.high:
            yield Problem((*here, "low"), f"expected less than high, {bar.high:g}, actual {bar.low:g}")
        if bar.value is not None:
            yield Problem((*here, "value"), "'range' uses low and high, not value")
    else:
        if bar.value is None:
            yield Problem((*here, "op"), f"'{bar.op}' needs a value")
        for key, number in (("low", bar.low), ("high", bar.high)):
            if number is not None:
                yield Problem((*here, key), f"belongs to 'range', '{bar.op}' uses value")
    if bar.warn is None:
        return
    if bar.op not in ("ge", "le"):
        yield Problem((*here, "warn"), f"has no meaning with '{bar.op}'")
    elif bar.value is not None and (bar.warn < bar.value if bar.op == "ge" else bar.warn > bar.value):
        side = "at or above" if bar.op == "ge" else "at or below"
        yield Problem((*here, "warn"), f"expected {side} value, {bar.value:g}, actual {bar.warn:g}")


def _units(here: KeyPath, criterion: Criterion, metric: Metric) -> Iterator[Problem]:
    bar = criterion.pass_
    path = (*here, "unit")
    try:
        check(bar.unit)
    except UnitError as error:
        yield Problem(path, str(error))
        return
    if criterion.reduce in SPREADS:
        if bar.of is not None:
            yield Problem((*here, "of"), f"{criterion.reduce.value} is a share already")
        if bar.unit not in SHARES:
            yield Problem(path, f"{criterion.reduce.value} gives a percent or a ratio, not {bar.unit}")
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
    here: KeyPath,
    criterion: Criterion,
    of: Reference,
    metric: Metric,
) -> Iterator[Problem]:
    yield from _quantity(architecture, here, of.metric, of.scope, {k: (v,) for k, v in of.where.items()})
    if of.reduce in SPREADS:
        yield Problem((*here, "reduce"), f"{of.reduce.value} is a ratio and nothing to take a share of")
    if of.reduce is Reduce.EACH and of.scope is not Scope.RACK:
        if of.scope is not criterion.scope:
            yield Problem(
                (*here, "reduce"),
                f"a {criterion.scope.value} has no {of.scope.value} of its own; say how to reduce them to one number",
            )
        elif criterion.reduce is not Reduce.EACH:
            yield Problem(
                (*here, "reduce"), f"the criterion reduces its members ({criterion.reduce.value}), 'each' cannot"
            )
    other = METRICS.get(of.metric)
    if other is not None and not same_dimension(metric.unit, other.unit):
        yield Problem(
            (*here, "metric"),
            f"{of.metric} is in {other.unit}, {metric.name} in {metric.unit}: neither is a share of the other",
        )


def _groups(architecture: Architecture) -> tuple[str, ...]:
    return (*architecture.roles, "all")


def _known(path: KeyPath, name: str, known: Iterable[str], what: str) -> Iterator[Problem]:
    names = tuple(known)
    if name not in names:
        yield Problem(path, f"unknown {what} '{name}'; {suggestion(name, names)}")


def _each_known(path: KeyPath, names: Iterable[str], known: Iterable[str], what: str) -> Iterator[Problem]:
    known = tuple(known)
    for index, name in enumerate(names):
        yield from _known((*path, index), name, known, what)
