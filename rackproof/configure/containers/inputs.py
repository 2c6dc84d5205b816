"""How a site runs containers. The runtime, and what its containers must see, are in the architecture."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, model_validator

from rackproof.configure.inputs import Download, Repository
from rackproof.configure.settings import Inputs
from rackproof.core.rack import Node
from rackproof.core.texts import ImageName, Path

FOLDER = "rackproof-user"
"""Folder of the unprivileged user in the root of every shared storage."""
Registry = Annotated[str, StringConstraints(pattern=r"^(https?://)?[A-Za-z0-9][A-Za-z0-9.:_/-]*$")]


class ContainerInputs(Inputs):
    """``containers`` in the inventory's data."""

    KEY: ClassVar = "containers"
    DOWNLOADS: ClassVar = True

    registry_mirrors: tuple[Registry, ...] = ()
    """URLs (docker) or hosts (podman) that the runtime asks before docker.io. Default: none."""
    log_max_mib: int = Field(default=100, ge=1)
    """MiB of one log file of a container. Docker's own default is no limit, which fills /var in a long training."""
    log_files: int = Field(default=3, ge=1)
    """Log files kept of a container."""
    live_restore: bool = True
    """Containers outlive a restart of the daemon. Source: Docker's documentation of live restore."""
    user: str = Field(default="rackproof", pattern=r"^[a-z][a-z0-9_-]{0,30}$")
    """Unprivileged user that tests access to the storage; it owns one folder there and nothing else."""
    uid: int = Field(default=59500, ge=1000, le=59999)
    """The user's uid, equal on all nodes because shared files store the uid. Default: from Debian's site-local
    range."""
    subordinate_start: int = Field(default=2_000_000_000, ge=100_000)
    """First of the user's subordinate ids (/etc/subuid, /etc/subgid), used by rootless containers. Above the range that
    useradd allocates."""
    subordinate_count: int = Field(default=65536, ge=65536)
    """Number of the user's subordinate ids. Source: subuid(5), useradd's default."""
    image: ImageName | None = None
    """Image on every node that checks and the benchmark run in; it has a shell and fio. Default: the node's own
    programs over an empty root, which only podman can do."""
    repository: Repository | None = None
    """Where docker-ce or containerd.io come from on the RHEL family, whose own repositories have neither; Debian's
    family uses its own packages. Default: none; the version set may bring them instead."""
    packages: tuple[Download, ...] = ()
    """Packages of enroot and pyxis, which no distribution has."""
    pyxis_library: Path | None = None
    """The Slurm plugin. Default: where pyxis' own package installs it, ``%{_libdir}/slurm`` in pyxis.spec,
    ``/usr/lib/TRIPLET/slurm`` of its Debian package."""
    enroot_data: Path = "/var/lib/enroot"
    """Absolute path below which enroot keeps unpacked images: a local drive. Default: enroot's own."""

    @model_validator(mode="after")
    def _fits(self) -> ContainerInputs:
        if self.subordinate_start + self.subordinate_count >= 2**32 - 1:
            raise ValueError("subordinate ids end beyond 2^32")
        return self


def user_and_image(node: Node) -> tuple[str, str | None]:
    """``containers.user`` and ``containers.image``. The other inputs are not validated: in a recorded inventory secrets
    are replaced."""
    data = node.data.get(ContainerInputs.KEY) or {}
    user, image = data.get("user", ContainerInputs.model_fields["user"].default), data.get("image")
    return str(user), str(image) if image else None
