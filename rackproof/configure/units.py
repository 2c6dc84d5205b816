"""systemd units: compares actual with desired states and plans the commands.

A changed configuration file leaves a mark (``files.PENDING``), and a unit is restarted because of the mark. So when a
run ends between the file and the restart, the next run restarts the unit.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.configure.files import PENDING, pending_command
from rackproof.configure.rollback.journal import unit_line
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.parse.sections import sections_of
from rackproof.parse.systemctl import parse_unit_lines
from rackproof.shell import or_fail, wait_until

_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload"
PROOF_TRIES = 20
"""Seconds that a started unit may take until its ``proof`` succeeds."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Desired state of one unit; a property that is None is not changed."""

    name: str
    enabled: bool | None = True
    running: bool | None = True
    masked: bool = False
    proof: str | None = None
    """Shell test of the unit's effect, e.g. a loaded module, when ``active`` alone proves little."""


@dataclass(frozen=True, slots=True)
class UnitState:
    load: str
    active: str
    file: str
    """enabled, disabled, static, masked, … or empty when there is no unit file."""
    need_reload: bool
    proven: bool | None = None


@dataclass(frozen=True, slots=True)
class SystemState:
    units: Mapping[str, UnitState]
    pending: frozenset[str]
    manager: Mapping[str, str]
    """Properties of the systemd manager, e.g. DefaultLimitMEMLOCK."""


def states_command(units: Sequence[Unit], manager: Sequence[str]) -> str:
    """Shell text that prints units, pending marks, properties of the manager, and results of proofs."""
    names = " ".join(shlex.quote(unit.name) for unit in units)
    command = f"export LC_ALL=C; printf '%s\\n' {names}; echo --; "
    if units:
        command += f"systemctl show --property={_PROPERTIES} -- {names}; "
    command += f"echo --; {pending_command()}echo --; "
    if manager:
        command += f"systemctl show --property={','.join(manager)}; "
    command += "echo --; "
    for unit in units:
        if unit.proof:
            command += f"{{ {unit.proof}; }} >/dev/null 2>&1; echo {shlex.quote(unit.name)} $?; "
    return command


def parse_states(lines: Sequence[str]) -> SystemState:
    """Answer of ``states_command``. Raises ValueError on anything else.

    systemctl lists units in the order of its arguments, under their real names (an alias is resolved).
    """
    asked, shown, pending, manager, proofs = sections_of(lines, 5)
    units = [name for name in asked if name]
    blocks = parse_unit_lines(shown)
    if len(blocks) != len(units):
        raise ValueError(f"systemctl answered for {len(blocks)} of {len(units)} units")
    proven = {name: status == "0" for name, status in (line.rsplit(" ", 1) for line in proofs)}
    states = {
        name: UnitState(
            load=block["LoadState"],
            active=block["ActiveState"],
            file=block["UnitFileState"],
            need_reload=block["NeedDaemonReload"] == "yes",
            proven=proven.get(name),
        )
        for name, block in zip(units, blocks, strict=True)
    }
    properties, *others = parse_unit_lines(manager) or ({},)
    if others:
        raise ValueError("systemctl reported several managers")
    return SystemState(states, frozenset(pending), properties)


def plan_units(units: Sequence[Unit], state: SystemState, manager: Mapping[str, str] | None = None) -> ScriptPlan:
    """Commands that bring units and manager to their desired states.

    First the links (enable, mask), then at most one daemon-reload, then stops and starts. daemon-reload takes seconds
    on a slow machine, and without ``--no-reload`` every enable and mask would run it.
    """
    lines: list[str] = []
    reasons: list[str] = []
    reread = "daemon-reload" in state.pending or any(state.units[unit.name].need_reload for unit in units)
    linked: list[str] = []
    relinked = False  # after any change of links systemd says NeedDaemonReload of every unit
    for verb in ("unmask", "mask", "enable", "disable"):
        chosen = [unit.name for unit in units if verb in _links(unit, state.units[unit.name])]
        if chosen:
            lines.append(f"systemctl {verb} --no-reload -- {' '.join(map(shlex.quote, chosen))}")
            reasons += [f"{verb} {name}" for name in chosen]
            linked += chosen
            relinked = True
            reread = reread or verb in ("unmask", "mask")
    if any(state.manager.get(key) != value for key, value in (manager or {}).items()):
        lines += ["systemctl daemon-reexec", _done("daemon-reload")]
        reasons.append("manager defaults")
    elif reread or relinked:
        lines += ["systemctl daemon-reload", _done("daemon-reload")]
        if reread:
            reasons.append("unit files changed")
    touched: list[Unit] = []
    for unit in units:
        if action := _action(unit, state.units[unit.name], state.pending):
            command, reason = action
            touched.append(unit)
            lines.extend(command)
            reasons.append(reason)
    for unit in touched:
        lines.extend(_verification(unit))
    names = dict.fromkeys((*linked, *(unit.name for unit in touched)))
    return ScriptPlan(tuple(lines), tuple(Change(what=reason) for reason in reasons), tuple(map(unit_line, names)))


def _links(unit: Unit, state: UnitState) -> tuple[str, ...]:
    """systemctl verbs for the symbolic links of a unit."""
    masked = state.file == "masked"
    if unit.masked:
        return () if masked else ("mask",)
    if masked and unit.enabled is False and unit.running is False:
        return ()  # masked is at least as good as disabled
    verbs = ["unmask"] if masked else []
    if unit.enabled and state.file not in ("enabled", "static"):
        verbs.append("enable")
    elif unit.enabled is False and state.file not in ("disabled", "static", "masked", ""):
        verbs.append("disable")
    return tuple(verbs)


def _action(unit: Unit, state: UnitState, pending: frozenset[str]) -> tuple[tuple[str, ...], str] | None:
    """Lines that start, stop, restart or reload, and the reason."""
    name = shlex.quote(unit.name)
    restart, reload = f"restart:{unit.name}", f"reload:{unit.name}"
    active = state.active in ("active", "reloading")
    if unit.masked or unit.running is False:
        if state.active in ("inactive", "failed"):
            return None
        return (f"systemctl stop -- {name}",), f"stop {unit.name}"
    if unit.running is None:
        return None
    if not active:
        # A unit that is still activating with its old configuration may never finish (slurmd without slurm.conf
        # searches the network forever), and "start" would wait for it.
        verb = "restart" if state.active == "activating" and {restart, reload} & pending else "start"
        return (f"systemctl {verb} -- {name}", _done(restart, reload)), f"{verb} {unit.name}"
    if restart in pending or state.proven is False:
        why = "its configuration changed" if restart in pending else "active without effect"
        return (f"systemctl restart -- {name}", _done(restart, reload)), f"restart {unit.name}: {why}"
    if reload in pending:
        why = "its configuration changed"
        return (f"systemctl reload -- {name}", _done(reload)), f"reload {unit.name}: {why}"
    return None


def _verification(unit: Unit) -> list[str]:
    """Shell lines that fail when a changed unit is not active or its proof fails."""
    if unit.masked or unit.running is not True:
        return []
    name = shlex.quote(unit.name)
    message = f"{unit.name} is not active after it was started; see: journalctl -u {unit.name}"
    lines = [f"systemctl is-active --quiet -- {name} {or_fail(message)}"]
    if unit.proof:
        message = f"{unit.name} is active and this does not hold: {unit.proof}"
        lines.append(wait_until(f"{{ {unit.proof}; }} >/dev/null 2>&1", PROOF_TRIES, message))
    return lines


def _done(*marks: str) -> str:
    return "rm -f -- " + " ".join(shlex.quote(f"{PENDING}/{mark}") for mark in marks)
