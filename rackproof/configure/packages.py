"""Debian packages of a node: one list, one installation.

Every run of apt costs seconds on real hardware and minutes under emulation, so the deploys do not install what they
need one by one: each names it here, and the first operation installs the union.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rackproof.core.architecture import Architecture, Storage
from rackproof.core.rack import Node

BASE = ("chrony", "ethtool", "iproute2", "kmod", "openssh-client", "pciutils")
SOFT_ROCE = ("ibverbs-providers", "ibverbs-utils", "rdma-core")
NFS_CLIENT = ("nfs-common",)
NFS_SERVER = ("nfs-common", "nfs-kernel-server")
CEPH_CLIENT = ("ceph-common",)
CEPH_SERVER = ("ceph-common", "ceph-mds", "ceph-mgr", "ceph-mon", "ceph-osd")
FILESYSTEMS = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}


def declared_packages(architecture: Architecture, node: Node) -> tuple[str, ...]:
    """Everything that the architecture and the deploys of this node's roles need, sorted."""
    names: set[str] = {*BASE, *architecture.system.packages, *architecture.tools.packages}
    if architecture.fabric and architecture.fabric.kind == "soft-roce":
        names.update(SOFT_ROCE)
    for storage in architecture.storage.values():
        if storage.server_role in node.groups:
            names.update(_server(storage))
        if any(role in node.groups for role in storage.client_roles):
            names.update(_client(storage))
    return tuple(sorted(names))


def _server(storage: Storage) -> Iterable[str]:
    if storage.class_ == "nfs":
        yield from NFS_SERVER
        yield FILESYSTEMS["ext4"]
    elif storage.class_ == "parallel" and storage.fstype == "ceph":
        yield from CEPH_SERVER


def _client(storage: Storage) -> Iterable[str]:
    if storage.class_ == "nfs":
        yield from NFS_CLIENT
    elif storage.class_ == "parallel" and storage.fstype == "ceph":
        yield from CEPH_CLIENT
    elif storage.class_ == "local" and storage.fstype in FILESYSTEMS:
        yield FILESYSTEMS[storage.fstype]


def installed_command(packages: Sequence[str]) -> str:
    names = " ".join(shlex.quote(name) for name in packages)
    return f"dpkg-query -W -f='${{db:Status-Status}} ${{Package}}\\n' -- {names} 2>/dev/null || [ $? -eq 1 ]; "


def parse_installed(lines: Sequence[str]) -> frozenset[str]:
    """Names of packages that are completely installed: ``half-configured`` is not."""
    return frozenset(name for status, name in (line.split(maxsplit=1) for line in lines) if status == "installed")


def install_script(missing: Sequence[str]) -> str:
    """One ``apt-get install``; configuration files that the kit wrote already are kept as they are."""
    names = " ".join(shlex.quote(name) for name in missing)
    options = "-o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
    return "\n".join(
        (
            "set -eu",
            "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 NEEDRESTART_MODE=l",
            # Maintainer scripts would start services before their configuration is there, and make systemd read all
            # its units a dozen times. What is declared is started by its own operation.
            "export SYSTEMD_OFFLINE=1",
            f"install() {{ apt-get -q -y {options} install --no-install-recommends -- {names}; }}",
            # What may be in the way: a package that an interrupted run left half-configured; package lists that are
            # absent or name files that are gone.
            "mend() { dpkg --configure -a --force-confdef --force-confold && apt-get -q update; }",
            "install || { mend && install; }",
            "unset SYSTEMD_OFFLINE",
            "systemctl daemon-reload",
            f'for p in {names}; do [ "$(dpkg-query -W -f=\'${{db:Status-Status}}\' -- "$p" 2>/dev/null)" = installed ]'
            ' || { echo "$p: still not installed; is it the name of a package?" >&2; exit 1; }; done',
        )
    )
