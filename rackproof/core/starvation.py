"""Whether other programs starved the machines of processors during a measurement. Pure.

A benchmark itself causes load, run queues and pressure *during* a step; these are recorded for readers only. Three
figures show the processors that others took:

* Steal: time in which a virtual processor was ready and its hypervisor ran something else (proc(5)).
* Threads ready to run *before* the step, without a benchmark: more threads than processors means that threads wait, and
  the benchmark's will too.
* For virtual machines on the controller, whose emulation reports no steal: the share of the controller's processors
  that programs other than the machines and the kit used.

``STARVED_PCT``: monitoring services consider up to 10 % of stolen time harmless, and more of it slow
(blog.nixstats.com/monitor-and-fix-cpu-steal; Scout, "Understanding CPU steal time").

A failing sample of a starved node is INVALID, because the rack had no chance to pass, and its step is repeated
(``judging.again``, ``core.history``). A passing one stays PASS: starvation improves no figure. Only what is compared
with *starved references* may pass wrongly (a share, a member among its peers, a later point of a curve): it is INVALID
unless its own figure is from starved nodes as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rackproof.core.load import LoadState
from rackproof.core.wording import exact, some

STARVED_PCT: Final = 10.0

STEAL: Final = "steal_pct"
READY: Final = "ready_threads_per_processor"
"""Maximum over the nodes, before the step."""
OTHERS: Final = "controller_others_pct"
WHERE: Final = "busiest_nodes"
"""Node with the maximum of each figure."""
IN_USE: Final = "in_use"
"""Other users of the nodes before the step; absent if there are none."""
PRESSURE: Final = {name: f"pressure_{name}_pct" for name in ("cpu", "io", "memory")}
CONTROLLER_LOAD: Final = "controller_load"
"""Threads ready to run, mean over one minute."""
CONTROLLER_PRESSURE: Final = "controller_pressure_cpu_pct"
OF_CONTROLLER: Final = (OTHERS, CONTROLLER_LOAD, CONTROLLER_PRESSURE)
"""Conditions of the controller, without raw output."""
CONDITIONS: Final = frozenset({STEAL, READY, WHERE, IN_USE, *PRESSURE.values(), *OF_CONTROLLER})
"""Conditions of all measurements that differ from run to run."""

_SHOWN: Final = 3


def conditions_of(
    before: Mapping[str, LoadState], after: Mapping[str, LoadState], nodes: Iterable[str]
) -> dict[str, Any]:
    """Maxima of the figures over the nodes of a step. Nodes without both states are left out."""
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


def figures(before: LoadState, after: LoadState) -> dict[str, float]:
    """Figures of one node over a step, in %; empty after a reboot."""
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
    """The starved machine and the cause; empty if none was starved.

    The sentence has no figures, so that the same cause always gives the same sentence; the conditions have them.
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


def shortage(conditions: Mapping[str, Any]) -> str:
    """Condition that a benchmark waits for, with the figure; empty if no machine is starved."""
    if not (cause := starved(conditions)):
        return ""
    if (others := _number(conditions, OTHERS)) >= STARVED_PCT:
        return f"the controller's load to fall below {STARVED_PCT:.0f} %: other programs take {others:.0f} %"
    node = cause.partition(" ")[0]
    steal, ready = _number(conditions, STEAL), _number(conditions, READY)
    if steal >= STARVED_PCT:
        return f"{node}: {steal:.0f} % of its processors' time is stolen, expected less than {STARVED_PCT:.0f} %"
    return f"{node}: {exact(ready)} threads are ready to run for each processor, expected at most 1"


def _number(conditions: Mapping[str, Any], name: str) -> float:
    value = conditions.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
