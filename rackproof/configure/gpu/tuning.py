"""Settings that GPUs lose when their driver is unloaded: limits, clocks, MIG. Pure.

One script sets all of it, at boot and in a deploy (``rackproof-gpu.service``); the driver's report is compared with
it afterwards. Only ECC and, on Ampere, MIG's mode outlive a reboot, and both need a reset to come into force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture import Gpu
from rackproof.core.wording import exact
from rackproof.errors import DeclarationError
from rackproof.parse.nvidia_smi import Gpu as Reported
from rackproof.parse.nvidia_smi import GpuInstances, NvidiaSmi

SCRIPT: Final = "/usr/local/sbin/rackproof-gpu"
SERVICE: Final = "rackproof-gpu.service"
POWER_TOLERANCE_W: Final = 0.5
"""The driver rounds limits."""
ECC_MARK: Final = "ECC mode of GPUs changes at the next start"
MIG_MARK: Final = "MIG mode of GPUs changes at the next start"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of every GPU of a node; None leaves a setting to the driver."""

    power_limit_w: float | None = None
    application_clocks_mhz: tuple[int, int] | None = None
    """Memory, then SM, in the order of ``nvidia-smi -ac``."""
    locked_clocks_mhz: tuple[int, ...] | None = None
    locked_memory_clocks_mhz: tuple[int, ...] | None = None
    ecc: bool | None = None
    mig: bool | None = None
    mig_profiles: tuple[str, ...] = ()
    """On every GPU, in the order of creation: ``3g.71gb``."""
    reset: bool = False

    def __bool__(self) -> bool:
        return any(
            setting not in (None, ())
            for setting in (
                self.power_limit_w, self.application_clocks_mhz, self.locked_clocks_mhz,
                self.locked_memory_clocks_mhz, self.ecc, self.mig, self.mig_profiles,
            )
        )  # fmt: skip


def tuning(declared: Gpu, stack: GpuInputs) -> Tuning:
    """Raises DeclarationError, one line."""
    clocks = declared.clocks
    pair = None
    if clocks and (clocks.application_sm_mhz or clocks.application_memory_mhz):
        memory = clocks.application_memory_mhz or clocks.memory_max_mhz
        sm = clocks.application_sm_mhz or clocks.sm_max_mhz
        if memory is None or sm is None:
            raise DeclarationError(
                "gpu.clocks: the application clocks of SM and memory are set together: declare both, or the highest"
                " clock (sm_max_mhz, memory_max_mhz) of the one that is left out"
            )
        pair = (memory, sm)
    profiles = declared.mig_profiles or ()
    if profiles and declared.mig != "Enabled":
        raise DeclarationError("gpu.mig_profiles: partitions need gpu.mig: Enabled")
    if stack.locked_clocks_mhz and clocks is not None:
        raise DeclarationError(
            "the inventory has gpu.locked_clocks_mhz, the architecture gpu.clocks: locked clocks hold GPUs down"
        )
    return Tuning(
        power_limit_w=declared.power_limit_w,
        application_clocks_mhz=pair,
        locked_clocks_mhz=stack.locked_clocks_mhz,
        locked_memory_clocks_mhz=stack.locked_memory_clocks_mhz,
        ecc=None if declared.ecc is None else declared.ecc == "Enabled",
        mig=None if declared.mig is None else declared.mig == "Enabled",
        mig_profiles=tuple(profiles),
        reset=stack.reset_gpus,
    )


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between the declaration and the driver's report."""

    now: tuple[str, ...] = ()
    """Settings that apply at once."""
    pending: tuple[str, ...] = ()
    """Marks of settings that apply after a reboot."""
    busy: tuple[str, ...] = ()
    """Programs that prevent a change of MIG."""


def differences(wanted: Tuning, report: NvidiaSmi, listed: Sequence[GpuInstances]) -> Differences:
    """Compare. No driver reports locked clocks: they are left to the script at boot."""
    now: list[str] = []
    modes: list[str] = []
    pending: list[str] = []
    for gpu in report.gpus:
        now += _limits(wanted, gpu)
        if wanted.ecc is not None and gpu.ecc is not None and gpu.ecc != _word(wanted.ecc):
            if gpu.ecc_pending == _word(wanted.ecc):
                pending.append(ECC_MARK)
            else:
                now.append(f"ECC of {gpu.bus_id}: {gpu.ecc}")
        mig, aim = gpu.mig, _word(wanted.mig or False)
        if wanted.mig is None or mig is None:
            continue
        if gpu.mig_pending not in (None, mig) and gpu.mig_pending == aim:
            pending.append(MIG_MARK)
        elif mig != aim:
            modes.append(f"MIG of {gpu.bus_id}: {mig}")
    layout = _layout(wanted, report, listed)
    if pending and layout:
        layout = []  # partitions are made by the script at boot
    needs_idle = modes or layout
    busy = [f"{process} on {gpu.bus_id}" for gpu in report.gpus for process in gpu.processes] if needs_idle else []
    return Differences((*now, *modes, *layout), tuple(dict.fromkeys(pending)), tuple(busy))


def _word(on: bool) -> str:
    return "Enabled" if on else "Disabled"


def _limits(wanted: Tuning, gpu: Reported) -> list[str]:
    wrong = []
    limit = gpu.power_limit_w
    if wanted.power_limit_w and limit is not None and abs(limit - wanted.power_limit_w) > POWER_TOLERANCE_W:
        wrong.append(f"power limit of {gpu.bus_id}: {exact(limit)} W")
    clocks = gpu.application_clocks_mhz
    if wanted.application_clocks_mhz and clocks is not None:
        memory, sm = wanted.application_clocks_mhz
        if (clocks.memory, clocks.sm) != (memory, sm):
            wrong.append(f"application clocks of {gpu.bus_id}: {exact(clocks.memory)},{exact(clocks.sm)} MHz")
    return wrong


def _layout(wanted: Tuning, report: NvidiaSmi, listed: Sequence[GpuInstances]) -> list[str]:
    if not wanted.mig or not wanted.mig_profiles:
        return []
    by_uuid = {listed_gpu.uuid: listed_gpu for listed_gpu in listed}
    wrong = []
    for gpu in report.gpus:
        entry = by_uuid.get(gpu.uuid or "")
        actual = sorted(device.profile for device in entry.mig) if entry else []
        if actual != sorted(wanted.mig_profiles):
            wrong.append(f"partitions of {gpu.bus_id}: {', '.join(actual) or 'none'}")
    return wrong
