"""Throughput of a rack as the minimum over its stages, with cold and with full caches.

A sample passes through all stages from disk to GPU, so the slowest stage is the bottleneck. Stages inside the nodes
belong to one tenant, which has its own nodes; all tenants share the storage, and slow down equally if it is too small.
A stage without figures is listed as unknown and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.values import Tenant

_BINDING = 1 - 1e-9
"""A stage at this share of its ceiling counts as at its ceiling."""


class StageName(StrEnum):
    GPU = "gpu"
    CPU = "cpu"
    NETWORK = "network"
    CONNECTIONS = "connections"
    OUTSTANDING = "outstanding_reads"
    STORAGE_PORTS = "storage_ports"
    BANDWIDTH = "storage_bandwidth"
    REQUESTS = "storage_requests"
    OPENS = "storage_opens"


TITLES: dict[StageName, str] = {
    StageName.GPU: "GPUs",
    StageName.CPU: "CPU cores",
    StageName.NETWORK: "network of a node",
    StageName.CONNECTIONS: "storage connections",
    StageName.OUTSTANDING: "reads in flight",
    StageName.STORAGE_PORTS: "ports of the storage",
    StageName.BANDWIDTH: "storage bandwidth",
    StageName.REQUESTS: "storage reads/s",
    StageName.OPENS: "storage opens/s",
}

RUN_STAGES: dict[StageName, str] = {
    StageName.GPU: "accelerator",
    StageName.CPU: "decode",
    StageName.NETWORK: "network",
    StageName.STORAGE_PORTS: "network",
    StageName.BANDWIDTH: "storage",
}
"""Stages that an ingest run can name, by its own word (``bound_by``): a full port, of either end, is the network."""

SINGULAR = frozenset({StageName.NETWORK, StageName.BANDWIDTH})
"""Titles in the singular, for verbs."""
SHARED = frozenset({StageName.STORAGE_PORTS, StageName.BANDWIDTH, StageName.REQUESTS, StageName.OPENS})


class PhaseName(StrEnum):
    FIRST = "first epoch"
    LATER = "later epochs"


@dataclass(frozen=True, slots=True)
class Stage:
    """Capacity of one stage."""

    name: StageName
    ceiling: float
    """Maximum utilisation for planning."""
    tenant: str | None = None
    """Tenant of the stage. None: all tenants share it."""
    capacity: float | None = None
    """Samples a second at 100 % utilisation; of a shared stage in the tenants' proportions."""
    utilisation: float | None = None
    """Share of the capacity, without its ceiling, at the throughput of the phase."""
    missing: tuple[str, ...] = ()
    """Why its capacity is unknown."""
    unused: str | None = None
    """Why nothing passes through it."""

    @property
    def key(self) -> str:
        """``gpu``; ``resnet50.gpu`` if several tenants have the stage."""
        return self.name.value if self.tenant is None else f"{self.tenant}.{self.name.value}"

    @property
    def planned(self) -> float | None:
        """Samples a second at its ceiling."""
        return None if self.capacity is None else self.capacity * self.ceiling

    @property
    def pressure(self) -> float | None:
        """Utilisation over the ceiling; 1 for a binding stage."""
        return None if self.utilisation is None else self.utilisation / self.ceiling


@dataclass(frozen=True, slots=True)
class Flow:
    """Throughput of one tenant in one phase."""

    tenant: str
    hit: float
    """Share of its bytes that come from its nodes' own caches."""
    samples_per_s: float | None
    ingest: float | None
    """B/s that reach the GPUs."""
    storage_read: float | None
    """B/s that come from the storage."""
    requests: float | None
    """Reads a second at the storage."""


@dataclass(frozen=True, slots=True)
class Phase:
    name: PhaseName
    samples_per_s: float | None
    flows: tuple[Flow, ...]
    stages: tuple[Stage, ...]
    """Stages in their order from the GPU to the storage."""

    @property
    def binding(self) -> tuple[Stage, ...]:
        """The stages at their ceiling; none without known stages."""
        return tuple(s for s in self.stages if (s.pressure or 0.0) >= _BINDING)

    @property
    def unknown(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages if s.missing)

    @property
    def by_pressure(self) -> tuple[Stage, ...]:
        """The known stages, the highest pressure first."""
        return tuple(sorted((s for s in self.stages if s.pressure is not None), key=lambda s: -(s.pressure or 0.0)))

    @property
    def storage_read(self) -> float | None:
        return total(f.storage_read for f in self.flows)

    @property
    def requests(self) -> float | None:
        return total(f.requests for f in self.flows)


def first_epoch(inputs: Inputs) -> Phase:
    """With every cache cold."""
    return _phase(PhaseName.FIRST, inputs, [0.0] * len(inputs.tenants))


