"""Facts: commands and their parsers, which are in the planners' modules.

Every answer ends with a marker line. Without it the answer is truncated (a line that is not UTF-8 silently ends
pyinfra's reader): the fact fails, its value is None, and the operation refuses the node.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host
from pyinfra.api.state import State

from rackproof.configure import carriers, clock, drives, files, kernel, mounts, network, packages, trust, units
from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.fact_prefetch import END, Kept, Question, Timely, prefetch_facts
from rackproof.core.programs import OFF_PATH
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.parse.packages import parse_package_list

P = ParamSpec("P")
T = TypeVar("T")


class Answer(FactBase[T | None]):
    """Base class of all facts: the value is a complete, parsed answer, or None."""

    abstract = True

    def check_preconditions(self, state: State, host: Host) -> str | None:
        prefetch_facts(state, host)
        return None

    def process(self, output: list[str]) -> T | None:
        if not output or output[-1] != END:
            raise FactProcessError("the answer is cut off")
        try:
            return self.parse(output[:-1])
        except (ValueError, KeyError, IndexError) as error:
            raise FactProcessError(f"unexpected answer: {error}") from error

    def parse(self, lines: list[str]) -> T:
        raise NotImplementedError


def complete(command: str) -> Question:
    """The command, followed by the marker line of complete answers. It must not change anything on the node."""
    return Question(f"{command.rstrip('; ')}; echo {END}")


def answer(
    name: str, command: str | Callable[P, str], parse: Callable[[list[str]], T], *, timely: bool = False
) -> type[Answer[T]]:
    """The fact of a command, which must not change anything on the node, and the parser of its answer.

    ``timely``: the answer must be fresh, such as the time.

    **Example:**

    .. code:: python

        Links = answer("Links", network.links_command, network.parse_links)
        links = ask(Links, "the network interfaces", with_paths=False)
    """
    question = _question(command, lambda text: Timely(complete(text)) if timely else complete(text))
    return cast(type[Answer[T]], type(name, (Answer,), {"command": question, "parse": staticmethod(parse)}))


def kept(fact: type[Answer[T]]) -> type[Answer[T]]:
    """The fact for preflight: its answer stays for the operation that needs it later."""
    ahead = {"command": _question(cast("str | Callable[..., str]", fact.command), Kept)}
    return cast(type[Answer[T]], type(f"{fact.__name__}Ahead", (fact,), ahead))


def _question(command: str | Callable[..., str], kind: Callable[[str], Question]) -> Any:
    make: Callable[..., str] = (lambda: command) if isinstance(command, str) else command

    @wraps(make)
    def question(*args: Any, **kwargs: Any) -> Question:
        return kind(make(*args, **kwargs))

    # pyinfra matches arguments with inspect.getcallargs, which does not follow __wrapped__.
    question.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
    return staticmethod(question)


def _programs_command(programs: Sequence[str], family: str) -> str:
    names = " ".join(shlex.quote(name) for name in programs)
    there = f'for p in {names}; do command -v -- "$p" >/dev/null && echo "$p"; done'
    elsewhere = {name: OFF_PATH[name] for name in programs if name in OFF_PATH} if family == "rhel" else {}
    return there + "".join(f"; [ ! -x {path} ] || echo {name}" for name, paths in elsewhere.items() for path in paths)


MachineFacts = answer("MachineFacts", MACHINE_COMMAND, parse_machine)
"""Operating system, kernel, firmware and PCI devices."""

InstalledPackages = answer(
    "InstalledPackages", packages.installed_command, lambda lines: frozenset(parse_package_list(lines))
)
"""Which of the given packages are installed."""

FileStates = answer("FileStates", files.states_command, files.parse_states)
"""State of each path, with the content of those in ``texts``."""

UnitStates = answer("UnitStates", units.states_command, units.parse_states)
"""Units, pending marks and properties of the manager."""

KernelValues = answer("KernelValues", kernel.values_command, kernel.parse_values)
"""Values of the running kernel by path."""

Carriers = answer("Carriers", carriers.command, carriers.parse, timely=True)
"""Load of network devices: ssh sessions, default routes, addresses."""

Links = answer("Links", network.links_command, network.parse_links)
"""Network interfaces."""

DriveState = answer("DriveState", drives.state_command, drives.parse_state)
"""Content of a drive."""

MountTable = answer("MountTable", mounts.table_command, mounts.parse_table)
"""Mounts with their transports, the kit's mount units, and the pending marks."""

Identity = answer("Identity", trust.identity_command, trust.parse_identity)
"""Public keys of the node and of its root user."""

CephState = answer("CephState", ceph.state_command, ceph.parse_state)
"""Ceph cluster of this node."""

Synchronised = answer("Synchronised", clock.state_command, lambda lines: lines == [clock.SYNCHRONISED])
"""Whether the clock follows a time source."""

Programs = answer("Programs", _programs_command, frozenset[str])
"""Which of the given programs are on root's PATH."""

Marks = answer("Marks", f": rackproof-marks; {files.pending_command()}", frozenset[str])
"""Pending marks: restarts of units and reboots."""
