"""Plan purchases and settings: storage units, network, connections, reads in flight, prefetch, caches, job time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import (
    Phase,
    first_epoch,
    later_epochs,
    product,
    residency,
    service_rate,
    total,
)
from rackproof.core.sizing.values import Tenant

NETWORKS = (10, 25, 40, 50, 100, 200, 400)
"""Available line rates, Gb/s."""
_GBPS = 1e9 / 8
_ROUNDING = 1e-9
"""Tolerance when rounding up: 2.0000000001 chassis are two."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one tenant's GPUs without waiting for data, at their ceiling."""

    tenant: str
    samples_per_s: float | None
    bytes_per_s: float | None
    """Into the GPUs."""
    node_bytes_per_s: float | None
    """Bytes per second of one node."""
    cores_per_node: float | None
    """Cores of one node kept busy."""


@dataclass(frozen=True, slots=True)
class Network:
    """One line rate for every storage port of a node."""

    gbps: int
    first: float | None
    """Utilisation by the GPUs' demand in the first epoch; above 1 the network is too small."""
    later: float | None
    fits_first: bool | None
    fits_later: bool | None
    job_s: float | None
    """Duration of the longest training job with this network, all epochs."""


@dataclass(frozen=True, slots=True)
class Units:
    """Storage units that the demand needs, by each of their limits."""

    by_bandwidth: float | None
    by_measured_bandwidth: float | None
    by_requests: float | None
    by_opens: float | None
    by_ports: float | None
    by_capacity: float | None

    @property
    def needed(self) -> int | None:
        """Units by the specified figures, the maximum over all known limits; None if bandwidth is unknown."""
        return self._most(self.by_bandwidth)

    @property
    def needed_as_measured(self) -> int | None:
        """The same with the measured bandwidth of a unit."""
        return self._most(self.by_measured_bandwidth)

    def _most(self, by_bandwidth: float | None) -> int | None:
        if by_bandwidth is None:
            return None
        limits = (by_bandwidth, self.by_requests, self.by_opens, self.by_ports, self.by_capacity)
        return max(1, *(up(k) for k in limits if k is not None))


@dataclass(frozen=True, slots=True)
class Edge:
    """Little's law between the nodes and the storage: reads in flight = reads a second × time of one."""

    requests_per_s: float | None
    utilisation: float | None
    """Share of the storage's read rate."""
    service_per_s: float | None
    """Maximum reads/s of the storage."""
    latency_s: float | None
    """Latency of one read at this load."""
    latency_assumed: bool
    """The latency under load is the architecture's; otherwise it is M/M/1 from the unloaded one."""
    outstanding: float | None
    knee: float | None
    """Reads in flight at twice the unloaded latency: the maximum reads/s × the unloaded latency."""
    available: float | None
    """Slots of all nodes' connections."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Content of the caches for one tenant."""

    tenant: str
    dataset: float | None
    held: float | None
    """All nodes' and the storage's caches together, bytes."""
    ratio: float | None
    """Data set over all caches."""
    client_hit: float | None
    server_hit: float | None
    disk_read: float | None
    """B/s that the storage reads from its disks with full caches."""
    fill_s: float | None
    """Time until a node's own caches are full."""


