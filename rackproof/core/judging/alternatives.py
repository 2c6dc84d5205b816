"""Alternatives of one criterion: one suffices; while one is unknown, the criterion does not fail.

Alternatives may have different scopes. An alternative on the rack applies to all subjects of the criterion; one on
parts of the subject (nodes of a pair, GPUs of a node) must be met by all parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from rackproof.core.architecture import Alternative, Criterion
from rackproof.core.judging.select import quantity, sources_of
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, amended

_UNKNOWN = (Status.UNMEASURED, Status.INVALID)


def variants_of(way: Alternative, criterion: Criterion, where: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Labels of ``way`` for one variant of the criterion, ``where``.

    Labels that both list take the variant's value; other lists of ``way`` give one variant per value.
    """
    choices = []
    for key, value in way.where.items():
        values = (value,) if isinstance(value, str) else value
        shared = isinstance(criterion.where.get(key), tuple) and where.get(key) in values
        choices.append((where[key],) if shared and not isinstance(value, str) else values)
    for combination in product(*choices):
        yield dict(zip(way.where, combination, strict=True))


def either(own: Sequence[Verdict], ways: Sequence[Sequence[Sequence[Verdict]]]) -> Iterator[Verdict]:
    """One verdict per subject of ``own``; ``ways`` are verdicts by alternative and variant."""
    by_subject = [[{verdict.subject: verdict for verdict in variant} for variant in way] for way in ways]
    for verdict in own:
        verdicts = [verdict]
        for way in by_subject:
            verdicts.append(_worst(v for variant in way for v in _concerning(verdict.subject, variant)))
        yield _together(verdict, verdicts)


def _concerning(subject: str, verdicts: Mapping[str, Verdict]) -> Iterable[Verdict]:
    """Verdicts that apply to a subject: on itself, on the rack, or on its parts."""
    same = verdicts.get(subject) or verdicts.get("rack")
    if same is not None:
        return (same,)
    nodes = _nodes(subject)
    return [verdict for name, verdict in verdicts.items() if nodes & _nodes(name)] or verdicts.values()


def _nodes(subject: str) -> set[str]:
    return {member.partition("/")[0] for member in subject.split("|")}


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    """All variants of an alternative must be met, so the worst counts."""
    return max(verdicts, key=lambda verdict: (verdict.status.rank, verdict.subject))


def _together(own: Verdict, verdicts: Sequence[Verdict]) -> Verdict:
    status = _status_of({verdict.status for verdict in verdicts})
    decides = next((verdict for verdict in verdicts if verdict.status is status), own)
    texts = "; ".join(f"{quantity(v.metric or '', v.labels)}: {v.status}, {v.message}" for v in verdicts)
    return amended(
        decides,
        subject=own.subject,
        status=status,
        message=f"one of {len(verdicts)} suffices: {texts}",
        **sources_of(verdicts),
    )


def _status_of(statuses: set[Status]) -> Status:
    for good in (Status.PASS, Status.WARN):
        if good in statuses:
            return good
    return next((unknown for unknown in _UNKNOWN if unknown in statuses), Status.FAIL)
