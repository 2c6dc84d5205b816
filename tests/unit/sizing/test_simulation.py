"""The closed-form model beside a discrete-event simulation of the same rack, where the two must agree.

The simulation knows nothing of stages: GPUs take samples out of a prefetch queue, loaders fetch them over a connection
and a link from a storage that serves one read at a time at its own rate, and processors decode them.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
import simpy

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import StageName, first_epoch
from rackproof.core.sizing.planning import edge
from tests.unit.sizing.cases import case

pytestmark = pytest.mark.few(1)

SEED = 20
LOADERS_PER_GPU = 48
PREFETCH = 16

SMALL = (
    "nodes=2", "gpus_per_node=2", "cores_per_node=4", "sample_size=1MB", "read_size=1MB", "rate_per_gpu=100",
    "cpu_time_per_sample=2ms", "port_rate=10Gb/s", "port_efficiency=1", "connections_per_node=4", "connections_used=4",
    "connection_rate=1GB/s", "unit.count=1", "unit.read=1GB/s", "unit.read_iops=1e6", "unit.ports=8",
    "ceilings.cpu=1", "ceilings.network=1", "ceilings.storage=1", "unit.loaded_latency=unknown",
    "unit.unloaded_latency=1ms",
)  # fmt: skip


class Rack:
    """One tenant's nodes and the storage, in simulated seconds. Ceilings are not the machine's, so it knows none."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.tenant = inputs, inputs.tenants[0]
        self.env = simpy.Environment()
        self.storage = simpy.Resource(self.env, capacity=1)
        self.consumed = 0

    def samples_per_s(self, warm: float = 2.0, timed: float = 8.0) -> float:
        system = self.inputs.system
        for _ in range(int(system.nodes)):
            link = simpy.Resource(self.env, capacity=1)
            cores = simpy.Resource(self.env, capacity=int(system.cores_per_node or 1))
            connections = simpy.Resource(self.env, capacity=int(system.connections or 1))
            for _ in range(int(system.gpus_per_node)):
                queue = simpy.Store(self.env, capacity=PREFETCH)
                for _ in range(LOADERS_PER_GPU):
                    self.env.process(self._loader(queue, link, cores, connections))
                self.env.process(self._gpu(queue))
        self.env.run(until=warm)
        before = self.consumed
        self.env.run(until=warm + timed)
        return (self.consumed - before) / timed

    def _gpu(self, queue: simpy.Store) -> Generator[Any, Any, None]:
        rate = self.tenant.rate_per_gpu or 1.0
        while True:
            yield queue.get()
            yield self.env.timeout(1 / rate)
            self.consumed += 1

    def _loader(
        self, queue: simpy.Store, link: simpy.Resource, cores: simpy.Resource, connections: simpy.Resource
    ) -> Generator[Any, Any, None]:
        system, size = self.inputs.system, self.tenant.sample_size or 1.0
        while True:
            with self.storage.request() as turn:
                yield turn
                yield self.env.timeout(size / (system.unit.count * (system.unit.read or 1.0)))
            with connections.request() as turn:
                yield turn
                yield self.env.timeout(size / (system.connection_rate or 1.0))
            with link.request() as turn:
                yield turn
                yield self.env.timeout(size / (system.node_bandwidth or 1.0))
            with cores.request() as turn:
                yield turn
                yield self.env.timeout(self.tenant.cpu_time_per_sample or 0.0)
            yield queue.put(None)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("settings", "stage"),
    [
        ((), StageName.GPU),
        (("cpu_time_per_sample=40ms",), StageName.CPU),
        (("port_rate=1Gb/s",), StageName.NETWORK),
        (("connection_rate=20MB/s",), StageName.CONNECTIONS),
        (("unit.read=150MB/s",), StageName.BANDWIDTH),
        (("unit.read=150MB/s", "unit.count=2"), StageName.BANDWIDTH),
        (("rate_per_gpu=178", "cpu_time_per_sample=14ms"), StageName.CPU),
        (("nodes=4", "unit.read=300MB/s"), StageName.BANDWIDTH),
    ],
)
def test_each_stage_in_turn_sets_the_pace_that_the_model_predicts(settings: tuple[str, ...], stage: StageName) -> None:
    inputs = case("resnet50", settings=(*SMALL, *settings))
    phase = first_epoch(inputs)
    assert [s.name for s in phase.binding] == [stage]
    assert Rack(inputs).samples_per_s() == pytest.approx(phase.samples_per_s, rel=0.02)


