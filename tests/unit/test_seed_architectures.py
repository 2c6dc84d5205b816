"""The five published systems that the kit started from: every claim is in a file, every figure is as published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rackproof.architectures import load
from rackproof.core.architecture import Architecture, Criterion, Curve, LinkShare, Outlier, SourceStatus
from rackproof.core.architecture.claims import standings
from rackproof.core.architecture.entries import SPREADS
from rackproof.core.evidence import NodeInfo
from rackproof.core.judging.judge import judge
from rackproof.core.metrics import METRICS
from rackproof.core.sizing.answers import memo
from rackproof.core.sizing.inputs import Choice, inputs_of
from rackproof.core.status import Status
from rackproof.core.units import same_dimension
from tests.unit.judging import info_of_nodes

FOLDER = Path(__file__).parents[2] / "architectures"
NAMES = (
    "dell-isilon-f800-dgx1",
    "dell-scaling-little",
    "hitachi-v225g",
    "hpe-apollo6500-weka",
    "weka-inference-nvme-dram",
)

FILES = {name: load(name, [FOLDER]).model for name in NAMES}
CLAIMS = {
    f"{letter}{number}" for letter, last in {"A": 12, "B": 9, "C": 10, "T": 20}.items() for number in range(1, last + 1)
}
NOT_CHECKABLE = {"C1", "C8", "T15", "T16", "T19"}
COLD_OF_AN_APPLIANCE = ("cold", "cold on clients, unknown on servers")

every_file = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


def entries(file: Architecture) -> tuple[Criterion | Curve | Outlier, ...]:
    return (*file.criteria, *file.curves, *file.outliers)


def criterion(file: str, id_: str) -> Criterion:
    return next(c for c in FILES[file].criteria if c.id == id_)


def test_every_claim_is_in_exactly_one_file() -> None:
    assert len(CLAIMS) == 51
    assert Counter(id_ for file in FILES.values() for id_ in file.claims) == dict.fromkeys(CLAIMS, 1)


def test_a_claim_is_checked_or_says_why_it_cannot_be() -> None:
    checked = {standing.claim for file in FILES.values() for standing in standings(file)}
    excused = {id_ for file in FILES.values() for id_, claim in file.claims.items() if claim.not_checkable}
    assert excused == NOT_CHECKABLE
    assert checked == CLAIMS - NOT_CHECKABLE


@pytest.mark.parametrize(
    ("file", "id_", "value", "unit", "tolerance_pct", "published_in"),
    [
        ("dell-isilon-f800-dgx1", "ingest.resnet50", 5907, "MB/s", 3, "dell-nvidia"),
        ("dell-isilon-f800-dgx1", "ingest.inception4-large", 19895, "MB/s", 3, "dell-nvidia"),
        ("dell-isilon-f800-dgx1", "gpu.busy", 97, "percent", 0, "dell-nvidia"),
        ("dell-isilon-f800-dgx1", "gpu.busy.large", 98, "percent", 0, "dell-nvidia"),
        ("dell-isilon-f800-dgx1", "memory.best", 0.96, "ratio", 0, "dell-nvidia"),
        ("dell-isilon-f800-dgx1", "data.sample-size", 115154, "B", 1, "benchmark-scripts"),
        ("dell-isilon-f800-dgx1", "data.sample-size.large", 1350932, "B", 1, "arithmetic"),
        ("dell-isilon-f800-dgx1", "storage.front-ports", 94, "percent", 0, "f800-paper"),
        ("dell-isilon-f800-dgx1", "nccl.node", 110, "GB/s", 0, "azure-v100"),
        ("dell-isilon-f800-dgx1", "nccl.rack", 36, "GB/s", 0, "proposal"),
        ("dell-scaling-little", "chassis.reads", 1_000_000, "1/s", 0, "dell"),
        ("hpe-apollo6500-weka", "storage.read", 30, "GB/s", 0, "wekaio"),
        ("hpe-apollo6500-weka", "storage.random-read", 2_500_000, "IOPS", 0, "wekaio"),
        ("hpe-apollo6500-weka", "train.placement", 0.05, "ratio", 0, "proposal"),
        ("weka-inference-nvme-dram", "inference.googlenet", 42000, "1/s", 3, "wekaio"),
        ("weka-inference-nvme-dram", "storage.one-link", 10, "GB/s", 0, "wekaio"),
        ("weka-inference-nvme-dram", "inference.shared-over-memory", 0.9, "ratio", 0, "proposal"),
        ("hitachi-v225g", "files.metadata", 2, "ratio", 0, "arithmetic"),
    ],
)
def test_figures_are_as_published(
    file: str, id_: str, value: float, unit: str, tolerance_pct: float, published_in: str
) -> None:
    entry = criterion(file, id_)
    assert (entry.pass_.value, entry.pass_.unit, entry.pass_.tolerance_pct) == (value, unit, tolerance_pct)
    assert entry.source == published_in


def test_bar_and_measurement_of_a_chassis_are_both_there() -> None:
    assert criterion("dell-scaling-little", "chassis.bandwidth").pass_.levels == {"measured": 12, "specified": 15}
    assert FILES["dell-scaling-little"].level == "specified"
    for name in ("dell-scaling-little", "dell-isilon-f800-dgx1"):
        sizing = FILES[name].sizing
        assert sizing is not None
        assert (sizing.unit.read.value, sizing.unit.read.unit) == (15, "GB/s")
        assert sizing.unit.read_measured is not None
        assert sizing.unit.read_measured.value == 12


def test_batches_are_as_published() -> None:
    batches = {name: workload.batch_per_gpu for name, workload in FILES["hpe-apollo6500-weka"].workloads.items()}
    assert batches == {"resnet152": 128, "resnet50": 256, "googlenet": 128, "vgg16": 128, "inception4": 128}


def test_unpublished_figures_are_null() -> None:
    isilon, hpe = FILES["dell-isilon-f800-dgx1"], FILES["hpe-apollo6500-weka"]
    for model in ("resnet152", "vgg16", "inception3"):
        assert isilon.workloads[model].rate_per_gpu.value is None
    assert {workload.rate_per_gpu.value for workload in hpe.workloads.values()} == {None}
    assert FILES["weka-inference-nvme-dram"].workloads["googlenet"].sample_size.value is None
    assert FILES["hitachi-v225g"].gpu is None


def test_linearity_is_judged_from_a_whole_node_on() -> None:
    curves = {curve.id: curve for curve in FILES["dell-isilon-f800-dgx1"].curves}
    assert len(curves) == 5
    for curve in curves.values():
        assert (curve.points, curve.baseline) == (tuple(range(8, 73, 8)), 8)
        assert (curve.efficiency_min, curve.r2_min, curve.no_negative_step) == (0.95, 0.995, True)
    across = {curve.where["workload"] for curve in FILES["hpe-apollo6500-weka"].curves if curve.baseline == 8}
    assert across == set(FILES["hpe-apollo6500-weka"].workloads)


def test_a_claim_about_every_model_is_judged_for_each_and_on_the_fewest_gpus() -> None:
    """A10; the text has numbers of one model only."""
    of_claim = [entry for entry in FILES["weka-inference-nvme-dram"].criteria if "A10" in entry.claim]
    own = [entry.where for entry in of_claim if entry.metric == "inference.samples_rate"]
    models = ("googlenet", "resnet50", "resnet152", "vgg16")
    assert {(where["workload"], where["gpus"]) for where in own} == {
        ("googlenet", "2"),
        *((one, "8") for one in models),
    }
    for entry in of_claim:
        assert isinstance(entry, Criterion)
        assert entry.pass_.of is not None
        assert entry.pass_.of.where == {**entry.where, "storage": "nvme"}
        assert (entry.pass_.op, entry.pass_.value) == ("ge", 1)


def test_mounts_are_those_of_the_published_runs_but_hard() -> None:
    storage = FILES["dell-isilon-f800-dgx1"].storage["isilon"]
    assert (storage.mounts_per_client, storage.mounts_balance) == (16, 1)
    assert {"rsize=524288", "wsize=524288", "nolock", "hard"} <= set(storage.options_required)
    assert storage.options_forbidden == ("soft",)


def test_limits_of_the_publications_are_limits_of_the_certificates() -> None:
    assert "production inference" in FILES["dell-isilon-f800-dgx1"].metadata.scope
    assert "accuracy" in FILES["hitachi-v225g"].metadata.scope


@every_file
def test_every_entry_says_how_it_is_measured(file: Architecture) -> None:
    assert [entry.id for entry in entries(file) if entry.measure is None] == []


@every_file
def test_a_bar_in_bytes_a_second_has_a_ceiling(file: Architecture) -> None:
    absolute = [
        c
        for c in file.criteria
        if c.pass_.of is None
        and c.reduce not in SPREADS
        and same_dimension(METRICS[c.metric].unit, "B/s")
        and c.pass_.low != 0  # at most so much
    ]
    assert [c.id for c in absolute if c.ceiling is None] == []
    for c in file.criteria:
        if isinstance(c.pass_.of, LinkShare):
            assert c.pass_.of.link in file.links


@every_file
def test_repeated_measurements_and_how_far_they_may_scatter(file: Architecture) -> None:
    """A warm-up and five runs, wherever a scatter is judged; 1 % inside a node, 2 % on links, 5 % beyond."""
    for entry in entries(file):
        if entry.max_cv_pct is None:
            continue
        assert (entry.warmup, entry.min_samples) == (1, 5), entry.id
        link = entry.metric.startswith(("link.", "collective.", "guest."))
        assert entry.max_cv_pct == (2 if link else 5), entry.id


@every_file
def test_what_the_full_profile_measures_suffices_for_its_criteria(file: Architecture) -> None:
    storage = file.profiles["full"].storage
    assert storage is not None
    for job in storage.jobs.values():
        assert job.runs >= 6, "the first of them warms up"
        assert job.file_bytes % job.block_bytes == 0


@every_file
def test_sources_are_documents_and_proposals_are_called_so(file: Architecture) -> None:
    sources = file.metadata.sources
    assert any(source.status is SourceStatus.VERIFIED for source in sources.values())
    assert [key for key, source in sources.items() if source.status is SourceStatus.PROPOSED] == ["proposal"]
    used = {entry.source for entry in entries(file)} | {claim.source for claim in file.claims.values()}
    assert used <= set(sources)


@every_file
def test_a_cold_cache_can_be_proven_where_the_storage_is_no_node_of_the_rack(file: Architecture) -> None:
    """No run can drop the caches of an appliance; the data set's size keeps them from answering."""
    for entry in (entry for entry in entries(file) if "cache" in entry.conditions):
        storages = [file.storage[name] for name in [entry.where.get("storage")] if name] or file.storage.values()
        assert entry.conditions["cache"] == (
            "cold" if all(storage.class_ == "local" for storage in storages) else COLD_OF_AN_APPLIANCE
        ), entry.id


