"""Models of ``versions.lock.yaml``: versions and their repositories, for each operating system of a rack.

A platform is complete: it lists its components and the repositories that they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rackproof.core.texts import Line, Name, Prose, Sha256, Url, Version

DISTRIBUTION: Final = "distribution"
"""Name of the operating system's own repositories."""

ClientKind = Literal["beegfs", "ceph", "daos", "gpfs", "lustre", "nfs", "vastnfs", "weka"]

PlatformName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*-[0-9][0-9.]*$")]
"""ID and VERSION_ID of os-release: ``ubuntu-24.04``, ``debian-12``; ``rocky-9`` covers all its minor versions."""
RepositoryName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$")]
Word = Annotated[str, StringConstraints(pattern=r"^(\.?/|[A-Za-z0-9*][A-Za-z0-9*?+._:/~-]*)$")]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class LockedFile(Model):
    """A file outside of repositories: an installer, firmware, a key, a vendor's package."""

    url: Url
    sha256: Sha256 | None = None
    """Null makes the set a draft, which cannot be locked."""


class SigningKey(LockedFile):
    """Key that signs a repository's lists."""

    fingerprint: Fingerprint | None = None
    """Informational, to compare with the vendor's page."""


class LockedRepository(Model):
    """A source of packages other than the distribution itself."""

    kind: Literal["apt", "dnf"]
    url: Url
    """apt: URI of the ``deb`` line; dnf: ``baseurl``."""
    suites: tuple[Word, ...] = ()
    """apt only; ``/`` for a repository without suites."""
    components: tuple[Word, ...] = ()
    """apt only."""
    architectures: tuple[Word, ...] = ()
    """apt only; empty: the node's own."""
    key: SigningKey
    label: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/()+-]*$")
    """apt: ``Label`` of its Release file, ``NVIDIA CUDA``, by which its packages are pinned. Without it they are pinned
    by the host of the URL, which must then serve no other repository."""
    priority: int | None = Field(default=None, ge=-1000, le=1001)
    """apt: pin priority of its packages (apt's default is 500, higher wins); dnf: ``priority`` (default 99, lower
    wins)."""
    exclude: tuple[Word, ...] = ()
    """Patterns of packages that must not come from here: ``mft*`` of CUDA's, which must match DOCA."""

    @model_validator(mode="after")
    def _spelled_for_its_kind(self) -> LockedRepository:
        if self.kind == "apt" and not self.suites:
            raise ValueError("an apt repository needs suites; a flat one has the suite /")
        if self.kind == "apt" and any(suite.endswith("/") for suite in self.suites) and self.components:
            raise ValueError("a suite that ends with / has no components")
        if self.kind == "dnf" and (self.suites or self.components or self.architectures):
            raise ValueError("suites, components and architectures are for apt only; a dnf repository has only a url")
        return self


class PlacedFile(LockedFile):
    """A file that is placed on nodes unchanged: a licence, a blob that a service reads."""

    path: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9@+_=:,.-]+)+$")]
    """Path on the node."""
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3}$")] = "644"
    """Mode of the file; root owns it."""

    @model_validator(mode="after")
    def _plain_path(self) -> PlacedFile:
        if {".", ".."} & set(self.path.split("/")):
            raise ValueError(f"path: expected one without . and .., actual {self.path}")
        return self


class Component(Model):
    """One part of the set: its version, its packages and their repository."""

    version: Version
    """As the vendor names it: ``580.126.16``."""
    repository: RepositoryName = DISTRIBUTION
    packages: dict[Name, Version] = Field(default_factory=dict)
    """Name: full version. All are held."""
    files: tuple[PlacedFile, ...] = ()
    """Downloaded, compared with their sha256, placed after all packages, and read back at the end."""
    dkms: tuple[Name, ...] = ()
    """DKMS modules that must be built for the locked kernel: ``nvidia``, ``mlnx-ofed-kernel``."""
    roles: tuple[Name, ...] = ()
    """Groups of the inventory that get it; none: every node that has the hardware for it."""
    source: Prose | None = None
    """Source of the figures."""


class Kernel(Component):
    """``version`` is the release of the running kernel, ``6.8.0-87-generic``."""

    flavour: Literal["ga", "hwe", "vendor"] | None = None
    """``ga``: the series that the release was published with."""


class Driver(Component):
    """The GPU driver."""

    flavour: Literal["open", "proprietary"]
    precompiled: bool = False
    """The distribution or vendor builds and signs the modules for one kernel; DKMS builds none."""

    @property
    def branch(self) -> int | None:
        return major(self.version)


