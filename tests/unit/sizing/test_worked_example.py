"""Nine DGX-1 on an F800, as published: every figure of the worked example within 1 %, rounded ones to their digits."""

from __future__ import annotations

import pytest

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import Phase, StageName, first_epoch, later_epochs
from rackproof.core.sizing.planning import (
    cache,
    checkpoint,
    connections_needed,
    demand,
    edge,
    jobs,
    networks,
    nodes_supported,
    prefetch,
    smallest,
    units,
)
from rackproof.core.sizing.view import View
from tests.unit.sizing.cases import UNET3D_H100, case

WITHIN = 0.01


def used(phase: Phase, name: StageName) -> float:
    (stage,) = [s for s in phase.stages if s.name is name]
    assert stage.utilisation is not None
    return stage.utilisation


def network_percent(inputs: Inputs) -> dict[int, int]:
    return {n.gbps: round(100 * (n.first or 0)) for n in networks(inputs, (first_epoch(inputs), None))}


def test_small_images_5907_mb_a_second_are_51297_images_a_second() -> None:
    phase = first_epoch(case("resnet50"))
    assert phase.storage_read == pytest.approx(5907e6, rel=WITHIN)
    assert phase.samples_per_s == pytest.approx(51_297, rel=WITHIN)
    assert phase.samples_per_s / 72 == pytest.approx(712.5, rel=WITHIN)
    assert phase.samples_per_s / 9 == pytest.approx(5_700, rel=WITHIN)


def test_large_images_19895_mb_a_second_are_14727_images_a_second() -> None:
    phase = first_epoch(case("inception4-large"))
    assert phase.storage_read == pytest.approx(19_895e6, rel=WITHIN)
    assert phase.samples_per_s == pytest.approx(14_727, rel=WITHIN)
    assert phase.samples_per_s / 72 == pytest.approx(204.5, rel=WITHIN)
    assert phase.samples_per_s / 9 == pytest.approx(1_636, rel=WITHIN)


@pytest.mark.parametrize(
    ("workload", "bytes_per_s", "gbps"), [("resnet50", 656e6, 5.25), ("inception4-large", 2211e6, 17.68)]
)
def test_demand_of_one_dgx1(workload: str, bytes_per_s: float, gbps: float) -> None:
    inputs = case(workload)
    asked = demand(inputs, inputs.tenants[0])
    assert asked.node_bytes_per_s == pytest.approx(bytes_per_s, rel=WITHIN)
    assert asked.node_bytes_per_s * 8 / 1e9 == pytest.approx(gbps, rel=WITHIN)


@pytest.mark.parametrize(
    ("workload", "bytes_per_s", "gbps", "percent"),
    [("resnet50", 738e6, 5.9, 7), ("inception4-large", 2487e6, 19.9, 25)],
)
def test_load_of_one_f800_node(workload: str, bytes_per_s: float, gbps: float, percent: int) -> None:
    inputs = case(workload)
    phase, unit = first_epoch(inputs), inputs.system.unit
    per_node = (phase.storage_read or 0) / (unit.count * unit.nodes)
    assert per_node == pytest.approx(bytes_per_s, rel=WITHIN)
    assert per_node * 8 / 1e9 == pytest.approx(gbps, rel=WITHIN)
    # the published share is of the line rate; the stage counts what reaches an application
    assert round(100 * used(phase, StageName.STORAGE_PORTS) * inputs.system.port_efficiency) == percent


@pytest.mark.parametrize(("utilisation", "workload"), [(0.97, "resnet50"), (0.98, "inception4-large")])
def test_gpus_that_are_97_or_98_percent_busy(utilisation: float, workload: str) -> None:
    rate = case(workload).tenants[0].rate_per_gpu or 0
    inputs = case(workload, settings=(f"rate_per_gpu={rate / utilisation}", f"ceilings.gpu={utilisation}"))
    phase = first_epoch(inputs)
    assert used(phase, StageName.GPU) == pytest.approx(utilisation, rel=WITHIN)
    assert phase.samples_per_s == pytest.approx(first_epoch(case(workload)).samples_per_s, rel=WITHIN)


