"""Declaration of a validator, and the functions with which it reads and judges.

A check is an ordinary test function. Its arguments are injected by name: ``host`` (testinfra's, of one node), ``node``
and ``rack`` (from the inventory), ``arch`` (the reference architecture) and ``item`` (one of ``each``)::

    @check(
        "base.sysctl", reads="system.sysctl.*", each=lambda arch, node, rack: arch.system.sysctl,
        protects="Buffers of the default size halve the bandwidth of a 100 Gb/s link.",
        hint="Run the deploy again; look for another file in /etc/sysctl.d that sets the key.",
    )
    def test_sysctl(host, arch, item):
        expect(kernel_value(host, item), arch.system.sysctl[item], item)

It passes by returning and fails by AssertionError; any other exception makes it UNMEASURED.
Checks are read-only and deterministic: the same readings give the same outcome.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.remote.command import program
from rackproof.remote.recording import Unmeasured
from rackproof.validation.expected import items_by_key

GIVEN = frozenset({"host", "node", "rack", "arch", "item"})
"""Allowed arguments of a check."""

EVERY_NODE = "all"
ROLE = "{role}"
_ATTRIBUTE = "rackproof_check"

Function = TypeVar("Function", bound=Callable[..., None])
TAGS_TOO: dict[str, tuple[str, ...]] = {
    # first part of an id: further tags
    "fabric": ("network",),
    "nic": ("network",),
    "mount": ("storage",),
    "storage_server": ("storage",),
    "storage_client": ("storage",),
    "ceph": ("storage",),
    "drives": ("storage",),
    "scratch": ("storage",),
    "nvme": ("storage",),
    "cpu": ("host",),
    "memory": ("host",),
    "os": ("host",),
    "base": ("host",),
}

Each = Callable[[Architecture, Node, Rack], Iterable[str]]
When = Callable[[Architecture, Node, Rack], bool]


@dataclass(frozen=True, slots=True)
class Check:
    """Declaration of one validator."""

    id: str
    roles: tuple[str, ...]
    protects: str
    """One sentence: what breaks in production when the check fails."""
    hint: str
    """What to do when it fails."""
    reads: str
    """The architecture key with the expected value.

    ``*`` stands for the item and ``{role}`` for the node's role: ``storage.*.transport``,
    ``roles.{role}.expect.nics.*.mtu``.
    """
    required: bool
    each: Each | None
    when: When | None
    tags: frozenset[str] = frozenset()
    """Tags for ``--tags``: the first part of its id, those of ``TAGS_TOO`` and its own."""

    def items(self, arch: Architecture, node: Node, rack: Rack) -> tuple[str, ...]:
        """Items of this check on a node: ``("",)`` for a check without items, empty where it does not apply."""
        if EVERY_NODE not in self.roles and not set(self.roles) & set(node.groups):
            return ()
        if self.when is not None and not self.when(arch, node, rack):
            return ()
        if self.each is not None:
            return tuple(dict.fromkeys(self.each(arch, node, rack)))
        return ("",) if self.when is not None else items_by_key(self.reads, arch, node)


def check(
    id: str,
    *,
    protects: str,
    hint: str,
    reads: str,
    roles: Iterable[str] = (EVERY_NODE,),
    each: Each | None = None,
    when: When | None = None,
    required: bool = True,
    tags: Iterable[str] = (),
) -> Callable[[Function], Function]:
    """Declare a test function as a check.

    It runs on the nodes of ``roles`` for which ``when`` holds, once for each item that ``each`` gives. Without both it
    runs where the architecture sets the key that it reads.
    """
    part = id.partition(".")[0]
    every = frozenset({part, *TAGS_TOO.get(part, ()), *tags})
    declared = Check(id, tuple(roles), protects, hint, reads, required, each, when, every)

    def declare(function: Function) -> Function:
        unknown = set(inspect.signature(function).parameters) - GIVEN
        if unknown:
            raise TypeError(f"check {id}: unknown argument {', '.join(sorted(unknown))}; available: {sorted(GIVEN)}")
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def always(arch: Architecture, node: Node, rack: Rack) -> bool:
    """For ``when``: run the check even where the architecture leaves the key empty."""
    return True


def check_of(function: Any) -> Check | None:
    """The declaration of a test function; None when it is no check."""
    declared = getattr(function, _ATTRIBUTE, None)
    return declared if isinstance(declared, Check) else None


def checks_in(module: Any) -> Iterator[tuple[Check, Callable[..., None]]]:
    """Checks of a module, in source order."""
    for function in vars(module).values():
        declared = check_of(function)
        if declared is not None:
            yield declared, function


def announce(host: Host, *commands: str) -> None:
    """Announce the commands that a check is going to read, where none depends on another's output.

    Only an optimisation: all of them are run in one round trip.
    """
    host.backend.announce(*commands)


def read(host: Host, command: str, *arguments: str) -> str:
    """Standard output of a command; each ``%s`` is replaced by a quoted argument.

    Raises Unmeasured when it fails or prints nothing: missing data neither passes nor fails.
    """
    result = host.run(command, *arguments)
    if result.rc != 0:
        last = result.stderr.strip().splitlines()[-1:]
        raise Unmeasured(f"{program(command)}: exit status {result.rc}" + (f": {last[0]}" if last else ""))
    text: str = result.stdout
    if not text.strip():
        raise Unmeasured(f"{program(command)}: no output")
    return text


def expect(actual: object, expected: object, what: str = "") -> None:
    """Fail unless they are equal."""
    if actual != expected:
        raise AssertionError(f"{what + ': ' if what else ''}expected {shown(expected)}, actual {shown(actual)}")


def expect_all(problems: Iterable[str]) -> None:
    """Fail with all problems, each ``expected … actual …``, when there is one."""
    failures = list(problems)
    if failures:
        raise AssertionError("; ".join(failures))


def shown(value: object) -> str:
    """Format a value for a message."""
    if value is None or value == "":
        return "none"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return str(value)
