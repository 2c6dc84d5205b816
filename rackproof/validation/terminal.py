"""Results as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import fold
from rackproof.core.wording import counted

_WORD = {CheckOutcome.PASSED: "PASS", CheckOutcome.FAILED: "FAIL", CheckOutcome.UNMEASURED: "UNMEASURED"}
_STYLE = {CheckOutcome.FAILED: {"red": True, "bold": True}, CheckOutcome.UNMEASURED: {"yellow": True}}

RACK = "rack"
"""Subject of results about all nodes together."""
Line = tuple[str, dict[str, bool]]


def name_of(result: CheckResult) -> str:
    """``storage.options[nfs-tcp]``"""
    return result.check + (f"[{result.item}]" if result.item else "")


def block(result: CheckResult) -> str:
    """One result that did not pass, on three or four lines."""
    return "\n".join(line for line, _ in _block(result.node, result))


def summary(results: Sequence[CheckResult], limited: str = "") -> Iterator[Line]:
    """Results that did not pass, failures first; nodes with the same message are folded into one entry.

    ``limited`` names the selection, so that a partial result is not mistaken for the whole rack.
    """
    for outcome in (CheckOutcome.FAILED, CheckOutcome.UNMEASURED):
        entries: dict[tuple[str, str], list[CheckResult]] = {}
        for result in results:
            if result.outcome is outcome:
                entries.setdefault((name_of(result), result.message), []).append(result)
        if outcome is CheckOutcome.UNMEASURED:
            yield from _unmeasured(entries.values())
            continue
        for same in entries.values():
            yield from _block(fold(result.node for result in same), same[0])
    counts = {outcome: sum(result.outcome is outcome for result in results) for outcome in CheckOutcome}
    words = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count) or "nothing was checked"
    yield f"{counted(len({result.node for result in results} - {RACK}), 'node')}: {words}", {}
    if limited:
        yield f"{limited}: the rest of the rack was not checked", {}


def _unmeasured(entries: Iterable[list[CheckResult]]) -> Iterator[Line]:
    """One line per reason: an unreachable node is one line, however many checks it leaves unmeasured."""
    reasons: dict[str, list[CheckResult]] = {}
    for same in entries:
        reasons.setdefault(same[0].message, []).extend(same)
    for reason, same in reasons.items():
        names = list(dict.fromkeys(name_of(result) for result in same))
        shown = ", ".join(names) if len(names) <= 3 else f"{len(names)} checks"
        yield f"UNMEASURED {fold({result.node for result in same})}: {shown}: {reason}", _STYLE[CheckOutcome.UNMEASURED]


def _block(nodes: str, result: CheckResult) -> Iterator[Line]:
    advisory = "" if result.required else " (advisory)"
    head = f"{_WORD[result.outcome]} {nodes}: {name_of(result)}{advisory}: {result.message}"
    yield head, _STYLE.get(result.outcome, {})
    yield f"  {result.protects}", {}
    yield f"  {result.hint}", {}