def later_epochs(inputs: Inputs) -> Phase | tuple[str, ...]:
    """The phase with full node caches; or the inputs missing to compute what they hold."""
    missing = residency_missing(inputs)
    if missing:
        return missing
    return _phase(PhaseName.LATER, inputs, [hit for t in inputs.tenants if (hit := residency(inputs, t)) is not None])


def residency(inputs: Inputs, tenant: Tenant) -> float | None:
    """Share of the data read by one node that its own caches hold."""
    system = inputs.system
    if tenant.dataset is None or system.client_cache is None:
        return None
    touched = system.share_of_dataset * tenant.dataset
    return min(1.0, (system.client_cache + (system.local_tier or 0.0)) / touched)


def residency_missing(inputs: Inputs) -> tuple[str, ...]:
    """Missing inputs for the content of the caches. Without a local tier in the file there is none."""
    names = ["client_cache"] if inputs.system.client_cache is None else []
    if inputs.system.local_tier is None and not inputs.origins["local_tier"].absent:
        names.append("local_tier")
    names += [inputs.name_of(t, "dataset") for t in inputs.tenants if t.dataset is None]
    return tuple(inputs.lacking(name) for name in names)


def product(*factors: float | None) -> float | None:
    """The product; None where a factor is unknown."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is unknown."""
    listed = list(values)
    known = [v for v in listed if v is not None]
    return sum(known) if len(known) == len(listed) else None


def service_rate(inputs: Inputs, request_bytes: float | None) -> float | None:
    """Reads of ``request_bytes`` a second that the whole storage can answer."""
    unit = inputs.system.unit
    by_bytes = None if unit.read is None or request_bytes is None else unit.read / request_bytes
    known = [rate for rate in (by_bytes, unit.read_iops) if rate is not None]
    return unit.count * min(known) if known else None


def _phase(name: PhaseName, inputs: Inputs, hits: Sequence[float]) -> Phase:
    own = [_own_stages(inputs, t, hit) for t, hit in zip(inputs.tenants, hits, strict=True)]
    limits = [_least(stages) for stages in own]
    weights = _weights(limits)
    shared = _shared_stages(inputs, hits, weights)
    limits_known = [total(limits), _least(shared)]
    if len(inputs.tenants) > 1 and limits_known[0] is None:
        rate = None  # the tenants' proportion is unknown
    else:
        rate = min((r for r in limits_known if r is not None), default=None)
    rates = [None if rate is None or weights is None else w * rate for w in weights or [1.0] * len(own)]
    flows = tuple(_flow(t, hit, r) for t, hit, r in zip(inputs.tenants, hits, rates, strict=True))
    stages = [_used(s, r) for stages, r in zip(own, rates, strict=True) for s in stages]
    return Phase(name, rate, flows, (*stages, *(_used(s, rate) for s in shared)))


def _own_stages(inputs: Inputs, tenant: Tenant, hit: float) -> list[Stage]:
    """Stages inside the nodes of one tenant."""
    system, ceilings = inputs.system, inputs.system.ceilings
    nodes = tenant.share * system.nodes
    label = tenant.name if len(inputs.tenants) > 1 else None

    def stage(name: StageName, ceiling: float, needs: dict[str, float | None], cached: bool = False) -> Stage:
        """A stage with capacity 0 until it is computed, unless inputs are missing or nothing passes."""
        if cached and hit >= 1:
            return Stage(name, ceiling, label, unused="everything comes from the nodes' own caches")
        missing = tuple(inputs.lacking(n) for n, value in needs.items() if value is None)
        return Stage(name, ceiling, label, None if missing else 0.0, missing=missing)

    def named(key: str) -> str:
        return inputs.name_of(tenant, key)

    rate, size, core_time = tenant.rate_per_gpu, tenant.sample_size, tenant.cpu_time_per_sample
    per_sample = None if size is None else size * (1 - hit)
    stages = []

    s = stage(StageName.GPU, ceilings.gpu, {named("rate_per_gpu"): rate})
    stages.append(s if rate is None else replace(s, capacity=nodes * system.gpus_per_node * rate))

    s = stage(
        StageName.CPU,
        ceilings.cpu,
        {"cores_per_node": system.cores_per_node, named("cpu_time_per_sample"): core_time},
    )
    if system.cores_per_node is not None and core_time is not None:
        s = replace(s, capacity=nodes * system.cores_per_node / core_time)
    stages.append(s)

    s = stage(StageName.NETWORK, ceilings.network, {"port_rate": system.port_rate, named("sample_size"): size}, True)
    if system.node_bandwidth is not None and per_sample:
        s = replace(s, capacity=nodes * system.node_bandwidth / per_sample)
    stages.append(s)

    connections, per_connection = system.connections, system.connection_rate
    needs = {"connections_per_node": connections, "connection_rate": per_connection, named("sample_size"): size}
    s = stage(StageName.CONNECTIONS, 1.0, needs, True)
    if connections is not None and per_connection is not None and per_sample:
        s = replace(s, capacity=nodes * connections * per_connection / per_sample)
    stages.append(s)
    stages.append(_outstanding(inputs, tenant, hit, stage))
    return stages


