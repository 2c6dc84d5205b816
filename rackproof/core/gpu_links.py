"""PCIe links of GPUs under load: an idle GPU lowers the speed of its link, so only a loaded GPU shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.grouping import grouped
from rackproof.core.load import PREFIX, Finding
from rackproof.core.wording import some

CHECK: Final = f"{PREFIX}gpu_links"
"""The item is the step."""
PROTECTS: Final = "A link that is slow under load halves the bandwidth to host memory, storage and network."
HINT: Final = (
    "lspci -vv under load: compare LnkSta with LnkCap; reseat the card or its riser, check its slot's setting."
)
IDLE: Final = "idle GPUs lower the speed of their links"
"""Beginning of the message of a check that cannot judge an idle link; the check under load does."""
BURSTS: Final = ("gpu/copies", "gpu/diagnosis", "links/groups/nccl-tests/", "links/groups/torch/")
"""How the ids of steps begin that load each GPU for moments, and leave it idle in between."""
PRODUCTS: Final = "gpu/product/"
"""How the ids of steps of matrix products begin, each of which lasts for several samples."""
LOADS: Final = ("collectives/nccl-tests/", "collectives/torch/", PRODUCTS, "gpu/triad/", *BURSTS)
"""How the ids of steps begin that load GPUs."""

FULL_SPEED: Final = "P0"
"""Performance state of full PCIe speed; lower ones may reduce it."""
LEAST_SAMPLES: Final = 3
"""Under load. The first one does not count: the link may still be rising."""
_SHOWN: Final = 4


class LinkSample(NamedTuple):
    """One GPU at one moment; None where the driver does not report."""

    bus_id: str
    state: str | None
    used_pct: int | None
    """Share of the last second or less in which a kernel ran."""
    generation: int | None
    generation_max: int | None
    width: int | None
    width_max: int | None
    reasons: int | None = None
    """Why its clocks are low: bits, see ``gpu_clocks``."""
    sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    at_s: float | None = None
    """When its round began: seconds since 1970 by the node's clock."""

    @property
    def loaded(self) -> bool:
        return bool(self.used_pct) and self.state in (None, FULL_SPEED)


def settled(several: Sequence[LinkSample], loaded: Sequence[bool], bursts: bool) -> tuple[list[LinkSample], str]:
    """Samples of one GPU under load, without the first one, with ``bursts`` without the first one of each; and why they
    are too few, or empty."""
    chosen = [one for one, now in zip(several, loaded, strict=True) if now][1:]
    if bursts:
        chosen = [one for one, before, now in zip(several[1:], loaded, loaded[1:], strict=False) if before and now]
    if len(chosen) >= LEAST_SAMPLES - 1:
        return chosen, ""
    in_a_row = f", and {len(chosen)} times in the one before as well" if bursts else ""
    return chosen, f"GPU {several[0].bus_id} was under load in {sum(loaded)} of {len(several)} samples{in_a_row}"


def judge_links(
    samples: Iterable[LinkSample], count: int, generation: int | None, width: int | None, bursts: bool = False
) -> Finding:
    """Links of ``count`` GPUs; expected are the architecture's generation and width, or what GPU and slot can.

    Every sample under load must be at full speed: a link that falls back under load is as bad as one that never rises.
    """
    by_gpu = grouped((sample.bus_id, sample) for sample in samples)
    faults, unknown, slowest = [], [], None
    for gpu, every in sorted(by_gpu.items()):
        several, few = settled(every, [one.loaded for one in every], bursts)
        if few:
            unknown.append(few)
            continue
        slow = []
        for one in several:
            asked = generation or one.generation_max, width or one.width_max
            if one.generation is None or one.width is None or None in asked:
                unknown.append(f"GPU {gpu} does not report its link")
                break
            if one.generation < (asked[0] or 0) or one.width < (asked[1] or 0):
                slow.append(one)
            slowest = min(slowest or (99, 99), (one.generation, one.width))
        if slow:
            worst = min(slow, key=lambda one: (one.generation or 0, one.width or 0))
            expected = _link(generation or worst.generation_max, width or worst.width_max)
            actual = _link(worst.generation, worst.width)
            times = f"{len(slow)} of {len(several)} samples"
            faults.append(f"GPU {gpu}: expected {expected} under load, actual {actual} in {times}")
    if len(by_gpu) != count:
        unknown.insert(0, f"{len(by_gpu)} of {count} GPUs told their links")
    return folded(faults, unknown, slowest and f"{len(by_gpu)} GPUs at {_link(*slowest)} or more under load")


def folded(faults: Sequence[str], unknown: Sequence[str], passed: str | None) -> Finding:
    """One finding about all GPUs of a node. ``passed``: the message of healthy ones; None without a sample."""
    if faults:
        return Finding(CheckOutcome.FAILED, some(faults, _SHOWN, "; "))
    if unknown or passed is None:
        return Finding(CheckOutcome.UNMEASURED, some(list(dict.fromkeys(unknown)), _SHOWN, "; ") or "no sample")
    return Finding(CheckOutcome.PASSED, passed)


def _link(generation: int | None, width: int | None) -> str:
    return f"generation {generation} x{width}"


def under_load(idle: CheckResult, loads: Sequence[CheckResult]) -> CheckResult:
    """The result of a check of idle links, as the load decides it. ``loads``: results of ``CHECK`` on its node.

    A link that fails under load fails there; the check itself stays unmeasured.
    """
    failed = [one for one in loads if one.outcome is CheckOutcome.FAILED]
    passed = [one for one in loads if one.outcome is CheckOutcome.PASSED]
    if passed and not failed:
        message = f"{passed[0].message}, during {passed[0].item}"
        raw = tuple(dict.fromkeys((*idle.raw, *passed[0].raw)))
        return idle.model_copy(update={"outcome": CheckOutcome.PASSED, "message": message, "raw": raw})
    why = "; ".join(one.message for one in (failed or loads)[:1]) or "no step of the benchmarks loads GPUs"
    return idle.model_copy(update={"message": f"{idle.message}; {why}"})
