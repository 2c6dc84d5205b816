"""The page names every figure whose benchmark has never run on a GPU, or on one GPU only, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.metrics import METRICS
from rackproof.report.statements import untried_statements
from tests.unit.judging import measurement

NEVER = "have never run on a GPU"
ONE_GPU = "have run on one GPU only"
REAL = "real: resnet50, training, amp, nccl, on H100"


@pytest.mark.parametrize(
    ("metric", "labels", "conditions", "how"),
    [
        ("gpu.diagnosed_faults", {}, {}, NEVER),
        ("gpu.peer_read_bandwidth", {}, {}, NEVER),
        ("collective.busbw", {"engine": "nccl-tests"}, {}, ONE_GPU),
        ("collective.busbw", {"engine": "torch"}, {"backend": "nccl"}, ONE_GPU),
        ("link.rdma_write_bandwidth_gpu_both", {}, {}, NEVER),
        ("storage.gds_read_bandwidth", {}, {}, NEVER),
        ("guest.collective_busbw", {"engine": "torch"}, {"backend": "nccl"}, NEVER),
        ("ingest.accelerator_utilisation", {}, {"accelerator": REAL}, NEVER),
        ("inference.latency_p99", {}, {"accelerator": REAL}, NEVER),
        ("mixed.inference_latency_loss", {}, {"accelerator": REAL}, NEVER),
    ],
)
def test_what_never_ran_on_a_gpu_is_named(
    metric: str, labels: dict[str, str], conditions: dict[str, Any], how: str
) -> None:
    assert metric in METRICS
    measured = measurement("gpu-01", 1.0, metric=metric, conditions=conditions, unit="1", **labels)
    (statement,) = untried_statements([measured, measurement("gpu-02", 1.0)])
    assert statement.startswith(f"Figures of {metric} are from benchmarks that the kit's authors {how}")
    assert untried_statements([measured.model_copy(update={"samples": ()})]) == ()


@pytest.mark.parametrize(
    ("metric", "labels", "conditions"),
    [
        ("collective.busbw", {"engine": "torch"}, {"backend": "gloo"}),
        ("collective.busbw", {"engine": "mpi"}, {}),
        ("gpu.memory_bandwidth", {}, {}),
        ("gpu.matmul_rate", {}, {}),
        ("gpu.utilisation", {}, {"accelerator": REAL}),
        ("ingest.samples_rate", {}, {"accelerator": REAL}),
        ("ingest.accelerator_utilisation", {}, {"accelerator": "emulated: h100 resnet50"}),
        ("link.rdma_write_bandwidth", {}, {}),
        ("ingest.samples_rate", {}, {"accelerator": "real: resnet18, training, fp32, gloo, on processors"}),
    ],
)
def test_what_ran_is_not_named(metric: str, labels: dict[str, str], conditions: dict[str, Any]) -> None:
    assert untried_statements([measurement("n1", 1.0, metric=metric, conditions=conditions, unit="1", **labels)]) == ()
