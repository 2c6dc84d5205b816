"""Limits, accounts and the local scratch array of a node."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from rackproof.core.architecture.base import Claims, Model
from rackproof.core.texts import FsLabel, Line, Name, Path, Unit, UserName

T = TypeVar("T")
Limit = Literal["unlimited"] | Annotated[int, Field(gt=0)]
Service = Annotated[Unit, StringConstraints(pattern=r"\.service$")]


class Limits(Model):
    """Soft and hard limits of every login and of every service. Locked memory is ``system.limits_memlock``."""

    nofile: Annotated[int, Field(gt=0)] | None = None
    """Open files."""
    nproc: Limit | None = None
    """Processes per user."""
    stack: Limit | None = None
    """KiB, as in limits.conf."""
    services: tuple[Service, ...] = ()
    """Services whose running processes must have these limits and the locked memory, on roles that expect them: limits
    in unit files override the manager's."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.nofile, self.nproc, self.stack, self.services) == (None, None, None, ()):
            raise ValueError("is empty: give nofile, nproc, stack or services")
        return self


class User(Model):
    """One account of every node. Further groups, keys and files are left alone."""

    name: UserName
    uid: int | None = Field(default=None, ge=1000, lt=65534)
    """Must be equal on every node, or files on shared storage belong to another user."""
    groups: tuple[UserName, ...] = ()
    """Required supplementary groups."""
    shell: Path | None = None
    ssh_keys: tuple[Line, ...] = ()
    """Required authorized keys, one line each."""
    sudo: Line | None = None
    """Rights after the name in sudoers: ``ALL=(ALL) NOPASSWD: ALL``."""


def distinct(users: tuple[T, ...]) -> tuple[T, ...]:
    """Accounts of an architecture or an inventory. Raises ValueError for a name or a uid that two of them have."""
    for attribute in ("name", "uid"):
        values = [value for user in users if (value := getattr(user, attribute)) is not None]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise ValueError(f"duplicate {attribute} {twice}")
    return users


class Scratch(Model):
    """A local file system over several drives of every node of the role: mdadm RAID0, mounted by its label."""

    drives: int = Field(ge=2)
    """Number of members, all active."""
    level: Literal["raid0"] = "raid0"
    mountpoint: Path = "/scratch"
    fstype: Literal["xfs", "ext4"] = "xfs"
    label: FsLabel = "rp-scratch"
    """Name of the array and of its file system."""
    chunk_kib: int | None = Field(default=None, ge=4, le=65536)
    """Stripe of one drive, KiB."""
    source: Name
    claim: Claims = ()


LIMITS_CHECKS: Final = {
    "login": "os.limits_login",
    "services": "os.limits_services",
}
"""Checks on every node where ``system.limits`` sets a limit; ``os.limits_daemon`` covers its ``services``."""

LIMITS_DAEMON: Final = "os.limits_daemon"

SCRATCH_CHECKS: Final = {"drives": "scratch.array", "mountpoint": "scratch.mounted"}
"""Key of ``scratch``: check."""
