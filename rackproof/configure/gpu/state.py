"""State of the driver and its stack on a node: the command and its parser. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell
from rackproof.configure.files import PENDING, REBOOT
from rackproof.parse import ParseError
from rackproof.parse.nvidia_driver import KernelModule, parse_bound, parse_kernel_module, parse_parameters
from rackproof.parse.nvidia_smi import GpuInstances, NvidiaSmi, parse_nvidia_smi, parse_nvidia_smi_list
from rackproof.parse.packages import held_packages, parse_package_list
from rackproof.parse.sections import sections_of
from rackproof.parse.text import text_from

MODULES: Final = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nvidia_peermem",
    "nvidia_fs",
    "gdrdrv",
    "ib_umad",
    "nouveau",
    "nova_core",
)
STAMP: Final = "/var/lib/rackproof/gpu-initramfs"
"""sha256 of what was in modprobe.d when the kit last had the initial file system rebuilt."""
SMI_TIMEOUT_S: Final = 60
"""nvidia-smi hangs forever on a GPU that has fallen off the bus."""
FABRIC_UNIT: Final = "nvidia-fabricmanager.service"

_KEYS: Final = "/var/lib/dkms/mok.pub /var/lib/shim-signed/mok/MOK.der"


@dataclass(frozen=True, slots=True)
class GpuState:
    modules: Mapping[str, str]
    """Version by loaded kernel module; empty for a module without a version."""
    loaded: KernelModule | None
    """The driver in force, as /proc/driver/nvidia/version names it."""
    parameters: Mapping[str, str]
    """Options in force, without ``NVreg_``."""
    available: KernelModule | None
    """The module nvidia that would be loaded into the running kernel."""
    packages: Mapping[str, str]
    """Installed versions of the packages that were asked about."""
    held: frozenset[str]
    stream: str | None
    """Enabled stream of RHEL's module nvidia-driver."""
    dmabuf: bool
    """The kernel's RDMA core has DMA-BUF."""
    drivers: Mapping[str, str]
    """PCI address of NVIDIA's devices: its kernel driver, empty without one."""
    stamp: str
    key_enrolled: bool | None
    """Whether the firmware accepts the key of DKMS; None where unknown."""
    fabric_after_multi_user: bool
    """The fabric manager's unit is ordered after multi-user.target, which waits for it."""
    pending: frozenset[str]
    smi: NvidiaSmi | None
    """None where nvidia-smi was not run, or gave no report."""
    smi_problem: str
    """The end of nvidia-smi's output where it gave no report."""
    listed: tuple[GpuInstances, ...]
    """``nvidia-smi -L``, with the partitions of MIG."""

    @property
    def reboots(self) -> tuple[str, ...]:
        """Reasons for a reboot that are marked already."""
        return tuple(sorted(mark.removeprefix(REBOOT) for mark in self.pending if mark.startswith(REBOOT)))


def state_command(packages: Sequence[str], family: str, smi: bool) -> str:
    """One command for all of it: 16 sections, divided by ``--``. ``family``: debian or rhel."""
    return shell.script(
        __name__,
        "state",
        *packages,
        family=family,
        modules=" ".join(MODULES),
        stamp=STAMP,
        keys=_KEYS,
        fabric_unit=FABRIC_UNIT,
        pending=PENDING,
        smi="yes" if smi else "",
        smi_limit_s=SMI_TIMEOUT_S,
    )


def parse_state(lines: Sequence[str], packages: Sequence[str], family: str) -> GpuState:
    """Answer of ``state_command``. Raises ValueError on anything else.

    An unreadable report of nvidia-smi is None, with its output in ``smi_problem``: the driver may be in any state here.
    """
    parts = sections_of(lines, 16)
    report, problem = _report("".join(parts[14]))
    # rpm is asked for installed packages only, without their status.
    installed = parse_package_list(f"installed {line}" if family == "rhel" else line for line in parts[4])
    return GpuState(
        modules={name: version for name, _, version in (line.partition(" ") for line in parts[0])},
        loaded=parse_kernel_module(text_from(parts[1])) if parts[1] else None,
        parameters=parse_parameters(text_from(parts[2])) if parts[2] else {},
        available=_available(parts[3]),
        packages={name: versions[-1] for name, versions in installed.items()},
        held=held_packages(parts[5], dict.fromkeys(packages), family),
        stream=parts[6][0].strip() if parts[6] and parts[6][0].strip() else None,
        dmabuf="dmabuf" in parts[7],
        drivers=parse_bound(text_from(parts[9])),
        stamp="".join(parts[10]).strip(),
        key_enrolled=any("is already enrolled" in line for line in parts[11]) if parts[11] else None,
        fabric_after_multi_user=bool(parts[12]),
        pending=frozenset(parts[13]),
        smi=report,
        smi_problem=problem,
        listed=_listed("".join(parts[15])),
    )


def _available(lines: Sequence[str]) -> KernelModule | None:
    if not lines or not lines[0].strip():
        return None
    # The open modules are under two licences, the others under NVIDIA's own.
    return KernelModule(lines[0].strip(), any("GPL" in line for line in lines[1:]))


def _report(encoded: str) -> tuple[NvidiaSmi | None, str]:
    """The report, or the end of nvidia-smi's output where it gave none."""
    text = base64.b64decode(encoded).decode(errors="replace") if encoded.strip() else ""
    if not text.strip():
        return None, ""
    try:
        return parse_nvidia_smi(text), ""
    except ParseError:
        return None, " ".join(text.split())[-200:]


def _listed(encoded: str) -> tuple[GpuInstances, ...]:
    text = base64.b64decode(encoded).decode(errors="replace") if encoded.strip() else ""
    try:
        return parse_nvidia_smi_list(text)
    except ParseError:
        return ()
