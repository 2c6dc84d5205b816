"""Parts of NVIDIA's driver besides nvidia-smi: the kernel module, the fabric manager, the devices on the PCI bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.pci_links import SLOT
from rackproof.parse.text import excerpt, text_of, whole_lines

VERSION: Final = r"\d{3,4}(?:\.\d{1,4}){1,2}"
_MODULE: Final = re.compile(
    rf"NVRM version: NVIDIA UNIX (Open )?(?:Kernel Module|\S+ +Kernel Module)\b.*? ({VERSION})\s.*"
)
_FABRIC_MANAGER: Final = re.compile(rf"\s*Fabric Manager version is\s*:\s*({VERSION})\s*")

SWITCH_CLASS: Final = "0680"
"""Other bridges: NVSwitches of the generations that are PCI devices (until Hopper)."""


@dataclass(frozen=True, slots=True)
class KernelModule:
    version: str
    open: bool
    """The open kernel module, required for DMA-BUF and Blackwell."""


def parse_kernel_module(output: str | bytes) -> KernelModule:
    """Read ``/proc/driver/nvidia/version``; the line with the compiler version is required."""
    lines = whole_lines("/proc/driver/nvidia/version", output)
    matches = [match for line in lines if (match := _MODULE.fullmatch(line))]
    if len(matches) != 1 or not any(line.startswith("GCC version:") for line in lines):
        raise ParseError(
            "/proc/driver/nvidia/version",
            f"expected a version of the kernel module, got {excerpt(' '.join(lines), 160)}",
        )
    return KernelModule(matches[0][2], matches[0][1] is not None)


def parse_fabric_manager_version(output: str | bytes) -> str:
    """Read ``nv-fabricmanager --version``."""
    lines = whole_lines("nv-fabricmanager", output)
    versions = [match[1] for line in lines if (match := _FABRIC_MANAGER.fullmatch(line))]
    if len(versions) != 1:
        raise ParseError("nv-fabricmanager", f"expected a version, got {excerpt(' '.join(lines), 160)}")
    return versions[0]


@dataclass(frozen=True, slots=True)
class PciDevice:
    address: str
    """With the domain: ``0000:18:00.0``."""
    device_class: str
    device: str
    """Four hexadecimal digits in lower case."""
    answers: bool
    """False where every register reads as ones: the kernel lists the device, but it has fallen off the bus."""


_DEVICE: Final = re.compile(
    rf"({SLOT.pattern}) "
    r"([0-9a-f]{4}): 10de:([0-9a-f]{4})(?: \(rev ([0-9a-f]{2})\))?(?: \(prog-if [0-9a-f]{2}\))?"
)


def parse_nvidia_devices(output: str | bytes) -> tuple[PciDevice, ...]:
    """Read ``lspci -Dn -d 10de:``; empty output is valid; the caller must verify that lspci succeeded."""
    if not (output.strip()):
        return ()
    devices = []
    for line in whole_lines("lspci", text_of("lspci", output)):
        match = _DEVICE.fullmatch(line.strip())
        if match is None:
            raise ParseError("lspci", f"unexpected line {excerpt(line, 160)}")
        devices.append(PciDevice(match[1], match[2], match[3], match[4] != "ff"))
    if len({device.address for device in devices}) != len(devices):
        raise ParseError("lspci", "a device is listed twice")
    return tuple(devices)


_PARAMETER: Final = re.compile(r"([A-Z]\w*): (.*)")
_BOUND: Final = re.compile(rf"({SLOT.pattern}) ?([\w-]*)")
_NCCL: Final = re.compile(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*")


def parse_parameters(output: str | bytes) -> dict[str, str]:
    """Read ``/proc/driver/nvidia/params``: options by name, strings without quotes."""
    options = {}
    for line in whole_lines("/proc/driver/nvidia/params", output):
        match = _PARAMETER.fullmatch(line.strip())
        if match is None:
            raise ParseError("/proc/driver/nvidia/params", f"unexpected line {excerpt(line, 160)}")
        options[match[1]] = match[2].strip('"')
    if not options:
        raise ParseError("/proc/driver/nvidia/params", "lists no option")
    return options


def parse_bound(output: str | bytes) -> dict[str, str]:
    """PCI address and bound kernel driver, empty where unbound; one device a line."""
    if not output.strip():
        return {}
    drivers = {}
    for line in whole_lines("PCI drivers", output):
        match = _BOUND.fullmatch(line.strip())
        if match is None:
            raise ParseError("PCI drivers", f"unexpected line {excerpt(line, 160)}")
        drivers[match[1]] = match[2]
    return drivers


def parse_nccl_conf(output: str | bytes) -> dict[str, str]:
    """Read ``/etc/nccl.conf``; as in NCCL, unknown lines are ignored and the last line of a key wins."""
    if not output.strip():
        return {}
    settings = {}
    for line in whole_lines("/etc/nccl.conf", output):
        if not line.lstrip().startswith("#") and (match := _NCCL.fullmatch(line)):
            settings[match[1]] = match[2]
    return settings
