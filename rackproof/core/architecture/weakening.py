"""Weakenings: values that demand less than in the published architecture that a file extends.

All keys are compared. A value without an order (another metric, operator or kernel) is a weakening as well. Stricter or
additional values are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rackproof.core.architecture.base import Weakening
from rackproof.core.architecture.criterion import Bar, Criterion, Entry, Severity, Statistic
from rackproof.core.architecture.inheritance import BY_ID
from rackproof.core.architecture.models import Architecture, Drop, Override
from rackproof.core.architecture.overrides import bar_words, threshold_words
from rackproof.core.architecture.problem import KeyPath
from rackproof.core.architecture.storage import TELL_TRANSPORT
from rackproof.core.architecture.strength import EMPTY, Path, at_least, at_most, rule_of
from rackproof.core.metrics import METRICS
from rackproof.core.units import UnitError, convert, same_dimension
from rackproof.core.wording import counted, shortened

_LONGEST = 90
CLUSTERED: Final = (*TELL_TRANSPORT, "ceph", "nfs", "nfs4")
"""File system types of parallel storage that clients mount."""
_NAMED = {"nics": "purpose", "drives": "use", "users": "name"}
"""Lists whose entries have a name, and the key of that name."""
_STRICT: Final = {
    # statistics of the bad end, the most demanding first
    "ge": (Statistic.MIN, Statistic.P1, Statistic.P5, Statistic.P10, Statistic.MEDIAN),
    "le": (Statistic.MAX, Statistic.P99, Statistic.P95, Statistic.P90, Statistic.MEDIAN),
}


def weakenings(
    published: Architecture, site: Architecture, dropped: Mapping[str, Drop] | None = None
) -> tuple[Weakening, ...]:
    """All weakenings, with the file's reason: from ``overrides``, or of a ``dropped`` entry.

    Both architectures have their overrides applied. Sorted by id and key.
    """
    weakenings_by_path: dict[str, Weakening] = {}
    for path, before, after in (*_level(published, site), *_compared(published, site)):
        weakening = _with_reason(site, dropped or {}, path, before, after)
        weakenings_by_path.setdefault(weakening.path, weakening)
    return tuple(sorted(weakenings_by_path.values(), key=lambda w: (w.id, w.key)))


def unused_reasons(site: Architecture, weakenings_: Iterable[Weakening]) -> tuple[str, ...]:
    """Keys of ``overrides`` that change no threshold and explain no weakening."""
    listed = tuple(weakenings_)
    return tuple(
        key
        for key, override in site.overrides.items()
        if not override.thresholds and not any(_covers(key, override, weakening) for weakening in listed)
    )


def reason_key(weakening: Weakening) -> str:
    """Key of ``overrides`` that can explain a weakening."""
    section, _, entry = weakening.id.partition(".")
    return entry if section in BY_ID else weakening.path


def key_path(data: Any, path: str) -> KeyPath:
    """The longest prefix of a dotted path that a file's data has."""
    keys: list[str | int] = []
    while path:
        if isinstance(data, list):
            entries: dict[str | int, str] = {index: str(_name_of(entry)) for index, entry in enumerate(data)}
        elif isinstance(data, dict):
            entries = {key: str(key) for key in data}
        else:
            break
        key = next((key for key, name in entries.items() if path == name or path.startswith(f"{name}.")), None)
        if key is None:
            break
        data, path = data[key], path[len(entries[key]) + 1 :]
        keys.append(key)
    return tuple(keys)


def _name_of(entry: Any) -> Any:
    return next((entry[key] for key in ("id", *_NAMED.values()) if key in entry), "") if isinstance(entry, dict) else ""


def weakens(weakenings_: Sequence[Weakening], published: str) -> str:
    """``weakens 3 criteria and 1 other key of nvidia-dgx-h100``; empty without weakenings."""
    entries = {w.id for w in weakenings_ if w.id.partition(".")[0] in BY_ID}
    keys = [w for w in weakenings_ if w.id.partition(".")[0] not in BY_ID]
    parts = [counted(len(entries), "criterion", "criteria")] if entries else []
    if keys:
        parts.append(counted(len(keys), "other key") if entries else counted(len(keys), "key"))
    return f"weakens {' and '.join(parts)} of {published}" if parts else ""


