"""The reference architectures of current GPU systems say what their sources say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.core.architecture import Architecture, Criterion, LinkShare, Reduce, Severity, SourceStatus, Statistic
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.metrics import METRICS
from rackproof.core.recipes import RECIPES
from rackproof.core.status import Outcome, Status
from rackproof.core.units import convert, same_dimension
from tests.unit.judging import measurement, run_info

FOLDER = Path(__file__).parents[2] / "architectures"
IDS = (
    "h200-single",
    "hgx-h100-roce",
    "nvidia-dgx-a100",
    "nvidia-dgx-b200",
    "nvidia-dgx-h100",
    "nvidia-dgx-h200",
    "nvidia-gb200-nvl72",
)
SPREADS = (Reduce.MIN_OVER_MEDIAN, Reduce.MAX_OVER_MEDIAN, Reduce.SPREAD_OVER_MEDIAN)


@pytest.fixture(scope="module")
def models() -> dict[str, Architecture]:
    return {id_: load(FOLDER / f"{id_}.yaml").model for id_ in IDS}


def criterion(architecture: Architecture, id_: str) -> Criterion:
    return next(c for c in architecture.criteria if c.id == id_)


def bars(entry: Criterion) -> Iterator[float]:
    """Every number that must be reached, in the metric's own unit; shares of something else left out."""
    if entry.pass_.of is not None or entry.reduce in SPREADS:
        return
    unit = METRICS[entry.metric].unit
    numbers = (entry.pass_.value, entry.pass_.warn, *entry.pass_.levels.values())
    yield from (convert(number, entry.pass_.unit, unit) for number in numbers if number is not None)


def per_direction(architecture: Architecture, link: str, unit: str = "GB/s") -> float | None:
    shape = architecture.links[link]
    return None if shape.each.value is None else shape.count * convert(shape.each.value, shape.each.unit, unit)


@pytest.mark.parametrize("id_", IDS)
def test_says_where_every_number_is_from(models: dict[str, Architecture], id_: str) -> None:
    architecture = models[id_]
    assert architecture.metadata.id == id_
    for entry in (*architecture.criteria, *architecture.curves, *architecture.outliers):
        assert entry.source in architecture.metadata.sources, entry.id
        assert entry.measure in RECIPES, entry.id
    for name, source in architecture.metadata.sources.items():
        assert len(source.doc) > 20, name
    statuses = {source.status for source in architecture.metadata.sources.values()}
    assert {SourceStatus.VERIFIED, SourceStatus.PROPOSED} <= statuses


@pytest.mark.parametrize("id_", IDS)
def test_every_bandwidth_has_a_ceiling_or_a_reason_why_none(models: dict[str, Architecture], id_: str) -> None:
    architecture = models[id_]
    checked = 0
    for entry in architecture.criteria:
        if not same_dimension(METRICS[entry.metric].unit, "B/s") or entry.reduce in SPREADS:
            continue
        checked += 1
        bounded = entry.ceiling is not None or isinstance(entry.pass_.of, LinkShare)
        assert bounded or re.search(r"[Nn]o link bounds", entry.reason), entry.id
    assert checked >= 5


@pytest.mark.parametrize("id_", IDS)
def test_no_bar_is_above_its_link_nor_trivially_below(models: dict[str, Architecture], id_: str) -> None:
    architecture = models[id_]
    for entry in architecture.criteria:
        if entry.ceiling is None:
            continue
        unit = METRICS[entry.metric].unit
        link = per_direction(architecture, entry.ceiling.link, unit)
        if link is None:
            continue
        limit = link * entry.ceiling.times
        for bar in bars(entry):
            assert 0.01 * limit <= bar <= limit, f"{entry.id}: {bar} of {limit} {unit}"
        assert entry.ceiling.times == 1 or entry.ceiling.because, entry.id


