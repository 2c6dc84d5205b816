from __future__ import annotations

from typing import Any

import pytest

from rackproof.architectures import parse
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.sizing.measured import predicted_and_measured
from tests.unit.sizing.cases import F800_DGX1, architecture

NODES = tuple(f"gpu-{i:02}" for i in range(1, 10))
STORAGE = """
storage:
  isilon: {class: nfs, mountpoint: /mnt/isilon, fstype: nfs, source: /ifs, transport: tcp}
  archive: {class: nfs, mountpoint: /mnt/archive, fstype: nfs, source: /archive, transport: tcp}
"""


def rack(settings: str = "storage: isilon") -> Architecture:
    return parse(F800_DGX1.replace("sizing:\n", f"sizing:\n  {settings}\n") + STORAGE, "case.yaml")


def read(mb_s: float, storage: str = "isilon", members: tuple[str, ...] = NODES, **more: Any) -> Measurement:
    samples = () if more.get("reason") else (mb_s * 0.98, mb_s, mb_s * 1.02)
    return Measurement(
        metric="storage.read_bandwidth", scope=Scope.RACK, members=members, unit="MB/s", samples=samples,
        step="storage", labels={"storage": storage}, **more,
    )  # fmt: skip


def link(gbps: float, a: str = "gpu-01", b: str = "gpu-02") -> Measurement:
    return Measurement(
        metric="link.tcp_bandwidth", scope=Scope.PAIR, members=(a, b), unit="Gb/s", samples=(gbps,), step="links"
    )


def run(rate: float, conditions: dict[str, str] | None = None, **labels: str) -> Measurement:
    return Measurement(
        metric="ingest.samples_rate", scope=Scope.RACK, members=NODES, unit="1/s", samples=(rate,), step="ingest",
        labels={"workload": "resnet50", **labels}, conditions=conditions or {},
    )  # fmt: skip


def test_a_rack_as_it_was_sold_has_the_predicted_bottlenecks() -> None:
    comparison = predicted_and_measured(rack(), [read(29_500), link(94)])
    reading, *workloads = comparison.comparisons
    assert reading.predicted == pytest.approx(30e9)
    assert reading.predicted_stage == reading.measured_stage == "storage bandwidth"
    assert reading.measured == pytest.approx(29.5e9)
    assert [(w.subject, w.predicted_stage, w.measured_stage, w.agrees) for w in workloads[:2]] == [
        ("resnet50", "GPUs", "GPUs", True),
        ("inception4-large", "GPUs", "GPUs", True),
    ]
    assert not any(w.directly for w in workloads)
    assert comparison.lines[0] == (
        "read of isilon by 9 nodes: predicted 30 GB/s, set by storage bandwidth; "
        "measured 29.5 GB/s, set by storage bandwidth (bottleneck as predicted, 98.3 % of the rate, an error of 1.67 %)"
    )


def test_a_slow_storage_becomes_the_bottleneck_of_the_job_that_needs_it() -> None:
    reading, small, large, _ = predicted_and_measured(rack(), [read(20_000), link(94)]).comparisons
    assert reading.measured_stage == "storage bandwidth"
    assert small.agrees is True
    assert (large.predicted_stage, large.measured_stage, large.agrees) == ("GPUs", "storage bandwidth", False)
    assert large.measured == pytest.approx(20e9 * 0.7 / 1_350_932)


def test_slow_links_are_told_from_a_slow_storage() -> None:
    reading, _, large, _ = predicted_and_measured(rack(), [read(10_000), link(9.4)]).comparisons
    assert (reading.predicted_stage, reading.measured_stage, reading.agrees) == (
        "storage bandwidth", "network of a node", False,
    )  # fmt: skip
    assert large.measured_stage == "network of a node"


def test_the_prediction_is_for_the_clients_that_took_part() -> None:
    reading = predicted_and_measured(rack(), [read(10_000, members=NODES[:1]), link(94)]).comparisons[0]
    assert reading.predicted == pytest.approx(11.75e9)
    assert reading.predicted_stage == "network of a node"
    assert reading.agrees is True


def test_a_workload_that_was_run_is_compared_itself() -> None:
    small = predicted_and_measured(rack(), [read(29_500), link(94), run(50_000)]).comparisons[1]
    assert (small.directly, small.measured) == (True, 50_000)
    assert "measured 50,000 samples/s" in predicted_and_measured(rack(), [read(29_500), run(50_000)]).lines[1]
    assert (small.measured_stage, small.agrees) == (None, None)


