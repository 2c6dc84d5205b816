"""Packages of a node from its distribution: one list, one installation.

A run of apt takes seconds on real hardware and minutes under emulation. So the packages of all deploys are listed here
and the first operation installs them together. Names are Debian's, here and in architectures; ``RHEL_NAMES``
translates them. Packages with exact versions are in the version set.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from rackproof.configure.package_transaction.transaction import STRICT, Package, Policy, Transaction, transaction_script
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Node

BASE = ("chrony", "ethtool", "iproute2", "kmod", "openssh-client", "pciutils")
SOFT_ROCE = ("ibverbs-providers", "ibverbs-utils", "rdma-core")
DOWNLOADS = ("ca-certificates", "curl")
NFS_CLIENT = ("nfs-common",)
NFS_SERVER = ("nfs-common", "nfs-kernel-server")
CEPH_CLIENT = ("ceph-common",)
CEPH_SERVER = ("ceph-common", "ceph-mds", "ceph-mgr", "ceph-mon", "ceph-osd")
VERSION_LOCK = ("python3-dnf-plugin-versionlock",)
"""dnf's plugin that holds packages; RHEL's name."""
FILESYSTEMS = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}

RHEL_NAMES: Final[dict[str, tuple[str, ...]]] = {
    # Debian's name: packages with the same content on RHEL 9 and its rebuilds. Other names are the same on both.
    "apt-utils": (),
    "build-essential": ("gcc", "gcc-c++", "make"),
    "containerd": ("containerd.io",),
    "dbus-user-session": (),
    "docker.io": ("docker-ce",),
    "gdisk": ("gdisk",),
    "ibverbs-providers": ("libibverbs",),
    "ibverbs-utils": ("libibverbs-utils",),
    "initramfs-tools": ("dracut",),
    "iproute2": ("iproute",),
    "iputils-ping": ("iputils",),
    "libelf-dev": ("elfutils-libelf-devel",),
    "libibverbs-dev": ("rdma-core-devel",),
    "libmunge2": ("munge-libs",),
    "libnuma-dev": ("numactl-devel",),
    "linux-cpupower": ("kernel-tools",),
    "linux-perf": ("perf",),
    "mstflint": ("mstflint",),
    "munge": ("munge", "munge-libs"),
    "nfs-common": ("nfs-utils",),
    "nfs-kernel-server": ("nfs-utils",),
    "openmpi-bin": ("openmpi",),
    "openssh-client": ("openssh-clients",),
    "procps": ("procps-ng",),
    "python3-apt": (),
    "python3-mpi4py": ("python3-mpi4py-openmpi",),
    "python3-pil": ("python3-pillow",),
    "rdmacm-utils": ("librdmacm-utils",),
    "slurm-client": ("slurm",),
    "slurmctld": ("slurm-slurmctld",),
    "slurmd": ("slurm-slurmd",),
    "udev": ("systemd-udev",),
    "uidmap": ("shadow-utils",),
    "xz-utils": ("xz",),
}


def names_for(names: Iterable[str], family: str) -> tuple[str, ...]:
    """Debian's names translated for a family of distributions, sorted. Raises ValueError for an unknown family."""
    if family == "debian":
        return tuple(sorted(set(names)))
    if family != "rhel":
        raise ValueError(f"no package manager is known for {family or 'this distribution'}")
    return tuple(sorted({own for name in names for own in RHEL_NAMES.get(name, (name,))}))


def declared_packages(architecture: Architecture, node: Node, family: str = "debian") -> tuple[str, ...]:
    """Packages that the architecture and the deploys of this node's roles need, sorted, with the family's names."""
    names: set[str] = {*BASE, *architecture.system.packages, *architecture.tools.packages}
    if architecture.fabric and architecture.fabric.kind == "soft-roce":
        names.update(SOFT_ROCE)
    if architecture.system.tuned_profile:
        names.add("tuned")
    if architecture.system.irqbalance:
        names.add("irqbalance")
    if any(user.sudo for user in architecture.system.users):
        names.add("sudo")
    if node.data.get("scratch_drives"):
        names.update(("mdadm", "xfsprogs", "e2fsprogs"))
    for storage in architecture.storage.values():
        if storage.server_role in node.groups:
            names.update(_server(storage))
        if any(role in node.groups for role in storage.client_roles):
            names.update(_client(storage))
    holding = VERSION_LOCK if family == "rhel" and architecture.system.holds else ()
    return tuple(sorted((*names_for(names, family), *holding)))


def _server(storage: Storage) -> Iterable[str]:
    if storage.class_ == "nfs":
        yield from NFS_SERVER
        yield FILESYSTEMS["ext4"]
    elif storage.class_ == "parallel" and storage.fstype == "ceph":
        yield from CEPH_SERVER


def _client(storage: Storage) -> Iterable[str]:
    if storage.class_ == "nfs":
        yield from NFS_CLIENT
        if storage.local_cache:
            yield "cachefilesd"
    elif storage.class_ == "parallel" and storage.fstype == "ceph":
        yield from CEPH_CLIENT
    elif storage.class_ == "parallel":
        yield from DOWNLOADS  # a vendor's client
    elif storage.class_ == "local" and storage.fstype in FILESYSTEMS:
        yield FILESYSTEMS[storage.fstype]


def installed_command(packages: Sequence[str], family: str = "debian") -> str:
    names = " ".join(shlex.quote(name) for name in packages)
    if family == "rhel":
        return f"rpm -q --qf 'installed %{{NAME}}\\n' -- {names} 2>/dev/null || [ $? -lt 126 ]; "
    return f"dpkg-query -W -f='${{db:Status-Status}} ${{Package}}\\n' -- {names} 2>/dev/null || [ $? -eq 1 ]; "


def install_script(missing: Sequence[str], family: str = "debian", policy: Policy = STRICT) -> str:
    """Shell script that installs the packages in one transaction and checks that they are installed."""
    return transaction_script(Transaction(family, tuple(Package(name) for name in missing), policy=policy))
