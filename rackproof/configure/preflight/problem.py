"""The checks of preflight, and which of their problems the inventory accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, NonNegativeInt, StringConstraints
from pyinfra.api.exceptions import DeployError

from rackproof.configure.settings import Inputs
from rackproof.core.nearest import suggestion
from rackproof.core.plan import Problem
from rackproof.core.texts import Name, Prose
from rackproof.errors import InventoryError

UNREAD: Final = "answer"
HELD: Final = "node.run"
CONTRADICTION: Final = "versions.contradiction"
ROOM: Final = "versions.room"
OTHER_DRIVERS: Final = "nic.drivers"
FOREIGN_DRIVE: Final = "drives.foreign"
FOREIGN_PORT: Final = "nic.foreign"
PORT_IN_USE: Final = "nic.in_use"
MISSING_PORT: Final = "nic.ports"
NEVER: Final = {
    # id: remedy
    HELD: "take the node: --data take_over=RUN",  # the other run would continue
    CONTRADICTION: "correct the set (rackproof versions check)",
    ROOM: "lower versions.free_mib",
    OTHER_DRIVERS: "set nic: {remove_old: true}",
    FOREIGN_DRIVE: "empty the drive, or name another",
    FOREIGN_PORT: "remove the ports from the other tool's files",
    PORT_IN_USE: "remove the addresses, or remove the port from nic.ports",
    MISSING_PORT: "correct nic.ports",
}
"""Checks that cannot be accepted: a later operation would stop there."""
CHECKS: Final = {
    # id: what it prevents
    UNREAD: "changes on a node whose state could not be read",
    "boot.secure_boot": "kernel modules that Secure Boot rejects",
    "clock.offset": "certificates and credentials that are not valid yet, or expired",
    "disk.free": "an installation that fails half-way on a full disk",
    FOREIGN_DRIVE: "formatting a drive that holds data of others",
    "gpu.busy": "jobs that fail because their driver or network stack is replaced, or their node reboots",
    "gpu.inventory": "a missing GPU or NVSwitch, or another model than ordered",
    "gpu.supported": "a driver that does not support the GPU or the operating system",
    "host.firewall": "services that other nodes cannot reach, which resembles many other faults",
    "host.name": "another machine than the inventory means",
    "host.selinux": "a file system whose files SELinux denies to its users",
    "host.userns": "containers that users cannot start",
    "inventory.address": "two nodes with one address",
    "inventory.keys": "a misspelled key, which would be ignored silently",
    "inventory.mac": "two nodes with one NIC",
    "inventory.roles": "a misspelled group, whose nodes would get nothing of their role",
    "inventory.subnet": "a rail whose nodes cannot reach each other",
    "mounts.busy": "remounting a file system that processes use",
    OTHER_DRIVERS: "two OFEDs, of which neither works",
    FOREIGN_PORT: "a port that two network services configure",
    PORT_IN_USE: "losing an address because its port is renamed",
    "nic.model": "another adapter than ordered",
    MISSING_PORT: "a port other than a rail without an adapter",
    "nic.rails": "a rail without an adapter",
    "nic.slots": "a missing adapter",
    "nic.unknown": "an adapter that the kit was never tested with",
    "node.rebooting": "a node that reboots during the deploy",
    HELD: "two runs that overwrite each other's changes on one node",
    "os.architecture": "packages that do not exist for the processor",
    "os.kernel": "a kernel that drivers no longer support",
    "slurm.cgroups": "a slurmd that exits because it does not know the node's control groups",
    "os.supported": "packages and files that do not exist for the operating system",
    "packages.broken": "a package manager that refuses every installation",
    "packages.lock": "waiting for another run of the package manager",
    CONTRADICTION: "a version set that no node can install completely",
    ROOM: "an installation of the version set that fails half-way on a full disk",
}
"""The kit's checks; conflicts between vendors have ids of their own."""


def unread(what: str) -> Problem:
    return Problem(UNREAD, f"{what}: expected an answer, actual none that can be read", "run its command by hand")


Folder = Annotated[str, StringConstraints(pattern=r"^/([A-Za-z0-9@+_=:,.~-]+(/[A-Za-z0-9@+_=:,.~-]+)*)?$")]


class PreflightInputs(Inputs):
    """The inventory's mapping ``preflight``."""

    KEY: ClassVar = "preflight"

    accept: dict[Name, Prose] = Field(default_factory=dict)
    """By id of a check: the reason why its problems are accepted. Default: none are."""
    stop: Literal["node", "rack"] = "node"
    """Scope of a problem of one node: it stops the ``node``, while other nodes go on, or the whole ``rack`` before any
    change. Default: the node, because in a rack of hundreds one always has a problem."""
    free_mib: dict[Folder, NonNegativeInt] = Field(default_factory=lambda: {"/": 1024, "/var": 1024, "/boot": 128})
    """MiB that must be free, by path. Default: packages and initramfs of an ordinary update; a version set needs more
    (``versions.free_mib``)."""
    max_clock_offset_s: float = Field(default=30.0, gt=0)
    """Maximum difference in seconds between the clocks of a node and of the machine that runs the deploy, beyond the
    time for reading it. Default: far below the 300 s of munge's credentials and Kerberos; precision is left to
    chrony."""


def check_accepted(accepted: Mapping[str, str], further: Collection[str] = ()) -> None:
    """Raises InventoryError when an id is unknown, cannot be accepted, or has no reason."""
    known = (*CHECKS, *further)
    for id_, reason in accepted.items():
        if id_ not in known:
            raise InventoryError(f"preflight.accept.{id_}: no such check; {suggestion(id_, known)}")
        if id_ in NEVER:
            raise InventoryError(f"preflight.accept.{id_}: cannot be accepted; {NEVER[id_]}")
        if not reason.strip():
            raise InventoryError(f"preflight.accept.{id_}: expected a reason in words, actual none")


def divided(
    problems: Iterable[Problem], accepted: Mapping[str, str]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Problems that stop the run, and accepted problems with their reasons."""
    ordered = sorted(set(problems), key=lambda problem: (problem.id, problem.what, problem.remedy))
    stopping = tuple(problem for problem in ordered if problem.id not in accepted)
    return stopping, tuple(replace(p, accepted=accepted[p.id]) for p in ordered if p.id in accepted)


def sentence(problems: Collection[Problem]) -> str:
    """All problems in one line."""
    return " | ".join(problem.line for problem in problems)


class RackStopped(DeployError):
    """Problems that stop the whole run while it is planned."""

    def __init__(self, problems: Collection[Problem]) -> None:
        super().__init__(f"preflight: {sentence(problems)}")
        self.problems = tuple(problems)
