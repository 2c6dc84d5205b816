"""Verdicts other than PASS, grouped by cause, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rackproof.core.grouping import grouped
from rackproof.core.status import Status
from rackproof.core.verdict import EVIDENCE, RUN, SERVER, Verdict, item_of, name_of
from rackproof.report.schema import Certificate, MeasurementSummary
from rackproof.report.statements import fold_subjects, subject_text

_CAUSES = (RUN, "node.", SERVER)
"""Prefixes of checks that explain other verdicts."""
CLUSTER_FROM = 3
"""Minimum number of ids that become one finding: unmeasured on the same subjects for the same reason, or invalid for
the same reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Verdicts of one check or criterion with one status, or of several that one cause left unmeasured or invalid."""

    status: Status
    required: bool
    kind: str
    title: str
    ids: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def subjects(self) -> str:
        return fold_subjects(v.subject for v in self.verdicts)

    @property
    def hint(self) -> str:
        return "; ".join(dict.fromkeys(v.hint for v in self.verdicts if v.hint)) if len(self.ids) == 1 else ""

    @property
    def why(self) -> str:
        reasons = dict.fromkeys(v.reason for v in self.verdicts if v.reason)
        return "; ".join(r for r in reasons if r) if len(self.ids) == 1 else ""

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """(item and subjects, message), folded by message, in order of appearance."""
        one = len(self.ids) == 1
        same = grouped(((item_of(v.id) if one else "", v.message), v.subject) for v in self.verdicts)
        return tuple(
            (": ".join(part for part in (item, fold_subjects(subjects)) if part), message)
            for (item, message), subjects in same.items()
        )

    @property
    def says_where(self) -> bool:
        """Whether messages need their item and subjects, because the finding's title and subjects lack them."""
        return len(self.messages) > 1 or any(item_of(identifier) not in self.title for identifier in self.verdict_ids)

    @property
    def verdict_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v.id for v in self.verdicts))

    @property
    def raw(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sha for v in self.verdicts for sha in v.raw))


def findings(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    """Findings in order: broken evidence, then required before advisory, then the worst status first."""
    by_id = grouped(((v.status, v.required, v.kind, name_of(v.id)), v) for v in verdicts if v.status is not Status.PASS)
    causes: dict[object, list[Finding]] = {}
    for (status, required, kind, identifier), group in by_id.items():
        finding = Finding(status, required, kind, _title(group), (identifier,), tuple(group))
        # One cause outside of the checks: a node that is down, a missing tool, a starved machine.
        absent = frozenset((v.subject, v.message) for v in group)
        texts = frozenset(v.message for v in group)
        cause = {
            Status.UNMEASURED: (required, status, absent),
            Status.WARN: (required, status, absent),
            Status.INVALID: (required, status, texts),
        }.get(status, (required, status, kind, identifier))
        causes.setdefault(cause, []).append(finding)
    merged = [finding for group in causes.values() for finding in _cluster(group)]
    return tuple(sorted(merged, key=_order))


def _order(finding: Finding) -> tuple[bool, bool, int, bool, str, tuple[str, ...]]:
    """Sort key of ``findings``; within a status, findings on the run and on silent nodes come first."""
    cause = any(identifier.startswith(_CAUSES) for identifier in finding.ids)
    return EVIDENCE not in finding.ids, not finding.required, -finding.status.rank, not cause, finding.kind, finding.ids


def _title(group: list[Verdict]) -> str:
    """The common title, or the check's id when its items have different titles."""
    return group[0].title if len({v.title for v in group}) == 1 else name_of(group[0].id)


def _cluster(group: list[Finding]) -> Iterable[Finding]:
    if len(group) < CLUSTER_FROM:
        return group
    kinds: Counter[str] = Counter({v.id: v.kind for f in group for v in f.verdicts}.values())
    named = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else plural}"
        for kind, plural in (("check", "checks"), ("criterion", "criteria"))
        if kinds[kind]
    ]
    return [
        Finding(
            status=group[0].status,
            required=group[0].required,
            kind=group[0].kind,
            title=f"{' and '.join(named)} {group[0].status.value.lower()} for the same reason",
            ids=tuple(f.ids[0] for f in group),
            verdicts=tuple(v for f in group for v in f.verdicts),
        )
    ]


def worst(verdicts: Iterable[Verdict]) -> Status | None:
    """The worst status; None without verdicts."""
    statuses: list[Status] = [v.status for v in verdicts]
    return max(statuses, key=lambda s: s.rank) if statuses else None


def verdicts_about(certificate: Certificate) -> Callable[[MeasurementSummary], list[Verdict]]:
    """A function from a measurement to its verdicts.

    A pair that was folded into verdicts on nodes has those that name it, or both nodes' if all pass. Verdicts on a
    value computed from several numbers (the slowest client against the median) are left out: their subject is the rack,
    but not the rack's measurement. Verdicts without a criterion in the architecture match by subject.
    """
    criteria = {c.id: c for c in certificate.architecture.criteria}
    index: dict[tuple[str, str], list[Verdict]] = {}
    for v in certificate.verdicts:
        if v.metric and ((criterion := criteria.get(name_of(v.id))) is None or criterion.about_one):
            index.setdefault((v.metric, v.subject), []).append(v)

    def about(m: MeasurementSummary) -> list[Verdict]:
        return [v for v in on(m.metric, m.subject) if v.labels.items() <= m.labels.items()]

    def on(metric: str, subject: str) -> Iterable[Verdict]:
        own, pair = index.get((metric, subject)), subject.split("|")
        if own is not None or len(pair) == 1:
            return own or ()
        ends = [index.get((metric, node), []) for node in pair]
        of_pair = [v for end in ends for v in end if v.message.startswith(f"{subject_text(subject)}: ")]
        return of_pair or [v for end in ends for v in end if all(w.status is Status.PASS for e in ends for w in e)]

    return about
