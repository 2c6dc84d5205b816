"""A reason not to begin, in one line with a way out, and what the inventory accepts of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Final, Literal

from pydantic import Field, NonNegativeInt
from pyinfra.api.exceptions import DeployError

from rackproof.configure.settings import Inputs
from rackproof.core.nearest import suggestion
from rackproof.core.plan import Problem
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
    # id: the way out instead
    HELD: "take the node: --data take_over=RUN",  # the other run would go on working
    CONTRADICTION: "correct the set (rackproof versions check)",
    ROOM: "lower versions.free_mib",
    OTHER_DRIVERS: "say nic_stack: {remove_old: true}",
    FOREIGN_DRIVE: "empty the drive, or name another",
    FOREIGN_PORT: "take the ports out of the other tool's files",
    PORT_IN_USE: "take the addresses away, or the port out of nic_stack.ports",
    MISSING_PORT: "correct nic_stack.ports",
}
"""Not to be accepted: the deploy itself would stop at it, and later."""
CHECKS: Final = {
    # id: what it protects from
    UNREAD: "a node that cannot be read is not changed",
    "boot.secure_boot": "modules that the firmware does not let the kernel load",
    "clock.offset": "certificates and credentials that are not valid yet, or no longer",
    "disk.free": "an installation that ends half-way",
    FOREIGN_DRIVE: "data of somebody else's on a drive that would be formatted",
    "gpu.busy": "jobs that die because driver or network stack is exchanged under them",
    "gpu.inventory": "a GPU or an NVSwitch that is missing, or another one than ordered",
    "gpu.supported": "a driver that does not know the GPU or the operating system",
    "host.firewall": "services that other nodes cannot reach, which looks like a hundred other faults",
    "host.name": "a machine that is another one than the inventory means",
    "host.selinux": "a file system that SELinux keeps from who mounts it",
    "host.userns": "containers of users that cannot be begun",
    "inventory.address": "two nodes with one address",
    "inventory.keys": "a key that is misspelt: what it says would be left out without a word",
    "inventory.mac": "two nodes with one NIC",
    "inventory.roles": "a group whose name is misspelt: its nodes would get nothing of their role",
    "inventory.subnet": "a rail whose nodes cannot reach each other",
    "mounts.busy": "a mount that would have to be made anew while somebody works in it",
    OTHER_DRIVERS: "two OFEDs, of which neither works",
    FOREIGN_PORT: "a port that two network services set",
    PORT_IN_USE: "an address that goes because its port is renamed",
    "nic.model": "another adapter than ordered",
    MISSING_PORT: "a port, not a rail, without an adapter",
    "nic.rails": "a rail without an adapter",
    "nic.slots": "an adapter that is missing",
    "nic.unknown": "an adapter that nobody has tried",
    "node.rebooting": "a node that goes away in the middle",
    HELD: "two runs on one node, of which neither gets what it declares",
    "os.architecture": "packages that do not exist for the processor",
    "os.kernel": "a kernel that drivers no longer build for",
    "os.supported": "packages and files that the operating system does not know",
    "packages.broken": "a package manager that refuses everything",
    "packages.lock": "waiting for an update that somebody else runs",
    CONTRADICTION: "a set of versions of which no node can have all",
    ROOM: "an installation of the version set that ends half-way",
}
"""Every check of the kit's own; conflicts between vendors have ids of their own."""


def unread(what: str) -> Problem:
    return Problem(UNREAD, f"{what}: expected an answer, actual none that can be read", "run its question by hand")


class PreflightInputs(Inputs):
    """The inventory's mapping ``preflight``."""

    KEY: ClassVar = "preflight"

    accept: dict[str, str] = Field(default_factory=dict)
    """Id of a check: why its problems are accepted, in words. Default: nothing is."""
    stop: Literal["node", "rack"] = "node"
    """What a problem of one node stops: that node, while the others go on, or everything before any node is touched.
    Default: the node; a rack of hundreds always has one."""
    free_mib: dict[str, NonNegativeInt] = Field(default_factory=lambda: {"/": 1024, "/var": 1024, "/boot": 128})
    """Path: MiB that must be free there. Default: what packages and an initramfs of a plain update take; a version set
    asks for more where it is installed (``versions.free_mib``)."""
    max_clock_offset_s: float = Field(default=30.0, gt=0)
    """Seconds that a node's clock may be away from the machine that runs the deploy, beyond what asking takes.
    Default: far below the 300 s of munge's credentials and Kerberos; how well clocks agree is chrony's business."""


def check_accepted(accepted: Mapping[str, str], further: Collection[str] = ()) -> None:
    """Raises InventoryError where an id is unknown or a reason is empty."""
    known = (*CHECKS, *further)
    for id_, reason in accepted.items():
        if id_ not in known:
            raise InventoryError(f"preflight.accept.{id_}: no such check; {suggestion(id_, known)}")
        if id_ in NEVER:
            raise InventoryError(f"preflight.accept.{id_}: cannot be accepted; {NEVER[id_]}")
        if not reason.strip():
            raise InventoryError(f"preflight.accept.{id_}: why? a reason in words is expected")


def divided(
    problems: Iterable[Problem], accepted: Mapping[str, str]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Problems that stop, and problems that are accepted, with the reason."""
    ordered = sorted(set(problems), key=lambda problem: (problem.id, problem.what, problem.remedy))
    stopping = tuple(problem for problem in ordered if problem.id not in accepted)
    return stopping, tuple(replace(p, accepted=accepted[p.id]) for p in ordered if p.id in accepted)


def sentence(problems: Collection[Problem]) -> str:
    """All of them in one line."""
    return " | ".join(problem.line for problem in problems)


class RackStopped(DeployError):
    """Problems that stop the whole run while it is planned."""

    def __init__(self, problems: Collection[Problem]) -> None:
        super().__init__(f"preflight: {sentence(problems)}")
        self.problems = tuple(problems)
