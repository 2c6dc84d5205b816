"""Which driver a node gets: branch, version, kernel modules and what belongs to its switches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture import Gpu
from rackproof.core.gpu_generations import (
    NVLINK5_GPUS,
    Generation,
    UnsupportedGpu,
    generations,
    gpus,
    nvswitches,
    support_problem,
)
from rackproof.core.machine import Machine
from rackproof.core.version_numbers import numbers
from rackproof.core.versions.models import Driver as Locked

Source = Literal["distribution", "cuda"]
Flavour = Literal["open", "proprietary"]

FIRST_OPEN: Final = 515
"""First branch with open modules (NVIDIA, driver installation guide)."""
OPEN_BY_DEFAULT: Final = 560
"""From here on NVIDIA's packages choose the open ones where both work (the same guide)."""
PROPRIETARY_UNTIL: Final = 615
"""Guide of branch 620: "Proprietary Kernel Modules Removed"."""
DEFAULT_BRANCH: Final = 580
"""Without a declaration: the long-term branch, which supports everything from Maxwell to Blackwell."""
DEBIAN_BRANCH: Final = {"12": 535, "13": 550}
"""Branch of Debian's own packages (non-free of bookworm and trixie)."""
DMABUF_KERNEL: Final = (5, 12)
"""DMA-BUF in the kernel's RDMA core."""
MELLANOX: Final = "15b3"

SUPPORTED: Final = {
    "debian": ("12", "13"),
    "ubuntu": ("22.04", "24.04"),
    "rhel": ("9",),
    "rocky": ("9",),
    "almalinux": ("9",),
    "ol": ("9",),
}
"""Operating systems whose package names are known; of RHEL and its rebuilds the major version counts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Driver of one node: its source, version and kind."""

    source: Source
    branch: int
    version: str | None
    """Complete where it is declared: ``580.126.20``."""
    flavour: Flavour
    precompiled: bool
    generations: tuple[str, ...]
    """Generations of the node's GPUs."""
    switches: int
    """NVSwitches that are PCI devices."""
    fabric_manager: bool
    nvlsm: bool
    imex: bool
    peermem: bool
    """The architecture declares nvidia-peermem; DMA-BUF needs no module."""

    @property
    def dkms(self) -> bool:
        return not self.precompiled

    @property
    def label(self) -> str:
        kind = f"{'precompiled ' if self.precompiled else ''}{self.flavour}"
        return f"driver {self.version or self.branch} ({kind}, {self.source})"


def choose(machine: Machine, declared: Gpu, stack: GpuInputs, locked: Locked | None = None) -> Choice:
    """The driver for the GPUs of a machine.

    Raises UnsupportedGpu, one line: an operating system, a GPU or a combination that cannot work, and the remedy.
    """
    _check_os(machine)
    devices = gpus(machine)
    if not devices:
        raise UnsupportedGpu(
            f"no GPU of NVIDIA on the PCI bus, {declared.count} are declared: look at lspci -d 10de:, power and risers;"
            " a node without GPUs does not belong to the group gpu"
        )
    kinds = generations(devices, stack.generations)
    switches = nvswitches(machine)
    nvlink5 = any(device.startswith(NVLINK5_GPUS) for device in kinds)
    source = _source(machine, stack, locked, declared, bool(switches) or nvlink5)
    branch, version = _branch(machine, declared, stack, locked, source)
    for device, generation in kinds.items():
        if problem := support_problem(generation, device, branch):
            raise UnsupportedGpu(problem)
    flavour = _flavour(machine, kinds, stack, declared, branch, locked)
    precompiled = stack.precompiled or (locked is not None and locked.precompiled)
    if precompiled:
        _check_precompiled(machine, source, flavour)
    grace = any(generation.name == "Grace Blackwell" for generation in kinds.values())
    fabric_manager = stack.fabric_manager if stack.fabric_manager is not None else bool(switches) or nvlink5
    if fabric_manager and source == "distribution" and (machine.os_id == "debian" or nvlink5):
        raise UnsupportedGpu(
            f"{machine.label} has no fabric manager{' with NVLSM' if nvlink5 else ''} among its own packages, and the"
            " GPUs are joined by NVSwitches; inventory: gpu.source: cuda"
        )
    return Choice(
        source=source,
        branch=branch,
        version=version,
        flavour=flavour,
        precompiled=precompiled,
        generations=tuple(sorted({generation.name for generation in kinds.values()})),
        switches=len(switches),
        fabric_manager=fabric_manager,
        nvlsm=fabric_manager and nvlink5,
        imex=grace,
        peermem=declared.gpudirect == "peermem",
    )


