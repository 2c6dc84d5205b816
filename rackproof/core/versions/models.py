"""``versions.lock.yaml``: which version of everything, from where, for each operating system of a rack.

A platform is complete by itself: what is installed on it is listed below it, with the repositories it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

DISTRIBUTION: Final = "distribution"
"""The repository of packages that come from where the operating system comes from."""

ClientKind = Literal["beegfs", "ceph", "daos", "gpfs", "lustre", "nfs", "vastnfs", "weka"]

PackageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
PackageVersion = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._:~^-]*$")]
"""To the last digit; with its epoch where the package has one."""
PlatformName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*-[0-9][0-9.]*$")]
"""ID and VERSION_ID of os-release: ``ubuntu-24.04``, ``debian-12``; ``rocky-9`` covers all its minor versions."""
RepositoryName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Url = Annotated[str, StringConstraints(pattern=r"^(https?|file)://[^\s\"'\\]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[^\s\"'\\\[\]]+$")]
Version = Annotated[str, StringConstraints(pattern=r"^[^\s\"'\\]+$")]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class SigningKey(Model):
    """What a repository's lists are signed with. A null digest makes the set a draft: it cannot be locked."""

    url: Url
    sha256: Sha256 | None = None
    """Of the file as the URL gives it."""
    fingerprint: Fingerprint | None = None
    """For people to compare with the vendor's page."""


class Repository(Model):
    """Where packages come from, other than the distribution itself."""

    kind: Literal["apt", "dnf"]
    url: Url
    """apt: what follows ``deb``; dnf: ``baseurl``."""
    suites: tuple[Word, ...] = ()
    """apt only; ``/`` for a repository without suites."""
    components: tuple[Word, ...] = ()
    """apt only."""
    architectures: tuple[Word, ...] = ()
    """apt only; none: the node's own."""
    key: SigningKey
    label: str | None = Field(default=None, pattern=r"^[^\n*]+$")
    """apt: ``Label`` of its Release file, by which its packages are pinned, ``NVIDIA CUDA``. Left out, they are pinned
    by the host of the URL, which has to be the repository's alone."""
    priority: int | None = Field(default=None, ge=-1000, le=1001)
    """apt: pin of everything in it (500 is the default of apt, higher goes first); dnf: ``priority`` (99 is the
    default, lower goes first)."""
    exclude: tuple[Word, ...] = ()
    """Packages that must never come from here, with ``*``: ``mft*`` of CUDA's, which has to follow DOCA."""

    @model_validator(mode="after")
    def _spelled_for_its_kind(self) -> Repository:
        if self.kind == "apt" and not self.suites:
            raise ValueError("an apt repository names its suites; a flat one has the suite /")
        if self.kind == "apt" and any(suite.endswith("/") for suite in self.suites) and self.components:
            raise ValueError("a suite that ends with / has no components")
        if self.kind == "dnf" and (self.suites or self.components or self.architectures):
            raise ValueError("suites, components and architectures are apt's; dnf has a url only")
        return self


class Download(Model):
    """A file that no repository has: an installer, firmware, a vendor's package."""

    url: Url
    sha256: Sha256 | None = None
    """Null makes the set a draft."""


class PlacedFile(Download):
    """A download that lies on nodes as it is: a licence, a blob that a service reads."""

    path: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9@+_=:,.-]+)+$")]
    """Where it lies on a node."""
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3}$")] = "644"
    """Of the file, which root owns."""

    @model_validator(mode="after")
    def _plain_path(self) -> PlacedFile:
        if {".", ".."} & set(self.path.split("/")):
            raise ValueError(f"path: expected one without . and .., actual {self.path}")
        return self


class Component(Model):
    """One part of the set: its version, the packages that bring it, where they come from."""

    version: Version
    """As the vendor names it: ``580.126.16``."""
    repository: RepositoryName = DISTRIBUTION
    packages: dict[PackageName, PackageVersion] = Field(default_factory=dict)
    """Name: version to the last digit. All are held."""
    files: tuple[PlacedFile, ...] = ()
    """Downloaded, compared with their sha256, put into their places after all packages, and read back at the end."""
    dkms: tuple[PackageName, ...] = ()
    """DKMS modules that must be built for the locked kernel: ``nvidia``, ``mlnx-ofed-kernel``."""
    roles: tuple[PackageName, ...] = ()
    """Groups of the inventory that get it; none: every node that has the hardware for it."""
    source: str | None = None
    """Where the figures were read."""