class Storage:
    """Reads that arrive at random and wait for one server: what M/M/1 describes."""

    def __init__(self, service_per_s: float) -> None:
        self.env = simpy.Environment()
        self.server = simpy.Resource(self.env, capacity=1)
        self.service_per_s = service_per_s
        self.random = random.Random(SEED)  # noqa: S311 - repeatable arrivals
        self.latencies: list[float] = []

    def open_loop(self, rate: float, reads: int) -> float:
        """Mean latency in seconds."""

        def arrivals() -> Generator[Any, Any, None]:
            for _ in range(reads):
                yield self.env.timeout(self.random.expovariate(rate))
                self.env.process(self._read())

        self.env.process(arrivals())
        self.env.run()
        return sum(self.latencies) / len(self.latencies)

    def closed_loop(self, outstanding: int, seconds: float) -> tuple[float, float]:
        """Reads a second and mean latency with so many always in flight."""

        def client() -> Generator[Any, Any, None]:
            while True:
                yield self.env.process(self._read())

        for _ in range(outstanding):
            self.env.process(client())
        self.env.run(until=seconds)
        return len(self.latencies) / seconds, sum(self.latencies) / len(self.latencies)

    def _read(self) -> Generator[Any, Any, None]:
        asked = self.env.now
        with self.server.request() as turn:
            yield turn
            yield self.env.timeout(self.random.expovariate(self.service_per_s))
        self.latencies.append(self.env.now - asked)


@pytest.mark.few(1)
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_latency_grows_with_the_load_as_the_model_says(load: float) -> None:
    # one server that answers 1000 reads/s takes 1 ms for each
    inputs = case("resnet50", settings=(*SMALL, f"rate_per_gpu={load * 1000 / 4}"))
    at_storage = edge(inputs, first_epoch(inputs))
    assert at_storage.utilisation == pytest.approx(load)
    assert at_storage.latency_s == pytest.approx(1e-3 / (1 - load))
    assert Storage(1000).open_loop(load * 1000, 60_000) == pytest.approx(at_storage.latency_s, rel=0.1)


@pytest.mark.parametrize("outstanding", [4, 16])
def test_beyond_the_knee_more_in_flight_only_waits_longer(outstanding: int) -> None:
    inputs = case("resnet50", settings=SMALL)
    load = edge(inputs, first_epoch(inputs))
    assert load.knee == pytest.approx(1)
    rate, latency = Storage(1000).closed_loop(outstanding, 20)
    assert rate == pytest.approx(load.service_per_s, rel=0.05)
    assert latency == pytest.approx(outstanding / (load.service_per_s or 1), rel=0.05)
    assert rate * latency == pytest.approx(outstanding, rel=0.05)


SLOTS = (
    "rate_per_gpu=1000", "cpu_time_per_sample=0.1ms", "connection_rate=9GB/s", "port_rate=400Gb/s",
    "connections_per_node=1", "connections_used=1",
)  # fmt: skip


@pytest.mark.parametrize("slots", [2, 8])
def test_few_slots_hold_the_clients_back_and_the_model_errs_on_the_safe_side(slots: int) -> None:
    inputs = case("resnet50", settings=(*SMALL, *SLOTS, f"connection_slots={slots}"))
    phase = first_epoch(inputs)
    assert [s.name for s in phase.binding] == [StageName.OUTSTANDING]
    assert edge(inputs, phase).outstanding == pytest.approx(2 * slots)
    rate, _ = Storage(1000).closed_loop(2 * slots, 20)
    assert phase.samples_per_s is not None
    assert 0.75 * rate <= phase.samples_per_s <= rate