@every_file
def test_nothing_passes_without_evidence(file: Architecture) -> None:
    groups = [(role, file.roles[role].count) for role in file.roles]
    nodes = tuple(NodeInfo(name=f"{role}-{n}", groups=(role,)) for role, count in groups for n in range(count.min))
    run = info_of_nodes(nodes, profile="full")
    verdicts = [v for v in judge(file, run, [], []).verdicts if not v.id.startswith("rack.count")]
    assert {v.status for v in verdicts} == {Status.UNMEASURED}
    assert {entry.id for entry in entries(file)} <= {v.id.split("[")[0] for v in verdicts}


@pytest.mark.parametrize(
    ("workload", "bytes_per_s", "units", "units_as_measured", "connections", "port_gbps", "in_flight"),
    [("resnet50", 5907e6, 1, 1, 1, 10, 56), ("inception4-large", 19895e6, 2, 3, 2, 40, 190)],
)
def test_the_sizing_model_arrives_at_the_published_system(
    workload: str,
    bytes_per_s: float,
    units: int,
    units_as_measured: int,
    connections: int,
    port_gbps: int,
    in_flight: int,
) -> None:
    """Eight F800 nodes are two chassis: what the larger images need, by the chassis' specification."""
    file = FILES["dell-isilon-f800-dgx1"]
    figures = {a.id: a.figures for a in memo(file, inputs_of(file, [Choice(workload)])).answers}
    assert figures["bottleneck"]["first_epoch_stage"] == "gpu"
    assert figures["bottleneck"]["first_epoch_bytes_per_s"] == pytest.approx(bytes_per_s, rel=1e-3)
    assert (figures["units"]["needed"], figures["units"]["needed_as_measured"]) == (units, units_as_measured)
    assert figures["connections"]["needed_per_node"] == connections
    assert figures["network"]["first_epoch_gbps"] == port_gbps
    assert figures["concurrency"]["in_flight"] == pytest.approx(in_flight, rel=0.01)
    assert figures["caches"]["ratio"] == pytest.approx(3.4, abs=0.05)