@pytest.mark.parametrize("id_", IDS)
def test_nothing_is_judged_without_saying_how_it_was_measured(models: dict[str, Architecture], id_: str) -> None:
    for entry in models[id_].criteria:
        if entry.metric == "collective.busbw":
            assert {"op", "bytes"} <= set(entry.where), entry.id
            assert {"ranks", "ranks_min"} & set(entry.conditions), entry.id
            assert entry.scope is Scope.RACK or "algorithm" in entry.where, entry.id
        if entry.metric.startswith("storage."):
            assert "storage" in entry.where, entry.id
            if entry.metric != "storage.gds_read_bandwidth":
                assert "block_bytes" in entry.where, entry.id
                assert entry.conditions["io"] == "O_DIRECT", entry.id
                assert entry.where["storage"] == "local" or entry.conditions["cache"] == cold_of(entry), entry.id
        if entry.metric == "ingest.accelerator_utilisation":
            assert entry.conditions["cache"] == cold_of(entry), entry.id
            assert {"dataset_size", "cold_cache"} <= set(entry.gates), entry.id
            assert (entry.warmup, entry.min_samples, entry.statistic) == (1, 5, Statistic.MEAN), entry.id
        if entry.scope is Scope.GPU:
            worst = Statistic.MIN if METRICS[entry.metric].higher_is_better else Statistic.MAX
            assert entry.statistic is worst, entry.id


def cold_of(entry: Criterion) -> str | tuple[str, ...]:
    """The cache that an entry asks for: a run cannot drop the caches of servers that are no nodes of the rack."""
    return "cold" if entry.where["storage"] == "local" else ("cold", "cold on clients, unknown on servers")


@pytest.mark.parametrize("id_", IDS)
def test_levels_ask_for_more_from_one_to_the_next(models: dict[str, Architecture], id_: str) -> None:
    architecture = models[id_]
    levelled = [entry for entry in architecture.criteria if entry.pass_.levels]
    assert bool(levelled) == (architecture.level is not None)
    for entry in levelled:
        assert list(entry.pass_.levels) == ["good", "better", "best"]
        assert all(before < after for before, after in pairwise(entry.pass_.levels.values())), entry.id


@pytest.mark.parametrize("id_", IDS)
def test_an_acceptance_test_measures_what_the_bars_name(models: dict[str, Architecture], id_: str) -> None:
    """Sizes, blocks, storages and ranks of the profile are those of the criteria."""
    architecture = models[id_]
    profile = architecture.profiles["full"]
    assert profile.storage is not None
    blocks = {str(job.block_bytes) for job in profile.storage.jobs.values()}
    for entry in architecture.criteria:
        if "block_bytes" in entry.where:
            assert entry.where["block_bytes"] in blocks, entry.id
        if entry.metric.startswith("collective."):
            sweep = profile.collectives
            assert sweep is not None
            steps = {str(sweep.min_bytes * sweep.factor**n) for n in range(64)}
            wanted = entry.where["bytes"]
            assert set((wanted,) if isinstance(wanted, str) else wanted) <= steps, entry.id
            assert all(int(size) <= sweep.max_bytes for size in ((wanted,) if isinstance(wanted, str) else wanted))
            assert sweep.ranks_per_node == (architecture.gpu.count if architecture.gpu else 0)
            if "ranks_min" in entry.conditions:
                assert entry.conditions["ranks_min"] == architecture.roles["gpu"].count.min * sweep.ranks_per_node
        if "rail" in entry.where:
            assert [int(rail) for rail in entry.where["rail"]] == list(range(architecture.rails)), entry.id


@pytest.mark.parametrize("id_", IDS)
def test_the_smallest_rack_can_be_judged(models: dict[str, Architecture], id_: str) -> None:
    """Curves and required outliers ask for no more nodes than the smallest allowed rack has."""
    architecture = models[id_]
    nodes = architecture.roles["gpu"].count.min
    assert architecture.gpu is not None
    for curve in architecture.curves:
        most = nodes * (architecture.gpu.count if curve.over == "gpus" else 1)
        assert max(curve.points) <= most, curve.id
    for outlier in architecture.outliers:
        assert outlier.min_peers <= nodes or outlier.severity is Severity.ADVISORY, outlier.id


