"""Facts of a bare machine: operating system, kernel, firmware, PCI devices.

``MACHINE_COMMAND`` collects them with a shell and coreutils; ``parse_machine`` reads its output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FAMILIES: Final = {
    "debian": "debian",
    "ubuntu": "debian",
    "rhel": "rhel",
    "rocky": "rhel",
    "almalinux": "rhel",
    "ol": "rhel",
    "centos": "rhel",
}
"""ID of os-release: family, which determines package manager and boot loader."""


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
    """Facts that change only with a reboot or a hardware change."""

    os_id: str
    """``debian``, ``ubuntu``, ``rocky``, ``rhel`` …: ID of os-release."""
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
    """None: not reported by the firmware, e.g. without EFI."""
    cpu_vendor: str
    """``GenuineIntel``, ``AuthenticAMD``; empty on machines that have none (arm)."""
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
        devices = [device for device in self.pci if device.vendor == vendor and device.kind.startswith(kind)]
        return tuple(sorted(devices, key=lambda device: device.address))
