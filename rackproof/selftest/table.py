"""Results of the self-test as text and as JSON."""

from __future__ import annotations

from typing import Any

from rackproof.core.grouping import grouped
from rackproof.core.rack import fold
from rackproof.core.verdict import with_item
from rackproof.core.wording import aligned, some
from rackproof.selftest.catalogue import FaultFile
from rackproof.selftest.detection import Alarm, Detection
from rackproof.selftest.trial import Finding, Mishap

SCHEMA = "rackproof.selftest/v1"

_OTHERS = 3
"""How many other checks that noticed a fault are listed in its row."""


def detection_table(detection: Detection) -> list[str]:
    """One line a fault: its name, the expected check, and the other checks that noticed."""
    rows = [("FAULT", "EXPECTED", "CAUGHT BY")]
    for finding in detection.findings:
        fault = finding.fault
        rows.append((fault.name, with_item(fault.check, fault.item), _caught_by(finding)))
    return aligned(rows)


def complaints(detection: Detection) -> list[str]:
    """Missed faults, misread damage and false alarms, one line each."""
    lines = [f"missed: {finding.fault.name} on {finding.rack}: {finding.problem}" for finding in detection.missed]
    lines += [f"no fault: {check}: no fault of the catalogue makes it fail" for check in detection.untried]
    lines += [
        f"needless: {', '.join(a.checks) or a.command}: no partial answer needs: {a.reason}" for a in detection.needless
    ]
    mishaps = grouped(((m.rack, m.damage.name, m.result.check), m) for m in detection.mishaps)
    alarms = grouped(((a.rack, a.result.check, a.result.message), a) for a in detection.alarms)
    return [*lines, *map(_mishap, mishaps.values()), *map(_alarm, alarms.values())]


def summary(detection: Detection) -> list[str]:
    """Counts of faults, checks, damaged answers and false alarms, one line each."""
    faults, checks = len(detection.findings), len(detection.checks)
    return [
        f"{faults - len(detection.missed)} of {faults} faults caught by the expected check",
        f"{checks - len(detection.untried)} of {checks} checks have a fault",
        f"{detection.judged} values are judged; without one of them no check passes",
        f"{detection.words} words are made unknown; no answer passes with one, unless the reason is listed",
        f"{len(detection.mishaps)} of {detection.damaged} damaged answers misread",
        f"{len(detection.alarms)} false alarms in {detection.healthy_runs} healthy runs of"
        f" {', '.join(detection.racks)}",
    ]


def listing(catalogue: dict[str, FaultFile]) -> list[str]:
    """The catalogue as a table: file, fault, check, name of the live fault on the virtual rack, title."""
    rows = [("FILE", "FAULT", "CHECK", "LIVE", "WHAT")]
    for stem, file in catalogue.items():
        rows += [(stem, fault.name, fault.check, fault.live or "-", fault.title) for fault in file.faults]
    return aligned(rows)


def as_json(detection: Detection) -> dict[str, Any]:
    """The results as a JSON document."""
    return {
        "schema": SCHEMA,
        "good": detection.good,
        "faults": [
            {
                "name": finding.fault.name, "rack": finding.rack, "node": finding.fault.node,
                "check": finding.fault.check, "item": finding.fault.item, "caught": finding.caught,
                "problem": finding.problem, "noticed": sorted({result.check for result in finding.noticed}),
            }
            for finding in detection.findings
        ],
        "untried": detection.untried,
        "damages": {
            "tried": detection.damaged,
            "wrong": [
                {"damage": mishap.damage.name, "rack": mishap.rack, "node": mishap.result.node,
                 "check": mishap.result.check, "item": mishap.result.item, "command": mishap.command,
                 "outcome": mishap.result.outcome.value, "message": mishap.result.message}
                for mishap in detection.mishaps
            ],
        },
        "healthy": {
            "racks": list(detection.racks), "runs": detection.healthy_runs,
            "alarms": [
                {"rack": alarm.rack, "moment": alarm.moment, "node": alarm.result.node, "check": alarm.result.check,
                 "item": alarm.result.item, "outcome": alarm.result.outcome.value, "message": alarm.result.message}
                for alarm in detection.alarms
            ],
        },
    }  # fmt: skip


def _caught_by(finding: Finding) -> str:
    if not finding.caught:
        others = sorted({result.check for result in finding.noticed})
        return "MISSED" + (f", noticed by {some(others, _OTHERS)}" if others else "")
    others = sorted({result.check for result in finding.noticed} - {finding.fault.check})
    return finding.fault.check + (f" and {some(others, _OTHERS)}" if others else "")


def _mishap(mishaps: list[Mishap]) -> str:
    first = mishaps[0]
    return f"damage: {first.damage.name} on {first.rack}{_times(len(mishaps))}: {first.problem}"


def _alarm(alarms: list[Alarm]) -> str:
    first = alarms[0]
    result = first.result
    what = with_item(result.check, result.item)
    nodes = fold(dict.fromkeys(alarm.result.node for alarm in alarms))
    where = f"{nodes} of {first.rack}{_times(len(alarms))}"
    return f"false alarm: {what} on {where}: {result.outcome.value}: {result.message}"


def _times(number: int) -> str:
    return f" ({number} times)" if number > 1 else ""