@dataclass(frozen=True, slots=True)
class Job:
    """Time of one tenant's training job."""

    tenant: str
    first_s: float | None
    """First epoch."""
    later_s: float | None
    """Every epoch after it."""
    total_s: float | None
    first_share: float | None
    """Share of the whole job."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    tenant: str
    stall_s: float | None
    share: float | None
    """Share of the time between two checkpoints."""
    missing: tuple[str, ...]


def demand(inputs: Inputs, tenant: Tenant) -> Demand:
    system = inputs.system
    per_node = product(system.gpus_per_node, tenant.rate_per_gpu, system.ceilings.gpu)
    bytes_per_node = product(per_node, tenant.sample_size)
    nodes = tenant.share * system.nodes
    return Demand(
        tenant.name,
        product(per_node, nodes),
        product(bytes_per_node, nodes),
        bytes_per_node,
        product(per_node, tenant.cpu_time_per_sample),
    )


def node_demand(inputs: Inputs, phase: Phase) -> float | None:
    """B/s from the storage to a node of the busiest tenant."""
    tenants = zip(inputs.tenants, phase.flows, strict=True)
    demands = [product(demand(inputs, tenant).node_bytes_per_s, 1 - flow.hit) for tenant, flow in tenants]
    known = [d for d in demands if d is not None]
    return max(known) if len(known) == len(demands) else None


def networks(inputs: Inputs, phases: tuple[Phase, Phase | None], timed: bool = True) -> tuple[Network, ...]:
    """Every line rate with its utilisation and, if ``timed``, the job's time."""
    first, later = phases
    needs = node_demand(inputs, first), node_demand(inputs, later) if later else None
    system, candidates = inputs.system, []
    for gbps in NETWORKS:
        bandwidth = system.storage_ports * gbps * _GBPS * system.port_efficiency
        load = [None if need is None else need / bandwidth for need in needs]
        fits = [None if u is None else u <= system.ceilings.network * (1 + _ROUNDING) for u in load]
        time = _job_time(inputs.replaced("port_rate", gbps * _GBPS)) if timed else None
        candidates.append(Network(gbps, load[0], load[1], fits[0], fits[1], time))
    return tuple(candidates)


def _job_time(inputs: Inputs) -> float | None:
    """Duration of the longest job, in seconds."""
    later = later_epochs(inputs)
    times = [job.total_s for job in jobs(inputs, (first_epoch(inputs), later if isinstance(later, Phase) else None))]
    return max((t for t in times if t is not None), default=None)


def smallest(candidates: tuple[Network, ...], later: bool = False) -> int | None:
    """Gb/s of the smallest sufficient network; None without one, or if it is unknown."""
    return next((n.gbps for n in candidates if (n.fits_later if later else n.fits_first)), None)


def units(inputs: Inputs, phase: Phase) -> Units:
    """Number of units for the GPUs' demand in this phase."""
    unit, ceilings, system = inputs.system.unit, inputs.system.ceilings, inputs.system
    samples = [demand(inputs, t).samples_per_s for t in inputs.tenants]
    hits = [flow.hit for flow in phase.flows]

    def rate_of(costs: list[float | None]) -> float | None:
        return total(product(n, cost, 1 - hit) for n, cost, hit in zip(samples, costs, hits, strict=True))

    read = rate_of([t.sample_size for t in inputs.tenants])
    requests = rate_of([t.requests_per_sample for t in inputs.tenants])
    datasets = [t.dataset for t in inputs.tenants if t.dataset is not None]
    return Units(
        _over(read, unit.read, ceilings.storage),
        _over(read, unit.read_measured, ceilings.storage),
        _over(requests, unit.read_iops, ceilings.storage),
        _over(rate_of([t.files_per_sample for t in inputs.tenants]), unit.opens, ceilings.storage),
        _over(read, product(unit.ports, unit.port_rate), ceilings.network * system.port_efficiency),
        _over(sum(datasets) if datasets else None, unit.capacity, 1.0),
    )


def nodes_supported(inputs: Inputs, phase: Phase, measured: bool = False) -> int | None:
    """Nodes of this kind, in this proportion, that the storage feeds at full GPU speed; None if unknown.

    ``measured`` uses the measured bandwidth of a unit instead of the specified one.
    """
    needed = units(inputs, phase)
    by_bandwidth = needed.by_measured_bandwidth if measured else needed.by_bandwidth
    parts = [k / inputs.system.unit.count for k in (by_bandwidth, needed.by_requests, needed.by_ports) if k is not None]
    if by_bandwidth is None or not max(parts) > 0:
        return None
    return math.floor(inputs.system.nodes / max(parts) * (1 + _ROUNDING))


def connections_needed(inputs: Inputs, phase: Phase) -> float | None:
    """Connections of the busiest node, not rounded."""
    return _over(node_demand(inputs, phase), inputs.system.connection_rate, 1.0)


