"""systemd units: what they are, what they shall be, and the commands in between.

A unit whose configuration changed is restarted because the change left a mark (see ``files.PENDING``), not because
this run happens to have written the file: a run that was cut off after the file and before the restart is completed
by the next one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.configure.files import PENDING, pending_command

_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload"
PROOF_TRIES = 20
"""Seconds that a started unit may take until its proof holds."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as it shall be; None leaves a property alone."""

    name: str
    enabled: bool | None = True
    running: bool | None = True
    masked: bool = False
    proof: str | None = None
    """Shell test of the unit's work where "active" alone says little: an RDMA port in nfsd's list, a module."""


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
    """Properties of the manager itself, e.g. DefaultLimitMEMLOCK."""


def states_command(units: Sequence[Unit], manager: Sequence[str]) -> str:
    """Ask for all units, their proofs, the pending marks and properties of the manager in one go."""
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
    """Answer of ``states_command``; systemctl answers in the order it was asked, under each unit's own name.

    Raises ValueError on anything that is not such an answer.
    """
    asked, shown, pending, manager, proofs = _sections(lines, 5)
    units = [name for name in asked if name]
    blocks: list[dict[str, str]] = []
    for line in shown:
        if not line:
            continue
        key, _, value = line.partition("=")
        if not blocks or key in blocks[-1]:
            blocks.append({})
        blocks[-1][key] = value
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
    properties = {key: value for key, _, value in (line.partition("=") for line in manager)}
    return SystemState(states, frozenset(pending), properties)


def _sections(lines: Sequence[str], count: int) -> list[list[str]]:
    sections: list[list[str]] = [[]]
    for line in lines:
        if line == "--":
            sections.append([])
        else:
            sections[-1].append(line)
    if len(sections) != count:
        raise ValueError(f"expected {count} sections, actual {len(sections)}")
    return sections


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Shell lines in order, and what they are for."""

    lines: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def script(self) -> str:
        return "\n".join(("set -eu", *self.lines))


def plan_units(units: Sequence[Unit], state: SystemState, manager: Mapping[str, str] | None = None) -> UnitPlan:
    """Commands that bring units and manager to what they shall be."""
    lines: list[str] = []
    reasons: list[str] = []

    def do(reason: str, *commands: str) -> None:
        reasons.append(reason)
        lines.extend(commands)

    wanted = dict(manager or {})
    if any(state.manager.get(key) != value for key, value in wanted.items()):
        do("manager defaults", "systemctl daemon-reexec")
    if "daemon-reload" in state.pending or any(state.units[u.name].need_reload for u in units):
        do("unit files changed", "systemctl daemon-reload", _done("daemon-reload"))
    touched: list[Unit] = []
    for unit in units:
        plan = _plan_unit(unit, state.units[unit.name], state.pending)
        if plan:
            touched.append(unit)
            lines.extend(plan.lines)
            reasons.extend(plan.reasons)
    for unit in touched:
        lines.extend(_verification(unit))
    return UnitPlan(tuple(lines), tuple(reasons))


def _plan_unit(unit: Unit, state: UnitState, pending: frozenset[str]) -> UnitPlan:
    name = shlex.quote(unit.name)
    lines: list[str] = []
    reasons: list[str] = []
    masked = state.file == "masked"
    if unit.masked:
        if not masked:
            lines.append(f"systemctl mask --now -- {name}")
            reasons.append(f"mask {unit.name}")
        return UnitPlan(tuple(lines), tuple(reasons))
    if masked:
        lines.append(f"systemctl unmask -- {name}")
        reasons.append(f"unmask {unit.name}")
    if unit.enabled is not None and (state.file == "enabled") != unit.enabled and state.file != "static":
        verb = "enable" if unit.enabled else "disable"
        if unit.enabled or state.file not in ("", "disabled", "masked"):
            lines.append(f"systemctl {verb} -- {name}")
            reasons.append(f"{verb} {unit.name}")
    restart, reload = f"restart:{unit.name}", f"reload:{unit.name}"
    active = state.active in ("active", "reloading")
    if unit.running is True:
        if not active:
            lines += [f"systemctl start -- {name}", _done(restart, reload)]
            reasons.append(f"start {unit.name}")
        elif restart in pending:
            lines += [f"systemctl restart -- {name}", _done(restart, reload)]
            reasons.append(f"restart {unit.name}: its configuration changed")
        elif state.proven is False:
            lines += [f"systemctl restart -- {name}", _done(restart, reload)]
            reasons.append(f"restart {unit.name}: active without effect")
        elif reload in pending:
            lines += [f"systemctl reload -- {name}", _done(reload)]
            reasons.append(f"reload {unit.name}: its configuration changed")
    elif unit.running is False and state.active not in ("inactive", "failed"):
        lines.append(f"systemctl stop -- {name}")
        reasons.append(f"stop {unit.name}")
    return UnitPlan(tuple(lines), tuple(reasons))


def _verification(unit: Unit) -> list[str]:
    """A unit that was touched must be active and have its effect, or the operation fails and says which."""
    if unit.masked or unit.running is not True:
        return []
    name = shlex.quote(unit.name)
    message = shlex.quote(f"{unit.name} is not active after it was started; see: journalctl -u {unit.name}")
    lines = [f"systemctl is-active --quiet -- {name} || {{ echo {message} >&2; exit 1; }}"]
    if unit.proof:
        message = shlex.quote(f"{unit.name} is active and this does not hold: {unit.proof}")
        lines += [
            f"n=0; until {{ {unit.proof}; }} >/dev/null 2>&1; do n=$((n + 1)); "
            f"[ $n -lt {PROOF_TRIES} ] || {{ echo {message} >&2; exit 1; }}; sleep 1; done"
        ]
    return lines


def _done(*marks: str) -> str:
    return "rm -f -- " + " ".join(shlex.quote(f"{PENDING}/{mark}") for mark in marks)
