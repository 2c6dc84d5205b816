"""How nodes check themselves."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from rackproof.configure.settings import Inputs


class HealthInputs(Inputs):
    """``health_check`` in the inventory's data."""

    KEY: ClassVar = "health_check"
    DOWNLOADS: ClassVar = True

    install: bool = True
    """Whether the kit is put on the nodes. False: only the program is; it says that there is no kit. Turn it off where
    installing takes too long: on an emulated node pip takes several minutes."""
    directory: str = Field(default="/opt/rackproof", pattern=r"^/[A-Za-z0-9._/-]+$")
    """Absolute path of the kit on a node."""
    python: str = Field(default="/usr/bin/python3", pattern=r"^/[A-Za-z0-9._/-]+$")
    """Python 3.11 or newer on the node. Ubuntu 22.04 and the RHEL family have it beside their own: name it here."""
    wheelhouse: str | None = Field(default=None, pattern=r"^/[^\s']+$")
    """Absolute path of a folder with wheels on the node (a shared mount, an image): nothing is downloaded then. Taken
    are the versions and digests of the kit's lock file, as from any index: ``rackproof mirror list`` names them."""
    index_url: str | None = Field(default=None, pattern=r"^(https?|file)://[^\s']+$")
    """URL of a package index. Default: what pip on the node is configured for."""
    tags: tuple[str, ...] = ("base", "gpu", "fabric", "mount")
    """Checks with one of these tags only; empty: all. Slurm's own are left out: a node whose controller is away is not
    ill. Most of the time goes into what talks to a device."""
    time_limit_s: int = Field(default=240, ge=10, le=3600)
    """Seconds for one whole check. On a GPU node all checks take about 10 s, under emulation a minute."""
    drain_on: tuple[Literal["failed", "unmeasured", "timeout"], ...] = ("failed", "unmeasured", "timeout")
    """What takes a node out of service. Not to know is not to be well."""
    unmeasured_ok: tuple[str, ...] = ()
    """Checks that cannot be measured here and need not be, by id."""

    @model_validator(mode="after")
    def _one_source(self) -> HealthInputs:
        if self.wheelhouse and self.index_url:
            raise ValueError("give wheelhouse or index_url, not both")
        return self