def _with_reason(site: Architecture, dropped: Mapping[str, Drop], path: Path, before: str, after: str) -> Weakening:
    entry = len(path) > 1 and path[0] in BY_ID
    id_, key = (".".join(path[:2]), ".".join(path[2:])) if entry else (path[0], ".".join(path[1:]))
    weakening = Weakening(id=id_, key=key, published=before, here=after)
    drop = dropped.get(path[1]) if entry and not key else None
    if drop is not None:
        return weakening.model_copy(update={"reason": drop.reason, "by": drop.by})
    for name, override in site.overrides.items():
        if _covers(name, override, weakening):
            return weakening.model_copy(update={"reason": override.reason, "by": override.by})
    return weakening


def _covers(name: str, override: Override, weakening: Weakening) -> bool:
    """Whether an override explains a weakening.

    With thresholds it explains these only; without, it explains its entry, or all keys below its own.
    """
    section, _, entry = weakening.id.partition(".")
    if section in BY_ID and name == entry:
        threshold = weakening.key.startswith("pass.") or weakening.key in ("efficiency_min", "r2_min", "rel_pct")
        return threshold if override.thresholds else bool(weakening.key)
    if override.thresholds or name in BY_ID:  # no single reason for all criteria
        return False
    return weakening.path == name or weakening.path.startswith(f"{name}.")


Found = tuple[Path, str, str]


def _level(published: Architecture, site: Architecture) -> Iterator[Found]:
    """Another required level of the bars, unless it is at least as strict everywhere."""
    if published.level == site.level:
        return
    for entry in site.criteria:
        for bar in (entry.pass_, *(way.pass_ for way in entry.any_of)):
            before, after = (bar.levels.get(level or "") for level in (published.level, site.level))
            stronger = at_least if bar.op == "ge" else at_most
            if bar.levels and (before is None or not stronger(before, after)):
                yield ("level",), str(published.level or "none"), str(site.level or "none")
                return


def _compared(published: Architecture, site: Architecture) -> Iterator[Found]:
    before, after = _tree(published), _tree(site)
    for section in BY_ID:
        yield from _entries(section, published, site, before.pop(section), after.pop(section))
    yield from _checks(before.pop("checks"), after.pop("checks"))
    yield from _required(before.pop("required_checks"), after.pop("required_checks"))
    profiles, site_tree = before.pop("profiles"), after.pop("profiles")
    for name in site_tree.keys() - profiles.keys() if profiles else ():
        yield ("profiles", name), "no such profile", _words(site_tree[name])
    yield from _differences(("profiles",), profiles, {name: site_tree[name] for name in site_tree if name in profiles})
    for name in before["storage"].keys() & after["storage"].keys():
        _same_client(before["storage"][name], after["storage"][name])
    yield from _differences((), before, after)


def _same_client(published: dict[str, Any], site: dict[str, Any]) -> None:
    """Remove keys that depend on the client of a parallel file system, if the site uses another one."""
    if published["class"] == site["class"] == "parallel" and published["fstype"] != site["fstype"] in CLUSTERED:
        for key in ("fstype", "options", "options_required"):
            del published[key], site[key]