def _check_os(machine: Machine) -> None:
    versions = SUPPORTED.get(machine.os_id, ())
    if machine.os_version not in versions and machine.major not in versions:
        known = ", ".join(f"{name} {'/'.join(releases)}" for name, releases in SUPPORTED.items())
        raise UnsupportedGpu(f"no driver packages are known for {machine.label}; supported: {known}")
    if machine.arch not in ("x86_64", "aarch64"):
        raise UnsupportedGpu(f"no driver packages are known for {machine.arch}")


def _source(machine: Machine, stack: GpuInputs, locked: Locked | None, declared: Gpu, switched: bool) -> Source:
    if machine.family == "rhel" and stack.source == "distribution":
        raise UnsupportedGpu(
            f"{machine.label} has no driver of NVIDIA among its own packages; inventory: gpu.source: cuda"
        )
    if stack.source:
        return stack.source
    if locked is not None:
        return "distribution" if locked.repository == "distribution" else "cuda"
    asks_for_cuda = stack.driver or exact_version(declared.driver) or stack.repository
    return "distribution" if machine.os_id == "debian" and not asks_for_cuda and not switched else "cuda"


def exact_version(driver: str | None) -> str | None:
    """The architecture's driver where it is one version, not the oldest allowed one."""
    return None if driver is None or driver.startswith(">=") else driver.strip()


def _branch(
    machine: Machine, declared: Gpu, stack: GpuInputs, locked: Locked | None, source: Source
) -> tuple[int, str | None]:
    requested = stack.driver or (locked.version if locked else None) or exact_version(declared.driver)
    exact = exact_version(declared.driver)
    if requested and exact and "." in requested and requested != exact:
        raise UnsupportedGpu(
            f"driver {requested} is to be installed ({'inventory: gpu.driver' if stack.driver else 'version set'})"
            f" and gpu.driver of the architecture requires {exact}: make both the same"
        )
    if requested and exact and "." not in requested:
        requested = exact if exact.split(".")[0] == requested else requested
    own = DEBIAN_BRANCH.get(machine.major) if machine.os_id == "debian" and source == "distribution" else None
    oldest = (declared.driver or "").removeprefix(">=").strip() if exact is None else ""
    branch = int(requested.split(".")[0]) if requested else own or max((DEFAULT_BRANCH, *numbers(oldest)[:1]))
    if own is not None and branch != own:
        raise UnsupportedGpu(
            f"{machine.label} has drivers of branch {own} only, {branch} is asked for; inventory: gpu.source: cuda"
        )
    if oldest and numbers(oldest)[:1] > (branch,):
        raise UnsupportedGpu(f"gpu.driver of the architecture requires {oldest} or newer, branch {branch} is installed")
    return branch, requested if requested and "." in requested else None


def _flavour(
    machine: Machine, kinds: dict[str, Generation], stack: GpuInputs, declared: Gpu, branch: int, locked: Locked | None
) -> Flavour:
    """Raises UnsupportedGpu where GPUs need different modules, or others than requested."""
    closed = next((f"10de:{d} ({g.name})" for d, g in kinds.items() if g.modules == "proprietary"), None)
    opened = next((f"10de:{d} ({g.name})" for d, g in kinds.items() if g.modules == "open"), None)
    if closed and opened:
        raise UnsupportedGpu(
            f"GPU {closed} works with proprietary kernel modules only and GPU {opened} with open ones only: no driver"
            " serves both; take one kind out of the node"
        )
    asked: Flavour | None = stack.flavour if stack.flavour != "auto" else locked.flavour if locked else None
    who = "the inventory's gpu.flavour" if stack.flavour != "auto" else "the version set"
    if asked == "open" and closed:
        raise UnsupportedGpu(
            f"GPU {closed} does not work with open kernel modules, for which {who} asks (nvidia-smi would say: No"
            " devices were found): proprietary"
        )
    if asked == "proprietary" and opened:
        raise UnsupportedGpu(
            f"GPU {opened} does not work with proprietary kernel modules, for which {who} asks (nvidia-smi would say:"
            " No devices were found): open"
        )
    dmabuf = declared.gpudirect == "dmabuf"
    flavour: Flavour
    if asked:
        flavour = asked
    elif closed:
        flavour = "proprietary"
    else:
        flavour = "open" if opened or branch >= (FIRST_OPEN if dmabuf else OPEN_BY_DEFAULT) else "proprietary"
    if flavour == "open" and branch < FIRST_OPEN:
        raise UnsupportedGpu(f"branch {branch} has no open kernel modules; {FIRST_OPEN} is the first that has")
    if flavour == "proprietary" and branch > PROPRIETARY_UNTIL:
        raise UnsupportedGpu(
            f"branch {branch} has no proprietary kernel modules any more; inventory: gpu.flavour: open"
        )
    if dmabuf and not dmabuf_usable(machine, "open"):
        raise UnsupportedGpu(
            f"gpu.gpudirect: dmabuf needs Linux 5.12, the running kernel is {machine.kernel}: declare peermem"
        )
    if dmabuf and flavour == "proprietary":
        raise UnsupportedGpu(
            f"gpu.gpudirect: dmabuf needs open kernel modules, and {closed or who} needs proprietary ones: declare"
            " peermem"
        )
    if flavour == "open" and stack.module_options.get("NVreg_EnableGpuFirmware") == "0":
        raise UnsupportedGpu(
            "NVreg_EnableGpuFirmware=0 (the inventory's gpu.module_options) with open modules, which need GSP"
        )
    return flavour


