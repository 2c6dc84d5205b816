"""Points of a capacity plan's two curves: latency against load, throughput against GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import TITLES, Phase, StageName, first_epoch, product, total
from rackproof.core.sizing.view import View

LOADS = (0.0, *(step / 20 for step in range(1, 19)), 0.92, 0.94, 0.95)
"""Shares of the storage's read rate; beyond them the waiting time is unbounded."""
_MOST_POINTS = 40


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    load: float
    """Share of the maximum read rate."""
    times: float
    """Latency as a multiple of the unloaded one."""
    latency_s: float | None
    outstanding: float | None
    """Reads in flight at this load, by Little's law."""


@dataclass(frozen=True, slots=True)
class LatencyCurve:
    """Latency in the M/M/1 model: reads arrive at random and queue."""

    points: tuple[LatencyPoint, ...]
    planned: float
    """Load at the storage's ceiling."""
    here: float | None
    """Load of the workloads with cold caches."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    gpus: int
    asked: float | None
    """Samples/s of GPUs that do not wait for data."""
    samples_per_s: float | None
    """Actual samples/s."""
    stage: str | None
    """The binding stage."""


@dataclass(frozen=True, slots=True)
class ScaleCurve:
    points: tuple[ScalePoint, ...]
    here: int
    """GPUs of this rack."""


def latency_against_load(view: View) -> LatencyCurve:
    unit, edge = view.inputs.system.unit, view.edge
    points = []
    for load in LOADS:
        times = 1 / (1 - load)
        latency = product(unit.unloaded_latency, times)
        outstanding = product(load, edge.service_per_s, latency)
        points.append(LatencyPoint(load, times, latency, outstanding))
    return LatencyCurve(tuple(points), view.inputs.system.ceilings.storage, edge.utilisation)


def throughput_against_gpus(inputs: Inputs) -> ScaleCurve:
    """From one node to twice the rack, in whole nodes, with the tenants' shares and the same storage."""
    nodes, per_node = int(inputs.system.nodes), int(inputs.system.gpus_per_node)
    last = max(2 * nodes, 4)
    step = math.ceil(last / _MOST_POINTS)
    counts = sorted({*range(1, last + 1, step), nodes, last})
    points = []
    for count in counts:
        phase = first_epoch(inputs.replaced("nodes", float(count)))
        asked = total(stage.planned for stage in phase.stages if stage.name is StageName.GPU)
        points.append(ScalePoint(count * per_node, asked, phase.samples_per_s, _stage(phase)))
    return ScaleCurve(tuple(points), nodes * per_node)


def _stage(phase: Phase) -> str | None:
    return TITLES[phase.binding[0].name] if phase.binding else None
