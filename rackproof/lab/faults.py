"""Inject and remove faults of the running virtual rack.

A fault is recorded before it is injected, so that an interrupted one can be removed. No fault outlives a boot. The
scripts are idempotent.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rackproof.atomic_write import replace_file
from rackproof.core.evidence import CheckOutcome
from rackproof.core.nearest import suggestion
from rackproof.errors import LabError
from rackproof.lab import monitor
from rackproof.lab.rack import Lab
from rackproof.lab.state import FAULTS as FILE

ALL = "all"
SCRIPT_TIMEOUT_S = 300
"""Emulated nodes are slow, and some scripts wait for a service."""


@dataclass(frozen=True, slots=True)
class LiveFault:
    name: str
    title: str
    node: str
    """Default node."""
    check: str = ""
    """Check that must notice; empty if no check covers the fault."""
    item: str = ""
    outcome: CheckOutcome = CheckOutcome.FAILED
    seen_on: str = ""
    """Node whose check notices, if not ``node``."""
    needs: str = ""
    """Architecture key without which the check does not run."""
    benchmark: str = ""
    """Benchmark that notices instead of a check."""
    inject: str = ""
    heal: str = ""
    monitor_inject: tuple[Mapping[str, Any], ...] = ()
    monitor_heal: tuple[Mapping[str, Any], ...] = ()


@cache
def _document() -> dict[str, Any]:
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@cache
def live_faults() -> dict[str, LiveFault]:
    """Every fault by name, in the order of the file."""
    faults = {}
    for plain in _document()["faults"]:
        several = {key: tuple(plain[key]) for key in ("monitor_inject", "monitor_heal") if key in plain}
        outcome = CheckOutcome(plain.get("outcome", CheckOutcome.FAILED))
        fault = LiveFault(**{**plain, **several, "outcome": outcome})
        faults[fault.name] = fault
    return faults


def live_fault(name: str) -> LiveFault:
    """Raises LabError for an unknown name."""
    faults = live_faults()
    if name not in faults:
        raise LabError(f"no fault {name!r}; {suggestion(name, list(faults))}")
    return faults[name]


def script_of(fault: LiveFault, state: str) -> str:
    """Shell script that the node runs for ``on`` or ``off``."""
    body = fault.inject if state == "on" else fault.heal
    cleanup = "" if state == "on" else '\nrm -rf "$kept"\n'
    return f"fault={fault.name}\n{_document()['prelude']}\n{body}{cleanup}"


def active(folder: Path) -> dict[str, str]:
    """Faults that are on, or were injected in part: node by name."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {str(name): str(node) for name, node in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise LabError(f"{folder / FILE} is unreadable ({error}); remove it and restart the rack") from error


def _record(folder: Path, faults: Mapping[str, str]) -> None:
    if not faults:
        (folder / FILE).unlink(missing_ok=True)
        return
    replace_file(folder / FILE, json.dumps(faults, indent=1) + "\n")


def inject(lab: Lab, name: str, node: str | None = None) -> str:
    """Inject a fault into the running rack. Returns the node. Raises LabError."""
    fault = live_fault(name)
    with lab.lock():
        on = active(lab.folder)
        where = node or on.get(name) or fault.node
        if on.get(name, where) != where:
            raise LabError(f"{name} is already on, on {on[name]}; remove it first: rackproof lab fault {name} off")
        lab.require_running(where)
        _record(lab.folder, {**on, name: where})
        _apply(lab, fault, where, "on")
    return where


def remove(lab: Lab, name: str) -> str | None:
    """Remove a fault, also one that was injected in part.

    Returns the node, or None when the fault was not on. Raises LabError; the fault then stays recorded.
    """
    fault = live_fault(name)
    with lab.lock():
        on = active(lab.folder)
        where = on.get(name)
        if where is None:
            return None
        if where in lab.pids():
            _apply(lab, fault, where, "off")
        _record(lab.folder, {other: node for other, node in on.items() if other != name})
    return where


def remove_all(lab: Lab) -> list[str]:
    """Remove all faults, the last one first. Raises LabError after all were tried; returns their names."""
    removed, problems = [], []
    for name in reversed(active(lab.folder)):
        try:
            remove(lab, name)
            removed.append(name)
        except LabError as error:
            problems.append(str(error))
    if problems:
        raise LabError("; ".join(problems))
    return removed


def _apply(lab: Lab, fault: LiveFault, node: str, state: str) -> None:
    for request in fault.monitor_inject if state == "on" else fault.monitor_heal:
        monitor.ask(lab.node_folder(node), dict(request))
    if not (fault.inject if state == "on" else fault.heal):
        return
    try:
        completed = subprocess.run(
            [*lab.ssh_command(lab.require_node(node), node), "sh", "-s"],
            input=script_of(fault, state), text=True, capture_output=True, timeout=SCRIPT_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LabError(f"{fault.name} {state}: {node}: no end of the script after {SCRIPT_TIMEOUT_S} s") from None
    if completed.returncode != 0:
        reason = (completed.stderr.strip().splitlines() or [f"exit status {completed.returncode}"])[-1]
        raise LabError(f"{fault.name} {state}: {node}: {reason}")
