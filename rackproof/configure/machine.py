"""What the node at hand is, asked once a run."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyinfra.api.state import State
from pyinfra.context import host

from rackproof.configure import facts
from rackproof.core.machine import Machine

_machines: WeakKeyDictionary[State, dict[str, Machine]] = WeakKeyDictionary()


def machine_here() -> Machine | None:
    """The machine that pyinfra is at; None when it could not be read. A reboot is followed by ``forget_machine``."""
    known = _machines.setdefault(host.state, {})
    if host.name not in known:
        answer = host.get_fact(facts.MachineFacts)
        if answer is None:
            return None
        known[host.name] = answer
    return known[host.name]


def family_here() -> str:
    """``debian`` or ``rhel``: which package manager the node has; ``debian`` where nobody can say, and where that is
    wrong apt-get is missing."""
    machine = machine_here()
    return (machine.family if machine else "") or "debian"


def forget_machine() -> None:
    """Ask again: the node has been started anew."""
    _machines.get(host.state, {}).pop(host.name, None)
