"""Kinds of adapters by PCI id, and the PCI function of every rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.core.machine import Machine, Pci
from rackproof.errors import Refused
from rackproof.parse.udev import slot_of_id_path

VENDOR: Final = "15b3"
NETWORK: Final = "02"
"""Class of Ethernet (0200) and InfiniBand (0207) controllers."""

KINDS: Final = {
    "1013": "ConnectX-4",
    "1015": "ConnectX-4 Lx",
    "1017": "ConnectX-5",
    "1019": "ConnectX-5 Ex",
    "101b": "ConnectX-6",
    "101d": "ConnectX-6 Dx",
    "101f": "ConnectX-6 Lx",
    "1021": "ConnectX-7",
    "1023": "ConnectX-8",
    "a2d2": "BlueField",
    "a2d6": "BlueField-2",
    "a2dc": "BlueField-3",
    "a2df": "BlueField-4",
}
"""Kind by device id, from the PCI ID repository. All are driven by mlx5."""

FUNCTIONS: Final = frozenset({"1014", "1016", "1018", "101a", "101c", "101e", "a2d3"})
"""Virtual functions: configured through the physical one."""

OLD: Final = frozenset({"1002", "1003", "1004", "1007", "1011"})
"""ConnectX-3 and Connect-IB: mlx4, or no longer in any supported package."""


@dataclass(frozen=True, slots=True)
class Adapter:
    slot: str
    """PCI address."""
    kind: str
    """``ConnectX-7``."""


def adapters(machine: Machine, declared: Mapping[str, str]) -> tuple[Adapter, ...]:
    """Physical functions of all adapters, by address.

    ``declared`` is the inventory's own table (``15b3:1031``: name). Raises Refused.
    """
    adapters = []
    for device in machine.devices(VENDOR, NETWORK):
        if device.device in FUNCTIONS:
            continue
        kind = declared.get(device.ids) or KINDS.get(device.device)
        if kind is None:
            raise Refused(_unknown(device))
        adapters.append(Adapter(device.address, kind))
    return tuple(adapters)


def _unknown(device: Pci) -> str:
    if device.device in OLD:
        return (
            f"{device.address}: {device.ids} is older than ConnectX-4, which no supported driver package drives any"
            " more; take the adapter or the node out"
        )
    return (
        f"{device.address}: unknown network adapter {device.ids}; if mlx5 drives it, say"
        f" nic: {{adapters: {{'{device.ids}': NAME}}}} in the inventory"
    )


def missing_rails(paths: Sequence[str], machine: Machine, adapters: Sequence[Adapter]) -> str | None:
    """Why a rail of the inventory (``fabric_paths``) is no adapter of this machine, in one line; None if all are."""
    return missing_adapters(
        {f"rail {rail}": path for rail, path in enumerate(paths)}, "fabric_paths", machine, adapters
    )


def missing_adapters(paths: Mapping[str, str], key: str, machine: Machine, adapters: Sequence[Adapter]) -> str | None:
    """``missing_rails`` for ports by name; ``key`` is the inventory key to correct."""
    known = {adapter.slot for adapter in adapters}
    present = {device.address: device.ids for device in machine.pci}
    problems = []
    for name, path in paths.items():
        slot = slot_of_id_path(path)
        if slot is None or slot in known:
            continue
        what = f"is {present[slot]}, no adapter of NVIDIA's" if slot in present else "has no device"
        problems.append(f"{name}: {slot} {what}")
    if not problems:
        return None
    return "; ".join(problems) + f"; adapters are at {', '.join(sorted(known)) or 'no address'}: correct {key}"
