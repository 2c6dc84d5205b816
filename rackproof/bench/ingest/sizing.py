"""Rate that the sizing model predicts from measured stages, against the measured rate of the input pipeline. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rackproof.bench.ingest.bound import BUSY, lines_of, port_share
from rackproof.bench.ingest.figures import Figures
from rackproof.bench.ingest.runs import TOOL
from rackproof.core.architecture import Architecture
from rackproof.core.sizing.inputs import Choice, Inputs, inputs_of
from rackproof.core.sizing.model import RUN_STAGES, first_epoch
from rackproof.core.sizing.runs import CONTAINED
from rackproof.errors import SizingError
from rackproof.parse import ParseError


class Prediction(NamedTuple):
    rate: float
    """Samples a second of all nodes."""
    stage: str
    """Binding stage, as the sizing model names it."""
    binds: frozenset[str]
    """Stages that may bind, by their names in ``bound_by``: this stage, and stages that are nearly full."""


class StorageLeg(NamedTuple):
    """The leg that reads and decodes nothing."""

    figures: Sequence[Figures]
    storage: str
    port_gbps: int | None
    """See ``lines_of``."""

    def rates(self, architecture: Architecture) -> dict[str, float | None]:
        """B/s of the stages that it has measured: the storage with all that lies before it, or the ports where they
        were full, behind which the storage is only known to be faster."""
        lines = lines_of(architecture, self.storage, self.port_gbps)
        rates = {"unit.read": sum(map(_readable, self.figures)), **dict.fromkeys(CONTAINED)}
        if (port_share(self.figures, lines) or 0.0) < BUSY:
            return rates
        ports = {"storage_ports": 1.0, "port_efficiency": 1.0, "port_rate": lines.node}
        if lines.storage is not None:
            ports |= {"unit.ports": 1.0, "unit.port_rate": lines.storage}
        return {**rates, **ports, "unit.read": None}


def predicted(
    architecture: Architecture, workload: str, memory: Sequence[Figures], reads: StorageLeg | None
) -> Prediction:
    """The model's prediction with the processor time of leg ``memory``; with ``reads`` also with the processor time of
    that leg and the bandwidth that it has measured. Without it the storage is unknown to the model. Raises
    ParseError."""
    first = memory[0].part
    dataset = first.answer.child("dataset")
    cpu_s = _cpu_s(memory, "the leg from memory has decoded nothing")
    if reads is not None:
        cpu_s += _cpu_s(reads.figures, "the leg that decodes nothing has read nothing")
    cores = min(min(leg.part.answer.integer("processors", minimum=1) for leg in memory), int(first.config["workers"]))
    measured: dict[str, float | None] = {
        "nodes": float(len(memory)),
        "gpus_per_node": float(first.config["accelerators"]),
        "rate_per_gpu": float(first.config["batch"]) / float(first.config["step_s"]),
        "cores_per_node": float(cores),
        "cpu_time_per_sample": cpu_s,
        "sample_size": dataset.number("bytes", minimum=1.0) / dataset.number("samples", minimum=1.0),
        "unit.count": 1.0,
        **{f"ceilings.{name}": 1.0 for name in ("gpu", "cpu", "network", "storage")},
        **(reads.rates(architecture) if reads else dict.fromkeys(("unit.read", *CONTAINED))),
    }
    try:
        inputs: Inputs = inputs_of(architecture, [Choice(workload)])
        for name, value in measured.items():
            inputs = inputs.replaced(name, value)
    except SizingError as error:
        raise ParseError("sizing model", str(error)) from None
    phase = first_epoch(inputs)
    if phase.samples_per_s is None or not phase.binding:
        raise ParseError("sizing model", "the rate of every stage is unknown")
    full = (stage.name for stage in phase.stages if (stage.pressure or 0.0) >= BUSY)
    binds = frozenset(RUN_STAGES.get(name, name.value) for name in full)
    return Prediction(phase.samples_per_s, phase.binding[0].name.value, binds)


def _cpu_s(legs: Sequence[Figures], nothing: str) -> float:
    """Processor time of a sample. Raises ParseError with ``nothing`` for none."""
    samples, cpu_s = (sum(leg.part.pipeline(key) for leg in legs) for key in ("samples", "cpu_s"))
    if not samples or not cpu_s:
        raise ParseError(TOOL, nothing)
    return cpu_s / samples


def _readable(leg: Figures) -> float:
    """B/s that the storage gives one node while all its workers wait for reads.

    Where they also do other things, such as sums of records, the leg's own rate is theirs and not the storage's.
    """
    read_s = leg.part.pipeline("read_s")
    while_reading = leg.part.pipeline("bytes") * float(leg.part.config["workers"]) / read_s if read_s else 0.0
    return max(leg.storage_rate, while_reading)
