"""What a validator says about itself, and the words with which it asks and answers.

A check is an ordinary test function. What it is given is found by name: ``host`` (testinfra's, of one node), ``node``
and ``rack`` (as the inventory describes them), ``arch`` (what was promised) and ``item`` (one of ``each``)::

    @check(
        "base.sysctl", reads="system.sysctl.*", each=lambda arch, node, rack: arch.system.sysctl,
        protects="Buffers of the default size halve the bandwidth of a 100 Gb/s link.",
        hint="Run the deploy again; look for another file in /etc/sysctl.d that sets the key.",
    )
    def test_sysctl(host, arch, item):
        expect(kernel_value(host, item), arch.system.sysctl[item], item)

It passes by returning, fails by AssertionError, and everything else that it raises means that it was not measured.
Checks only read, and give the same answer to the same reading.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, TypeVar

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.remote.recording import Unmeasured
from rackproof.validation.expected import items_by_key

GIVEN = frozenset({"host", "node", "rack", "arch", "item"})
"""What a check may ask for."""

EVERY_NODE = "all"
ROLE = "{role}"
_ATTRIBUTE = "rackproof_check"

Function = TypeVar("Function", bound=Callable[..., None])
TAGS_TOO: dict[str, tuple[str, ...]] = {
    # first part of an id: what people call it as well
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
    """One sentence: what breaks in production if this is not so."""
    hint: str
    """What to do when it fails."""
    reads: str
    """The architecture key that says what is expected.

    ``*`` stands for the item and ``{role}`` for the node's role: ``storage.*.transport``,
    ``roles.{role}.expect.nics.*.mtu``.
    """
    required: bool
    each: Each | None
    when: When | None
    tags: frozenset[str] = frozenset()
    """By which ``--tags`` finds it: the first part of its id, what people call that as well, and its own."""

    def items(self, arch: Architecture, node: Node, rack: Rack) -> tuple[str, ...]:
        """Items of this check on a node: ``("",)`` for a check without items, nothing where it does not apply."""
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
            raise TypeError(f"check {id}: there is no {', '.join(sorted(unknown))} to give; there are {sorted(GIVEN)}")
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def always(arch: Architecture, node: Node, rack: Rack) -> bool:
    """For ``when``: also where the architecture leaves the key empty."""
    return True


def check_of(function: Any) -> Check | None:
    """The declaration of a test function; None when it is no check."""
    declared = getattr(function, _ATTRIBUTE, None)
    return declared if isinstance(declared, Check) else None


def checks_in(module: Any) -> Iterator[tuple[Check, Callable[..., None]]]:
    """Checks of a module, in the order of its text."""
    for function in vars(module).values():
        declared = check_of(function)
        if declared is not None:
            yield declared, function


def announce(host: Host, *commands: str) -> None:
    """Say beforehand which commands a check is going to read, where none of them depends on another's answer.

    Only saves time: all of them travel in one round trip.
    """
    host.backend.announce(*commands)


def read(host: Host, command: str, *arguments: str) -> str:
    """What a command prints; ``%s`` in it are replaced by quoted arguments.

    Raises Unmeasured when it fails or prints nothing: no answer is neither a good nor a bad one.
    """
    result = host.run(command, *arguments)
    if result.rc != 0:
        last = result.stderr.strip().splitlines()[-1:]
        raise Unmeasured(f"{_program(command)}: exit status {result.rc}" + (f": {last[0]}" if last else ""))
    text: str = result.stdout
    if not text.strip():
        raise Unmeasured(f"{_program(command)}: no output")
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
    """A value in a sentence."""
    if value is None or value == "":
        return "none"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _program(command: str) -> str:
    """The program, past ``timeout -k 2 5`` before it."""
    words = command.split()
    if words[:1] == ["timeout"]:
        words = list(dropwhile(lambda word: word[0] in "-.0123456789", words[1:]))
    return words[0] if words else command
