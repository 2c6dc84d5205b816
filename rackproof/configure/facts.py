"""Facts: one command, one answer each. Parsing is in the planners' modules.

Every answer ends with a marker line. An answer without it was cut off (a line that is not UTF-8 ends pyinfra's
reader, silently), and a cut-off answer must not be taken for a short one: the fact fails, its value is None, and the
operation that asked refuses to act.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TypeVar

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host
from pyinfra.api.state import State

from rackproof.configure import clock, drives, files, kernel, mounts, network, packages, trust, units
from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.fact_prefetch import END, Question, ask_ahead
from rackproof.core.machine import Machine
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine

T = TypeVar("T")


class Answer(FactBase[T | None]):
    """Base of all facts: a complete answer, parsed, or None."""

    abstract = True

    def check_preconditions(self, state: State, host: Host) -> str | None:
        ask_ahead(state, host)
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
    """The command, and the line that proves that its answer is whole. It must change nothing on the node."""
    return Question(f"{command.rstrip('; ')}; echo {END}")


class MachineFacts(Answer[Machine]):
    """Operating system, kernel, firmware and PCI devices."""

    def command(self) -> str:
        return complete(MACHINE_COMMAND)

    def parse(self, lines: list[str]) -> Machine:
        return parse_machine(lines)


class InstalledPackages(Answer[frozenset[str]]):
    """Those of the given packages that are installed."""

    def command(self, packages_wanted: Sequence[str], family: str = "debian") -> str:
        return complete(packages.installed_command(packages_wanted, family))

    def parse(self, lines: list[str]) -> frozenset[str]:
        return packages.parse_installed(lines)


class FileStates(Answer[dict[str, files.FileState]]):
    """What is at each path, with the content of those in ``texts``."""

    def command(self, paths: Sequence[str], texts: Sequence[str]) -> str:
        return complete(files.states_command(paths, texts))

    def parse(self, lines: list[str]) -> dict[str, files.FileState]:
        return files.parse_states(lines)


class UnitStates(Answer[units.SystemState]):
    """Units, pending marks and properties of the manager."""

    def command(self, wanted: Sequence[units.Unit], manager: Sequence[str]) -> str:
        return complete(units.states_command(wanted, manager))

    def parse(self, lines: list[str]) -> units.SystemState:
        return units.parse_states(lines)


class KernelValues(Answer[dict[str, str]]):
    """Values of the running kernel by path."""

    def command(self, sysctl: Sequence[str], patterns: Sequence[str]) -> str:
        return complete(kernel.values_command(sysctl, patterns))

    def parse(self, lines: list[str]) -> dict[str, str]:
        return kernel.parse_values(lines)


class Links(Answer[tuple[network.Link, ...]]):
    """Network interfaces."""

    def command(self, with_paths: bool) -> str:
        return complete(network.links_command(with_paths))

    def parse(self, lines: list[str]) -> tuple[network.Link, ...]:
        return network.parse_links(lines)


class DriveState(Answer[drives.DriveState]):
    """What is on a drive."""

    def command(self, device: str) -> str:
        return complete(drives.state_command(device))

    def parse(self, lines: list[str]) -> drives.DriveState:
        return drives.parse_state(lines)


class MountTable(Answer[mounts.Table]):
    """What is mounted and over what, the kit's own units of mounts, and the pending marks."""

    def command(self) -> str:
        return complete(mounts.table_command())

    def parse(self, lines: list[str]) -> mounts.Table:
        return mounts.parse_table(lines)


class Identity(Answer[trust.Identity]):
    """Public keys of the node and of its root user."""

    def command(self) -> str:
        return complete(trust.identity_command())

    def parse(self, lines: list[str]) -> trust.Identity:
        return trust.parse_identity(lines)


class CephState(Answer[ceph.CephState]):
    """Which Ceph cluster this node carries."""

    def command(self) -> str:
        return complete(ceph.state_command())

    def parse(self, lines: list[str]) -> ceph.CephState:
        return ceph.parse_state(lines)


class Synchronised(Answer[bool]):
    """Whether the clock follows a time source."""

    def command(self) -> str:
        return complete(clock.state_command())

    def parse(self, lines: list[str]) -> bool:
        return lines == [clock.SYNCHRONISED]


class Programs(Answer[frozenset[str]]):
    """Those of the given programs that are on root's PATH."""

    def command(self, programs: Sequence[str]) -> str:
        names = " ".join(shlex.quote(name) for name in programs)
        return complete(f'for p in {names}; do command -v -- "$p" >/dev/null && echo "$p"; done')

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(lines)


class Marks(Answer[frozenset[str]]):
    """What waits for a restart of a unit or of the node."""

    def command(self) -> str:
        return complete(f": rackproof-marks; {files.pending_command()}")

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(lines)