def _entries(
    section: str, published: Architecture, site: Architecture, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[Found]:
    """Criteria, curves or outliers."""
    models: dict[str, Entry] = {entry.id: entry for entry in getattr(published, section)}
    site_entries: dict[str, Entry] = {entry.id: entry for entry in getattr(site, section)}
    for id_, entry in models.items():
        path = (section, id_)
        site_entry = site_entries.get(id_)
        if site_entry is None:
            yield path, threshold_words(entry), "dropped"
            continue
        if entry.severity is Severity.REQUIRED and site_entry.severity is not Severity.REQUIRED:
            yield (*path, "severity"), str(entry.severity), str(site_entry.severity)
        old, new = dict(before[id_]), dict(after[id_])
        for key in ("severity", "statistic", "pass"):
            old.pop(key, None)
            new.pop(key, None)
        metric = METRICS.get(entry.metric)
        op = entry.pass_.op if isinstance(entry, Criterion) else "ge" if metric and metric.higher_is_better else "le"
        if not _as_strict(op, entry.statistic, site_entry.statistic):
            yield (*path, "statistic"), str(entry.statistic), str(site_entry.statistic)
        if isinstance(entry, Criterion) and isinstance(site_entry, Criterion):
            unit = metric.unit if metric else "1"
            bar = _settled(entry.pass_, published.level, None)
            site_bar = _settled(site_entry.pass_, published.level, site.level)
            yield from _bars((*path, "pass"), bar, site_bar, unit)
        yield from _differences(path, old, new)


def _as_strict(op: str, published: Statistic, site: Statistic) -> bool:
    order = _STRICT.get(op, ())
    if published is site:
        return True
    return published in order and site in order and order.index(site) < order.index(published)


def _settled(bar: Bar, level: str | None, otherwise: str | None) -> Bar:
    """The bar with the value of the published level, or of ``otherwise`` if it lacks that level."""
    if not bar.levels:
        return bar
    value = bar.levels.get(level or "", bar.levels.get(otherwise or ""))
    return bar.model_copy(update={"value": value})


def _bars(path: Path, published: Bar, site: Bar, unit: str) -> Iterator[Found]:
    """Two bars of one criterion; ``unit`` is the metric's."""
    before, after = (bar_words(bar.model_copy(update={"levels": {}})) for bar in (published, site))
    if published.op != site.op:
        yield (*path, "op"), before, after
        return
    of, site_of = (_words(bar.of.model_dump(mode="json") if bar.of else None) for bar in (published, site))
    if of != site_of:
        before, after = f"{before} of {of}" if published.of else before, f"{after} of {site_of}" if site.of else after
        yield (*path, "of"), before, after
        return
    try:
        old, new = _in_unit(published, unit), _in_unit(site, unit)
    except UnitError:
        if published.unit != site.unit:
            yield (*path, "unit"), before, after
            return
        old, new = (bar.model_dump(mode="json") for bar in (published, site))
    stronger: dict[str, Callable[[Any, Any], bool]] = {"ge": at_least, "le": at_most}
    bound = stronger.get(published.op, lambda a, b: bool(a == b))
    rules = {"value": bound, "low": at_least, "high": at_most, "warn": bound, "tolerance_pct": at_most}
    for key, rule in rules.items():
        if old[key] != new[key] and not rule(old[key], new[key]):
            yield (*path, key), before, after
    for level, value in old["levels"].items():
        if level not in new["levels"] or not bound(value, new["levels"][level]):
            shown = _words(new["levels"].get(level))
            yield (*path, "levels", level), f"{level} {_words(value)}", f"{level} {shown}"


def _in_unit(bar: Bar, unit: str) -> dict[str, Any]:
    """The bar's numbers in one unit, so that 1 GB/s and 1000 MB/s are equal. Raises UnitError."""
    to = unit if bar.of is None and same_dimension(bar.unit, unit) else "ratio"
    numbers = {key: getattr(bar, key) for key in ("value", "low", "high", "warn")}
    plain: dict[str, Any] = {
        key: None if number is None else convert(number, bar.unit, to) for key, number in numbers.items()
    }
    levels = {name: convert(number, bar.unit, to) for name, number in bar.levels.items()}
    return plain | {"tolerance_pct": bar.tolerance_pct, "levels": levels}


def _checks(published: Mapping[str, str], site: Mapping[str, str]) -> Iterator[Found]:
    """Severities of checks that are now advisory, or no longer required instead of the validator's severity."""
    required, advisory = Severity.REQUIRED.value, Severity.ADVISORY.value
    for check in sorted({*published, *site}):
        before, after = published.get(check), site.get(check)
        if (after == advisory and before != advisory) or (before == required and after is None):
            yield ("checks", check), before or "the validator's severity", after or "the validator's severity"


def _required(published: Mapping[str, Sequence[str]], site: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    for role, checks in published.items():
        kept = {*site.get(role, ()), *site.get("all", ())}
        for check in checks:
            if check not in kept:
                yield ("required_checks", role, check), "required", "not required by name"


def _differences(path: Path, published: Any, site: Any) -> Iterator[Found]:
    if isinstance(published, dict) and isinstance(site, dict):
        if path and rule_of(path)(published, site):
            return
        for key in (*published, *(key for key in site if key not in published)):
            yield from _differences((*path, key), published.get(key), site.get(key))
    elif published != site and not rule_of(path)(published, site):
        yield path, _words(published), _words(site)


def _tree(architecture: Architecture) -> dict[str, Any]:
    """The architecture as mappings, also for lists of named entries."""
    named: dict[str, Any] = _named((), architecture.model_dump(mode="json", by_alias=True))
    return named


def _named(path: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _named((*path, str(key)), inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    key = "id" if len(path) == 1 and path[0] in BY_ID else _NAMED.get(path[-1]) if path else None
    if key is None:
        return value
    return {str(entry[key]): _named((*path, str(entry[key])), entry) for entry in value}


def _words(value: Any) -> str:
    if value in EMPTY:
        return "none"
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and all(isinstance(entry, str | int | float) for entry in value):
        text = ", ".join(map(str, value))
    else:
        text = json.dumps(value, ensure_ascii=False)
    return shortened(text, _LONGEST)