@pytest.mark.parametrize("id_", IDS)
def test_hardware_is_asked_for_check_by_check(models: dict[str, Architecture], id_: str) -> None:
    architecture = models[id_]
    asked = {entry.check for entry in expected_checks(architecture)}
    assert {"gpu.count", "gpu.model", "gpu.memory", "gpu.ecc_mode"} <= asked
    if architecture.fabric is None:
        assert not any(check.startswith(("nic.", "fabric.")) for check in asked)
        return
    assert {"nic.count", "nic.speed", "nic.link_layer", "gpu.topology", "gpu.nvlink", "service.active"} <= asked
    compute = [nic for nic in architecture.roles["gpu"].expect.nics if nic.purpose == "compute"]
    assert [nic.count for nic in compute] == [architecture.rails]
    assert [nic.speed_gbps for nic in compute] == [architecture.fabric.line_rate_gbps]
    assert per_direction(architecture, "port", "Gb/s") == architecture.fabric.line_rate_gbps


@pytest.mark.parametrize(
    ("id_", "count", "model", "memory_mib", "links", "rate"),
    [
        ("nvidia-dgx-a100", 8, "NVIDIA A100-SXM4-80GB", 81920, 12, 25),
        ("nvidia-dgx-h100", 8, "NVIDIA H100 80GB HBM3", 81559, 18, 25),
        ("hgx-h100-roce", 8, "NVIDIA H100 80GB HBM3", 81559, 18, 25),
        ("nvidia-dgx-h200", 8, "NVIDIA H200", 143771, 18, 25),
        ("nvidia-dgx-b200", 8, "NVIDIA B200", 183359, 18, 50),
        ("nvidia-gb200-nvl72", 4, "NVIDIA GB200", 189471, 18, 50),
    ],
)
def test_gpus(
    models: dict[str, Architecture], id_: str, count: int, model: str, memory_mib: int, links: int, rate: float
) -> None:
    gpu = models[id_].gpu
    assert gpu is not None
    assert gpu.nvlink is not None
    assert (gpu.count, gpu.model, gpu.memory_mib) == (count, model, memory_mib)
    assert (gpu.nvlink.links, gpu.nvlink.gb_per_s_per_link) == (links, rate)
    assert per_direction(models[id_], "nvlink") == links * rate


def test_one_gpu_in_one_machine(models: dict[str, Architecture]) -> None:
    single = models["h200-single"]
    assert (single.roles["gpu"].count.min, single.roles["gpu"].count.max) == (1, 1)
    assert set(single.roles) == {"gpu"}
    assert single.fabric is None
    assert set(single.storage) == {"local"}
    assert single.gpu is not None
    assert (single.gpu.count, single.gpu.memory_mib) == (1, 143771)
    assert not {c.scope for c in single.criteria} & {Scope.PAIR, Scope.NIC}
    profile = single.profiles["full"]
    assert profile.links is None
    assert profile.collectives is None


# What must be reached and what warns, in the bar's unit, as the sources have it or as the entry's reason derives it.
FIGURES = [
    ("nvidia-dgx-h100", "gpu.h2d", 52, 54),
    ("nvidia-dgx-h100", "gpu.d2h", 48, 50),
    ("nvidia-dgx-h100", "gpu.peer", 335, 352),
    ("nvidia-dgx-h100", "gpu.memory", 1905, None),
    ("nvidia-dgx-h100", "nccl.node.nvls", 460, 475),
    ("nvidia-dgx-h100", "nccl.node.ring", 360, None),
    ("nvidia-dgx-h100", "nccl.rack", 360, 373),
    ("nvidia-dgx-h100", "rdma.pair", 90, 96),
    ("nvidia-dgx-h100", "rdma.gdr", 380, 384),
    ("nvidia-dgx-h100", "storage.gds", 27, None),
    ("nvidia-dgx-h100", "ingest.resnet50", 90, None),
    ("nvidia-dgx-h100", "ingest.unet3d", 90, None),
    ("nvidia-dgx-h100", "ingest.cosmoflow", 70, None),
    ("nvidia-dgx-h200", "gpu.h2d", 52, 54),
    ("nvidia-dgx-h200", "gpu.memory", 4060, 4210),
    ("nvidia-dgx-h200", "nccl.node.nvls", 440, 460),
    ("nvidia-dgx-h200", "rdma.gdr", 360, 384),
    ("hgx-h100-roce", "nccl.node.nvls", 440, 460),
    ("hgx-h100-roce", "nccl.rack", 328, 360),
    ("nvidia-dgx-b200", "gpu.memory", 4072.5, None),
    ("nvidia-dgx-b200", "nccl.node.nvls", 800, 820),
    ("nvidia-dgx-b200", "ingest.retinanet", 85, None),
    ("nvidia-dgx-a100", "gpu.h2d", 21, 24),
    ("nvidia-dgx-a100", "gpu.peer", 235, 262),
    ("nvidia-dgx-a100", "gpu.memory", 1173, None),
    ("nvidia-dgx-a100", "nccl.node.ring", 228, 232),
    ("nvidia-dgx-a100", "nccl.rack", 180, 190),
    ("nvidia-dgx-a100", "rdma.gdr", 180, 190),
    ("nvidia-dgx-a100", "storage.client.read", 2.25, None),
    ("nvidia-dgx-a100", "storage.client.iops", 87.5, None),
    ("nvidia-gb200-nvl72", "nccl.tray", 432, None),
    ("nvidia-gb200-nvl72", "nccl.domain", 750, 800),
    ("nvidia-gb200-nvl72", "gpu.memory", 2602.5, None),
    ("h200-single", "gpu.h2d", 48, 52),
    ("h200-single", "gpu.d2h", 48, 52),
    ("h200-single", "gpu.matmul", 588, 697),
]