class Kernel(Component):
    """``version`` is the release of the kernel that runs, ``6.8.0-87-generic``."""

    flavour: Literal["ga", "hwe", "vendor"] | None = None
    """``ga``: the series that the release was published with."""


class Driver(Component):
    """The GPU driver."""

    flavour: Literal["open", "proprietary"]
    precompiled: bool = False
    """Modules are built and signed by the distribution or the vendor for one kernel, not by DKMS."""

    @property
    def branch(self) -> int | None:
        return major(self.version)


class NetworkStack(Component):
    """Drivers of the adapters. ``version`` is DOCA's (``3.2.1``), OFED's (``24.10-1.1.4.0``), or ``inbox``."""

    stack: Literal["doca", "mlnx_ofed", "inbox"]
    ofed: Version | None = None
    """Version of the OFED inside DOCA, ``25.10``: what others are built against."""
    nfsrdma: bool = False
    """Its own modules for NFS over RDMA are installed."""


class Firmware(Model):
    """Firmware of one kind of adapter, found by PSID or by model."""

    psid: Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{6,16}$")] | None = None
    model: str | None = None
    """``ConnectX-7``: for adapters of every PSID that is not listed."""
    version: Version
    """As ``flint query`` prints it: what adapters are compared with at the end of a deploy."""
    file: Download | None = None
    """Written where an adapter of this ``psid`` has something else; without one firmware is only compared."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Firmware:
        if (self.psid is None) == (self.model is None):
            raise ValueError("give either psid or model")
        if self.file and self.psid is None:
            raise ValueError("an image is made for one psid: give that, not the model")
        return self


class Gds(Component):
    """GPUDirect Storage."""

    nvidia_fs: Version | None = None
    """Version of the kernel module; null where the kernel's own P2PDMA is used."""
    nvidia_fs_for: Literal["open", "proprietary"] | None = None
    """Flavour of the driver that the module was built with, where its package says so."""


class FileSystemClient(Component):
    """Client of a parallel or vendor's file system."""

    ofed: Version | None = None
    """OFED that it was built against, ``25.10``, or ``inbox``."""
    kernel: Version | None = None
    """Release of the kernel that its modules were built for; null where it builds them itself."""


class Components(Model):
    """What one platform gets. What is left out is not installed, checked or held."""

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
    others: dict[PackageName, Component] = Field(default_factory=dict)
    """Anything else that must stay as it is: slurm, gdrcopy, nvidia-persistenced."""
    nic_firmware: tuple[Firmware, ...] = ()

    def named(self) -> Iterator[tuple[str, Component]]:
        """Every component by its key, ``clients.weka`` included, in the order in which they are installed."""
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
"""Components that there is one of, in the order of installation."""


class Platform(Model):
    """One operating system: its repositories and its components."""

    repositories: dict[RepositoryName, Repository] = Field(default_factory=dict)
    components: Components

    @model_validator(mode="after")
    def _repositories_are_there(self) -> Platform:
        if DISTRIBUTION in self.repositories:
            raise ValueError(f"no repository can be called {DISTRIBUTION}")
        for name, component in self.components.named():
            if component.repository != DISTRIBUTION and component.repository not in self.repositories:
                raise ValueError(f"components.{name}.repository: there is no repository {component.repository}")
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
    name: PackageName
    digest: Sha256 | None = None
    """Of everything else in the file; ``rackproof versions lock`` writes it. Without one the file is a draft."""
    platforms: dict[PlatformName, Platform] = Field(min_length=1)

    @property
    def locked(self) -> bool:
        return self.digest is not None


def major(version: str) -> int | None:
    """``580`` of ``580.126.16``; None where it does not begin with a number."""
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 10 else None
