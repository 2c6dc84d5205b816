"""Compare the model's predictions with the measurements of a run: does storage, network or GPU bind?

There are two comparisons. The storage benchmark reads at the maximum rate, so network, connections or storage limit it.
A workload's rate follows from the model twice: with the architecture's figures, and with measured links and storage.
Without a benchmark of the storage, the prediction stands beside the runs themselves (``runs.py``). Simulated
measurements are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.sizing import words
from rackproof.core.sizing.comparison import Comparison
from rackproof.core.sizing.inputs import Choice, Inputs, inputs_of
from rackproof.core.sizing.model import RUN_STAGES, TITLES, Phase, StageName, first_epoch, product
from rackproof.core.sizing.runs import beside_runs
from rackproof.core.sizing.view import title_of
from rackproof.core.units import convert
from rackproof.errors import SizingError

AT_LIMIT = 0.8
"""A stage at this share of its own capacity binds the benchmark."""

_READ = "storage.read_bandwidth"
_TO_STORAGE = "link.tcp_bandwidth_to_storage"
_LINKS = {"tcp": "link.tcp_bandwidth", "rdma": "link.rdma_write_bandwidth"}


class PredictedAndMeasured(NamedTuple):
    lines: tuple[str, ...] = ()
    """Lines for the report, comparisons first, since a certificate's summary has the first line only.

    One line if the prediction cannot be compared; none if the run measures nothing of it.
    """
    comparisons: tuple[Comparison, ...] = ()


class _Rates(NamedTuple):
    """Measured rates of the path from storage to nodes, B/s."""

    storage: str
    clients: int
    read: float
    """Read rate of the rack."""
    link: float | None
    """Rate of one port of a node."""
    ports: float | None
    """Rate of all ports of the storage together."""


def predicted_and_measured(architecture: Architecture, measurements: Sequence[Measurement]) -> PredictedAndMeasured:
    """The model's bottleneck and the run's, in a few lines."""
    if architecture.sizing is None or not architecture.workloads:
        return PredictedAndMeasured()
    asked = {m.labels.get("storage") for m in measurements if m.metric == _READ}
    if not asked or architecture.sizing.storage not in (None, *asked):
        return _beside_runs(architecture, measurements)  # the profile has no benchmark of the workloads' storage
    figures = _measured_rates(architecture, [m for m in measurements if m.samples and not m.simulated])
    if isinstance(figures, str):
        return _nothing(figures)
    comparisons = []
    try:
        for index, name in enumerate(architecture.workloads):
            declared = inputs_of(architecture, [Choice(name)]).replaced("nodes", float(figures.clients))
            if index == 0:
                reading = _reading(declared, figures)
                comparisons.append(reading)
            comparisons.append(_workload(name, declared, _as_measured(declared, figures, reading), measurements))
    except SizingError as error:
        return _nothing(str(error))
    return PredictedAndMeasured(lines=tuple(c.line for c in comparisons), comparisons=tuple(comparisons))


def _beside_runs(architecture: Architecture, measurements: Sequence[Measurement]) -> PredictedAndMeasured:
    try:
        every = list(beside_runs(architecture, measurements))
    except SizingError as error:
        return _nothing(str(error))
    comparisons = tuple(one for one in every if isinstance(one, Comparison))
    reasons = (one for one in every if isinstance(one, str))
    return PredictedAndMeasured(lines=(*(c.line for c in comparisons), *reasons), comparisons=comparisons)


def _nothing(reason: str) -> PredictedAndMeasured:
    return PredictedAndMeasured(lines=(f"nothing to compare with the predicted bottleneck: {reason}",))


def _measured_rates(architecture: Architecture, measurements: Sequence[Measurement]) -> _Rates | str:
    """Measured rates, or why there are none."""
    reads: dict[str, Measurement] = {}
    for m in measurements:
        name = m.labels.get("storage", "")
        if m.metric == _READ and m.scope is Scope.RACK and len(m.members) >= len(reads.get(name, m).members):
            reads[name] = m
    storage = architecture.sizing.storage if architecture.sizing else None
    shared = [name for name in reads if name in architecture.storage and architecture.storage[name].class_ != "local"]
    if storage is None and len(shared) > 1:
        return f"sizing.storage does not say which of {words.listed(sorted(shared))} feeds the workloads"
    name = storage or (shared[0] if shared else "")
    if name not in reads:
        return f"the read bandwidth of {name or 'a shared storage'} was not measured"
    read = reads[name]
    transport = architecture.storage[name].transport if name in architecture.storage else None
    link = _median(measurements, _LINKS[transport or "tcp"], Scope.PAIR)
    rate = convert(median(read.samples), read.unit, "B/s")
    if not rate > 0 or not read.members:
        return f"the measured read bandwidth of {name} is 0"
    ports = _median([m for m in measurements if m.labels.get("storage", name) == name], _TO_STORAGE, Scope.RACK)
    return _Rates(storage=name, clients=len(read.members), read=rate, link=link, ports=ports)


def _median(measurements: Sequence[Measurement], metric: str, scope: Scope) -> float | None:
    """Median of the measurements' medians, B/s; None without one."""
    values = [convert(median(m.samples), m.unit, "B/s") for m in measurements if (m.metric, m.scope) == (metric, scope)]
    rate = median(values) if values else 0.0
    return rate if rate > 0 else None


