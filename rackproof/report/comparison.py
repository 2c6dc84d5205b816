"""A comparison of two runs, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rackproof.core.comparison import Change, Comparison, NumberChange, ValueChange, VerdictChange
from rackproof.core.grouping import grouped
from rackproof.core.judging.select import quantity as quantity_name
from rackproof.core.status import Status
from rackproof.core.verdict import item_of, name_of
from rackproof.core.wording import counted
from rackproof.errors import EXIT_FAILED, EXIT_OK
from rackproof.report.quantities import ABSENT, distance, quantity
from rackproof.report.text import Encoder

SHOWN = 12
"""Rows of each list without ``--all``: changed checks, and numbers without a criterion."""

_LONG = 100
_BESIDE = 72
"""Width of a row without the criterion's id, columns."""
_ORDER = tuple(Change)
_WORST = (
    Change.WORSE, Change.LOST, Change.ONLY_A, Change.NOT_COMPARABLE, Change.FOUND, Change.ONLY_B, Change.SAME,
    Change.BETTER,
)  # fmt: skip
"""Order of the lines, the most urgent first."""

_STYLE = {
    Change.WORSE: "bold red",
    Change.LOST: "cyan",
    Change.ONLY_A: "cyan",
    Change.NOT_COMPARABLE: "cyan",
    Change.FOUND: "yellow",
    Change.ONLY_B: "yellow",
    Change.SAME: "dim",
    Change.BETTER: "green",
}

Encode = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Line:
    """One criterion, curve or outlier: its verdicts in both runs, and its largest regression."""

    id: str
    required: bool
    change: Change
    verdicts: tuple[VerdictChange, ...]
    worst: NumberChange | ValueChange | None
    """A ``ValueChange`` where the criterion computes one value from several numbers."""
    subject: str
    """Subject of ``worst``, with labels that distinguish it from the other numbers of the line."""

    def statuses(self, after: bool) -> str:
        """``2 PASS, 1 FAIL``, the worst last."""
        counts = Counter(verdict.after if after else verdict.before for verdict in self.verdicts)
        named = ((status, counts[status]) for status in sorted(Status, key=lambda status: status.rank))
        return ", ".join(f"{count} {status}" for status, count in named if count) or ABSENT


def lines(comparison: Comparison) -> tuple[Line, ...]:
    """One line for each criterion, curve and outlier with a verdict, with all its variants; the worst first."""
    verdicts = grouped((name_of(v.id), v) for v in comparison.verdicts if v.kind == "criterion")
    numbers: dict[str, list[NumberChange | ValueChange]] = {
        **grouped((id_, n) for n in comparison.numbers for id_ in dict.fromkeys(map(name_of, n.criteria))),
        **grouped((name_of(value.id), value) for value in comparison.values),  # a value stands for its numbers
    }
    table_lines = (_line(id_, verdicts[id_], sorted(numbers.get(id_, ()), key=badness)) for id_ in verdicts)
    return tuple(sorted(table_lines, key=lambda line: (_WORST.index(line.change), line.id)))


def _line(id_: str, verdicts: Sequence[VerdictChange], numbers: Sequence[NumberChange | ValueChange]) -> Line:
    changes = [number.change for number in numbers]
    # an unchanged verdict adds nothing to numbers
    changes += [_urgency(verdict) for verdict in verdicts if not (numbers and verdict.change is Change.SAME)]
    worst = numbers[0] if numbers else None
    return Line(
        id=id_,
        required=any(verdict.required for verdict in verdicts),
        change=min(changes, key=_WORST.index),
        verdicts=tuple(verdicts),
        worst=worst,
        subject=_subject(worst, numbers) if worst else ABSENT,
    )


def _subject(worst: NumberChange | ValueChange, numbers: Sequence[NumberChange | ValueChange]) -> str:
    if isinstance(worst, ValueChange):
        return f"{worst.subject} {item_of(worst.id)}".rstrip()
    measured = [number for number in numbers if isinstance(number, NumberChange)]
    distinct = [key for key in worst.labels if len({number.labels.get(key) for number in measured}) > 1]
    return " ".join((worst.subject, *(f"{key}={worst.labels[key]}" for key in sorted(distinct))))


def badness(number: NumberChange | ValueChange) -> tuple[Any, ...]:
    """Sort key: the largest loss first. A rise from 0 is an infinite loss where less is better."""
    gain = number.gain_pct
    if gain is None:
        gain = float("-inf") if number.change is Change.WORSE else 0.0
    if isinstance(number, ValueChange):
        return (_WORST.index(number.change), gain, number.id, number.subject, [])
    return (_WORST.index(number.change), gain, number.metric, number.subject, sorted(number.labels.items()))