@pytest.mark.parametrize(
    ("workload", "percent", "ceiling"), [("resnet50", 46, 12_390), ("inception4-large", 84, 1_948)]
)
def test_processors(workload: str, percent: int, ceiling: float) -> None:
    inputs = case(workload)
    phase = first_epoch(inputs)
    (cpu,) = [s for s in phase.stages if s.name is StageName.CPU]
    assert round(100 * (cpu.utilisation or 0)) == percent
    assert (cpu.capacity or 0) / 9 == pytest.approx(ceiling, rel=WITHIN)


def test_ten_gigabit_is_enough_for_small_images_and_impossible_for_large_ones() -> None:
    small, large = case("resnet50"), case("inception4-large")
    loads = network_percent(small), network_percent(large)
    assert [loads[0][gbps] for gbps in (10, 25, 40, 100)] == [56, 22, 14, 6]
    assert [loads[1][gbps] for gbps in (10, 25, 40, 100)] == [188, 75, 47, 19]
    assert smallest(networks(small, (first_epoch(small), None))) == 10
    assert smallest(networks(large, (first_epoch(large), None))) == 40


@pytest.mark.parametrize(("workload", "needed", "share"), [("resnet50", 1, 0.42), ("inception4-large", 2, 0.71)])
def test_connections(workload: str, needed: int, share: float) -> None:
    exact = connections_needed(case(workload), first_epoch(case(workload)))
    assert exact is not None
    assert (1 if exact <= 1 else 2) == needed
    assert (exact if exact <= 1 else 1 / exact) == pytest.approx(share, abs=0.005)
    assert exact <= needed


def test_eight_mounts_carry_276_mb_a_second_each() -> None:
    inputs = case("inception4-large")
    per_node = demand(inputs, inputs.tenants[0]).node_bytes_per_s
    assert inputs.system.connections == 8
    assert (per_node or 0) / 8 == pytest.approx(276e6, rel=WITHIN)


@pytest.mark.parametrize(
    ("workload", "exact", "specified", "exact_measured", "measured"),
    [("resnet50", 0.56, 1, 0.703, 1), ("inception4-large", 1.89, 2, 2.37, 3)],
)
def test_chassis(workload: str, exact: float, specified: int, exact_measured: float, measured: int) -> None:
    needed = units(case(workload), first_epoch(case(workload)))
    assert needed.by_bandwidth == pytest.approx(exact, rel=WITHIN)
    assert needed.needed == specified
    assert needed.by_measured_bandwidth == pytest.approx(exact_measured, rel=WITHIN)
    assert needed.needed_as_measured == measured


def test_two_chassis_of_four_nodes_are_the_eight_that_were_tested() -> None:
    inputs = case("inception4-large")
    needed = units(inputs, first_epoch(inputs)).needed or 0
    assert needed * inputs.system.unit.nodes == 8
    assert nodes_supported(inputs, first_epoch(inputs)) == 9


@pytest.mark.parametrize(
    ("workload", "read", "percent"),
    [("resnet50", "15GB/s", 20), ("resnet50", "12GB/s", 25), ("inception4-large", "15GB/s", 66),
     ("inception4-large", "12GB/s", 83)],
)  # fmt: skip
def test_two_chassis_are_used(workload: str, read: str, percent: int) -> None:
    # at 12 GB/s a ceiling of 70 % would hold the large images back; the published run was not held back
    phase = first_epoch(case(workload, settings=(f"unit.read={read}", "ceilings.storage=1")))
    assert round(100 * used(phase, StageName.BANDWIDTH)) == percent


