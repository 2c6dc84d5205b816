"""Mixes of training and inference on one storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackproof.core.architecture.workloads import WorkloadKind
from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import SHARED, Phase, StageName, first_epoch, total

DOUBLED = 0.5
"""Utilisation of the storage at which a read takes twice its unloaded time (M/M/1)."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Mix:
    """Range of nodes for inference, the others for training, in which every stage stays below its ceiling."""

    least: int | None
    most: int | None
    """None with ``least``: no split fits."""
    limit: StageName | None
    """The storage stage that limits the range; None without a limit."""
    quiet_least: int | None
    """The range in which a read takes less than twice its unloaded time."""
    quiet_most: int | None


def served(phase: Phase) -> float | None:
    """Share of its own rate that every tenant reaches; 1 if the mix fits; None if unknown."""
    rates: dict[str | None, float] = {}
    for stage in phase.stages:
        if stage.name not in SHARED and stage.planned is not None:
            rates[stage.tenant] = min(rates.get(stage.tenant, math.inf), stage.planned)
    demanded = total(rates.values())
    if not demanded or phase.samples_per_s is None or len(rates) < len(phase.flows):
        return None
    return min(1.0, phase.samples_per_s / demanded)


def mix(inputs: Inputs) -> Mix | None:
    """The splits of the nodes that fit with cold caches; None where there is no inference or no training, or too little
    is known. Tenants of one kind keep their proportions."""
    alone = {kind: _alone(inputs, kind) for kind in WorkloadKind}
    inference, training = alone[WorkloadKind.INFERENCE], alone[WorkloadKind.TRAINING]
    if not inference or not training or inference.keys() != training.keys():
        return None
    system, ceilings = inputs.system, inputs.system.ceilings
    planned = {n: ceilings.network if n is StageName.STORAGE_PORTS else ceilings.storage for n in inference}
    least, most, limit = _split(system.nodes, training, inference, planned)
    halved: dict[StageName, float] = {n: DOUBLED for n in (StageName.BANDWIDTH, StageName.REQUESTS) if n in inference}
    quiet_least, quiet_most, _ = _split(system.nodes, training, inference, halved)
    return Mix(least, most, limit, quiet_least, quiet_most)


def _split(
    nodes: float,
    training: Mapping[StageName, float],
    inference: Mapping[StageName, float],
    ceilings: Mapping[StageName, float],
) -> tuple[int | None, int | None, StageName | None]:
    """Minimum and maximum nodes of inference with all stages below their ceilings, and the limiting stage."""
    low, high, limit = 0.0, 1.0, None
    for name, ceiling in ceilings.items():
        start, end = _range(training[name], inference[name], ceiling)
        if end < high or start > low:
            limit = name
        low, high = max(low, start), min(high, end)
    least, most = math.ceil(low * nodes - _ROUNDING), math.floor(high * nodes + _ROUNDING)
    return (least, most, limit) if least <= most else (None, None, limit)


def _alone(inputs: Inputs, kind: WorkloadKind) -> dict[StageName, float]:
    """Utilisation of all known storage stages if all nodes ran tenants of one kind at the nodes' rate."""
    chosen = [t for t in inputs.tenants if t.kind is kind]
    total_share = sum(t.share for t in chosen)
    if not chosen:
        return {}
    tenants = tuple(replace(t, share=t.share / total_share) for t in chosen)
    origins = dict(inputs.origins)
    if len(chosen) == 1:
        prefix = f"{chosen[0].name}."
        origins |= {
            key.removeprefix(prefix): origin for key, origin in inputs.origins.items() if key.startswith(prefix)
        }
    phase = first_epoch(replace(inputs, tenants=tenants, origins=origins))
    part = served(phase)
    if not part:
        return {}
    return {s.name: s.utilisation / part for s in phase.stages if s.name in SHARED and s.utilisation is not None}


def _range(at_none: float, at_all: float, ceiling: float) -> tuple[float, float]:
    """Range of shares (0 to 1) in which a load, linear from ``at_none`` to ``at_all``, is below ``ceiling``."""
    ceiling *= 1 + _ROUNDING
    if at_none <= ceiling and at_all <= ceiling:
        return 0.0, 1.0
    if at_none > ceiling and at_all > ceiling:
        return 1.0, 0.0
    crossing = (ceiling - at_none) / (at_all - at_none)
    return (0.0, crossing) if at_none <= ceiling else (crossing, 1.0)