@pytest.mark.parametrize(
    ("bound", "stage"),
    [("accelerator", "GPUs"), ("decode", "CPU cores"), ("storage", "storage bandwidth"),
     ("start of workers", "start of workers")],
)  # fmt: skip
def test_a_run_names_its_own_stage_and_not_the_models(bound: str, stage: str) -> None:
    measured = [read(29_500), link(94), run(50_000, {"bound_by": bound})]
    small = predicted_and_measured(rack(), measured).comparisons[1]
    assert small.measured_stage == stage
    assert small.agrees is (small.predicted_stage == stage)


def test_the_prediction_is_for_the_gpus_of_the_run_and_not_for_a_leg_without_storage() -> None:
    every = predicted_and_measured(rack(), [read(29_500), link(94)]).comparisons[1].predicted
    bound, gpus = {"bound_by": "accelerator"}, str(2 * len(NODES))
    runs = [run(9.0, bound, data="storage", gpus=gpus), run(99.0, bound, data="synthetic", gpus=gpus)]
    few = predicted_and_measured(rack(), [read(29_500), link(94), *runs]).comparisons[1]
    assert few.measured == 9.0
    assert few.predicted is not None
    assert every is not None
    assert few.predicted == pytest.approx(every / 4)


def test_a_repeated_measurement_counts_in_its_last_form() -> None:
    comparison = predicted_and_measured(rack(), [read(5_000), read(29_500), read(0, reason="interrupted")])
    assert comparison.comparisons[0].measured == pytest.approx(29.5e9)


@pytest.mark.parametrize(
    ("reference", "measurements", "message"),
    [
        (rack(), [read(0, reason="interrupted")], "the read bandwidth of isilon was not measured"),
        (rack(), [read(100, simulated=True)], "the read bandwidth of isilon was not measured"),
        (rack(), [read(0)], "the measured read bandwidth of isilon is 0"),
        (rack("storage: null"), [read(100), read(100, "archive")],
         "sizing.storage does not say which of archive and isilon feeds the workloads"),
    ],
)  # fmt: skip
def test_nothing_to_compare_is_one_line(reference: Architecture, measurements: list[Measurement], message: str) -> None:
    comparison = predicted_and_measured(reference, measurements)
    assert comparison.comparisons == ()
    assert comparison.lines == (f"nothing to compare with the predicted bottleneck: {message}",)


@pytest.mark.parametrize(
    ("reference", "measurements"),
    [
        (architecture().model_copy(update={"sizing": None}), [read(1)]),
        (rack(), []),
        (rack(), [read(100, storage="archive")]),
        (rack("storage: null"), [link(94)]),
    ],
)
def test_a_run_without_a_benchmark_of_what_is_predicted_says_nothing_of_it(
    reference: Architecture, measurements: list[Measurement]
) -> None:
    assert predicted_and_measured(reference, measurements).lines == ()


def test_the_only_shared_storage_needs_no_name() -> None:
    comparison = predicted_and_measured(rack("storage: null"), [read(29_500), link(94)])
    assert comparison.comparisons[0].subject == "read of isilon by 9 nodes"


def test_ports_of_the_storage_of_the_same_rate_are_as_good_as_a_nodes() -> None:
    text = F800_DGX1.replace("ports: 8\n    port_rate: {value: 40,", "ports: 1\n    port_rate: {value: 100,")
    reference = parse(text.replace("sizing:\n", "sizing:\n  storage: isilon\n") + STORAGE, "case.yaml")
    reading = predicted_and_measured(reference, [read(20_000), link(84)]).comparisons[0]
    assert reading.predicted == pytest.approx(2 * 12.5e9 * 0.94)
    assert reading.predicted_stage == reading.measured_stage == "ports of the storage"


def test_measured_ports_of_the_storage_count_before_declared_ones() -> None:
    ports = Measurement(
        metric="link.tcp_bandwidth_to_storage", scope=Scope.RACK, members=NODES, unit="Gb/s", samples=(160.0,),
        labels={"storage": "isilon"}, step="links",
    )  # fmt: skip
    reading = predicted_and_measured(rack(), [read(19_000), link(94), ports]).comparisons[0]
    assert reading.measured_stage == "ports of the storage"
