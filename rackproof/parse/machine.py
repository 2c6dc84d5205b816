"""Operating system, kernel, firmware and PCI devices of a machine, read with a shell and coreutils only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from rackproof.core.machine import Machine, Pci
from rackproof.parse.errors import ParseError
from rackproof.parse.kernel import parse_cmdline
from rackproof.parse.sections import sections_of

_IDS: Final = (
    "cd /sys/bus/pci/devices 2>/dev/null && for d in *; do"
    ' [ -e "$d/vendor" ] || continue; read -r v <"$d/vendor"; read -r i <"$d/device"; read -r c <"$d/class";'
    ' echo "$d $v $i $c"; done'
)
_SECURE_BOOT: Final = (
    "if [ ! -d /sys/firmware/efi ]; then echo bios;"
    " else echo efi; for f in /sys/firmware/efi/efivars/SecureBoot-*; do"
    ' [ ! -e "$f" ] || od -An -tu1 -j4 -N1 "$f"; done; fi'
)
MACHINE_COMMAND: Final = (
    "export LC_ALL=C; cat /etc/os-release; echo --; uname -r; uname -m; echo --; cat /proc/cmdline; echo --; "
    f"({_IDS}); echo --; {_SECURE_BOOT}; echo --; "
    "grep -m1 ^vendor_id /proc/cpuinfo; grep ^MemTotal: /proc/meminfo; nproc"
)
"""Six sections, separated by ``--``."""


def parse_machine(lines: Sequence[str]) -> Machine:
    """Output of ``MACHINE_COMMAND``."""
    try:
        return _machine(lines)
    except (ValueError, KeyError, IndexError) as error:
        raise ParseError("os-release", str(error)) from None


def _machine(lines: Sequence[str]) -> Machine:
    sections = sections_of(lines, 6)
    release, kernel, cmdline, pci, firmware, processor = sections
    os = _os_release(release)
    if "ID" not in os or len(kernel) != 2 or len(cmdline) != 1 or not firmware:
        raise ValueError("the output lacks os-release, kernel, command line or firmware")
    if not re.fullmatch(r"[\w.~-]*", os.get("VERSION_ID", "")):
        raise ValueError(f"no version: {os['VERSION_ID']!r}")
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in processor)}
    return Machine(
        os_id=os["ID"],
        os_version=os.get("VERSION_ID", ""),
        codename=os.get("VERSION_CODENAME", ""),
        kernel=kernel[0],
        arch=kernel[1],
        cmdline=parse_cmdline(f"{cmdline[0]}\n"),
        pci=tuple(_pci(line) for line in pci),
        efi=firmware[0] == "efi",
        secure_boot=None if len(firmware) < 2 else firmware[1].strip() == "1",
        cpu_vendor=cpu.get("vendor_id", ""),
        processors=int(processor[-1]),
        os_like=tuple(os.get("ID_LIKE", "").split()),
    )


def _os_release(lines: Sequence[str]) -> dict[str, str]:
    values = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals:
            values[key] = "".join(shlex.split(value))
    return values


def _pci(line: str) -> Pci:
    address, vendor, device, kind = line.split()
    return Pci(address, *(code.removeprefix("0x") for code in (vendor, device, kind)))
