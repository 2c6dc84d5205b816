"""Generations of NVIDIA GPUs by PCI device id, and the driver branches that support them.

Each chip has its own block of ids, usually 128 (pci-ids.ucw.cz), so boards missing from this table still get the right
generation. Ids outside all blocks are refused: an unsupported GPU shows up only as "No devices were found" after an
apparently successful installation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rackproof.core.machine import Machine, Pci
from rackproof.core.nearest import suggestion
from rackproof.errors import Refused

NVIDIA: Final = "10de"
GPU_KINDS: Final = ("0300", "0302")
"""Classes of VGA and 3D controllers."""

Modules = Literal["proprietary", "either", "open"]


@dataclass(frozen=True, slots=True)
class Generation:
    """Driver requirements of a GPU generation."""

    name: str
    modules: Modules
    """Kernel modules that work: those before Turing have no system processor that the open ones need, those from
    Grace and Blackwell on are known to the open ones only (NVIDIA, driver installation guide, "Kernel Modules")."""
    first: int
    """Oldest branch."""
    last: int | None = None
    """Newest branch; None while it is supported."""
    source: str = ""


class UnsupportedGpu(Refused):
    """The GPU is unknown, or not supported by the driver branch or operating system."""


_LEGACY = "NVIDIA, Unix graphics feature deprecation schedule: 580 is the last branch for Maxwell, Pascal and Volta"
_OPEN = "NVIDIA, driver installation guide, Kernel Modules"

GENERATIONS: Final[Mapping[str, Generation]] = {
    generation.name: generation
    for generation in (
        Generation("Kepler", "proprietary", 331, 470, "NVIDIA, Unix graphics feature deprecation schedule"),
        Generation("Maxwell", "proprietary", 352, 580, _LEGACY),
        Generation("Pascal", "proprietary", 375, 580, _LEGACY),
        Generation("Volta", "proprietary", 384, 580, _LEGACY),
        Generation("Turing", "either", 410, None, _OPEN),
        Generation("Ampere", "either", 450, None, "Fabric Manager guide: HGX A100 from 450"),
        Generation("Ada", "either", 525, None, "NVIDIA, release notes of branch 525"),
        Generation("Hopper", "either", 525, None, "Fabric Manager guide: HGX H100 from 525"),
        Generation("Grace Hopper", "open", 535, None, _OPEN),
        Generation("Blackwell", "open", 570, None, "Fabric Manager guide: HGX B200 and B300 from 570"),
        Generation("Grace Blackwell", "open", 570, None, _OPEN),
    )
}

# First id, last id, generation. Blocks inside another block come first.
_BLOCKS: Final = (
    (0x0FC0, 0x12FF, "Kepler"),
    (0x1340, 0x13BF, "Maxwell"),  # GM107, GM108
    (0x13C0, 0x143F, "Maxwell"),  # GM204, GM206: M60
    (0x15F0, 0x15FF, "Pascal"),  # GP100: P100
    (0x1610, 0x167F, "Maxwell"),
    (0x1740, 0x17FF, "Maxwell"),  # GM200: M40
    (0x1B00, 0x1D7F, "Pascal"),  # GP102 to GP108: P40, P4
    (0x1D80, 0x1DFF, "Volta"),  # GV100: V100
    (0x1E00, 0x1FFF, "Turing"),  # TU102 to TU117: T4
    (0x2080, 0x20FF, "Ampere"),  # GA100: A100, A30
    (0x2180, 0x21FF, "Turing"),  # TU116
    (0x2200, 0x227F, "Ampere"),  # GA102: A40, A10
    (0x2340, 0x234F, "Grace Hopper"),  # GH100 of GH200
    (0x2300, 0x237F, "Hopper"),  # GH100: H100, H200, H800, H20
    (0x2414, 0x247F, "Ampere"),  # GA103
    (0x2480, 0x25FF, "Ampere"),  # GA104 to GA107: A2, A16
    (0x2680, 0x28FF, "Ada"),  # AD102 to AD107: L40, L40S, L4
    (0x2940, 0x294F, "Grace Blackwell"),  # GB100 of GB200
    (0x2900, 0x29FF, "Blackwell"),  # GB100, GB102: B200, B100
    (0x2B80, 0x2DFF, "Blackwell"),  # GB202 to GB207: RTX PRO 6000
    (0x2E00, 0x2E7F, "Grace Blackwell"),  # GB20B of GB10
    (0x2F00, 0x2F7F, "Blackwell"),  # GB205
    (0x31C0, 0x31CF, "Grace Blackwell"),  # GB110 of GB300
    (0x3180, 0x31FF, "Blackwell"),  # GB110: B300
)

_MODELS: Final = (
    # beginning of a word of a product's name, and the generation; longer names first
    ("P100", "Pascal"),
    ("P40", "Pascal"),
    ("V100", "Volta"),
    ("T4", "Turing"),
    ("A100", "Ampere"),
    ("A800", "Ampere"),
    ("A30", "Ampere"),
    ("A40", "Ampere"),
    ("L40", "Ada"),
    ("L4", "Ada"),
    ("GH200", "Grace Hopper"),
    ("H100", "Hopper"),
    ("H200", "Hopper"),
    ("H800", "Hopper"),
    ("H20", "Hopper"),
    ("GB200", "Grace Blackwell"),
    ("GB300", "Grace Blackwell"),
    ("B200", "Blackwell"),
    ("B300", "Blackwell"),
)

NVSWITCHES: Final[Mapping[str, str]] = {"1ac2": "Volta", "1af1": "Ampere", "22a3": "Hopper"}
"""NVSwitches that are PCI devices; the node's fabric manager drives them through the GPU driver."""

