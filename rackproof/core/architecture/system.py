"""State of the operating system and the tools, as deploys set it and validators check it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from rackproof.core.architecture.base import Model


class TimeSync(Model):
    """One node serves the time, the others follow it."""

    server_role: str | None = None
    """Null: the site has time servers of its own."""
    max_offset_ms: float = Field(default=100.0, gt=0)
    """The default is enough to line up the logs of different nodes."""


class System(Model):
    """State of the operating system on every node."""

    packages: tuple[str, ...] = ()
    sysctl: dict[str, str] = Field(default_factory=dict)
    limits_memlock: Literal["unlimited"] | int = "unlimited"
    """KiB, as in limits.conf."""
    transparent_hugepages: Literal["always", "madvise", "never"] = "madvise"
    cpu_governor: str | None = None
    """Applied and checked only where the kernel offers frequency scaling."""
    unattended_upgrades: Literal["frozen", "allowed"] = "frozen"
    time: TimeSync = TimeSync()


class Tools(Model):
    """Benchmark programs on every node: package and the program that proves it."""

    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


SYSTEM_CHECKS: Final[dict[str, str]] = {}
"""Key of ``system`` whose value is asked for on every node where it is set: check."""
