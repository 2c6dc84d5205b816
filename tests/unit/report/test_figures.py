"""Key figures: one for each quantity, told apart where their names are alike."""

from __future__ import annotations

from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS
from rackproof.report.figures import _links, _storage
from rackproof.report.schema import MeasurementSummary
from rackproof.report.tables import short_name


def measured(metric: str, value: float, unit: str, **labels: str) -> MeasurementSummary:
    return MeasurementSummary(
        metric=metric, scope=Scope.RACK, members=("gpu-01", "gpu-02"), subject="rack",
        labels={"storage": "nfs-tcp", **labels}, unit=unit, samples=(value,), median=value, reason=None, conditions={},
        raw=(), step="s", simulated=False,
    )  # fmt: skip


def test_figures_of_several_block_sizes_say_which() -> None:
    reads = [
        measured("storage.random_read_bandwidth", 20.1, "MB/s", block_bytes="1048576"),
        measured("storage.random_read_bandwidth", 16.4, "MB/s", block_bytes="131072"),
        measured("storage.random_read_iops", 624, "1/s", block_bytes="15360"),
        measured("storage.read_bandwidth", 19.3, "MB/s", block_bytes="1048576"),
    ]
    labels = [
        (row.label.replace("\xa0", " "), row.value.replace("\xa0", " "))
        for row in _storage("nfs-tcp", "nfs", reads).rows
    ]
    assert labels == [
        ("read", "19.3 MB/s"), ("random read 15 KiB", "624/s"), ("random read 128 KiB", "16.4 MB/s"),
        ("random read 1 MiB", "20.1 MB/s"),
    ]  # fmt: skip


def test_each_operation_on_names_has_its_figure() -> None:
    rates = [measured("storage.metadata_rate", n, "1/s", op=op) for n, op in ((891, "create"), (48, "stat"))]
    assert [(row.label, row.value) for row in _storage("nfs-tcp", "nfs", rates).rows] == [
        ("small files create", "891/s"), ("small files stat", "48/s"),
    ]  # fmt: skip


def test_links_to_each_storage_have_their_figure() -> None:
    rates = [
        measured("link.tcp_bandwidth_to_storage", n, "Gb/s", storage=storage)
        for n, storage in ((0.4, "cephfs"), (0.2, "nfs-tcp"))
    ]
    assert [(row.label, row.value.replace("\xa0", " ")) for row in _links(rates).rows] == [
        ("TCP to storage cephfs", "0.400 Gb/s"), ("TCP to storage nfs-tcp", "0.200 Gb/s"),
    ]  # fmt: skip


def test_metrics_with_a_table_of_their_own_have_a_name_there() -> None:
    named = [metric for metric in METRICS if metric.startswith(("storage.", "link.", "collective."))]
    assert [metric for metric in named if short_name(metric) == metric] == []
