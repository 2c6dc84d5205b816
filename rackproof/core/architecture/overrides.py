"""Site overrides of thresholds: applied to the criteria and recorded there for the certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rackproof.core.architecture.criterion import Bar, Criterion, Curve, Entry, Outlier
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.models import Architecture, Override
from rackproof.core.architecture.problem import KeyPath, Problem, known
from rackproof.core.grouping import grouped
from rackproof.core.wording import exact

_BAR_KEYS = ("value", "low", "high", "warn")
_KEYS = {Criterion: _BAR_KEYS, Curve: ("efficiency_min", "r2_min"), Outlier: ("rel_pct",)}


def override_problems(architecture: Architecture) -> Iterator[Problem]:
    """Overrides of unknown entries, or of thresholds that the entry does not have.

    In a file that extends another, an override without thresholds is a reason for weakenings (see ``weakening``).
    """
    reasons = architecture.extends is not None or architecture.metadata.derived_from != ()
    entries = {entry.id: entry for _, entry in each_entry(architecture)}
    for id_, override in architecture.overrides.items():
        base: KeyPath = ("overrides", id_)
        if reasons and not override.thresholds:
            continue
        if id_ not in entries:
            yield from known(base, id_, entries, "criterion, curve or outlier")
            continue
        entry = entries[id_]
        if not override.thresholds:
            yield Problem(base, "changes nothing")
        for key in override.thresholds:
            if key not in _KEYS[type(entry)]:
                yield Problem((*base, key), f"{id_} has no {key}; it has {', '.join(_KEYS[type(entry)])}")
        if isinstance(entry, Criterion) and entry.any_of:
            yield Problem(base, f"{id_} can be met in several ways; change it by extending the file")
        bar = entry.pass_ if isinstance(entry, Criterion) else None
        if bar is not None and override.value is not None and not (bar.value or bar.levels):
            yield Problem((*base, "value"), f"the bar of {id_} is {bar_words(bar)}")


def overridden(architecture: Architecture) -> Architecture:
    """The architecture with its overrides applied. Call ``override_problems`` first."""
    if not architecture.overrides:
        return architecture
    changed = grouped((path[0], _applied(entry, architecture.overrides)) for path, entry in each_entry(architecture))
    return architecture.model_copy(update={str(section): tuple(entries) for section, entries in changed.items()})


def _applied(entry: Entry, overrides: Mapping[str, Override]) -> Entry:
    override = overrides.get(entry.id)
    if override is None or not override.thresholds:
        return entry
    why = f"{override.reason} ({override.by})" if override.by else override.reason
    note = {"published": threshold_words(entry), "changed": why}
    new = {key: value for key in _KEYS[type(entry)] if (value := getattr(override, key)) is not None}
    if not isinstance(entry, Criterion):
        return entry.model_copy(update=note | new)
    if "value" in new:
        new["levels"] = {}
        if override.warn is None:
            new["warn"] = None  # a warning level belongs to its bar
    return entry.model_copy(update=note | {"pass_": entry.pass_.model_copy(update=new)})


def threshold_words(entry: Entry) -> str:
    """The threshold as written in the file, in words."""
    if isinstance(entry, Criterion):
        return bar_words(entry.pass_)
    if isinstance(entry, Outlier):
        return f"{entry.rel_pct:g} % from the median"
    parts = [("efficiency ≥", entry.efficiency_min), ("R² ≥", entry.r2_min)]
    return ", ".join(f"{name} {exact(value)}" for name, value in parts if value is not None) or "no negative step"


def bar_words(bar: Bar) -> str:
    """``≥ 460 GB/s (warns below 475)``: the bar as written in the file."""
    unit = "" if bar.unit == "1" else f" {bar.unit}"
    if bar.levels:
        listed = ", ".join(f"{name} {exact(value)}" for name, value in bar.levels.items())
        return f"{'≥' if bar.op == 'ge' else '≤'} {listed}{unit}"
    if bar.op == "range":
        return f"{exact(bar.low)} to {exact(bar.high)}{unit}"
    sign = {"ge": "≥", "le": "≤", "eq": "="}[bar.op]
    warn = "" if bar.warn is None else f" (warns {'below' if bar.op == 'ge' else 'above'} {exact(bar.warn)})"
    return f"{sign} {exact(bar.value)}{unit}{warn}"
