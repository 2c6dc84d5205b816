"""InfiniBand: the subnet manager where it is declared, and its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.configure.nic.inputs import Partition
from rackproof.configure.units import Unit

PARTITIONS = {"debian": "/etc/opensm/partitions.conf", "rhel": "/etc/rdma/partitions.conf"}
"""Path of opensm's partitions by family. NVIDIA's opensm reads /etc/opensm on both."""
MTU_CODES = {2048: 4, 4096: 5}
"""Code of opensm by bytes, from the InfiniBand specification."""


def service(vendor: bool) -> str:
    """The subnet manager of NVIDIA's packages (``vendor``) or the distribution's."""
    return "opensmd.service" if vendor else "opensm.service"


def partitions(declared: Mapping[str, Partition]) -> str:
    """Text of opensm's partitions file.

    Without a line for the default partition every port would be a limited member of it, and two limited members cannot
    communicate.
    """
    lines = [
        "# Managed by rackproof.",
        f"Default=0x7fff, ipoib, mtu={MTU_CODES[4096]}, defmember=full : ALL=full, SELF=full ;",
    ]
    for name, partition in declared.items():
        flags = f", ipoib, mtu={MTU_CODES[partition.mtu]}" if partition.ipoib else ""
        members = ", ".join(f"{member}=full" for member in dict.fromkeys((*partition.members, "SELF")))
        lines.append(f"{name}=0x{partition.pkey:04x}{flags}, defmember=full : {members} ;")
    return "\n".join(lines) + "\n"


def subnet_manager_units(wanted: bool, vendor: bool) -> tuple[Unit, ...]:
    """The installed stack's subnet manager runs where it is declared; elsewhere every possible one is masked."""
    if wanted:
        return (Unit(service(vendor), proof="pgrep -x opensm"),)
    return tuple(Unit(service(of), enabled=None, running=None, masked=True) for of in (False, True))