def edge(inputs: Inputs, phase: Phase) -> Edge:
    """Reads in flight in this phase."""
    system, unit = inputs.system, inputs.system.unit
    requests, read = phase.requests, phase.storage_read
    size = read / requests if read and requests else None
    service = service_rate(inputs, size)
    used = None if requests is None or service is None else requests / service
    assumed = unit.loaded_latency is not None
    latency = unit.loaded_latency
    if not assumed and unit.unloaded_latency is not None and used is not None and used < 1:
        latency = unit.unloaded_latency / (1 - used)
    return Edge(
        requests,
        used,
        service,
        latency,
        assumed,
        product(requests, latency),
        product(service, unit.unloaded_latency),
        product(system.nodes, system.connections, system.connection_slots),
    )


def prefetch(inputs: Inputs, tenant: Tenant, latency: float | None) -> float | None:
    """Samples in flight for one GPU: its rate × the time of one sample from disk to GPU."""
    requests, rate = tenant.requests_per_sample, tenant.rate_per_gpu
    if latency is None or requests is None or rate is None:
        return None
    return rate * (math.ceil(requests - _ROUNDING) * latency + (tenant.cpu_time_per_sample or 0.0))


def cache(inputs: Inputs, tenant: Tenant, phase: Phase, later: Phase | None = None) -> Cache:
    """``phase`` is the first epoch: the caches fill at its pace."""
    system, unit = inputs.system, inputs.system.unit
    dataset = tenant.dataset
    per_node = None if system.client_cache is None else system.client_cache + (system.local_tier or 0.0)
    server = product(unit.count, unit.cache)
    nodes = tenant.share * system.nodes
    held = None if per_node is None else nodes * per_node + (server or 0.0)
    flow = next(f for f in phase.flows if f.tenant == tenant.name)
    fill = None
    if dataset is not None and per_node is not None and flow.storage_read:
        fill = min(system.share_of_dataset * dataset, per_node) / (flow.storage_read / nodes)
    hit = None if dataset is None or server is None else min(1.0, server / dataset)
    later_read = next((f.storage_read for f in later.flows if f.tenant == tenant.name), None) if later else None
    return Cache(
        tenant.name,
        dataset,
        held,
        None if dataset is None or held is None else dataset / held,
        residency(inputs, tenant),
        hit,
        None if hit is None else product(later_read, 1 - hit),
        fill,
    )


def jobs(inputs: Inputs, phases: tuple[Phase, Phase | None]) -> tuple[Job, ...]:
    """Time of every tenant's training; in each epoch all nodes of the tenant together read the data set once."""
    times = []
    for i, tenant in enumerate(inputs.tenants):
        ingest = [phase.flows[i].ingest if phase else None for phase in phases]
        first, later = (tenant.dataset / rate if rate and tenant.dataset is not None else None for rate in ingest)
        total_s = None
        if first is not None and tenant.epochs == 1:
            total_s = first
        elif first is not None and later is not None and tenant.epochs is not None:
            total_s = first + (tenant.epochs - 1) * later
        times.append(Job(tenant.name, first, later, total_s, first / total_s if first and total_s else None))
    return tuple(times)


def checkpoint(inputs: Inputs, tenant: Tenant) -> Checkpoint:
    """Time that a checkpoint stops the job, at the write rate of the storage or of the nodes' ports."""
    system, unit = inputs.system, inputs.system.unit
    names = {inputs.name_of(tenant, "checkpoint"): tenant.checkpoint, "unit.write": unit.write}
    missing = tuple(inputs.lacking(name) for name, value in names.items() if value is None)
    if tenant.checkpoint is None or unit.write is None:
        return Checkpoint(tenant.name, None, None, missing)
    pace = unit.count * unit.write
    if system.node_bandwidth is not None:
        pace = min(pace, tenant.share * system.nodes * system.node_bandwidth)
    stall, interval = tenant.checkpoint / pace, tenant.checkpoint_interval
    return Checkpoint(tenant.name, stall, None if interval is None else stall / interval, ())


def up(count: float) -> int:
    """``count`` rounded up, with a tolerance."""
    return math.ceil(count * (1 - _ROUNDING))


def _over(amount: float | None, per_unit: float | None, ceiling: float) -> float | None:
    return None if amount is None or per_unit is None else amount / (per_unit * ceiling)