@pytest.mark.parametrize(
    ("workload", "rate", "flying", "per_node", "one_chassis"),
    [("resnet50", 11_267, 56, 6, 0.011), ("inception4-large", 37_946, 190, 21, 0.038)],
)
def test_requests_in_flight(workload: str, rate: float, flying: int, per_node: int, one_chassis: float) -> None:
    inputs = case(workload)
    load = edge(inputs, first_epoch(inputs))
    assert load.requests_per_s == pytest.approx(rate, rel=WITHIN)
    assert round(load.outstanding or 0) == flying
    assert round((load.outstanding or 0) / 9) == per_node
    alone = first_epoch(case(workload, settings=("unit.count=1", "ceilings.storage=1", "unit.read=40GB/s")))
    assert used(alone, StageName.REQUESTS) == pytest.approx(one_chassis, abs=0.0005)


def test_requests_in_flight_per_mount() -> None:
    inputs = case("inception4-large")
    flying = edge(inputs, first_epoch(inputs)).outstanding
    assert (flying or 0) / 9 / 8 == pytest.approx(2.6, rel=0.02)


def test_single_files_are_opened_as_often_as_images_are_read() -> None:
    inputs = case("resnet50", settings=("files_per_sample=1", "unit.opens=100000"))
    phase = first_epoch(inputs)
    assert used(phase, StageName.OPENS) * 2 * 100_000 == pytest.approx(51_297, rel=WITHIN)
    assert phase.requests == pytest.approx(51_297, rel=WITHIN)


@pytest.mark.parametrize(
    ("workload", "order"),
    [("resnet50", ["gpu", "cpu", "storage_bandwidth"]), ("inception4-large", ["gpu", "storage_bandwidth", "cpu"])],
)
def test_order_of_the_bottlenecks_by_ceiling(workload: str, order: list[str]) -> None:
    phase = first_epoch(case(workload))
    assert [s.name.value for s in phase.by_pressure][:3] == order
    assert [s.name for s in phase.binding] == [StageName.GPU]


def test_order_of_the_bottlenecks_by_utilisation() -> None:
    percents = {}
    for workload in ("resnet50", "inception4-large"):
        phase = first_epoch(case(workload))
        percents[workload] = {s.name.value: round(100 * (s.utilisation or 0)) for s in phase.by_pressure}
    small, large = percents["resnet50"], percents["inception4-large"]
    assert (small["cpu"], small["storage_bandwidth"], small["network"]) == (46, 20, 6)
    assert (large["cpu"], large["storage_bandwidth"], large["connections"], large["network"]) == (84, 66, 18, 19)


@pytest.mark.parametrize(("workload", "seconds"), [("resnet50", 3758), ("inception4-large", 1131)])
def test_caches_and_one_epoch(workload: str, seconds: float) -> None:
    inputs = case(workload)
    phase = first_epoch(inputs)
    caches = cache(inputs, inputs.tenants[0], phase)
    assert caches.held == pytest.approx(6.6e12, rel=WITHIN)
    assert caches.ratio == pytest.approx(3.4, rel=0.015)
    assert caches.client_hit == pytest.approx(0.023, abs=0.0005)
    assert caches.server_hit == pytest.approx(0.09, abs=0.002)
    assert jobs(inputs, (phase, None))[0].first_s == pytest.approx(seconds, rel=WITHIN)


def test_disks_give_what_neither_cache_holds() -> None:
    (only,) = View(case("resnet50")).caches
    assert only.disk_read == pytest.approx(5907e6 * (1 - 0.512 / 22.2) * (1 - 2 / 22.2), rel=WITHIN)


def test_the_small_control_set_is_resident_after_225_seconds() -> None:
    inputs = case("resnet50", settings=("dataset=148GB",))
    caches = cache(inputs, inputs.tenants[0], first_epoch(inputs))
    assert caches.client_hit == 1
    assert caches.fill_s == pytest.approx(225, rel=WITHIN)
    later = later_epochs(inputs)
    assert isinstance(later, Phase)
    assert later.storage_read == 0
    assert all(s.unused for s in later.stages if s.name is StageName.BANDWIDTH)


