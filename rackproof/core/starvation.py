"""Whether the machines had the processors to do what was measured; and who else used them. Pure.

A benchmark loads its nodes itself, so load, run queues and pressure *during* a step say nothing about others; they are
recorded for the reader. What others took shows in three figures:

* Steal: time in which a virtual processor was ready and its hypervisor ran something else (proc(5)).
* Threads that are ready to run *before* the step, when no benchmark runs: more of them than processors means that
  somebody waits, and the benchmark will too.
* For virtual machines on the controller, whose emulation cannot tell steal: the share of the controller's processors
  that went to programs other than the machines and the kit.

``STARVED_PCT``: monitoring services call up to 10 % of stolen time harmless, and a machine with more of it slow
(blog.nixstats.com/monitor-and-fix-cpu-steal; Scout, "Understanding CPU steal time").

A sample of a starved node is INVALID where it would fail: the rack did not get the chance to pass. Where it passes it
stays passed, since starvation makes no figure better. Only a share of a *starved reference* may pass wrongly: it is
INVALID unless the figure itself was measured on starved nodes as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rackproof.core.load import Look
from rackproof.core.wording import some

STARVED_PCT: Final = 10.0

STEAL: Final = "steal_pct"
READY: Final = "ready_threads_per_processor"
"""Before the step."""
OTHERS: Final = "controller_others_pct"
WHERE: Final = "busiest_nodes"
"""Of each figure: the node with the largest one."""
IN_USE: Final = "in_use"
"""Who else used the nodes before the step; absent where nobody did."""
PRESSURE: Final = {name: f"pressure_{name}_pct" for name in ("cpu", "io", "memory")}
CONTROLLER_LOAD: Final = "controller_load"
"""Threads ready to run, mean of one minute."""
CONTROLLER_PRESSURE: Final = "controller_pressure_cpu_pct"
OF_CONTROLLER: Final = (OTHERS, CONTROLLER_LOAD, CONTROLLER_PRESSURE)
"""Measured by the controller itself; no output of a node shows them."""
CONDITIONS: Final = frozenset({STEAL, READY, WHERE, IN_USE, *PRESSURE.values(), *OF_CONTROLLER})
"""Conditions of every measurement: observations of the time, which differ from run to run."""

_SHOWN: Final = 3


def conditions_of(before: Mapping[str, Look], after: Mapping[str, Look], nodes: Iterable[str]) -> dict[str, Any]:
    """Figures of the nodes that took part in a step, the largest of each. Nodes without both looks are left out."""
    largest: dict[str, tuple[float, str]] = {}
    users: list[str] = []
    for node in sorted(set(nodes) & before.keys() & after.keys()):
        users += [f"{node}: {user}" for user in before[node].in_use]
        for name, value in figures(before[node], after[node]).items():
            if name not in largest or value > largest[name][0]:
                largest[name] = value, node
    conditions: dict[str, Any] = {name: value for name, (value, _) in largest.items()}
    if largest:
        conditions[WHERE] = {name: node for name, (_, node) in largest.items()}
    if users:
        conditions[IN_USE] = some(users, _SHOWN, "; ")
    return conditions


def figures(before: Look, after: Look) -> dict[str, float]:
    """Of one node over a step, in %; empty after a restart."""
    elapsed_us = (after.uptime_s[0] - before.uptime_s[1]) * 1e6
    stolen, jiffies = (new - old for new, old in zip(after.cpu, before.cpu, strict=True))
    if before.boot_id != after.boot_id or elapsed_us <= 0 or jiffies <= 0:
        return {}
    known = before.pressure_us.keys() & after.pressure_us.keys()
    pressures = {name: 100 * (after.pressure_us[name] - before.pressure_us[name]) / elapsed_us for name in known}
    return {
        STEAL: round(100 * max(0, stolen) / jiffies, 2),
        READY: round(before.running / max(1, before.processors), 2),
        **{PRESSURE[name]: round(min(100.0, max(0.0, pressures[name])), 2) for name in PRESSURE if name in known},
    }


def starved(conditions: Mapping[str, Any]) -> str:
    """Which machine was starved and why; empty where none was.

    Without the figures, which stand among the conditions: one cause gives one sentence.
    """
    where = conditions.get(WHERE)
    nodes = where if isinstance(where, Mapping) else {}
    if _number(conditions, OTHERS) >= STARVED_PCT:
        return (
            "the controller, which runs the virtual machines, was starved: other programs took"
            f" {STARVED_PCT:.0f} % of its processors or more"
        )
    if _number(conditions, STEAL) >= STARVED_PCT:
        return (
            f"{nodes.get(STEAL, 'a node')} was starved: {STARVED_PCT:.0f} % of its processors' time or more was stolen"
        )
    if _number(conditions, READY) > 1:
        node = nodes.get(READY, "a node")
        return f"{node} was starved: others had more threads ready to run before the step than it has processors"
    return ""


def _number(conditions: Mapping[str, Any], name: str) -> float:
    value = conditions.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