def _urgency(verdict: VerdictChange) -> Change:
    return Change.WORSE if verdict.is_regression else verdict.change


def to_json(comparison: Comparison) -> bytes:
    """JSON with sorted keys, indented by two. Raises ``ValueError`` on a number that is not finite."""
    document = comparison.model_dump(mode="json", by_alias=True) | {
        "exit_status": comparison.exit_status,
        "regressions": len(comparison.regressions),
        "unanswered": len(comparison.unanswered),
        "counts": {
            "numbers": _counts(comparison.numbers),
            "values": _counts(comparison.values),
            "verdicts": _counts(comparison.verdicts),
        },
        "criteria": [
            {
                "id": line.id,
                "required": line.required,
                "change": line.change,
                "before": line.statuses(after=False),
                "after": line.statuses(after=True),
                "worst": line.worst and _named(line.worst) | {
                    "subject": line.worst.subject, "change": line.worst.change, "gain_pct": line.worst.gain_pct,
                },
            }
            for line in lines(comparison)
        ],
    }  # fmt: skip
    return (json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _named(number: NumberChange | ValueChange) -> dict[str, Any]:
    if isinstance(number, ValueChange):
        return {"verdict": number.id}
    return {"metric": number.metric, "labels": number.labels}


def _counts(items: Iterable[NumberChange | ValueChange | VerdictChange]) -> dict[str, int]:
    counts = Counter(item.change for item in items)
    return {change.value: counts[change] for change in _ORDER if counts[change]}


def show(comparison: Comparison, console: Console, everything: bool = False) -> None:
    """Print a line for each criterion, other changes and the conclusion; ``everything`` adds all numbers."""
    encoded = Encoder(console.encoding)
    for text in _head(comparison):
        console.print(Text(encoded(text)), soft_wrap=True)
    for text in comparison.warnings:
        console.print(Text(encoded(text), "yellow"), soft_wrap=True)
    console.print()
    if criteria := lines(comparison):
        for part in _criteria(criteria, encoded, console.width):
            console.print(part, soft_wrap=isinstance(part, Text))  # never breaks an id
    _list(console, encoded, "checks", _checks(comparison), everything)
    _list(console, encoded, "numbers without a criterion", _without_criterion(comparison), everything)
    if everything:
        numbers = sorted(comparison.numbers, key=badness)
        listed = [(_sentence(number), number.change) for number in numbers]
        _list(console, encoded, "all numbers", (_summary(numbers), listed), everything)
        values = sorted(comparison.values, key=badness)
        listed = [(f"{value.id} on {value.subject}: {_moved(value)}", value.change) for value in values]
        _list(console, encoded, "values computed from several numbers", (_summary(values), listed), everything)
    console.print()
    for text, style in conclusion(comparison):
        console.print(Text(encoded(text), style), soft_wrap=True)


def _head(comparison: Comparison) -> Iterator[str]:
    yield f"A  {comparison.before}"
    yield f"B  {comparison.after}"
    yield f"both judged against {comparison.architecture}"
    yield from comparison.differences
    if comparison.nodes_gone:
        yield f"gone: {', '.join(comparison.nodes_gone)}"
    if comparison.nodes_new:
        yield f"new: {', '.join(comparison.nodes_new)}"
    otherwise = Counter(_short(text) for number in comparison.numbers for text in number.otherwise)
    for text, count in sorted(otherwise.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"different conditions ({counted(count, 'number')}): {text}"
    if len(otherwise) > SHOWN:
        yield f"and {len(otherwise) - SHOWN} more conditions that differ (--json has them)"


def _short(text: str) -> str:
    """A command line, shortened if long."""
    return text if len(text) <= _LONG else f"{text.partition(': ')[0]} differs"


def _criteria(criteria: Sequence[Line], encode: Encode, width: int) -> list[RenderableType]:
    """A table; on a narrow terminal two lines per criterion, because a wrapped id cannot be searched for."""
    rows = [_row(line, encode) for line in criteria]
    if max(map(len, (row[1] for row in rows))) + _BESIDE > width:
        return [part for line, row in zip(criteria, rows, strict=True) for part in _stacked(line, row)]
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for title in ("", "criterion"):
        table.add_column(title, no_wrap=True)
    for title in ("verdicts", "worst number"):
        table.add_column(title, overflow="fold")
    for title in ("change", "noise"):
        table.add_column(title, justify="right", no_wrap=True)
    for line, row in zip(criteria, rows, strict=True):
        table.add_row(Text(row[0], _STYLE[line.change]), *map(Text, row[1:]))
    return [table]


def _stacked(line: Line, row: Sequence[str]) -> Iterator[RenderableType]:
    change, id_, statuses, subject, moved, noise = row
    yield Text.assemble((change, _STYLE[line.change]), "  ", id_)
    details = f"{statuses}; {subject}: {moved}, noise {noise}" if line.worst else statuses
    yield Padding(Text(details), (0, 0, 0, 4), expand=False)


def _row(line: Line, encode: Encode) -> tuple[str, ...]:
    before, after = line.statuses(after=False), line.statuses(after=True)
    row = (
        line.change.value,
        line.id if line.required else f"{line.id} (advisory)",
        before if before == after else f"{before}, then {after}",
        line.subject,
        _change(line.worst) if line.worst else ABSENT,
        _noise(line.worst) if line.worst else ABSENT,
    )
    return tuple(map(encode, row))


def _change(number: NumberChange | ValueChange) -> str:
    return distance(number.change_pct) if number.change_pct != 0 else "0"


def _noise(number: NumberChange | ValueChange) -> str:
    return ABSENT if number.noise_pct is None else distance(number.noise_pct).replace("+", "±")


def _checks(comparison: Comparison) -> tuple[str, list[tuple[str, Change]]]:
    checks = [verdict for verdict in comparison.verdicts if verdict.kind == "check"]
    changed = sorted(
        (verdict for verdict in checks if verdict.change is not Change.SAME),
        key=lambda verdict: (_WORST.index(_urgency(verdict)), verdict.id, verdict.subject),
    )
    return _summary(checks), [(_step(verdict), _urgency(verdict)) for verdict in changed]


def _step(verdict: VerdictChange) -> str:
    """``fabric.mtu[fabric0] on gpu-02: PASS, then FAIL: expected 9000, actual 1500``."""
    id_ = verdict.id if verdict.required else f"{verdict.id} (advisory)"
    why = f": {verdict.message}" if verdict.message else ""
    return f"{id_} on {verdict.subject}: {verdict.before or ABSENT}, then {verdict.after or ABSENT}{why}"


def _without_criterion(comparison: Comparison) -> tuple[str, list[tuple[str, Change]]]:
    computed = {name_of(value.id) for value in comparison.values}
    numbers = [number for number in comparison.numbers if computed.issuperset(map(name_of, number.criteria))]
    changed = sorted((number for number in numbers if number.change is not Change.SAME), key=badness)
    return _summary(numbers), [(_sentence(number), number.change) for number in changed]


def _summary(items: Iterable[NumberChange | ValueChange | VerdictChange]) -> str:
    counts = _counts(items)
    return ", ".join(f"{counts[change.value]} {change.value}" for change in _ORDER if change.value in counts)


def _sentence(number: NumberChange) -> str:
    """``collective.busbw[bytes=1024] on rack: 0.31 GB/s, then 0.2 GB/s (−35 %, noise ±10 %)``."""
    return f"{quantity_name(number.metric, number.labels)} on {number.subject}: {_moved(number)}"


def _moved(number: NumberChange | ValueChange) -> str:
    before, after = (quantity(value, number.unit) for value in (number.before, number.after))
    moved = "" if number.change_pct is None else f" ({_change(number)}, noise {_noise(number)})"
    return f"{before}, then {after}{moved}" + (f": {number.remark}" if number.remark else "")


def _list(
    console: Console, encode: Encode, title: str, changes: tuple[str, list[tuple[str, Change]]], everything: bool
) -> None:
    summary, texts = changes
    if not summary:
        return
    console.print()
    console.print(Text(encode(f"{title}: {summary}"), "bold"))
    shown = texts if everything else texts[:SHOWN]
    for text, change in shown:
        line = Text.assemble((change.value, _STYLE[change]), "  ", encode(text))
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    if len(texts) > len(shown):
        console.print(Text(f"  and {len(texts) - len(shown)} more (--all)"))


def conclusion(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Lines of the conclusion, with a style for each."""
    numbers = [item for item in comparison.regressions if not isinstance(item, VerdictChange)]
    verdicts = len(comparison.regressions) - len(numbers)
    if comparison.exit_status == EXIT_FAILED:
        yield (
            f"REGRESSION: {counted(len(numbers), 'number')} worse beyond noise, {counted(verdicts, 'verdict')} worse",
            "bold red",
        )
        if alone := sum(min(number.samples) == 1 for number in numbers):
            yield (
                f"{alone} of {counted(len(numbers), 'number')} have one sample per run; their noise is unknown",
                "yellow",
            )
    elif comparison.exit_status == EXIT_OK:
        yield "NO REGRESSION", "bold green"
    else:
        yield "INCOMPLETE: no regression found", "bold yellow"
    if comparison.unanswered:
        yield f"{counted(len(comparison.unanswered), 'required item')} cannot be compared", "yellow"
    elif comparison.exit_status not in (EXIT_FAILED, EXIT_OK):
        yield "nothing was compared", "yellow"
