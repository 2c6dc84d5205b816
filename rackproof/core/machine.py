"""What a machine is before anything is installed on it: operating system, kernel, firmware, PCI devices.

``MACHINE_COMMAND`` asks for it with nothing but a shell and coreutils; ``parse_machine`` reads the answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rackproof.core.sections import sections_of

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
"""Six sections, divided by ``--``."""

FAMILIES: Final = {
    "debian": "debian",
    "ubuntu": "debian",
    "rhel": "rhel",
    "rocky": "rhel",
    "almalinux": "rhel",
    "ol": "rhel",
    "centos": "rhel",
}
"""ID of os-release: family, which decides about package manager and boot loader."""


@dataclass(frozen=True, slots=True)
class Pci:
    """One device. Ids and class in hexadecimal digits without ``0x``."""

    address: str
    """``0000:1a:00.0``."""
    vendor: str
    device: str
    kind: str
    """Class code with its programming interface, six digits: ``030200`` is a 3D controller."""

    @property
    def ids(self) -> str:
        return f"{self.vendor}:{self.device}"


@dataclass(frozen=True, slots=True)
class Machine:
    """Plain facts; nothing in here changes without a reboot, or work in the chassis."""

    os_id: str
    """``debian``, ``ubuntu``, ``rocky``, ``rhel`` …, as os-release has it."""
    os_version: str
    """``13``, ``24.04``, ``9.4``; empty on a rolling release."""
    codename: str
    kernel: str
    """Release of the running kernel."""
    arch: str
    """As uname has it: ``x86_64``, ``aarch64``."""
    cmdline: tuple[str, ...]
    pci: tuple[Pci, ...]
    efi: bool
    secure_boot: bool | None
    """None where the firmware does not say: there is no Secure Boot without EFI."""
    cpu_vendor: str
    """``GenuineIntel``, ``AuthenticAMD``; empty on machines that have none (arm)."""
    memory_kib: int
    processors: int
    os_like: tuple[str, ...] = field(default=())

    @property
    def family(self) -> str:
        """``debian``, ``rhel``, or empty for a distribution that is neither."""
        candidates = (self.os_id, *self.os_like)
        return next((FAMILIES[name] for name in candidates if name in FAMILIES), "")

    @property
    def major(self) -> str:
        return self.os_version.partition(".")[0]

    @property
    def label(self) -> str:
        """For messages: ``ubuntu 24.04``."""
        return f"{self.os_id} {self.os_version}".strip()

    @property
    def package_arch(self) -> str:
        """As the family's packages spell it."""
        if self.family == "debian":
            return {"x86_64": "amd64", "aarch64": "arm64"}.get(self.arch, self.arch)
        return self.arch

    def devices(self, vendor: str, kind: str = "") -> tuple[Pci, ...]:
        """Devices of a vendor whose class begins with ``kind``, in the order of their addresses."""
        found = [each for each in self.pci if each.vendor == vendor and each.kind.startswith(kind)]
        return tuple(sorted(found, key=lambda each: each.address))


def parse_machine(lines: Sequence[str]) -> Machine:
    """Answer of ``MACHINE_COMMAND``. Raises ValueError on anything else."""
    sections = sections_of(lines, 6)
    release, kernel, cmdline, pci, firmware, processor = sections
    os = _os_release(release)
    if "ID" not in os or len(kernel) != 2 or len(cmdline) != 1 or not firmware:
        raise ValueError("no os-release, kernel, command line or firmware in the answer")
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in processor)}
    memory = cpu["MemTotal"].split()
    if len(memory) != 2 or memory[1] != "kB":
        raise ValueError(f"MemTotal: {cpu['MemTotal']!r}")
    return Machine(
        os_id=os["ID"],
        os_version=os.get("VERSION_ID", ""),
        codename=os.get("VERSION_CODENAME", ""),
        kernel=kernel[0],
        arch=kernel[1],
        cmdline=tuple(cmdline[0].split()),
        pci=tuple(_pci(line) for line in pci),
        efi=firmware[0] == "efi",
        secure_boot=None if len(firmware) < 2 else firmware[1].strip() == "1",
        cpu_vendor=cpu.get("vendor_id", ""),
        memory_kib=int(memory[0]),
        processors=int(processor[-1]),
        os_like=tuple(os.get("ID_LIKE", "").split()),
    )


def _os_release(lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals:
            found[key] = "".join(shlex.split(value))
    return found


def _pci(line: str) -> Pci:
    address, vendor, device, kind = line.split()
    return Pci(address, *(code.removeprefix("0x") for code in (vendor, device, kind)))
