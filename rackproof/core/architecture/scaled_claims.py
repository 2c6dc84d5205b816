"""Files that scale a published architecture: every changed bar follows from the published one and declared factors, and
every entry of the published architecture is scaled, or left out with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import Final

from rackproof.core.architecture.criterion import Bar, Criterion, Curve, Entry, QuantityFamily
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem, each_known, known
from rackproof.core.architecture.scale import RATE, READS, Scale, Scaled, ShapedLink, throttles
from rackproof.core.units import UnitError, convert
from rackproof.core.wording import exact

EXACT: Final = 0.01
"""Tolerance of a scaled bar against the published bar times its factors, because bars are rounded."""


def scale_problems(architecture: Architecture) -> Iterator[Problem]:
    """Contradictions in the file itself, in its order."""
    scale, used = architecture.scale, set[str]()
    for base, entry in each_entry(architecture):
        if scale is None:
            if entry.scaled is not None:
                yield Problem((*base, "scaled"), "the file has no scale: say of which architecture, and its factors")
            continue
        if entry.scaled is None:
            if entry.claim:
                yield Problem(base, "names a claim of a larger system: say under scaled from which bar it follows")
            continue
        used.update(entry.scaled.by)
        yield from _scaled(base, scale, entry, entry.scaled)
    for _, throttle in throttles(scale) if scale else ():
        used.update(throttle.by)
    for name in scale.factors if scale else ():
        if name not in used:
            yield Problem(("scale", "factors", name), "scales nothing: no criterion, curve, link or drive names it")
    yield from _throttles(architecture)


def _throttles(architecture: Architecture) -> Iterator[Problem]:
    """Links and drives that the rack does not have, limits without a meaning, and jobs that need a link."""
    scale = architecture.scale
    for base, throttle in throttles(scale) if scale else ():
        if scale is not None and not scale.factors.keys() >= set(throttle.by):
            yield from each_known((*base, "by"), throttle.by, scale.factors, "factor")
        units = (RATE,) if isinstance(throttle, ShapedLink) else (RATE, READS)
        if not any(_converts(throttle.unit, unit) for unit in units):
            yield Problem((*base, "unit"), f"{throttle.unit} is no unit of a rate")
        if isinstance(throttle, ShapedLink):
            yield from known((*base, "role"), throttle.role, architecture.roles, "role")
            if throttle.rail >= architecture.rails:
                yield Problem((*base, "rail"), f"expected less than {architecture.rails}, actual {throttle.rail}")
            yield from _connections(architecture, (*base, "each_connection_of"), throttle)
        else:
            yield from known((*base, "storage"), throttle.storage, architecture.storage, "storage")
    series = scale is not None and any(link.series for link in scale.links.values())
    for name, profile in architecture.profiles.items():
        for job, made in profile.ingest.jobs.items() if profile.ingest else ():
            if made.port_gbps and not series:
                path = ("profiles", name, "ingest", "jobs", job, "port_gbps")
                yield Problem(path, "no link of scale.links has series: true: ports of hardware are not shaped")


def _connections(architecture: Architecture, path: KeyPath, link: ShapedLink) -> Iterator[Problem]:
    """A storage whose connections do not begin at the port, and a port with a second limit of another kind."""
    name = link.each_connection_of
    if name is None:
        return
    if (storage := architecture.storage.get(name)) is None:
        yield from known(path, name, architecture.storage, "storage")
    elif not storage.takes_connections or storage.port is None or storage.server_role != link.role:
        yield Problem(path, f"{name} is not NFS over TCP with a port that {link.role} serves")
    others = architecture.scale.links.items() if architecture.scale else ()
    for key, other in others:
        if (other.role, other.rail) == (link.role, link.rail) and other.each_connection_of != name:
            yield Problem(path, f"{key} limits the same port otherwise")


def _converts(unit: str, other: str) -> bool:
    try:
        convert(1.0, unit, other)
    except UnitError:
        return False
    return True


def _scaled(base: KeyPath, scale: Scale, entry: Entry, scaled: Scaled) -> Iterator[Problem]:
    if not scale.factors.keys() >= set(scaled.by):
        yield from each_known((*base, "scaled", "by"), scaled.by, scale.factors, "factor")
        return
    own, unit, tolerance = _own(entry)
    if own is None:
        yield Problem(
            (*base, "scaled"),
            "only one bar without levels, or a curve's efficiency, can be scaled",
        )
        return
    times = scaled.times(scale)
    for key, here in own.items():
        published = getattr(scaled, key)
        if (published is None) != (here is None):
            yield Problem(
                (*base, "scaled", key), f"expected {'a value' if published is None else 'none'}, as in the bar"
            )
        elif published is not None and here is not None:
            try:
                expected = convert(published * times, scaled.unit, unit)
            except UnitError as error:
                yield Problem((*base, "scaled", "unit"), str(error))
                return
            if not isclose(here, expected, rel_tol=EXACT):
                yield Problem(
                    (*base, "scaled", key),
                    f"{exact(published)} times {exact(times)} is {exact(expected)} {unit}, the bar is {exact(here)}",
                )
    if tolerance > scaled.tolerance_pct and scaled.note is None:
        yield Problem((*base, "scaled", "note"), f"the tolerance is {tolerance:g} %: say why it is larger")


def _own(entry: Entry) -> tuple[dict[str, float | None] | None, str, float]:
    """Bar by key, its unit and its tolerance; None where it is not one bar."""
    if isinstance(entry, Curve) and entry.efficiency_min is not None:
        return {"value": entry.efficiency_min}, "ratio", 0.0
    if not isinstance(entry, Criterion) or entry.pass_.levels:
        return None, "", 0.0
    bar = entry.pass_
    return {"value": bar.value, "low": bar.low, "high": bar.high}, bar.unit, bar.tolerance_pct


def against_published(published: Architecture, architecture: Architecture) -> Iterator[Problem]:
    """Claims and bars that differ from the published architecture's."""
    for id_ in dict.fromkeys((*published.claims, *architecture.claims)):
        theirs, here = published.claims.get(id_), architecture.claims.get(id_)
        base: KeyPath = ("claims", id_) if here else ("claims",)
        if here is None or theirs is None:
            which = f"{published.metadata.id} has also" if here is None else "is no claim of"
            yield Problem(base, f"{which} {id_ if here is None else published.metadata.id}")
            continue
        for key in ("says", "figure"):
            if getattr(here, key) != getattr(theirs, key):
                yield Problem((*base, key), f"{published.metadata.id} says: {getattr(theirs, key)}")
        if theirs.not_checkable and not here.not_checkable:
            yield Problem(base, f"{published.metadata.id} calls it not checkable")
    theirs_by_id = {entry.id: entry for _, entry in each_entry(published)}
    for path, entry in each_entry(architecture):
        if entry.scaled is not None:
            yield from _same_bar(published, theirs_by_id, (*path, "scaled"), entry, entry.scaled)
            yield from _same_claims(published, architecture, theirs_by_id, (*path, "claim"), entry)
    yield from _left_out(published, architecture, theirs_by_id)


