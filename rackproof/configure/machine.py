"""The machine of the current node, read once in a run."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyinfra.api.state import State
from pyinfra.context import host

from rackproof.configure import facts
from rackproof.configure.operation import required
from rackproof.core.machine import Machine

_machines: WeakKeyDictionary[State, dict[str, Machine]] = WeakKeyDictionary()


def machine_here() -> Machine | None:
    """The machine of pyinfra's current host; None when it could not be read. Call ``forget_machine`` after a reboot."""
    known = _machines.setdefault(host.state, {})
    if host.name not in known:
        answer = host.get_fact(facts.MachineFacts)
        if answer is None:
            return None
        known[host.name] = answer
    return known[host.name]


def required_machine() -> Machine:
    """``machine_here``. Raises Unreadable when it could not be read."""
    return required(machine_here(), "the machine (os-release, kernel, PCI devices)")


def family_here() -> str:
    """Family of the node's distribution, ``debian`` or ``rhel``; ``debian`` when unknown (apt-get then fails if it is
    missing)."""
    machine = machine_here()
    return (machine.family if machine else "") or "debian"


def forget_machine() -> None:
    """Drop the cached machine after a reboot."""
    _machines.get(host.state, {}).pop(host.name, None)
