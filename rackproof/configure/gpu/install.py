"""Differences between a node and its declared driver. Pure; ``scripts`` makes the shell script."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rackproof.configure.files import RemoteFile
from rackproof.configure.gpu.driver import Choice
from rackproof.configure.gpu.state import FABRIC_UNIT, GpuState
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.versions.kernels import reboot_reason

NOUVEAU: Final = "nouveau holds the GPUs, its blacklist applies from the next start on"
OPTIONS: Final = "options of the module nvidia differ from those in force"
PARAMETERS: Final[Mapping[str, str]] = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
"""Option without ``NVreg_``: its name in /proc/driver/nvidia/params where that is another one."""
OTHERS: Final = ("nouveau", "nova_core")
"""Drivers of the kernel's own for the same GPUs."""


@dataclass(frozen=True, slots=True)
class WantedDriver:
    """Desired driver of one node."""

    choice: Choice
    packages: tuple[Package, ...]
    stream: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the module nvidia: ``NVreg_…``: value."""
    stamp: str = ""
    hold: bool = False
    modules: tuple[str, ...] = ()
    """Loaded now and at every boot."""
    release: str | None = None
    """Kernel of the next boot, where it is not the running one: modules are built for it, none is loaded."""


@dataclass(frozen=True, slots=True)
class DriverPlan:
    install: tuple[Package, ...] = ()
    hold: tuple[str, ...] = ()
    stream: str | None = None
    initramfs: bool = False
    load: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Reasons for a reboot that are not marked yet."""
    waiting: tuple[str, ...] = ()
    """Reasons that are marked: nothing to do before the reboot."""
    fabric_unit: bool = False
    """The fabric manager's unit must lose its wait for multi-user.target."""
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.install or self.hold or self.stream or self.initramfs or self.load or self.marks or self.fabric_unit
        )


def stamp(files: Iterable[RemoteFile], locked: Sequence[str] = ()) -> str:
    """sha256 over what the initial file system must have been built with: the kit's files in modprobe.d, and packages
    of a version set, ``NAME VERSION``, which are installed before the driver."""
    digest = hashlib.sha256()
    for file in files:
        if file.path.startswith("/etc/modprobe.d/"):
            digest.update(f"{file.path}\n{file.content}\n".encode())
    for package in sorted(locked):
        digest.update(f"{package}\n".encode())
    return digest.hexdigest()


def plan_driver(target: WantedDriver, state: GpuState) -> DriverPlan:
    """Changes, in the order of ``script``."""
    reasons: list[str] = []
    missing = tuple(
        package for package in target.packages if not package.satisfied_by(state.packages.get(package.name))
    )
    follow = followers(target)
    if set(missing) <= set(follow):
        # Otherwise the missing ones may change the driver, and the script compares versions behind them.
        missing = _as_the_driver(target, follow, state) or missing
    install = missing
    for package in install:
        have = state.packages.get(package.name)
        reasons.append(f"install {package.name} {package.version or ''}".rstrip() + (f" over {have}" if have else ""))
    # A branch moves with its releases; its packages are held where the exact version is declared.
    versioned = [package.name for package in target.packages if package.version is not None and target.choice.version]
    hold = tuple(name for name in versioned if target.hold and name not in state.held)
    stream = target.stream if target.stream and target.stream != state.stream else None
    if stream:
        reasons.append(f"stream nvidia-driver:{stream}" + (f" instead of {state.stream}" if state.stream else ""))
    initramfs = state.stamp != target.stamp
    if initramfs:
        reasons.append("rebuild the initial file system")
    marks = [] if install else _marks(target, state)
    known = set(state.reboots)
    blocked = bool(marks) or NOUVEAU in known or target.release is not None
    loaded = set(state.modules)
    load = (
        ()
        if target.release or (blocked and not install)
        else tuple(name for name in target.modules if name not in loaded)
    )
    reasons += [f"load {name}" for name in load]
    new = tuple(mark for mark in marks if mark not in known)
    if state.fabric_after_multi_user and target.choice.fabric_manager:
        reasons.append(f"{FABRIC_UNIT} waits for multi-user.target, which waits for it")
    return DriverPlan(
        install=install,
        hold=hold,
        stream=stream,
        initramfs=initramfs,
        load=load,
        marks=new,
        waiting=tuple(mark for mark in marks if mark in known),
        fabric_unit=state.fabric_after_multi_user and target.choice.fabric_manager,
        reasons=tuple(reasons),
    )