NVLINK5_GPUS: Final = ("290", "29b", "318", "319", "31a", "31b")
"""How the PCI ids begin of GPUs of HGX boards (B100, B200, B300) whose NVSwitches are managed through an adapter and
are no PCI devices; the fabric manager needs NVLSM (Fabric Manager guide, fourth-generation NVSwitches)."""


def is_nvswitch(device: Pci) -> bool:
    return device.vendor == NVIDIA and device.device in NVSWITCHES


def gpus(machine: Machine) -> tuple[Pci, ...]:
    """NVIDIA's display and 3D controllers, in the order of their addresses."""
    return tuple(device for device in machine.devices(NVIDIA) if device.kind.startswith(GPU_KINDS))


def nvswitches(machine: Machine) -> tuple[Pci, ...]:
    return tuple(device for device in machine.devices(NVIDIA) if is_nvswitch(device))


def generation_of(device: str, overrides: Mapping[str, str] | None = None) -> Generation:
    """The generation of a PCI device id (four hexadecimal digits).

    ``overrides`` (id: generation) take precedence. Raises UnsupportedGpu.
    """
    named = {key.lower(): value for key, value in (overrides or {}).items()}.get(device.lower())
    if named is not None:
        if named not in GENERATIONS:
            raise UnsupportedGpu(
                f"inventory: gpu.generations.{device}: unknown generation {named!r}; {suggestion(named, GENERATIONS)}"
            )
        return GENERATIONS[named]
    number = int(device, 16)
    for first, last, name in _BLOCKS:
        if first <= number <= last:
            return GENERATIONS[name]
    raise UnsupportedGpu(
        f"unknown GPU {NVIDIA}:{device}: set its generation in the inventory, gpu.generations:"
        f" {{'{device}': one of {', '.join(GENERATIONS)}}}"
    )


def generation_of_model(model: str) -> Generation | None:
    """Hopper of ``NVIDIA H200``; None for a name that is not in the table.

    For architectures, which give only a name; configured nodes are identified by PCI ids.
    """
    words = model.replace("-", " ").split()
    name = next((name for begins, name in _MODELS for word in words if word.startswith(begins)), None)
    return GENERATIONS[name] if name else None


def generations(devices: Iterable[Pci], overrides: Mapping[str, str] | None = None) -> dict[str, Generation]:
    """Device id: generation, of GPUs. Raises UnsupportedGpu."""
    return {device.device: generation_of(device.device, overrides) for device in devices}


def support_problem(generation: Generation, device: str, branch: int) -> str | None:
    """Why a driver branch does not support a GPU, and which one does."""
    name = f"GPU {NVIDIA}:{device} ({generation.name})"
    if branch < generation.first:
        return (
            f"{name} needs a driver of branch {generation.first} or newer, actual {branch}"
            f" ({generation.source}); declare a newer one (gpu.driver of architecture or inventory)"
        )
    if generation.last is not None and branch > generation.last:
        return (
            f"{name} is not supported by drivers after branch {generation.last}, actual {branch}"
            f" ({generation.source}); declare {generation.last} (gpu.driver of architecture or inventory)"
        )
    return None
