"""Facts. The parsers are in the planners' modules.

Every answer ends with a marker line. Without it the answer is truncated (a line that is not UTF-8 silently ends
pyinfra's reader): the fact fails, its value is None, and the operation refuses the node.
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
from rackproof.parse.packages import parse_package_list

T = TypeVar("T")


class Answer(FactBase[T | None]):
    """Base class of all facts: the value is a complete, parsed answer, or None."""

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
    """The command, followed by the marker line of complete answers. It must not change anything on the node."""
    return Question(f"{command.rstrip('; ')}; echo {END}")


class MachineFacts(Answer[Machine]):
    """Operating system, kernel, firmware and PCI devices."""

    def command(self) -> str:
        return complete(MACHINE_COMMAND)

    def parse(self, lines: list[str]) -> Machine:
        return parse_machine(lines)


class InstalledPackages(Answer[frozenset[str]]):
    """Which of the given packages are installed."""

    def command(self, packages_wanted: Sequence[str], family: str = "debian") -> str:
        return complete(packages.installed_command(packages_wanted, family))

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(parse_package_list(lines))


class FileStates(Answer[dict[str, files.FileState]]):
    """State of each path, with the content of those in ``texts``."""

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
    """Content of a drive."""

    def command(self, device: str) -> str:
        return complete(drives.state_command(device))

    def parse(self, lines: list[str]) -> drives.DriveState:
        return drives.parse_state(lines)


class MountTable(Answer[mounts.Table]):
    """Mounts with their transports, the kit's mount units, and the pending marks."""

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
    """Ceph cluster of this node."""

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
    """Which of the given programs are on root's PATH."""

    def command(self, programs: Sequence[str]) -> str:
        names = " ".join(shlex.quote(name) for name in programs)
        return complete(f'for p in {names}; do command -v -- "$p" >/dev/null && echo "$p"; done')

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(lines)


class Marks(Answer[frozenset[str]]):
    """Pending marks: restarts of units and reboots."""

    def command(self) -> str:
        return complete(f": rackproof-marks; {files.pending_command()}")

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(lines)
