"""Machines with GPUs, as far as the stack of GPUs looks at them."""

from __future__ import annotations

from typing import Any

from rackproof.core.architecture import Gpu
from rackproof.core.machine import Machine, Pci

KERNELS = {
    "debian": "6.12.48+deb13-amd64",
    "ubuntu": "6.8.0-51-generic",
    "rocky": "5.14.0-427.13.1.el9_4.x86_64",
    "rhel": "5.14.0-427.13.1.el9_4.x86_64",
}


def machine(
    os: str, *gpus: str, switches: int = 0, switch: str = "22a3", secure_boot: bool | None = False, **changes: Any
) -> Machine:
    """``machine("ubuntu 24.04", "2335", "2335")``."""
    name, version = os.split()
    pci = [Pci(f"0000:{0x10 + i:02x}:00.0", "10de", device, "030200") for i, device in enumerate(gpus)]
    pci += [Pci(f"0000:{0x80 + i:02x}:00.0", "10de", switch, "068000") for i in range(switches)]
    pci += changes.pop("further", [])
    values: dict[str, Any] = {
        "os_id": name,
        "os_version": version,
        "codename": {"12": "bookworm", "13": "trixie"}.get(version, ""),
        "kernel": KERNELS.get(name, "6.1.0"),
        "arch": "x86_64",
        "cmdline": (),
        "pci": tuple(pci),
        "efi": True,
        "secure_boot": secure_boot,
        "cpu_vendor": "GenuineIntel",
        "processors": 224,
    }
    return Machine(**{**values, **changes})


def declared_gpu(count: int = 8, **keys: Any) -> Gpu:
    return Gpu.model_validate({"count": count, "model": "NVIDIA", "memory_mib": None, **keys})
