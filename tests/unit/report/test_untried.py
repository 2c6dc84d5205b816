"""The page names every figure whose benchmark has never run on a GPU, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.metrics import METRICS
from rackproof.report.statements import untried_statements
from tests.unit.judging import measurement


@pytest.mark.parametrize(
    ("metric", "labels", "conditions", "name"),
    [
        ("gpu.memory_bandwidth", {}, {}, "gpu.*"),
        ("collective.busbw", {"engine": "nccl-tests"}, {}, "collective.*"),
        ("collective.busbw", {"engine": "torch"}, {"backend": "nccl"}, "collective.busbw"),
        ("link.rdma_write_bandwidth_gpu_both", {}, {}, "link.rdma_write_bandwidth_gpu_both"),
        ("storage.gds_read_bandwidth", {}, {}, "storage.gds_read_bandwidth"),
        ("gpu.utilisation", {}, {}, "gpu."),
        ("guest.collective_busbw", {"engine": "torch"}, {}, "guest.collective_busbw"),
        ("ingest.samples_rate", {}, {"accelerator": "real: resnet50, training, amp, nccl, on H100"}, "ingest.samples"),
    ],
)
def test_what_never_ran_on_a_gpu_is_named(
    metric: str, labels: dict[str, str], conditions: dict[str, Any], name: str
) -> None:
    assert metric in METRICS
    measured = measurement("gpu-01", 1.0, metric=metric, conditions=conditions, unit="1", **labels)
    (statement,) = untried_statements([measured, measurement("gpu-02", 1.0)])
    assert statement.startswith(f"Figures of {name}")
    assert untried_statements([measured.model_copy(update={"samples": ()})]) == ()


@pytest.mark.parametrize(
    ("metric", "labels", "conditions"),
    [
        ("collective.busbw", {"engine": "torch"}, {"backend": "gloo"}),
        ("collective.busbw", {"engine": "mpi"}, {}),
        ("link.rdma_write_bandwidth", {}, {}),
        ("ingest.samples_rate", {}, {"accelerator": "real: resnet18, training, fp32, gloo, on processors"}),
    ],
)
def test_what_ran_is_not_named(metric: str, labels: dict[str, str], conditions: dict[str, Any]) -> None:
    assert untried_statements([measurement("n1", 1.0, metric=metric, conditions=conditions, unit="1", **labels)]) == ()