@pytest.mark.parametrize(("id_", "entry", "value", "warn"), FIGURES)
def test_figures(models: dict[str, Architecture], id_: str, entry: str, value: float, warn: float | None) -> None:
    bar = criterion(models[id_], entry).pass_
    assert (bar.value, bar.warn) == (value, warn)


@pytest.mark.parametrize(
    ("entry", "good", "better", "best"),
    [
        ("storage.node.read", 4, 8, 40),
        ("storage.node.write", 2, 4, 20),
        ("storage.unit.read", 15, 40, 125),
        ("storage.unit.write", 7, 20, 62),
    ],
)
def test_storage_guideline(
    models: dict[str, Architecture], entry: str, good: float, better: float, best: float
) -> None:
    for id_ in ("nvidia-dgx-h100", "nvidia-dgx-h200", "hgx-h100-roce"):
        assert criterion(models[id_], entry).pass_.levels == {"good": good, "better": better, "best": best}
        assert criterion(models[id_], entry).pass_.unit == "GB/s"
        assert models[id_].level == "good"
    for id_ in ("nvidia-dgx-a100", "nvidia-dgx-b200"):  # the guideline is of another generation
        assert entry not in {c.id for c in models[id_].criteria}


def test_nvls_may_exceed_the_wire_and_a_ring_may_not(models: dict[str, Architecture]) -> None:
    h100 = models["nvidia-dgx-h100"]
    wire = per_direction(h100, "nvlink")
    assert wire == 450
    nvls, ring = criterion(h100, "nccl.node.nvls"), criterion(h100, "nccl.node.ring")
    assert nvls.pass_.value is not None
    assert nvls.pass_.value > wire
    assert nvls.ceiling is not None
    assert nvls.ceiling.times == 2 * (8 - 1) / 8
    assert ring.ceiling is not None
    assert ring.ceiling.times == 1
    a100 = models["nvidia-dgx-a100"]
    assert "nccl.node.nvls" not in {c.id for c in a100.criteria}
    domain = criterion(models["nvidia-gb200-nvl72"], "nccl.domain")
    assert domain.ceiling is not None
    assert domain.ceiling.times == pytest.approx(2 * (72 - 1) / 72, abs=1e-3)


def test_the_published_slip_of_a_thousand_is_not_taken_over(models: dict[str, Architecture]) -> None:
    """DCGM's minimum for one H200 is 2333 MB/s, which is GB/s."""
    for id_ in ("nvidia-dgx-h200", "h200-single"):
        bar = criterion(models[id_], "gpu.memory").pass_
        assert bar.value is not None
        assert convert(bar.value, bar.unit, "MB/s") > 2_000_000


