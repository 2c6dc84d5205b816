"""Declaration of validators, and the functions with which they read and judge.

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
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.failure import failure, last_words
from rackproof.core.rack import Node, Rack
from rackproof.parse.answer import Answer, parse_answer
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
    """Action when it fails."""
    reads: str
    """The architecture key with the expected value.

    ``*`` stands for the item and ``{role}`` for the node's role: ``storage.*.transport``,
    ``roles.{role}.expect.nics.*.mtu``.
    """
    required: bool
    each: Each | None
    when: When | None
    timed: bool = False
    """Whether the check may fail on a busy machine: see ``evaluate.result_of``."""
    tags: frozenset[str] = frozenset()
    """Tags for ``--tags``: the first part of its id, those of ``TAGS_TOO`` and its own."""

    def items(self, arch: Architecture, node: Node, rack: Rack) -> tuple[str, ...]:
        """Items of this check on a node: ``("",)`` for a check without items, empty if it does not apply."""
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
    timed: bool = False,
    tags: Iterable[str] = (),
) -> Callable[[Function], Function]:
    """Declare a test function as a check.

    It runs on the nodes of ``roles`` that satisfy ``when``, once per item of ``each``. Without both it runs if the
    architecture sets the key that it reads.
    """
    part = id.partition(".")[0]
    every = frozenset({part, *TAGS_TOO.get(part, ()), *tags})
    declared = Check(id, tuple(roles), protects, hint, reads, required, each, when, timed, every)

    def declare(function: Function) -> Function:
        unknown = set(inspect.signature(function).parameters) - GIVEN
        if unknown:
            raise TypeError(f"check {id}: unknown argument {', '.join(sorted(unknown))}; available: {sorted(GIVEN)}")
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def always(arch: Architecture, node: Node, rack: Rack) -> bool:
    """For ``when``: run the check also if the architecture leaves the key empty."""
    return True


def check_of(function: Any) -> Check | None:
    """The declaration of a test function; None if it is not a check."""
    declared = getattr(function, _ATTRIBUTE, None)
    return declared if isinstance(declared, Check) else None


def checks_in(module: Any) -> Iterator[tuple[Check, Callable[..., None]]]:
    """Checks of a module, in source order."""
    for function in vars(module).values():
        declared = check_of(function)
        if declared is not None:
            yield declared, function


def announce(host: Host, *commands: str) -> None:
    """Announce independent commands that a check reads.

    Only an optimisation: they run in one round trip.
    """
    host.backend.announce(*commands)


def read(host: Host, command: str, *arguments: str) -> str:
    """Standard output of a command; each ``%s`` is replaced by a quoted argument.

    Raises Unmeasured if it fails or prints nothing: missing data neither passes nor fails.
    """
    return _read(host, command, *arguments)[0]


def answered(host: Host, command: str, tool: str, *arguments: str, good: Collection[int] | None = (0,)) -> Answer:
    """Answer to a command that ends with ``STATUS``. ``good``: accepted exit statuses; None accepts all.

    Raises Unmeasured for other statuses, and for a missing program.
    """
    reply = parse_answer(tool, *_read(host, command, *arguments))
    if reply.not_run or (good is not None and reply.status not in good):
        raise Unmeasured(reply.failure)
    return reply


def _read(host: Host, command: str, *arguments: str) -> tuple[str, str]:
    """Standard output and error of a command that succeeded and printed something."""
    result = host.run(command, *arguments)
    if result.rc != 0:
        raise Unmeasured(failure(program(command), result.rc, result.stderr, result.stdout))
    if not result.stdout.strip():
        words = last_words(result.stderr)
        raise Unmeasured(f"{program(command)}: no output{words and f': {words}'}")
    return result.stdout, result.stderr


def expect(actual: object, expected: object, name: str = "") -> None:
    """Fail unless they are equal."""
    if actual != expected:
        raise AssertionError(f"{name + ': ' if name else ''}expected {shown(expected)}, actual {shown(actual)}")


class Blames(AssertionError):
    """A failure that another machine, ``server``, may have caused: see ``CheckResult.blames``."""

    def __init__(self, message: str, server: str) -> None:
        super().__init__(message)
        self.server = server


def expect_all(problems: Iterable[str]) -> None:
    """Fail with all problems, each ``expected … actual …``, if there are any."""
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
