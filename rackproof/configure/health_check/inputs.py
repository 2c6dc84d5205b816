"""The inventory's mapping ``health_check``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from rackproof.configure.settings import Inputs
from rackproof.core.texts import Name, Path, Url


class HealthInputs(Inputs):
    """How nodes check themselves: the inventory's mapping ``health_check``."""

    KEY: ClassVar = "health_check"
    DOWNLOADS: ClassVar = True

    install: bool = True
    """Whether the kit is installed on the nodes. False: only Slurm's program is installed, which reports that there is
    no kit. Disable it where the installation takes too long: on an emulated node pip takes several minutes."""
    directory: Path = "/opt/rackproof"
    """Absolute path of the kit on a node."""
    python: Path = "/usr/bin/python3"
    """Python 3.11 or newer on the node. On Ubuntu 22.04 name one that is installed beside the system's own; on the RHEL
    family the default is /usr/bin/python3.11."""
    wheelhouse: Path | None = None
    """Absolute path of a folder with wheels on the node (a shared mount, an image); nothing is downloaded then. It must
    contain the versions and digests of the kit's lock file: ``rackproof mirror list`` names them."""
    index_url: Url | None = None
    """URL of a package index. Default: what pip on the node is configured for."""
    tags: tuple[Name, ...] = ("base", "gpu", "fabric", "mount")
    """Only checks with one of these tags run; empty: all. Default: without Slurm's, because an unreachable controller
    is no fault of the node. Checks that access devices take most of the time."""
    time_limit_s: int = Field(default=240, ge=10, le=3600)
    """Seconds for one run of all checks. On a GPU node they take about 10 s, under emulation a minute."""
    drain_on: tuple[Literal["failed", "unmeasured", "timeout"], ...] = ("failed", "unmeasured", "timeout")
    """Outcomes that drain a node. Default: all of them, because an unknown state is not healthy."""
    unmeasured_ok: tuple[Name, ...] = ()
    """Ids of checks that may stay unmeasured."""

    @model_validator(mode="after")
    def _one_source(self) -> HealthInputs:
        if self.wheelhouse and self.index_url:
            raise ValueError("give wheelhouse or index_url, not both")
        return self