@pytest.mark.parametrize(
    ("id_", "entry", "demand_gb_per_s", "level_gb_per_s"),
    [
        ("nvidia-dgx-h100", "ingest.resnet50", 13.1, 15),
        ("nvidia-dgx-h100", "ingest.cosmoflow", 25.9, 40),
        ("nvidia-dgx-h100", "ingest.unet3d", 101.7, 125),
        ("nvidia-dgx-a100", "ingest.resnet50", 6.7, 9),
        ("nvidia-dgx-a100", "ingest.cosmoflow", 8.2, 9),
        ("nvidia-dgx-a100", "ingest.unet3d", 12.9, 18),
        ("nvidia-dgx-b200", "ingest.retinanet", 10.4, 15),
    ],
)
def test_emulated_accelerators_ask_for_what_their_reason_says(
    models: dict[str, Architecture], id_: str, entry: str, demand_gb_per_s: float, level_gb_per_s: float
) -> None:
    asked = criterion(models[id_], entry)
    workload = models[id_].workloads[str(asked.where["workload"])]
    assert workload.sample_size.value is not None
    assert workload.rate_per_gpu.value is not None
    demand = int(str(asked.where["gpus"])) * workload.rate_per_gpu.value * workload.sample_size.value / 1e9
    assert demand == pytest.approx(demand_gb_per_s, rel=0.01)
    assert demand < level_gb_per_s
    assert f"{demand_gb_per_s:g} GB/s" in asked.reason


def test_lossless_settings_of_the_ethernet_fabric(models: dict[str, Architecture]) -> None:
    roce = models["hgx-h100-roce"]
    assert roce.fabric is not None
    assert roce.fabric.kind == "roce"
    assert roce.fabric.lossless is not None
    assert (roce.fabric.lossless.pfc_priority, roce.fabric.lossless.ecn) == (3, True)
    assert (roce.fabric.lossless.trust, roce.fabric.lossless.traffic_class) == ("dscp", 106)
    checks = {"fabric.pfc", "fabric.ecn", "fabric.trust", "fabric.dscp_priority", "fabric.tos", "fabric.traffic_class"}
    assert checks <= {entry.check for entry in expected_checks(roce)}
    assert roce.roles["gpu"].expect.cpu is None
    assert {nic.link_layer for nic in roce.roles["gpu"].expect.nics} == {"Ethernet"}
    for id_ in ("nvidia-dgx-h100", "nvidia-dgx-b200", "nvidia-gb200-nvl72"):
        fabric = models[id_].fabric
        assert fabric is not None
        assert (fabric.kind, fabric.lossless) == ("infiniband", None)


def test_inherited_reasons_do_not_speak_of_another_system(models: dict[str, Architecture]) -> None:
    """A bar that a file changes comes with a reason of its own, and no figure of the parent's survives under it."""
    parent = models["nvidia-dgx-h100"]
    for id_ in ("nvidia-dgx-h200", "hgx-h100-roce", "nvidia-dgx-b200", "nvidia-dgx-a100"):
        for entry in models[id_].criteria:
            known = next((c for c in parent.criteria if c.id == entry.id), None)
            if known is not None and (known.pass_ != entry.pass_ or known.where != entry.where):
                assert known.reason != entry.reason, f"{id_}: {entry.id}"
    for id_ in ("nvidia-dgx-b200", "nvidia-dgx-a100"):
        everything = (*models[id_].criteria, *models[id_].curves, *models[id_].outliers)
        assert not [entry.id for entry in everything if "guideline" in entry.reason]
    assert not [entry.id for entry in models["nvidia-dgx-a100"].criteria if "400" in entry.reason]


FOUR = tuple(f"gpu-{n:02d}" for n in range(1, 5))


@pytest.mark.parametrize("id_", IDS)
def test_without_evidence_nothing_passes(models: dict[str, Architecture], id_: str) -> None:
    nodes = tuple(f"gpu-{n:02d}" for n in range(1, models[id_].roles["gpu"].count.min + 1))
    judgement = judge(models[id_], run_info(*nodes), (), ())
    others = {verdict.id for verdict in judgement.verdicts if verdict.status is not Status.UNMEASURED}
    assert others <= {"rack.count[gpu]"}
    assert judgement.outcome is Outcome.INCOMPLETE


