"""**Claim by claim**: what a document claims of a large system, what that is on this rack, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackproof.core.architecture import Architecture, Bar, Criterion, Scale, Scaled, ShapedLink
from rackproof.core.architecture.criterion import Entry
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.overrides import bar_words, threshold_words
from rackproof.core.architecture.scale import READS
from rackproof.core.evidence import Measurement, NodeInfo
from rackproof.core.grouping import grouped
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.throttles import BPS, CONDITION, IOPS, place_of, words_of
from rackproof.core.verdict import Verdict, name_of
from rackproof.core.wording import counted, exact
from rackproof.report.quantities import quantity
from rackproof.report.schema import ClaimSummary, ClaimWay, FactorSummary, LeftOutSummary, ThrottleSummary
from rackproof.report.statements import subject_text


def claim_by_claim(architecture: Architecture, verdicts: Sequence[Verdict]) -> tuple[ClaimSummary, ...]:
    """Every claim of the published system in the order of the file; empty if the file scales nothing."""
    scale = architecture.scale
    if scale is None:
        return ()
    entries = [entry for _, entry in each_entry(architecture)]
    return tuple(
        _summary(architecture, scale, id_, [entry for entry in entries if id_ in entry.claim], verdicts)
        for id_ in architecture.claims
    )


def of_no_claim(architecture: Architecture, verdicts: Sequence[Verdict]) -> tuple[ClaimWay, ...]:
    """Scaled criteria and curves that are about none of the claims."""
    scale = architecture.scale
    if scale is None:
        return ()
    entries = [entry for _, entry in each_entry(architecture) if entry.scaled is not None and not entry.claim]
    return tuple(_way(scale, entry, verdicts) for entry in entries)


def left_out(architecture: Architecture) -> tuple[LeftOutSummary, ...]:
    """Parts of the published system that the file declares as not measured."""
    parts = architecture.scale.left_out if architecture.scale else ()
    return tuple(LeftOutSummary(**part.model_dump()) for part in parts)


def throttles_of(
    architecture: Architecture, nodes: Sequence[NodeInfo], measurements: Sequence[Measurement]
) -> tuple[ThrottleSummary, ...]:
    """Limits of ports and drives that the file declares, and what the kernels answered."""
    scale = architecture.scale
    groups = {node.name: node.groups for node in nodes}
    limited = [m.conditions[CONDITION] for m in measurements if m.samples and CONDITION in m.conditions]
    summaries = []
    for title, throttle, here, unit in words_of(scale) if scale else ():
        role = None
        if isinstance(throttle, ShapedLink):
            role, (name, key) = throttle.role, place_of(architecture, throttle)
        else:
            name, key = throttle.storage, IOPS if unit == READS else BPS
        actual = grouped(
            (own[name][key], node)
            for by_node in limited
            for node, own in by_node.items()
            if key in own.get(name, {}) and (role is None or role in groups.get(node, ()))
        )
        times = 1.0 if key == IOPS else 1e-6
        texts = [f"{quantity(value * times, unit)} on {fold(names)}" for value, names in sorted(actual.items())]
        summaries.append(
            ThrottleSummary(
                title=title, published=throttle.published, unit=throttle.unit, here=here, here_unit=unit,
                by=throttle.by, reason=throttle.reason,
                in_force="; ".join(texts) or "nothing was measured under it",
            )
        )  # fmt: skip
    return tuple(summaries)


def _summary(
    architecture: Architecture,
    scale: Scale,
    id_: str,
    entries: Sequence[Entry],
    verdicts: Sequence[Verdict],
) -> ClaimSummary:
    claim = architecture.claims[id_]
    ways = [_way(scale, entry, verdicts) for entry in entries]
    ways += _checks([verdict for verdict in verdicts if verdict.kind == "check" and id_ in verdict.claim])
    return ClaimSummary(
        id=id_,
        says=claim.says,
        figure=claim.figure,
        document=architecture.metadata.sources[claim.source].doc,
        status=None if claim.not_checkable else _status(ways),
        not_checkable=claim.not_checkable,
        ways=tuple(ways),
    )


def _status(ways: Sequence[ClaimWay]) -> Status:
    """The worst status of all ways. If any way is required, a FAIL of an advisory way counts as WARN."""
    required = any(way.required for way in ways)
    statuses = [
        Status.WARN if required and not way.required and way.status is Status.FAIL else way.status for way in ways
    ]
    return max(statuses, key=lambda one: one.rank, default=Status.UNMEASURED)


def _way(scale: Scale, entry: Entry, verdicts: Sequence[Verdict]) -> ClaimWay:
    """One criterion or curve. Without a verdict it is UNMEASURED."""
    own = [verdict for verdict in verdicts if verdict.kind == "criterion" and name_of(verdict.id) == entry.id]
    worst = max((verdict.status for verdict in own), key=lambda one: one.rank, default=Status.UNMEASURED)
    scaled = entry.scaled
    return ClaimWay(
        id=entry.id,
        title=entry.title,
        published=_published(entry, scaled) if scaled else "",
        here=threshold_words(entry) + _of(entry),
        measured="; ".join(dict.fromkeys(_measured(verdict) for verdict in own if verdict.status is worst)),
        status=worst,
        required=own[0].required if own else entry.severity.value == "required",
        scaled=tuple(_factors(scale, scaled)) if scaled else (),
        note=(scaled.note if scaled else None) or "",
    )


def _published(entry: Entry, scaled: Scaled) -> str:
    if isinstance(entry, Criterion):
        changes = {"value": scaled.value, "low": scaled.low, "high": scaled.high, "unit": scaled.unit, "warn": None}
        words = bar_words(entry.pass_.model_copy(update=changes))
        return f"{words}, within {scaled.tolerance_pct:g} %" if scaled.tolerance_pct else words
    return f"efficiency ≥ {exact(scaled.value)}"


def _of(entry: Entry) -> str:
    """Text after the bar: the tolerance, and what a share refers to; empty without both."""
    if not isinstance(entry, Criterion):
        return ""
    bar: Bar = entry.pass_
    within = f", within {bar.tolerance_pct:g} %" if bar.tolerance_pct else ""
    if bar.of is None:
        return within
    return f"{within} of {getattr(bar.of, 'metric', None) or getattr(bar.of, 'link', '')}"


def measured_here(claim: ClaimSummary) -> str:
    """Cell beside a claim: its numbers with their bars, failed checks, or how many checks passed."""
    numbers = [f"{way.measured}, bar {way.here}" for way in claim.ways if way.published]
    checks = [way for way in claim.ways if not way.published]
    failed = [f"{way.title}: {way.measured}" for way in checks if way.status is not Status.PASS]
    passed = [counted(len(checks), "check")] if checks else []
    return "; ".join([*numbers, *(failed or passed)]) or claim.not_checkable or ""


def _measured(verdict: Verdict) -> str:
    """``1.02 of 12 MB/s on gpu-01``, or why there is no number."""
    where = "" if verdict.subject == "rack" else f" on {subject_text(verdict.subject)}"
    if verdict.value is None:
        return f"{verdict.message}{where}"
    share = f" ({quantity(verdict.measured, verdict.measured_unit)})" if verdict.measured is not None else ""
    return f"{quantity(verdict.value, verdict.unit)}{share}{where}"


def _factors(scale: Scale, scaled: Scaled) -> Iterator[FactorSummary]:
    for name in scaled.by:
        factor = scale.factors[name]
        yield FactorSummary(name=name, times=factor.times, **factor.model_dump())


def _checks(verdicts: Sequence[Verdict]) -> Iterator[ClaimWay]:
    """One row for each check, over all nodes and items."""
    for check, own in sorted(grouped((name_of(verdict.id), verdict) for verdict in verdicts).items()):
        worst = max((verdict.status for verdict in own), key=lambda one: one.rank)
        passed = sum(verdict.status is Status.PASS for verdict in own)
        failed = [verdict.message for verdict in own if verdict.status is worst and worst is not Status.PASS]
        yield ClaimWay(
            id=check,
            title=f"Check {check}",
            published="",
            here="as the architecture declares it",
            measured="; ".join([f"{passed} of {len(own)} passed", *dict.fromkeys(failed)][:4]),
            status=worst,
            required=any(verdict.required for verdict in own),
        )