def _same_claims(
    published: Architecture, architecture: Architecture, entries: dict[str, Entry], base: KeyPath, entry: Entry
) -> Iterator[Problem]:
    theirs = entries.get(entry.scaled.of) if entry.scaled else None
    if theirs is None:
        return
    judged = {id_ for id_, claim in architecture.claims.items() if not claim.not_checkable}
    if set(entry.claim) & judged != set(theirs.claim) & judged:
        about = ", ".join(theirs.claim) or "no claim"
        yield Problem(base, f"{theirs.id} of {published.metadata.id} is about {about}")


def _left_out(published: Architecture, architecture: Architecture, entries: dict[str, Entry]) -> Iterator[Problem]:
    """Entries of the published architecture that are neither scaled nor left out, or both."""
    scale, name = architecture.scale, published.metadata.id
    if scale is None:
        return
    scaled = {entry.scaled.of: entry.id for _, entry in each_entry(architecture) if entry.scaled is not None}
    left: set[str] = set()
    for index, part in enumerate(scale.left_out):
        base: KeyPath = ("scale", "left_out", index)
        yield from each_known((*base, "of"), part.of, entries, f"entry of {name}")
        for place, id_ in enumerate(part.of):
            if id_ in left:
                yield Problem((*base, "of", place), f"{id_} is left out twice")
            if id_ in scaled:
                yield Problem((*base, "of", place), f"{id_} is scaled: see {scaled[id_]}")
            left.add(id_)
        about = {claim for id_ in part.of if id_ in entries for claim in entries[id_].claim}
        if set(part.claims) != about:
            yield Problem((*base, "claims"), f"they are about {', '.join(sorted(about)) or 'no claim'} in {name}")
    for id_, entry in entries.items():
        if id_ not in left and id_ not in scaled:
            yield Problem(("scale", "left_out"), f"{name} has also {id_}, {entry.title}: scale it, or say why not")


def _same_bar(
    published: Architecture, entries: dict[str, Entry], base: KeyPath, entry: Entry, scaled: Scaled
) -> Iterator[Problem]:
    name = published.metadata.id
    if scaled.of not in entries:
        yield from known((*base, "of"), scaled.of, entries, f"entry of {name}")
        return
    theirs = entries[scaled.of]
    if isinstance(theirs, Curve):
        expected: tuple[object, ...] = (theirs.efficiency_min, None, None, "ratio", 0.0)
    elif isinstance(theirs, Criterion):
        bar: Bar = theirs.pass_
        value = bar.levels.get(published.level or "") if bar.levels else bar.value
        expected = (value, bar.low, bar.high, bar.unit, bar.tolerance_pct)
        if isinstance(entry, Criterion) and entry.pass_.op != bar.op:
            yield Problem((*base, "of"), f"{scaled.of} of {name} has '{bar.op}', this entry has '{entry.pass_.op}'")
        yield from _alternatives(base[:-1], name, theirs, entry)
    else:
        yield Problem((*base, "of"), "an outlier has no bar to scale")
        return
    actual = (scaled.value, scaled.low, scaled.high, scaled.unit, scaled.tolerance_pct)
    for key, ours, of_them in zip(("value", "low", "high", "unit", "tolerance_pct"), actual, expected, strict=True):
        if ours != of_them:
            yield Problem((*base, key), f"{scaled.of} of {name} has {of_them}, here {ours}")
    there, here = (_items(one) for one in (theirs, entry))
    if here < there and scaled.note is None:
        yield Problem((*base, "note"), f"{scaled.of} of {name} judges {there} of them, this entry {here}: say why")


def _items(entry: Entry) -> int:
    """How many verdicts of a member an entry gives: one for each combination of listed labels."""
    return len(list(entry.variants())) if isinstance(entry, QuantityFamily) else 1


def _alternatives(base: KeyPath, name: str, theirs: Criterion, entry: Entry) -> Iterator[Problem]:
    """Alternatives are not scaled: each must be one of the published entry."""
    allowed = [(one.metric, one.pass_) for one in theirs.any_of]
    for index, one in enumerate(entry.any_of if isinstance(entry, Criterion) else ()):
        if (one.metric, one.pass_) not in allowed:
            yield Problem((*base, "any_of", index), f"{theirs.id} of {name} has no such alternative")
