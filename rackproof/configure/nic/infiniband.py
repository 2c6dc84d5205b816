"""InfiniBand: the subnet manager where it is declared, and its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.configure.nic.inputs import Partition
from rackproof.configure.units import Unit

PARTITIONS = {"debian": "/etc/opensm/partitions.conf", "rhel": "/etc/rdma/partitions.conf"}
"""Family: where the distribution's opensm looks. NVIDIA's looks below /etc/opensm on both."""
MTU_CODES = {2048: 4, 4096: 5}
"""Bytes: how the InfiniBand specification writes it."""
ALTERNATIVES = ("opensmd.service",)
"""What NVIDIA's packages call theirs."""


def partitions(declared: Mapping[str, Partition]) -> str:
    """opensm's file. Without a line for the default partition every port would be a limited member of it, and two
    limited members do not talk to each other."""
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
    """The service of the stack at hand runs where it is declared; everything that could be one is masked elsewhere."""
    name = "opensmd.service" if vendor else "opensm.service"
    if wanted:
        return (Unit(name, proof="pgrep -x opensm"),)
    return tuple(
        Unit(service, enabled=None, running=None, masked=True) for service in ("opensm.service", *ALTERNATIVES)
    )