def _outstanding(inputs: Inputs, tenant: Tenant, hit: float, stage: Callable[..., Stage]) -> Stage:
    """Little's law for the clients: reads/s are at most slots over the time of one read."""
    system, unit = inputs.system, inputs.system.unit
    connections, slots, requests = system.connections, system.connection_slots, tenant.requests_per_sample
    service = service_rate(inputs, tenant.sample_size / requests if tenant.sample_size and requests else None)
    latency = unit.loaded_latency if unit.loaded_latency is not None else unit.unloaded_latency
    needs = {
        "connections_per_node": connections,
        "connection_slots": slots,
        "unit.unloaded_latency": latency,
        "unit.read": service,
        inputs.name_of(tenant, "sample_size"): tenant.sample_size,
        inputs.name_of(tenant, "read_size"): tenant.read_size,
    }
    s = stage(StageName.OUTSTANDING, 1.0, needs, True)
    if connections is None or slots is None or latency is None or service is None or requests is None or hit >= 1:
        return s
    available = tenant.share * system.nodes * connections * slots
    # Where only the unloaded latency is known, waiting grows with the load as in M/M/1, solved here.
    waiting = 0.0 if unit.loaded_latency is not None else available / service
    return replace(s, capacity=available / (latency + waiting) / (requests * (1 - hit)))


def _shared_stages(inputs: Inputs, hits: Sequence[float], weights: Sequence[float] | None) -> list[Stage]:
    """Stages of the storage, in samples of the tenants' mix."""
    unit, ceilings = inputs.system.unit, inputs.system.ceilings
    tenants = inputs.tenants
    sizes = [t.sample_size for t in tenants]
    requests = [t.requests_per_sample for t in tenants]
    files = [t.files_per_sample for t in tenants]
    ports = product(unit.ports, unit.port_rate, inputs.system.port_efficiency)
    proportions = () if weights else tuple(f"the rate of {t.name} by itself is unknown" for t in tenants)
    stages: tuple[tuple[StageName, float, float | None, list[float | None], list[str], list[str]], ...] = (
        (StageName.STORAGE_PORTS, ceilings.network, ports, sizes, ["unit.ports", "unit.port_rate"], ["sample_size"]),
        (StageName.BANDWIDTH, ceilings.storage, unit.read, sizes, ["unit.read"], ["sample_size"]),
        (StageName.REQUESTS, ceilings.storage, unit.read_iops, requests, ["unit.read_iops"],
         ["sample_size", "read_size"]),
        (StageName.OPENS, ceilings.storage, unit.opens, files, ["unit.opens"], ["files_per_sample"]),
    )  # fmt: skip
    shared = []
    for name, ceiling, per_unit, costs, system_keys, tenant_keys in stages:
        keys = [*system_keys, *(inputs.name_of(t, key) for t in tenants for key in tenant_keys)]
        missing = tuple(inputs.lacking(key) for key in keys if inputs.value(key) is None)
        if all(hit >= 1 for hit in hits):
            shared.append(Stage(name, ceiling, unused="everything comes from the nodes' own caches"))
        elif missing or proportions or per_unit is None or weights is None:
            shared.append(Stage(name, ceiling, missing=missing or proportions))
        else:
            cost = sum(w * c * (1 - h) for w, c, h in zip(weights, costs, hits, strict=True) if c is not None)
            shared.append(Stage(name, ceiling, capacity=unit.count * per_unit / cost))
    return shared


def _weights(limits: Sequence[float | None]) -> list[float] | None:
    """Each tenant's share of the samples: its rate alone over the sum of all; None if a rate is unknown."""
    if len(limits) == 1:
        return [1.0]
    together = total(limits)
    return None if together is None else [limit / together for limit in limits if limit is not None]


def _least(stages: Iterable[Stage]) -> float | None:
    return min((s.planned for s in stages if s.planned is not None), default=None)


def _used(stage: Stage, rate: float | None) -> Stage:
    if stage.capacity is None or rate is None:
        return stage
    return Stage(stage.name, stage.ceiling, stage.tenant, stage.capacity, rate / stage.capacity)


def _flow(tenant: Tenant, hit: float, rate: float | None) -> Flow:
    ingest = product(rate, tenant.sample_size)
    missed = 1 - hit
    return Flow(
        tenant.name, hit, rate, ingest, product(ingest, missed), product(rate, tenant.requests_per_sample, missed)
    )
