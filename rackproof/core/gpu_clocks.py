"""Slowdowns of GPUs under load, by the reasons that the driver gives for lower clocks. Pure.

Bits are NVML's ``nvmlClocksEventReason…``. No faults are: nothing to do, clocks that an administrator has set, the
power limit, which dense matrix products reach on every healthy GPU (``gpu.power_limit_w`` judges the limit itself), and
the boost of a synchronised group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rackproof.core.gpu_links import LinkSample, folded, settled
from rackproof.core.grouping import grouped
from rackproof.core.load import PREFIX, Finding

CHECK: Final = f"{PREFIX}gpu_clocks"
"""The item is the step."""
PROTECTS: Final = "A GPU that slows down for heat or power under load is the slowest rank of every job."
HINT: Final = (
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER under load; check air or coolant, power supplies, their cables."
)
FAULTS: Final = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_IDLE: Final = 0x01
HARMLESS: Final = {
    _IDLE: "idle",
    0x02: "application clocks",
    0x04: "power limit",
    0x10: "sync boost",
    0x100: "display clocks",
}
_KNOWN: Final = sum(FAULTS) + sum(HARMLESS)


def judge_clocks(samples: Iterable[LinkSample], count: int, bursts: bool = False) -> Finding:
    """Reasons of ``count`` GPUs in their samples under load; one that is not known proves neither a slowdown nor none.

    The first sample of a GPU under load does not count, with ``bursts`` the first one of each: a change of clocks may
    show as a slowdown (NVML, HwSlowdown).
    """
    by_gpu = grouped((sample.bus_id, sample) for sample in samples)
    faults, unknown = [], []
    for gpu, several in sorted(by_gpu.items()):
        loaded, few = settled(several, [bool(sample.used_pct) for sample in several], bursts)
        slow = Counter(name for sample in loaded for bit, name in FAULTS.items() if (sample.reasons or 0) & bit)
        for name, times in slow.items():
            faults.append(f"GPU {gpu}: {name} in {times} of {len(loaded)} samples under load")
        strange = sorted({bits for sample in loaded if (bits := (sample.reasons or 0) & ~_KNOWN)})
        unknown += [f"GPU {gpu} gives an unknown reason for its clocks, {bits:#x}" for bits in strange]
        if few:
            unknown.append(few)
        elif any(sample.reasons is None for sample in loaded):
            unknown.append(f"GPU {gpu} does not report why its clocks are low")
    if len(by_gpu) != count:
        unknown.insert(0, f"{len(by_gpu)} of {count} GPUs told their clocks")
    return folded(faults, unknown, f"{len(by_gpu)} GPUs without a slowdown under load" if by_gpu else None)


def limits_of(samples: Iterable[LinkSample]) -> str:
    """Names of all reasons of these samples but idleness; ``nothing`` where the driver gives none, empty where it does
    not report."""
    known = [one.reasons for one in samples if one.reasons is not None]
    limits = {bit: name for bit, name in (FAULTS | HARMLESS).items() if bit != _IDLE}
    names = [name for bit, name in limits.items() if any(reasons & bit for reasons in known)]
    names += [f"{bits:#x}" for reasons in known if (bits := reasons & ~_KNOWN)]
    return ", ".join(sorted(set(names))) or ("nothing" if known else "")