def _reading(inputs: Inputs, figures: _Rates) -> Comparison:
    """Comparison for the storage benchmark, which uses only the path from storage to nodes."""
    system, unit = inputs.system, inputs.system.unit
    paths = {
        StageName.NETWORK: product(system.nodes, system.node_bandwidth),
        StageName.CONNECTIONS: product(system.nodes, system.connections, system.connection_rate),
        StageName.BANDWIDTH: product(unit.count, unit.read),
        StageName.STORAGE_PORTS: product(unit.count, unit.ports, unit.port_rate, system.port_efficiency),
    }
    rates = {name: rate for name, rate in paths.items() if rate is not None}
    least = min(rates, key=lambda name: rates[name]) if StageName.BANDWIDTH in rates else None
    if figures.link is not None:
        rates[StageName.NETWORK] = system.nodes * system.storage_ports * figures.link
    if (ports := _storage_ports(inputs, figures)) is not None:
        rates[StageName.STORAGE_PORTS] = ports
    full = sorted((figures.read / rate, name) for name, rate in rates.items() if name is not StageName.BANDWIDTH)
    # If no stage between nodes and storage is the bottleneck, the storage is.
    actual = full[-1][1] if full and full[-1][0] >= AT_LIMIT else StageName.BANDWIDTH if full else None
    return Comparison(
        subject=f"read of {figures.storage} by {words.count(figures.clients, 'node')}",
        unit="B/s",
        predicted=paths[least] if least else None,
        predicted_stage=TITLES[least] if least else None,
        measured=figures.read,
        measured_stage=TITLES[actual] if actual else None,
    )


def _storage_ports(inputs: Inputs, figures: _Rates) -> float | None:
    """Rate of all ports of the storage together, B/s: as measured, else the measured rate of a node's ports if the
    storage's ports have the same line rate."""
    system, unit = inputs.system, inputs.system.unit
    if figures.ports is not None or figures.link is None or unit.ports is None or unit.port_rate != system.port_rate:
        return figures.ports
    return unit.count * unit.ports * figures.link


def _as_measured(inputs: Inputs, figures: _Rates, reading: Comparison) -> Inputs:
    """The inputs with measured links and storage."""
    system, unit = inputs.system, inputs.system.unit
    ports = _storage_ports(inputs, figures)
    if figures.link is not None:
        # the model multiplies a line rate by its efficiency, which a measured rate includes
        inputs = inputs.replaced("port_rate", figures.link / system.port_efficiency)
    if ports is not None and unit.ports is not None:
        inputs = inputs.replaced("unit.port_rate", ports / (unit.count * unit.ports * system.port_efficiency))
    per_unit = figures.read / inputs.system.unit.count
    declared = inputs.system.unit.read
    if reading.measured_stage == TITLES[StageName.BANDWIDTH] or declared is None or per_unit > declared:
        inputs = inputs.replaced("unit.read", per_unit)
    return inputs


def _workload(name: str, declared: Inputs, actual: Inputs, measurements: Sequence[Measurement]) -> Comparison:
    runs = [
        m
        for m in measurements
        if m.metric == "ingest.samples_rate" and m.scope is Scope.RACK and m.labels.get("workload") == name
        and m.labels.get("data", "storage") == "storage"
        and m.samples and not m.simulated and len(m.members) == declared.system.nodes
    ]  # fmt: skip
    if runs and (gpus := runs[-1].labels.get("gpus")):
        # a run may use fewer GPUs than the nodes have, or emulate another number
        declared, actual = (i.replaced("gpus_per_node", float(gpus) / i.system.nodes) for i in (declared, actual))
    before, after = first_epoch(declared), first_epoch(actual)
    measured, stage = after.samples_per_s, _stage(after)
    if runs:
        bound = str(runs[-1].conditions.get("bound_by", ""))
        measured = median(runs[-1].samples)
        stage = next((TITLES[name] for name, word in RUN_STAGES.items() if word == bound), bound or None)
    return Comparison(
        subject=name,
        unit="samples/s",
        predicted=before.samples_per_s,
        predicted_stage=_stage(before),
        measured=measured,
        measured_stage=stage,
        directly=bool(runs),
    )


def _stage(phase: Phase) -> str | None:
    return title_of(phase.binding[0]) if phase.binding else None
