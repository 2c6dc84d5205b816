"""The profile ``full`` of a published architecture measures what its criteria ask for, but for a listed rest."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from rackproof import architectures
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.core.architecture import Architecture, Criterion, IngestJob, Severity
from rackproof.core.architecture.claims import measured_today
from rackproof.core.architecture.coverage import entries_of
from rackproof.core.architecture.entries import each_entry
from rackproof.core.judging.conditions import condition_of
from rackproof.core.metrics import METRICS
from rackproof.core.rack import Node, Rack
from tests.unit.published import SYSTEMS

pytestmark = pytest.mark.few(14)

MOST: Final = 18
"""Nodes of a role, as many as the largest rack that has one size."""
DLIO: Final = "MLPerf's rule asks for 44 TB, in millions of files or at a rate that only a better level carries"
RANKS: Final = "its 64 ranks are those of eight nodes of eight: a site with them adds storage.checkpoint"
ONE_DRIVE: Final = "the rule asks for five times a memory that is not published, on one drive"
VIRTUAL: Final = "the kit limits ports of virtual machines only"
EMULATES_H100: Final = "the runs of the parent emulate H100"
GAPS: Final[dict[str, dict[str, str]]] = {
    "nvidia-dgx-h100": {"ingest.cosmoflow": DLIO, "ingest.unet3d": DLIO, "checkpoint.write": RANKS},
    "nvidia-dgx-h200": {"ingest.cosmoflow": DLIO, "ingest.unet3d": DLIO, "checkpoint.write": RANKS},
    "hgx-h100-roce": {"ingest.cosmoflow": DLIO, "ingest.unet3d": DLIO, "checkpoint.write": RANKS},
    "nvidia-dgx-a100": {"ingest.cosmoflow": DLIO, "ingest.unet3d": DLIO},
    "nvidia-dgx-b200": {"ingest.retinanet": DLIO, "curve.training": EMULATES_H100},
    "h200-single": {"ingest.resnet50": ONE_DRIVE},
    "hitachi-v225g": {"network.ports": VIRTUAL},
}
"""Advisory entries that the profile leaves out, each with the reason; all others are measured."""


NIGHT_H: Final = 4
"""Most hours of GPUs, links and collectives of 32 nodes; storage and ingest come on top."""
ALL_PAIRS_H: Final = 9
"""Most hours of the same of eight nodes, whose pairs are all measured."""


@cache
def model_of(name: str) -> Architecture:
    return architectures.load(name).model


def rack_of(model: Architecture) -> Rack:
    """A rack of the declared size: of each role the most nodes, four without such a number."""
    rails = range(model.fabric.rails if model.fabric else 1)
    names = [
        (role, f"{role}-{number}")
        for role, declared in model.roles.items()
        for number in range(1, min(declared.count.max or 4, MOST) + 1)
    ]
    return Rack(
        "x",
        tuple(
            Node(name, (role,), {"fabric_addresses": [f"10.{rail}.0.{number}/24" for rail in rails]})
            for number, (role, name) in enumerate(names, 1)
        ),
    )


def gaps_of(model: Architecture) -> list[str]:
    rack = rack_of(model)
    return plan_gaps(model, "full", rack, plan_steps(model, "full", rack))


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_measures_all_but_the_listed_rest(name: str) -> None:
    model = model_of(name)
    listed = GAPS.get(name, {})
    advisory = {entry.id for _, entry in each_entry(model) if entry.severity is Severity.ADVISORY}
    assert set(listed) <= advisory, "a rack without a required number is INCOMPLETE"
    gaps = gaps_of(model)
    assert all("no step measures" in line for line in gaps)
    named = {id_ for line in gaps for id_ in line.rpartition(": ")[2].removesuffix(" will be UNMEASURED").split(", ")}
    assert named == set(listed)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_stored_text_of_a_run_has_the_plan_of_the_file(name: str) -> None:
    """Otherwise a run against a file that extends another one is INCOMPLETE when it is judged again."""
    model, whole = model_of(name), architectures.stored(architectures.load(name).text, "stored").model
    plans = [plan_steps(one, "full", rack_of(model)) for one in (model, whole)]
    assert [step.digest for step in plans[0]] == [step.digest for step in plans[1]]


RECORDED: Final = {
    "ingest": {"cache", "data", "gpus", "nodes", "predicted", "steps"},
    "containers": {"engine", "io", "nodes", "privileges", "runtime"},
    "storage": {"cache", "clients", "io", "ranks"},
    "storage.connections_speedup": {"cache", "connections"},
}
"""Conditions of numbers by benchmark or metric, as far as entries may ask for them; a number without one is INVALID."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_entry_asks_for_a_condition_that_is_not_recorded(name: str) -> None:
    for path, asks in entries_of(model_of(name)):
        recorded = RECORDED.get(asks.metric, RECORDED.get(METRICS[asks.metric].benchmark))
        asked = {condition_of(key) for key in asks.conditions}
        assert recorded is None or asked <= recorded, (path, asked)