def _check_precompiled(machine: Machine, source: Source, flavour: Flavour) -> None:
    if machine.os_id == "ubuntu" and source == "distribution":
        return
    if machine.family == "rhel" and flavour == "proprietary":
        return
    hint = {
        "ubuntu": "Ubuntu's archive has them; inventory: gpu.source: distribution",
        "debian": "Debian has none: enrol the key of DKMS (mokutil --import), or switch Secure Boot off",
    }.get(machine.os_id, "NVIDIA signs proprietary ones only: enrol the key of DKMS, or switch Secure Boot off")
    raise UnsupportedGpu(f"no precompiled {flavour} modules for {machine.label} from the {source} packages; {hint}")


def dmabuf_usable(machine: Machine, flavour: Flavour) -> bool:
    """Expectation before the driver is loaded: a new enough kernel, or RHEL's with the backport, and open modules.

    ``install.dmabuf_problem`` checks what is really in force.
    """
    old_rhel = machine.family == "rhel" and int(machine.major or 0) >= 9
    return flavour == "open" and (numbers(machine.kernel) >= DMABUF_KERNEL or old_rhel)


def gpudirect_warning(machine: Machine, declared: Gpu, flavour: Flavour) -> str | None:
    """Without declared GPUDirect RDMA no module is loaded for it: adapters reach GPU memory over DMA-BUF only."""
    if declared.gpudirect is not None or not machine.devices(MELLANOX) or dmabuf_usable(machine, flavour):
        return None
    return (
        "adapters cannot reach GPU memory: DMA-BUF needs open kernel modules and Linux 5.12, and nvidia-peermem is"
        " loaded where the architecture declares it (gpu.gpudirect: peermem)"
    )


def secure_boot_problem(machine: Machine, choice: Choice, key_enrolled: bool | None = None) -> str | None:
    """Why modules of DKMS would not load, and the choices. ``key_enrolled``: the node's own key is in the firmware's
    list; None if unknown."""
    if not machine.secure_boot or not choice.dkms or key_enrolled:
        return None
    if machine.os_id == "ubuntu":
        ready = "modules that Ubuntu has signed (gpu: {source: distribution, precompiled: true})"
    elif machine.family == "rhel":
        ready = "modules that NVIDIA signed (gpu: {precompiled: true}, proprietary ones, its key enrolled)"
    else:
        ready = "no signed modules exist for this system"
    return (
        f"Secure Boot is on and {choice.label} is built on the node by DKMS: its modules would not load."
        f" Choose: {ready}; enrol the key of DKMS (mokutil --import, then confirm at the console); or switch Secure"
        " Boot off in the firmware's setup"
    )


def hardware_problems(machine: Machine, declared: Gpu) -> tuple[str, ...]:
    """Differences between the PCI bus and the architecture. They do not stop an installation."""
    devices = gpus(machine)
    problems = []
    if len(devices) != declared.count:
        problems.append(f"GPUs on the PCI bus: expected {declared.count}, actual {len(devices)}")
    if declared.pci_ids:
        wanted = {pci_id.lower() for pci_id in declared.pci_ids}
        odd = [f"{device.ids} at {device.address}" for device in devices if device.device not in wanted]
        if odd:
            problems.append(f"GPUs: expected 10de:{' or 10de:'.join(sorted(wanted))}, actual {', '.join(odd)}")
    if declared.nvswitches is not None and len(nvswitches(machine)) != declared.nvswitches:
        problems.append(f"NVSwitches: expected {declared.nvswitches}, actual {len(nvswitches(machine))}")
    return tuple(problems)