def test_h100_ingest_makes_a_dgx1_processor_bound_and_a_dgx_h100_not() -> None:
    inputs = case("resnet50", settings=("rate_per_gpu=1786",))
    asked = demand(inputs, inputs.tenants[0])
    assert asked.bytes_per_s == pytest.approx(14.8e9, rel=WITHIN)
    assert asked.cores_per_node == pytest.approx(46, rel=WITHIN)
    assert [s.name for s in first_epoch(inputs).binding] == [StageName.CPU]
    modern = first_epoch(case("resnet50", settings=("rate_per_gpu=1786", "cores_per_node=112")))
    assert round(100 * used(modern, StageName.CPU)) == 41
    assert StageName.CPU not in [s.name for s in modern.binding]


def test_3d_unet_wants_25_gb_a_second_and_a_400_gigabit_path() -> None:
    inputs = case(text=UNET3D_H100, settings=("connection_slots=unknown",))
    asked = demand(inputs, inputs.tenants[0]).node_bytes_per_s or 0
    assert asked == pytest.approx(25.4e9, rel=WITHIN)
    assert asked * 8 / 1e9 == pytest.approx(203, rel=WITHIN)
    assert View(inputs).networks[-1].fits_first
    assert smallest(View(inputs).networks) == 400


@pytest.mark.parametrize(("read", "busy"), [("8GB/s", 0.31), ("40GB/s", 1.0)])
def test_3d_unet_on_the_levels_of_the_storage_guideline(read: str, busy: float) -> None:
    phase = first_epoch(case(text=UNET3D_H100, settings=(f"unit.read={read}", "connection_slots=unknown")))
    assert used(phase, StageName.GPU) == pytest.approx(busy, abs=0.005)


def test_three_gateways_of_7_gb_feed_seventy_nodes_of_300_mb() -> None:
    settings = ("sample_size=300MB", "rate_per_gpu=1", "gpus_per_node=1", "unit.read=7GB/s", "unit.count=3")
    inputs = case("resnet50", settings=(*settings, "ceilings.storage=1"))
    assert nodes_supported(inputs, first_epoch(inputs)) == 70


def test_a_million_reads_a_second_of_15_kb_keep_a_thousand_in_flight() -> None:
    settings = ("unit.count=1", "read_size=15kB", "unit.loaded_latency=unknown", "unit.unloaded_latency=1ms")
    inputs = case("inception4-large", settings=settings)
    load = edge(inputs, first_epoch(inputs))
    assert load.service_per_s == pytest.approx(1e6)
    assert load.knee == pytest.approx(1000)


def test_a_checkpoint_stalls_for_its_bytes_over_the_write_bandwidth() -> None:
    inputs = case(text=UNET3D_H100)
    stall = checkpoint(inputs, inputs.tenants[0])
    assert stall.stall_s == pytest.approx(912 / 4)
    assert stall.share == pytest.approx(228 / 1800)


def test_prefetch_is_littles_law_on_the_input_pipeline() -> None:
    inputs = case("inception4-large")
    depth = prefetch(inputs, inputs.tenants[0], 0.005)
    assert depth == pytest.approx(204.54 * (3 * 0.005 + 0.0205), rel=WITHIN)


def test_the_first_epoch_is_the_smaller_part_the_more_epochs_there_are() -> None:
    shares = [
        jobs(view.inputs, (view.first, view.later))[0].first_share
        for epochs in (1, 10, 100)
        for view in [View(case("resnet50", settings=("dataset=148GB", f"epochs={epochs}", "port_rate=4Gb/s")))]
    ]
    assert shares[0] == 1
    assert shares[0] > (shares[1] or 0) > (shares[2] or 0)
    assert shares[2] is not None
    assert shares[2] < 0.02