def mismatch(loaded: str, installed: str) -> str:
    return f"driver {loaded} loaded, {installed} installed"


def _marks(target: WantedDriver, state: GpuState) -> list[str]:
    """Reasons for a reboot, once all packages are installed."""
    marks: list[str] = []
    held = sorted({name for name in state.drivers.values() if name in OTHERS})
    if held or any(name in state.modules for name in OTHERS):
        marks.append(NOUVEAU)
    if state.loaded and state.available:
        if state.loaded.version != state.available.version:
            marks.append(mismatch(state.loaded.version, state.available.version))
        elif state.loaded.open != state.available.open:
            marks.append(f"{_kind(state.loaded.open)} modules loaded, {_kind(state.available.open)} ones installed")
    if state.loaded and options_differ(target.options, state.parameters):
        marks.append(OPTIONS)
    if target.release:
        marks.append(reboot_reason(target.release))
    return marks


def _kind(open_: bool) -> str:
    return "open" if open_ else "proprietary"


def options_differ(options: Mapping[str, str], parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Options whose value in force differs, as far as the driver reports them."""
    different = []
    for option, value in options.items():
        name = option.removeprefix("NVreg_")
        actual = parameters.get(PARAMETERS.get(name, name))
        if actual is not None and actual != value.strip('"'):
            different.append(option)
    return tuple(different)


def in_force(target: WantedDriver, state: GpuState) -> bool:
    """The declared driver is loaded and usable without a reboot."""
    return state.loaded is not None and not _marks(target, state) and "nvidia" in state.modules


def dmabuf_problem(state: GpuState) -> str | None:
    """Why adapters cannot reach GPU memory over DMA-BUF; None where kernel and driver support it.

    Symbols and licences prove no transfer; the benchmark with GPU memory does.
    """
    missing = []
    if not state.dmabuf:
        missing.append("the kernel's RDMA core has none (no ib_umem_dmabuf_get in /proc/kallsyms; it is in ib_uverbs)")
    if state.loaded is not None and not state.loaded.open:
        missing.append(
            f"the loaded driver {state.loaded.version} is the proprietary one, and only open modules have it"
        )
    if not missing:
        return None
    return (
        f"DMA-BUF is declared and not there: {'; '.join(missing)}; load ib_uverbs, install DOCA-OFED or a kernel with"
        " CONFIG_INFINIBAND_USER_MEM and open modules, or declare gpu.gpudirect: peermem"
    )


FOLLOWERS: Final = ("nvidia-fabricmanager", "nvidia-fabric-manager", "libnvidia-nscq", "nvidia-imex")
"""Followers: name prefixes of packages that must have the driver's version: no NVSwitch and no NVLink domain is set up
otherwise (NVIDIA, guides of Fabric Manager and IMEX)."""


def followers(target: WantedDriver) -> tuple[Package, ...]:
    return tuple(package for package in target.packages if package.name.startswith(FOLLOWERS))


def _as_the_driver(target: WantedDriver, follow: Iterable[Package], state: GpuState) -> tuple[Package, ...]:
    """Followers that are missing or unlike the installed driver, with its version; only if a branch is declared."""
    if target.choice.version is not None or state.available is None:
        return ()
    if state.available.version.split(".")[0] != str(target.choice.branch):
        return ()
    same = (Package(package.name, f"{state.available.version}-*") for package in follow)
    return tuple(package for package in same if not package.satisfied_by(state.packages.get(package.name)))