def changed(name: str, id_: str, **changes: object) -> Criterion:
    (entry,) = (entry for entry in model_of(name).criteria if entry.id == id_)
    return entry.model_copy(update=changes)


@pytest.mark.parametrize(
    ("name", "id_", "where"),
    [
        ("hitachi-v225g", "framework.memory", {"workload": "encoded", "data": "framework-memory"}),
        ("dell-scaling-little", "records.bytes", {"workload": "resnet50", "format": "protobuf-lzo"}),
        ("dell-scaling-little", "records.bytes", {"workload": "resnet50", "format": ("files", "protobuf-lzo")}),
        ("dell-scaling-little", "mixed.inference", {"workload": "inference", "beside": "backup"}),
    ],
)
def test_a_value_that_no_benchmark_gives_is_not_measured(name: str, id_: str, where: dict[str, object]) -> None:
    assert measured_today(changed(name, id_))
    assert not measured_today(changed(name, id_, where=where))


def test_a_share_of_what_no_benchmark_measures_is_not_measured() -> None:
    whole = changed("hitachi-v225g", "framework.memory")
    assert whole.pass_.of is not None
    of = whole.pass_.of.model_copy(update={"where": {"workload": "encoded", "data": "framework-disk"}})
    share = whole.pass_.model_copy(update={"of": of})
    assert not measured_today(whole.model_copy(update={"pass_": share}))


@pytest.mark.parametrize(
    ("job", "refused"),
    [
        ({"data": []}, "data is empty"),
        ({"data": [], "predict": True}, ""),
        ({"data": [], "placement": [1, 2]}, ""),
        ({"engine": "torch", "precision": "fp16"}, ""),
        ({"engine": "torch", "precision": "fp8"}, "precision"),
    ],
)
def test_a_job_may_have_no_leg_of_its_own(job: dict[str, object], refused: str) -> None:
    given = {
        "workload": "w", "dataset": "d", "accelerator": "v100", "model": "resnet50", "batch": 1, "seconds": 2,
    } | job  # fmt: skip
    if refused:
        with pytest.raises(ValueError, match=refused):
            IngestJob.model_validate(given)
    else:
        assert IngestJob.model_validate(given).runs == 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_reads_no_record_twice(name: str) -> None:
    """Where a record came from a cache, the mounts' counters contradict the pipeline, and the number is INVALID."""
    model = model_of(name)
    ingest = model.profiles["full"].ingest
    for job in ingest.jobs.values() if ingest else ():
        dataset, declared = ingest.datasets[job.dataset], model.roles["gpu"].count
        if job.settle or job.epochs or not job.step_s or not {"storage", "undecoded"} & set(job.data):
            continue  # real accelerators: at what rate, only a run tells
        nodes = max(job.nodes) if job.nodes else declared.max or 15
        rate = job.workers * job.arrivals_per_s or job.accelerators / job.step_s
        taken = nodes * rate * job.batch * (job.seconds + job.warmup_s)
        local = model.storage[dataset.storage].class_ == "local"
        assert taken / (nodes if local else 1) <= dataset.samples * dataset.copies, job.workload


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name.startswith(("nvidia-", "hgx-"))])
def test_a_rack_of_32_nodes_is_measured_in_a_night(name: str) -> None:
    """All pairs of 32 nodes take 27 hours with eight rails, and those of 8 nodes take one night."""
    model = model_of(name)
    fabric = model.model_copy(update={"profiles": {"full": model.profiles["full"].model_copy(
        update={"storage": None, "ingest": None, "drives": None, "osds": None, "containers": None}
    )}})  # fmt: skip
    hours, grouped = {}, {}
    for count in (8, 32):
        rails = range(model.rails)
        data = [{"fabric_addresses": [f"10.{rail}.0.{number}/24" for rail in rails]} for number in range(1, count + 1)]
        rack = Rack("x", tuple(Node(f"gpu-{number}", ("gpu",), own) for number, own in enumerate(data)))
        steps = plan_steps(fabric, "full", rack)
        hours[count] = sum(step.estimate_s for step in steps) / 3600
        grouped[count] = sum(step.expects[0].metric == "group.faults" for step in steps)
    assert grouped == {8: 0, 32: 1}
    assert hours[32] < NIGHT_H
    assert hours[8] < ALL_PAIRS_H