class NetworkStack(Component):
    """Drivers of the adapters. ``version`` is DOCA's (``3.2.1``), OFED's (``24.10-1.1.4.0``), or ``inbox``."""

    stack: Literal["doca", "mlnx_ofed", "inbox"]
    ofed: Version | None = None
    """Version of the OFED in DOCA, ``25.10``, against which clients are built."""
    nfsrdma: bool = False
    """Its own modules for NFS over RDMA are installed."""


class Firmware(Model):
    """Firmware of one kind of adapter, found by PSID or by model."""

    psid: Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{6,16}$")] | None = None
    model: Line | None = None
    """``ConnectX-7``: for adapters of every PSID that is not listed."""
    version: Version
    """As ``flint query`` prints it; adapters are compared with it at the end of a deploy."""
    file: LockedFile | None = None
    """Written to adapters of this ``psid`` with another version; without it, firmware is only compared."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Firmware:
        if (self.psid is None) == (self.model is None):
            raise ValueError("give either psid or model")
        if self.file and self.psid is None:
            raise ValueError("an image is for one psid: give psid instead of model")
        return self


class Gds(Component):
    """GPUDirect Storage."""

    nvidia_fs: Version | None = None
    """Version of the kernel module; null where the kernel's own P2PDMA is used."""
    nvidia_fs_for: Literal["open", "proprietary"] | None = None
    """Flavour of the driver that the module was built with, where its package says so."""


class FileSystemClient(Component):
    """Client of a parallel or vendor file system."""

    ofed: Version | None = None
    """OFED against which it was built, ``25.10``, or ``inbox``."""
    kernel: Version | None = None
    """Kernel release of its prebuilt modules; null where they are built on the node."""


class Components(Model):
    """Components of one platform. Absent ones are not installed, checked or held."""

    kernel: Kernel | None = None
    network: NetworkStack | None = None
    driver: Driver | None = None
    fabric_manager: Component | None = None
    nvlsm: Component | None = None
    imex: Component | None = None
    cuda: Component | None = None
    nccl: Component | None = None
    dcgm: Component | None = None
    container_toolkit: Component | None = None
    gds: Gds | None = None
    clients: dict[ClientKind, FileSystemClient] = Field(default_factory=dict)
    others: dict[Name, Component] = Field(default_factory=dict)
    """Other locked components: slurm, gdrcopy, nvidia-persistenced."""
    nic_firmware: tuple[Firmware, ...] = ()

    def named(self) -> Iterator[tuple[str, Component]]:
        """Every component by its key, such as ``clients.weka``, in the order of installation."""
        for name in SINGLE:
            component = getattr(self, name)
            if component is not None:
                yield name, component
        for kind, client in self.clients.items():
            yield f"clients.{kind}", client
        for name, other in self.others.items():
            yield f"others.{name}", other


SINGLE: Final = (
    "kernel",
    "network",
    "driver",
    "fabric_manager",
    "nvlsm",
    "imex",
    "cuda",
    "nccl",
    "dcgm",
    "container_toolkit",
    "gds",
)
"""Keys of single components, in the order of installation."""


class Platform(Model):
    """One operating system: its repositories and its components."""

    repositories: dict[RepositoryName, LockedRepository] = Field(default_factory=dict)
    components: Components

    @model_validator(mode="after")
    def _repositories_are_there(self) -> Platform:
        if DISTRIBUTION in self.repositories:
            raise ValueError(f"{DISTRIBUTION} is reserved and cannot name a repository")
        for name, component in self.components.named():
            if component.repository != DISTRIBUTION and component.repository not in self.repositories:
                raise ValueError(f"components.{name}.repository: unknown repository {component.repository}")
        seen: dict[str, str] = {}
        for name, component in self.components.named():
            for file in component.files:
                if file.path in seen:
                    raise ValueError(f"components.{name}.files: {file.path} belongs to {seen[file.path]} already")
                seen[file.path] = name
            for package in component.packages:
                if package in seen:
                    raise ValueError(f"components.{name}.packages: {package} belongs to {seen[package]} already")
                seen[package] = name
        return self


class VersionSet(Model):
    """The whole file."""

    api_version: Literal["versions/v1"] = Field(alias="apiVersion")
    name: Name
    digest: Sha256 | None = None
    """Digest of the rest of the file; ``rackproof versions lock`` writes it. Without it the file is a draft."""
    platforms: dict[PlatformName, Platform] = Field(min_length=1)

    @property
    def locked(self) -> bool:
        return self.digest is not None


def major(version: str) -> int | None:
    """``580`` of ``580.126.16``; None where it does not begin with a number."""
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 10 else None
