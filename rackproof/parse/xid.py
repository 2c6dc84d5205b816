"""NVIDIA's error reports in the kernel log: Xids of GPUs, SXids of NVSwitches.

An Xid is a numbered error report of the driver. NVIDIA's catalogue of Xid errors gives an "immediate action" for each
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html): restart the application for application errors;
a reset, reboot, workflow or support call for the others.
The Fabric Manager User Guide describes SXids; the message itself says whether it is fatal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt

TOOL: Final = "kernel log"

OF_APPLICATIONS: Final = frozenset(
    {
        8,  # GPU stopped processing: the watchdog ended a kernel
        *(11, 25, 32, 80),  # invalid or corrupted push buffer
        13,  # exception in a kernel: index out of range, illegal instruction
        31,  # page fault: illegal address
        *(37, 38, 43, 44, 66, 67, 141),  # catalogue: ignore; the application gets an error of its own
        45,  # cleanup of channels after another error, or after the process was killed
        *(60, 68, 82, 83, 84, 86, 88, 89, 96, 97, 98, 139),  # video, JPEG and optical flow
        *range(99, 106),
        69,  # class error
        *(106, 107),  # test messages of the management bus
    }
)
"""Xids for which NVIDIA's catalogue says to restart the application, or to ignore them. All others are machine faults:

48, 63, 64, 92, 94, 95, 140, 171, 172 memory; 62, 109, 119, 120 firmware and timeouts; 74, 136, 137, 144–150, 155
NVLink; 79, 167 PCIe; 54 power; 154 the driver requests a reset; and any that the catalogue does not have yet.
63 (a row was remapped, catalogue: ignore) and 94 (contained memory error) are machine faults, too: the application has
lost its data, and the GPU needs a reset. The catalogue has no cause for exceptions of the copy engines (39 to 41, 70 to
72 …).
"""


@dataclass(frozen=True, slots=True)
class Xid:
    bus_id: str
    """PCI address as printed: ``0000:9b:00``."""
    code: int
    text: str

    @property
    def of_application(self) -> bool:
        return self.code in OF_APPLICATIONS


@dataclass(frozen=True, slots=True)
class SwitchError:
    bus_id: str
    code: int
    fatal: bool
    text: str


@dataclass(frozen=True, slots=True)
class DriverLog:
    loaded: bool
    """The log contains the driver's load message, so it is complete since the driver was loaded."""
    xids: tuple[Xid, ...]
    switch_errors: tuple[SwitchError, ...]
    lost: tuple[str, ...]
    """PCI addresses of GPUs that have fallen off the bus."""
    failed: tuple[str, ...] = ()
    """Messages about GPUs that the driver could not start."""


_LOADED: Final = re.compile(r"NVRM: loading NVIDIA UNIX ")
_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,16})(?: GPU-[CI:\w -]*)?\): (\d{1,5}), ?(.*)")
"""For a MIG instance, its id follows the address: ``(PCI:0000:9b:00 GPU-I:05)``."""
_SXID: Final = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]{7,16})\): (\d{1,6}), (.*)")
_LOST: Final = re.compile(r"NVRM: GPU (?:at PCI:)?([0-9a-fA-F:.]{7,16}): GPU has fallen off the bus")
_GPU: Final = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{7,16})")
"""First line of a message over three lines; the last one says what happened to it."""
_FALLEN: Final = re.compile(r"NVRM: +fallen off the bus|NVRM: .*has fallen off the bus")
_FAILED: Final = re.compile(
    r"NVRM: .*(?:RmInitAdapter failed|rm_init_adapter failed|probe routine failed|None of the NVIDIA devices were).*"
)


def parse_driver_log(lines: Iterable[str]) -> DriverLog:
    """Lines of ``dmesg`` or ``journalctl -k``, in any of their formats. Raises ParseError for an unreadable Xid."""
    loaded = False
    xids, switch_errors, lost, failed = [], [], [], []
    named = "a GPU"
    for line in lines:
        if match := _GPU.search(line):
            named = match[1].lower()
        if _LOADED.search(line):
            loaded = True
        elif match := _XID.search(line):
            xids.append(Xid(match[1].lower(), int(match[2]), match[3].strip()))
        elif match := _SXID.search(line):
            fatal = re.match(r"Fatal\b", match[3]) is not None
            switch_errors.append(SwitchError(match[1].lower(), int(match[2]), fatal, match[3].strip()))
        elif match := _LOST.search(line):
            lost.append(match[1].lower())
        elif _FALLEN.search(line):
            lost.append(named)
        elif match := _FAILED.search(line):
            failed.append(match[0].strip())
        elif "NVRM: Xid" in line or ": SXid (" in line:
            raise ParseError(TOOL, f"expected an Xid or SXid, got {excerpt(line, 160)}")
    return DriverLog(
        loaded, tuple(xids), tuple(switch_errors), tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(failed))
    )
