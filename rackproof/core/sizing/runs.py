"""The model's prediction beside each run of the input pipeline whose storage has no benchmark of its own.

The model takes two figures from the run: the storage's rate, if a leg only reads, and the processor time of a sample.
All others are declared; the sentence names the measured ones. The rate of the whole run is never taken as its storage's
rate: the run would predict itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.sizing import words
from rackproof.core.sizing.comparison import Comparison
from rackproof.core.sizing.inputs import Choice, Inputs, inputs_of
from rackproof.core.sizing.model import RUN_STAGES, TITLES, first_epoch
from rackproof.core.sizing.view import title_of
from rackproof.core.units import convert

CONTAINED: Final = (
    *("port_rate", "connection_rate", "connection_slots", "unit.ports", "unit.port_rate", "unit.read_iops"),
    *("unit.opens", "unit.unloaded_latency", "unit.loaded_latency"),
)
"""Inputs that are contained in a measured bandwidth of the storage."""
_OF_STORAGE: Final = ("unit.read", *(name for name in CONTAINED if name.startswith("unit.")))
_RATES: Final = ("ingest.samples_rate", "inference.samples_rate")


def beside_runs(architecture: Architecture, measurements: Sequence[Measurement]) -> Iterator[Comparison | str]:
    """For each workload of the file a comparison, or why there is none; nothing if no workload was run.

    Raises SizingError.
    """
    measured = [m for m in measurements if m.samples and not m.simulated]
    runs = {name: run for name in architecture.workloads if (run := _run_of(name, measured)) is not None}
    for name in architecture.workloads if runs else ():
        if (run := runs.get(name)) is None:
            yield f"{name}: no prediction stands beside it: no run of it from a storage was measured"
        elif _job_of(run).get("arrivals"):
            yield f"{name}: no prediction stands beside it: its requests arrive at a rate of their own"
        else:
            yield _beside(architecture, name, run, measured)


def _run_of(name: str, measurements: Sequence[Measurement]) -> Measurement | None:
    """The last run, with cold caches, of those on the most nodes."""
    runs = [
        m
        for m in measurements
        if m.metric in _RATES and m.scope is Scope.RACK and m.labels.get("workload") == name
        and m.labels.get("data", "storage") == "storage" and m.labels.get("epoch", "1") == "1"
    ]  # fmt: skip
    return max(reversed(runs), key=lambda run: len(run.members), default=None)


def _job_of(run: Measurement) -> dict[str, float]:
    job = run.conditions.get("job")
    return {key: value for key, value in job.items() if type(value) in (int, float)} if isinstance(job, dict) else {}


def _beside(architecture: Architecture, name: str, run: Measurement, measurements: Sequence[Measurement]) -> Comparison:
    inputs = inputs_of(architecture, [Choice(name)]).replaced("nodes", float(len(run.members)))
    for ceiling in ("gpu", "cpu", "network", "storage"):  # a run uses its stages fully; ceilings are for plans
        inputs = inputs.replaced(f"ceilings.{ceiling}", 1.0)
    if gpus := run.labels.get("gpus"):
        inputs = inputs.replaced("gpus_per_node", float(gpus) / len(run.members))
    inputs, of_storage = _storage(architecture, inputs, run, measurements)
    inputs, of_processors = _processors(inputs, name, run, measurements)
    phase = first_epoch(inputs)
    bound = str(run.conditions.get("bound_by", ""))
    return Comparison(
        subject=name,
        unit="samples/s",
        predicted=phase.samples_per_s,
        predicted_stage=title_of(phase.binding[0]) if phase.binding else None,
        measured=median(run.samples),
        measured_stage=next((TITLES[stage] for stage, word in RUN_STAGES.items() if word == bound), bound or None),
        basis=words.listed(["declared figures", *of_storage, *of_processors]),
    )


def _storage(
    architecture: Architecture, inputs: Inputs, run: Measurement, measurements: Sequence[Measurement]
) -> tuple[Inputs, list[str]]:
    """Inputs with the rate of the run's storage: measured, else declared for this storage, else unknown; and its
    words for the basis of the prediction."""
    name = run.labels.get("storage", "")
    reads = [
        m
        for m in measurements
        if m.scope is Scope.RACK and m.labels.get("storage") == name and m.members == run.members
        and (m.metric == "storage.read_bandwidth"
             or (m.metric == "ingest.storage_bandwidth" and m.labels.get("data") == "undecoded"))
    ]  # fmt: skip
    if reads:
        rate = max(convert(median(m.samples), m.unit, "B/s") for m in reads)
        inputs = inputs.replaced("unit.count", 1.0)
        for key in CONTAINED:
            inputs = inputs.replaced(key, None)
        return inputs.replaced("unit.read", rate or None), [f"measured reads of {name}"]
    if architecture.sizing is not None and architecture.sizing.storage in (None, name):
        return inputs, []
    for key in _OF_STORAGE:
        inputs = inputs.replaced(key, None)
    return inputs, [f"no rate of {name or 'its storage'}"]


def _processors(
    inputs: Inputs, name: str, run: Measurement, measurements: Sequence[Measurement]
) -> tuple[Inputs, list[str]]:
    """Inputs with the processor time of a sample in the leg from memory, else in the run itself, and its words for the
    basis. Each worker is one process."""
    times: dict[str, list[float]] = {}
    for m in measurements:
        if m.metric == "ingest.cpu_time_per_sample" and m.labels.get("workload") == name:
            data = m.labels.get("data", "storage")
            if data != "storage" or m.labels.get("epoch", "1") == "1":
                times.setdefault(data, []).append(convert(median(m.samples), m.unit, "s"))
    own = times.get("memory") or times.get("storage")
    if not own or not median(own) > 0:
        return inputs, []
    cores, workers = inputs.system.cores_per_node, _job_of(run).get("workers")
    if cores is not None and workers:
        inputs = inputs.replaced("cores_per_node", float(min(cores, workers)))
    return inputs.replaced("cpu_time_per_sample", median(own)), ["the measured processor time of a sample"]