def statuses(architecture: Architecture, entry: str, *evidence: Measurement) -> dict[str, Status]:
    judgement = judge(architecture, run_info(*FOUR), evidence, ())
    return {verdict.subject: verdict.status for verdict in judgement.verdicts if verdict.id == entry}


def test_a_downgraded_link_of_one_gpu_fails_and_no_other(models: dict[str, Architecture]) -> None:
    bad = "gpu-03/gpu5"
    by_subject = statuses(
        models["nvidia-dgx-h100"],
        "gpu.h2d",
        *(
            measurement(
                f"{node}/gpu{n}",
                *[26.1 if f"{node}/gpu{n}" == bad else 54.8] * 10,
                metric="gpu.host_to_device_bandwidth",
            )
            for node in FOUR
            for n in range(8)
        ),
    )
    assert len(by_subject) == 32
    assert {subject for subject, status in by_subject.items() if status is Status.FAIL} == {bad}
    assert set(by_subject.values()) == {Status.PASS, Status.FAIL}


@pytest.mark.parametrize(
    ("busbw", "conditions", "status"),
    [
        (386.56, {"ranks": 64}, Status.PASS),
        (365.0, {"ranks": 32}, Status.WARN),
        (350.0, {"ranks": 32}, Status.FAIL),
        (487.0, {"ranks": 16}, Status.INVALID),  # two nodes, a tree, more than the wire
        (480.0, {}, Status.INVALID),
        (900.0, {"ranks": 32}, Status.INVALID),  # more than twice the wire
    ],
)
def test_all_reduce_over_the_rack(
    models: dict[str, Architecture], busbw: float, conditions: dict[str, int], status: Status
) -> None:
    by_subject = statuses(
        models["nvidia-dgx-h100"],
        "nccl.rack",
        measurement(
            FOUR,
            *[busbw] * 5,
            metric="collective.busbw",
            scope=Scope.RACK,
            conditions=conditions,
            op="all_reduce",
            bytes="8589934592",
            engine="nccl-tests",
        ),
    )
    assert list(by_subject.values()) == [status]


@pytest.mark.parametrize("name", ["nvidia-dgx-a100", "nvidia-dgx-h100", "nvidia-dgx-h200", "nvidia-dgx-b200"])
def test_one_memory_module_of_32_is_missed(name: str) -> None:
    memory = load(name).model.roles["gpu"].expect.memory
    assert memory is not None
    least = memory.installed_gb * (1 - memory.tolerance_pct / 100)
    of_the_kernel = 1 - 1 / 64  # 64 B for each page of 4 KiB it keeps for itself
    assert memory.installed_gb * of_the_kernel * 31 / 32 < least < memory.installed_gb * of_the_kernel


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"trust": None}, "nothing puts RoCE into priority 3"),
        ({"trust": "pcp"}, "nothing puts RoCE into priority 3"),
        ({"dscp_priority": {48: 6}}, "no DSCP means priority 3"),
        ({"tos": None, "traffic_class": None}, "no connection has a DSCP of priority 3: say tos and traffic_class 106"),
        ({"tos": 0}, "0 is DSCP 0, which does not mean priority 3"),
        ({"traffic_class": 192}, "192 is DSCP 48, which does not mean priority 3"),
        ({"pfc_priority": 4}, "no DSCP means priority 4"),
        ({"pfc_priority": None, "trust": None}, None),
    ],
)
def test_pfc_on_a_priority_that_nothing_is_put_into_is_a_contradiction(
    models: dict[str, Architecture], changes: dict[str, Any], problem: str | None
) -> None:
    roce = models["hgx-h100-roce"]
    assert roce.fabric is not None
    assert roce.fabric.lossless is not None
    lossless = roce.fabric.lossless.model_copy(update=changes)
    spoilt = roce.model_copy(update={"fabric": roce.fabric.model_copy(update={"lossless": lossless})})
    messages = [entry.message for entry in problems(spoilt) if entry.path[:2] == ("fabric", "lossless")]
    assert any(problem in message for message in messages) if problem else messages == []
