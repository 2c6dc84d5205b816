"""Verdicts as tables: checks against nodes, criteria against their subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackproof.core.grouping import grouped
from rackproof.core.status import Status
from rackproof.core.verdict import LOAD, Verdict, item_of, name_of
from rackproof.report.certificate import natural
from rackproof.report.findings import worst
from rackproof.report.quantities import ABSENT, distance, quantity
from rackproof.report.schema import Certificate
from rackproof.report.statements import fold_subjects, subject_text
from rackproof.report.tables import Cell, Row, bytes_text, limited

NODE_COLUMNS = 6
"""Maximum number of nodes with a column each in the tables of checks."""


@dataclass(frozen=True, slots=True)
class CriterionRow:
    """``items``: items of one subject with the same result, e.g. 0 wrong values at every message size."""

    subject: str
    items: tuple[str, ...]
    measured: str
    ceiling: str
    value: str
    distance: str
    samples: str
    status: Status
    message: str
    raw: tuple[str, ...]
    simulated: bool


@dataclass(frozen=True, slots=True)
class CriterionGroup:
    """One criterion and its subjects, worst first."""

    id: str
    title: str
    bar: str
    required: bool
    statistic: str
    source: str
    reason: str
    share_of: str
    """Ceiling that the number is a share of, or ceiling of an absolute threshold; empty without one."""
    published: str
    """The published threshold; empty unless the site has changed it."""
    claims: tuple[str, ...]
    """Published claims that the criterion checks."""
    rows: tuple[CriterionRow, ...]
    omitted: str


def criterion_groups(verdicts: Iterable[Verdict]) -> tuple[CriterionGroup, ...]:
    groups = []
    for identifier, members in grouped((name_of(v.id), v) for v in verdicts if v.kind == "criterion").items():
        members.sort(key=_order)
        shown, omitted = limited(_folded_items(_criterion_row(v) for v in members), lambda row: row.status)
        first = members[0]
        groups.append(
            CriterionGroup(
                id=identifier,
                title=first.title,
                bar=", ".join(dict.fromkeys(v.bar for v in members if v.bar)) or "no bar",
                required=first.required,
                statistic=first.statistic or "",
                source=first.source or "",
                reason=first.reason or "",
                share_of=", ".join(dict.fromkeys(v.ceiling_of for v in members if v.ceiling_of)),
                published=first.published or "",
                claims=first.claim,
                rows=tuple(shown),
                omitted=omitted,
            )
        )
    return tuple(groups)


def _order(v: Verdict) -> tuple[object, ...]:
    """The worst first; among passing verdicts those with details, which are the closest to the bar."""
    return -v.status.rank, not v.message, v.subject, v.labels.get("op", ""), natural(v.labels)


def _criterion_row(v: Verdict) -> CriterionRow:
    share = v.measured is not None
    spread = "" if v.cv_pct is None else f", CV {quantity(v.cv_pct, 'percent')}"
    return CriterionRow(
        subject=subject_text(v.subject),
        items=(_item_text(v),) if item_of(v.id) else (),
        measured=quantity(v.measured, v.measured_unit) if share else quantity(v.value, v.unit),
        ceiling=quantity(v.ceiling, v.ceiling_unit),
        value=quantity(v.value, v.unit) if share else ABSENT,
        distance=distance(v.distance_pct),
        samples=f"{len(v.samples)}{spread}" if v.samples else ABSENT,
        status=v.status,
        message=v.message if v.status is not Status.PASS else f"reaches the level {v.level}" if v.level else "",
        raw=v.raw,
        simulated=v.simulated,
    )


def _item_text(v: Verdict) -> str:
    """Item of a criterion; sizes in bytes with a unit."""
    sizes = {v.labels.get("bytes"), v.labels.get("block_bytes")}
    return " ".join(bytes_text(part) if part in sizes else part for part in item_of(v.id).split(","))


def _folded_items(rows: Iterable[CriterionRow]) -> list[CriterionRow]:
    folded = grouped((replace(row, items=(), raw=()) if row.status is Status.PASS else row, row) for row in rows)
    return [
        replace(
            same,
            items=tuple(item for row in group for item in row.items),
            raw=tuple(dict.fromkeys(sha for row in group for sha in row.raw)),
        )
        for same, group in folded.items()
    ]


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """One check; rows are its items, or one row without a title."""

    id: str
    title: str
    """Empty if the verdicts have no common title except the id."""
    protects: str
    required: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class CheckTable:
    """All checks, by module. ``columns`` are nodes on a small rack, ``Passed on`` and ``Others`` on a large one."""

    columns: tuple[str, ...]
    modules: tuple[tuple[str, tuple[CheckGroup, ...]], ...]


def check_table(verdicts: Iterable[Verdict], nodes: Sequence[str]) -> CheckTable:
    checks: dict[str, dict[str, list[Verdict]]] = {}
    subjects = set()
    for v in verdicts:
        if v.kind == "check":
            checks.setdefault(name_of(v.id), {}).setdefault(item_of(v.id), []).append(v)
            subjects.add(v.subject)
    others = sorted(subjects - set(nodes))
    small = len(nodes) <= NODE_COLUMNS and len(others) <= 1
    columns = (*nodes, *others) if small else ("Passed on", "Others")
    modules: dict[str, list[CheckGroup]] = {}
    for name, items in checks.items():
        if name.startswith(LOAD):
            items = _passed_steps_in_one(items)
        rows = tuple(Row(item, _by_node(group, columns) if small else _folded(group)) for item, group in items.items())
        modules.setdefault(name.partition(".")[0], []).append(_check_group(name, items, rows))
    return CheckTable(columns, tuple((module, tuple(groups)) for module, groups in modules.items()))


def _passed_steps_in_one(items: Mapping[str, list[Verdict]]) -> dict[str, list[Verdict]]:
    """Merge the steps that all nodes passed into one row; a run has tens of steps."""
    passed = {step: group for step, group in items.items() if all(v.status is Status.PASS for v in group)}
    if len(passed) < 2:
        return dict(items)
    last = list({v.subject: v for group in passed.values() for v in group}.values())
    others = {step: group for step, group in items.items() if step not in passed}
    return {**others, f"{len(passed)} steps": last}


def _check_group(name: str, items: Mapping[str, Sequence[Verdict]], rows: tuple[Row, ...]) -> CheckGroup:
    first = next(iter(items.values()))[0]
    titles = {v.title for group in items.values() for v in group}
    own = len(titles) == 1 and not first.title.startswith(name)
    reasons = {v.reason for group in items.values() for v in group if v.reason}
    required = any(v.required for group in items.values() for v in group)
    return CheckGroup(name, first.title if own else "", "; ".join(sorted(reasons)), required, rows)


def _by_node(group: Sequence[Verdict], nodes: Sequence[str]) -> tuple[Cell, ...]:
    of_node = {v.subject: v for v in group}
    return tuple(_answer(of_node[n]) if n in of_node else Cell(ABSENT) for n in nodes)


def _answer(v: Verdict) -> Cell:
    return Cell(v.status.value, "", v.status, v.raw, v.simulated)


def _folded(group: Sequence[Verdict]) -> tuple[Cell, ...]:
    passed = [v.subject for v in group if v.status is Status.PASS]
    others = [v for v in group if v.status is not Status.PASS]
    texts = [
        f"{status} {fold_subjects(v.subject for v in others if v.status is status)}"
        for status in sorted({v.status for v in others}, key=lambda s: -s.rank)
    ]
    return (
        Cell(f"{len(passed)}: {fold_subjects(passed)}") if passed else Cell(ABSENT),
        Cell("; ".join(texts), "", worst(others), others[0].raw) if others else Cell(ABSENT),
    )


def checks_by_node(certificate: Certificate) -> tuple[tuple[str, dict[str, tuple[int, int, Status | None]]], ...]:
    """Passed checks, all checks and the worst status, by node and module of checks."""
    by_node: dict[str, dict[str, list[Verdict]]] = {name: {} for name in certificate.node_names}
    for v in certificate.verdicts:
        if v.kind == "check":
            area = name_of(v.id).partition(".")[0]
            by_node.setdefault(v.subject, {}).setdefault(area, []).append(v)
    return tuple(
        (
            node,
            {
                area: (sum(v.status is Status.PASS for v in group), len(group), worst(group))
                for area, group in areas.items()
            },
        )
        for node, areas in by_node.items()
    )
