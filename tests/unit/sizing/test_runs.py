"""The prediction beside runs of the input pipeline, where no benchmark has read the storage."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.sizing.comparison import Comparison
from rackproof.core.sizing.measured import predicted_and_measured
from tests.unit.sizing.test_measured import NODES, rack, read

GPUS = str(8 * len(NODES))
OTHERS = ("inception4-large", "googlenet-serving")


def number(metric: str, value: float, unit: str, scope: Scope = Scope.RACK, **labels: str) -> Measurement:
    own = {"workload": "resnet50", "storage": "isilon", "data": "storage", "epoch": "1", "gpus": GPUS} | labels
    return Measurement(
        metric=metric, scope=scope, members=NODES if scope is Scope.RACK else NODES[:1], unit=unit, samples=(value,),
        step="ingest", labels=own, conditions={"bound_by": "accelerator", "job": {"workers": 40, "arrivals": 0}},
    )  # fmt: skip


def run(rate: float, **labels: str) -> Measurement:
    return number("ingest.samples_rate", rate, "1/s", **labels)


def cpu(ms: float, **labels: str) -> Measurement:
    return number("ingest.cpu_time_per_sample", ms, "ms", Scope.NODE, **labels)


def compared(*measurements: Measurement, reference: Architecture | None = None) -> Comparison:
    (comparison,) = predicted_and_measured(reference or rack(), measurements).comparisons
    return comparison


def test_the_prediction_of_declared_figures_stands_beside_a_run_with_its_error() -> None:
    lines = predicted_and_measured(rack(), [run(50_000)]).lines
    assert lines[0] == (
        "resnet50: predicted from declared figures 51,300 samples/s, set by GPUs; "
        "measured 50,000 samples/s, set by GPUs (bottleneck as predicted, 97.5 % of the rate, an error of 2.53 %)"
    )
    assert lines[1:] == tuple(
        f"{name}: no prediction stands beside it: no run of it from a storage was measured" for name in OTHERS
    )


def test_a_comparison_stands_before_the_reasons_why_others_are_missing() -> None:
    lines = predicted_and_measured(rack(), [run(5_000, workload=OTHERS[0])]).lines
    assert lines[0].startswith(f"{OTHERS[0]}: predicted from declared figures")
    assert [line.partition(":")[0] for line in lines[1:]] == ["resnet50", OTHERS[1]]


def test_a_leg_that_only_read_the_storage_gives_its_rate() -> None:
    undecoded = number("ingest.storage_bandwidth", 2000, "MB/s", data="undecoded")
    one = compared(run(17_000), undecoded)
    assert (one.predicted_stage, one.predicted) == ("storage bandwidth", pytest.approx(2e9 / 115154))
    assert one.basis == "declared figures and measured reads of isilon"
    other = number("ingest.storage_bandwidth", 2000, "MB/s", data="undecoded", storage="archive")
    assert compared(run(17_000), other).predicted_stage == "GPUs"


def test_the_rate_of_a_run_is_not_taken_as_its_storages() -> None:
    assert compared(run(9), number("ingest.storage_bandwidth", 1, "MB/s")).predicted_stage == "GPUs"


def test_the_processor_time_of_the_run_counts_before_the_declared_one() -> None:
    one = compared(run(3000), cpu(100.0, data="memory"), cpu(1.0))
    assert (one.predicted_stage, one.predicted) == ("CPU cores", pytest.approx(9 * 40 / 0.1))
    assert "the measured processor time of a sample" in one.basis
    fewer = number("ingest.samples_rate", 3000, "1/s")
    fewer = fewer.model_copy(update={"conditions": fewer.conditions | {"job": {"workers": 4}}})
    assert compared(fewer, cpu(100.0)).predicted == pytest.approx(9 * 4 / 0.1)


def test_figures_of_another_storage_are_not_taken_for_the_runs_own() -> None:
    one = compared(run(10, storage="archive"))
    assert one.basis == "declared figures and no rate of archive"
    slow = rack().model_copy(deep=True)
    assert slow.sizing is not None
    unit = slow.sizing.unit.model_copy(update={"read": slow.sizing.unit.read.model_copy(update={"value": 0.001})})
    slow = slow.model_copy(update={"sizing": slow.sizing.model_copy(update={"unit": unit})})
    assert compared(run(10), reference=slow).predicted_stage == "storage bandwidth"
    assert compared(run(10, storage="archive"), reference=slow).predicted_stage == "GPUs"
    measured = compared(run(10, storage="archive"), read(20, "archive"), reference=slow)
    assert (measured.predicted_stage, measured.predicted) == ("storage bandwidth", pytest.approx(20e6 / 115154))


def test_the_prediction_is_for_the_nodes_and_gpus_of_the_run() -> None:
    few = run(10.0, gpus=str(2 * len(NODES)))
    assert compared(few).predicted == pytest.approx(712.46 * 2 * len(NODES))
    alone = few.model_copy(update={"members": NODES[:1], "labels": few.labels | {"gpus": "2"}})
    assert compared(alone).predicted == pytest.approx(712.46 * 2)
    assert compared(few, alone).predicted == compared(alone, few).predicted == pytest.approx(712.46 * 2 * len(NODES))


@pytest.mark.parametrize("other", [{"data": "memory"}, {"data": "synthetic"}, {"epoch": "2"}])
def test_only_cold_runs_from_storage_are_compared(other: dict[str, str]) -> None:
    assert predicted_and_measured(rack(), [run(9.0, **other)]).lines == ()
    assert compared(run(10.0), run(9.0, **other)).measured == 10.0


@pytest.mark.parametrize("change", [{"simulated": True}, {"samples": (), "reason": "interrupted"}])
def test_a_run_without_a_number_is_none(change: dict[str, Any]) -> None:
    assert predicted_and_measured(rack(), [run(10.0).model_copy(update=change)]).lines == ()


def test_inference_is_compared_unless_its_requests_arrive_by_themselves() -> None:
    serve = number("inference.samples_rate", 300_000, "1/s", workload="googlenet-serving")
    assert compared(serve).measured == 300_000
    late = serve.model_copy(update={"conditions": serve.conditions | {"job": {"arrivals": 2.5}}})
    outcome = predicted_and_measured(rack(), [late])
    assert outcome.comparisons == ()
    assert outcome.lines[2] == (
        "googlenet-serving: no prediction stands beside it: its requests arrive at a rate of their own"
    )
