"""Faults of the running virtual rack: inject, remember, remove.

A fault is remembered before it is put on, so that one whose command was interrupted can still be taken off. Nothing
of a fault outlives a boot; a rack that goes down forgets its faults. Putting a fault on twice and taking it off twice
does no harm: the scripts are idempotent.
"""

from __future__ import annotations

import fnmatch
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
"""An emulated node is slow, and some scripts wait for a service."""


@dataclass(frozen=True, slots=True)
class LiveFault:
    name: str
    title: str
    node: str
    """Default nodes."""
    check: str = ""
    """What must notice; empty where no check is for it."""
    item: str = ""
    outcome: CheckOutcome = CheckOutcome.FAILED
    seen_on: str = ""
    """The node whose check notices, if it is another one."""
    also: tuple[str, ...] = ()
    """What may notice as well: ``check@node``, with ``*``."""
    needs: str = ""
    """Architecture key without which the check does not run."""
    benchmark: str = ""
    """What notices instead of a check."""
    inject: str = ""
    heal: str = ""
    monitor_inject: tuple[Mapping[str, Any], ...] = ()
    monitor_heal: tuple[Mapping[str, Any], ...] = ()

    def may_notice(self, check: str, node: str) -> bool:
        """Whether this result is explained by the fault, the expected check included."""
        if (check, node) == (self.check, self.seen_on or self.node):
            return True
        return any(fnmatch.fnmatchcase(f"{check}@{node}", pattern) for pattern in self.also)


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
        several = {key: tuple(plain[key]) for key in ("also", "monitor_inject", "monitor_heal") if key in plain}
        outcome = CheckOutcome(plain.get("outcome", CheckOutcome.FAILED))
        fault = LiveFault(**{**plain, **several, "outcome": outcome})
        faults[fault.name] = fault
    return faults


def live_fault(name: str) -> LiveFault:
    """Raises LabError when there is none of that name."""
    faults = live_faults()
    if name not in faults:
        raise LabError(f"no fault {name!r}; {suggestion(name, list(faults))}")
    return faults[name]


def script_of(fault: LiveFault, state: str) -> str:
    """What runs on the node for ``on`` or ``off``."""
    body = fault.inject if state == "on" else fault.heal
    tidy = "" if state == "on" else '\nrm -rf "$kept"\n'
    return f"fault={fault.name}\n{_document()['prelude']}\n{body}{tidy}"


# What is on


def remembered(folder: Path) -> dict[str, str]:
    """Faults that are on, or may be: name and node."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {str(name): str(node) for name, node in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise LabError(f"{folder / FILE} is damaged ({error}); boot the rack anew and remove it") from error


def _remember(folder: Path, faults: Mapping[str, str]) -> None:
    if not faults:
        (folder / FILE).unlink(missing_ok=True)
        return
    replace_file(folder / FILE, json.dumps(faults, indent=1) + "\n")


# On and off


def put_on(lab: Lab, name: str, node: str | None = None) -> str:
    """Put a fault on a running rack. Returns the node. Raises LabError."""
    fault = live_fault(name)
    with lab.lock():
        on = remembered(lab.folder)
        where = node or on.get(name) or fault.node
        if on.get(name, where) != where:
            raise LabError(f"{name} is on already, on {on[name]}; take it off first")
        lab.require_running(where)
        _remember(lab.folder, {**on, name: where})
        _apply(lab, fault, where, "on")
    return where


def take_off(lab: Lab, name: str) -> str | None:
    """Take a fault off, whether it was put on wholly, in part, or is gone by itself.

    Returns the node, or None when it was not on. Raises LabError; the fault is then still remembered.
    """
    fault = live_fault(name)
    with lab.lock():
        on = remembered(lab.folder)
        where = on.get(name)
        if where is None:
            return None
        if where in lab.pids():
            _apply(lab, fault, where, "off")
        _remember(lab.folder, {other: node for other, node in on.items() if other != name})
    return where


def take_all_off(lab: Lab) -> list[str]:
    """Every fault that is on, the last one first. One that cannot be taken off keeps no other one on."""
    gone, problems = [], []
    for name in reversed(remembered(lab.folder)):
        try:
            take_off(lab, name)
            gone.append(name)
        except LabError as error:
            problems.append(str(error))
    if problems:
        raise LabError("; ".join(problems))
    return gone


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
        raise LabError(f"{fault.name} {state}: {node} does not end it within {SCRIPT_TIMEOUT_S} s") from None
    if completed.returncode != 0:
        reason = (completed.stderr.strip().splitlines() or [f"exit status {completed.returncode}"])[-1]
        raise LabError(f"{fault.name} {state}: {node}: {reason}")
