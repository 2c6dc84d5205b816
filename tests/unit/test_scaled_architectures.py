"""The five published systems in scaled form: a healthy virtual rack is certified, and a stage that is throttled
fails the claim that is about it and no other.

Each rack here is a table of numbers, one for every measurement that the plan of the profile names. They become the
evidence of a whole run, which is judged and rendered as ``rackproof certify`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from markupsafe import escape

from rackproof.architectures import load, stored
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.cli.main import cli
from rackproof.core.architecture import Architecture, IngestData, Severity
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.scaled_claims import against_published
from rackproof.core.evidence import Measurement, NodeInfo, Record, RunInfo
from rackproof.core.judging.judge import judge_records
from rackproof.core.status import Outcome, Status
from rackproof.report.certificate import build_certificate
from rackproof.report.page import render_page
from rackproof.report.schema import Certificate
from tests.unit.fakes import lab_rack
from tests.unit.judging import info_of_nodes, whole

pytestmark = pytest.mark.few(12)

FOLDER = Path(__file__).parents[2] / "architectures"
SEEDS = (
    "dell-isilon-f800-dgx1",
    "dell-scaling-little",
    "hitachi-v225g",
    "hpe-apollo6500-weka",
    "weka-inference-nvme-dram",
)
every_seed = pytest.mark.parametrize("seed", SEEDS)

LARGE = "inception4-large"
BYTES = {LARGE: 133260.0, "encoded": 30664.0, "ports": 30664.0}
RATE = {LARGE: 1.0, "encoded": 25.0, "decoding": 25.0, "googlenet": 8.0, "ports": 5.3}
"""Samples a second of a node where not 7.9."""

Throttle = Callable[[Measurement], float | None]
"""Factor of a measurement; None: it gives no number."""


@cache
def architecture(seed: str) -> Architecture:
    return load(f"{seed}-scaled", [FOLDER]).model


def healthy(seed: str, place: Measurement) -> float:
    """The number of a rack that works, in the metric's unit."""
    metric, labels = place.metric, place.labels
    nodes = sum(member.startswith("gpu") for member in place.members)
    workload = labels.get("workload", "")
    size = BYTES.get(workload, 10281.0) * (0.95 if labels.get("format") == "tfrecord-gz" else 1.0)
    read = 0.00075 if (seed, labels.get("storage")) == ("weka-inference-nvme-dram", "nfs-tcp") else 0.009
    rate = 3.2 if labels.get("storage") == "local" else RATE.get(workload, 7.9)
    rate *= nodes * int(labels.get("gpus", "2")) / (2 * int(labels.get("nodes", "1")))
    numbers = {
        "samples_rate": rate, "storage_bandwidth": rate * size / 1e6, "accelerator_utilisation": 97.0,
        "storage_bytes_per_sample": size / (2 if labels.get("epoch") == "2" else 1), "dataset_bytes_per_sample": size,
        "dataset_over_caches": 0.1, "bytes_read_over_dataset": 0.5,
        "cpu_time_per_sample": 900.0 if workload == LARGE else 90.0,
        "cpu_utilisation": 60.0, "cache_settling_ratio": 1.0,
        "cache_hits": 50.0 if labels.get("epoch") == "2" else 0.0, "placement_spread": 0.03,
        "accelerator_utilisation_loss": 6.0, "inference_latency_loss": 80.0,
        "latency_p99": 900.0 if labels.get("beside") == "training" else 500.0,
        "throughput_over_predicted": 0.9, "bottleneck_agreement": 1.0,
        "rdma_write_bandwidth": 0.012, "tcp_bandwidth": 0.12, "tcp_bandwidth_to_storage": 0.0078,
        "rdma_write_latency": 5.0, "tcp_retransmitted": 0.5,
        "rdma_retries": 10.0, "loss": 0.0, "round_trip": 2.0,
        "read_bandwidth": read * nodes, "connections_speedup": 3.5,
        "random_read_iops": 300.0 * nodes, "random_read_latency": 50.0,
        "random_read_bandwidth": 0.005 * nodes, "shared_file_read_bandwidth": 0.007 * nodes, "knee_outstanding": 8.0,
        "knee_utilisation": 50.0, "container_read": 9.0, "host_read_bandwidth": 9.0, "read_over_host": 0.9,
        "bytes_copied": 0.0, "busbw": 0.001, "algbw": 0.001, "wrong_values": 0.0, "differing_files": 0.0,
        "metadata_rate": 200.0 * nodes, "small_file_read_bandwidth": 0.004 * nodes,
        "shard_read_bandwidth": 0.009 * nodes,
    }  # fmt: skip
    return numbers[metric.partition(".")[2]] * {"GB/s": 1.0, "MB/s": 1000.0}.get(
        place.unit if metric.startswith(("storage.", "container.read_b")) else "", 1.0
    )


def sick(seed: str, place: Measurement, times: float) -> float:
    """Its number, ``times`` as large; of a metric that is 0 on a healthy rack MiB more."""
    return healthy(seed, place) * times or (times - 1) * 2**20


def records(seed: str, throttle: Throttle = lambda place: 1.0) -> list[Record]:
    """A whole run: every check passes, every measurement of the plan has its number."""
    rack = lab_rack(2)
    taken = [
        place.model_copy(
            update={
                "samples": () if (times := throttle(place)) is None else (sick(seed, place, times),) * 2,
                "reason": "not measured" if throttle(place) is None else None,
                "raw": ("00",),
                "conditions": {"curves": [{"steps": [{"outstanding": 2, "p99_us": 900.0}]}]}
                if "knee" in place.metric
                else {"cache": "cold", "connections": 4},
                "companions": {"iops": (1000.0,) * 2, "latency_s": (0.064,) * 2, "outstanding": (64.0,) * 2},
            }
        )
        for step in plan_steps(architecture(seed), "lab", rack)
        for place in step.expects
    ]
    nodes = [NodeInfo(name=node.name, groups=node.groups, virtual=True) for node in rack.nodes]
    return whole(architecture(seed), *taken, run=info_of_nodes(nodes, architecture=f"{seed}-scaled"))


def certificate(seed: str, throttle: Throttle = lambda place: 1.0) -> Certificate:
    chain, file = records(seed, throttle), architecture(seed)
    run = RunInfo.model_validate(chain[0].body)
    numbers = [Measurement.model_validate(record.body) for record in chain if record.kind.value == "measurement"]
    judgement = judge_records(file, chain)
    return build_certificate(run, file, judgement, numbers, (), (), (), (), chain[-1].hash, len(chain), run.started)


def failed(seed: str, throttle: Throttle) -> set[str]:
    return {claim.id for claim in certificate(seed, throttle).claims if claim.status not in (None, Status.PASS)}


@every_seed
def test_the_file_is_valid_and_measures_every_criterion(seed: str) -> None:
    done = CliRunner().invoke(cli, ["arch", "check", str(FOLDER / f"{seed}-scaled.yaml")])
    assert done.exit_code == 0, done.output
    rack = lab_rack(2)
    assert list(plan_gaps(architecture(seed), "lab", rack, plan_steps(architecture(seed), "lab", rack))) == []


@every_seed
def test_a_healthy_rack_is_certified_claim_by_claim(seed: str) -> None:
    made = certificate(seed)
    assert [(v.id, v.subject, v.message) for v in made.verdicts if v.required and v.status is not Status.PASS] == []
    assert made.outcome is Outcome.CERTIFIED
    assert {claim.status for claim in made.claims} <= {Status.PASS, None}
    assert {claim.id for claim in made.claims} == set(load(seed, [FOLDER]).model.claims)
    page = render_page(made, {})
    section = page[page.index('<section id="claims">') :]
    for claim in made.claims:
        assert f"{claim.id}: " in section
        assert claim.ways or claim.not_checkable


@every_seed
def test_a_rack_without_numbers_is_not_certified(seed: str) -> None:
    made = certificate(seed, lambda place: None)
    assert made.outcome is not Outcome.CERTIFIED
    judged = {claim.id for claim in made.claims if claim.status is not None}
    checks_alone = {"T3"}
    assert judged - checks_alone == {claim.id for claim in made.claims if claim.status not in (None, Status.PASS)}


@every_seed
def test_the_stored_text_of_a_run_has_the_plan_of_the_file(seed: str) -> None:
    text = load(f"{seed}-scaled", [FOLDER]).text
    plans = [plan_steps(file, "lab", lab_rack(2)) for file in (architecture(seed), stored(text, "stored").model)]
    assert [step.digest for step in plans[0]] == [step.digest for step in plans[1]]


def slower(metric: str, times: float, **labels: str) -> Throttle:
    def throttle(place: Measurement) -> float:
        return times if place.metric == metric and labels.items() <= place.labels.items() else 1.0

    return throttle


def both(*throttles: Throttle) -> Throttle:
    return lambda place: prod(times for throttle in throttles if (times := throttle(place)) is not None)


@pytest.mark.parametrize(
    ("seed", "claims", "throttle"),
    [
        ("dell-isilon-f800-dgx1", "T4",
         both(*(slower(f"ingest.{one}_bytes_per_sample", 1.2, workload="resnet50") for one in ("dataset", "storage")))),
        ("dell-isilon-f800-dgx1", "T12",
         both(*(slower(f"ingest.{one}_bytes_per_sample", 1.2, workload="inception4-large")
                for one in ("dataset", "storage")))),
        ("dell-isilon-f800-dgx1", "T2", slower("link.rdma_write_bandwidth", 0.1)),
        ("dell-isilon-f800-dgx1", "T18", slower("link.tcp_bandwidth_to_storage", 0.4)),
        ("dell-isilon-f800-dgx1", "T4 T8",
         slower("ingest.dataset_bytes_per_sample", 1.2, workload="resnet50")),
        ("dell-isilon-f800-dgx1", "T6", slower("ingest.cache_settling_ratio", 4.0)),
        ("dell-isilon-f800-dgx1", "T6", slower("ingest.cache_settling_ratio", 0.0)),
        ("dell-isilon-f800-dgx1", "T7", slower("ingest.storage_bandwidth", 0.7, workload="resnet50")),
        ("dell-isilon-f800-dgx1", "T8", slower("ingest.storage_bytes_per_sample", 0.8)),
        ("dell-isilon-f800-dgx1", "T9 T10 T13",
         slower("ingest.samples_rate", 0.7, data="storage", nodes="2", workload="resnet50")),
        ("dell-isilon-f800-dgx1", "T9", slower("ingest.samples_rate", 1.3, data="storage", nodes="1")),
        ("dell-isilon-f800-dgx1", "T10", slower("ingest.accelerator_utilisation", 0.8, data="storage")),
        ("dell-isilon-f800-dgx1", "T10", slower("ingest.samples_rate", 1.3, data="synthetic")),
        ("dell-isilon-f800-dgx1", "T11", slower("ingest.cpu_time_per_sample", 3.0, data="storage")),
        ("dell-isilon-f800-dgx1", "T12", slower("ingest.storage_bandwidth", 0.7, workload="inception4-large")),
        ("dell-isilon-f800-dgx1", "T13", slower("ingest.samples_rate", 1.3, data="memory")),
        ("dell-isilon-f800-dgx1", "T5", slower("ingest.bytes_read_over_dataset", 3.0, workload="resnet50")),
        ("dell-isilon-f800-dgx1", "T8", slower("ingest.storage_bytes_per_sample", 1.3, workload="inception4-large")),
        ("dell-isilon-f800-dgx1", "T9 T12",
         slower("ingest.samples_rate", 1.5, data="storage", nodes="1", workload="inception4-large")),
        ("dell-isilon-f800-dgx1", "T10",
         slower("ingest.accelerator_utilisation", 0.7, data="storage", workload="inception4-large")),
        ("dell-isilon-f800-dgx1", "T17", slower("collective.busbw", 0.1)),
        ("dell-isilon-f800-dgx1", "T20", slower("ingest.differing_files", 2.0)),
        ("hpe-apollo6500-weka", "A6", slower("ingest.samples_rate", 1.4, gpus="1")),
        ("hpe-apollo6500-weka", "A2", slower("link.rdma_write_bandwidth", 0.1)),
        ("hpe-apollo6500-weka", "A3", slower("storage.read_bandwidth", 0.1)),
        ("hpe-apollo6500-weka", "A4", slower("storage.random_read_iops", 0.02)),
        ("hpe-apollo6500-weka", "A5 A6", slower("ingest.samples_rate", 0.7, nodes="2")),
        ("hpe-apollo6500-weka", "A7", slower("ingest.placement_spread", 10.0)),
        ("hpe-apollo6500-weka", "A8", slower("join.bytes_copied", 3.0)),
        ("hitachi-v225g", "C2 C3", slower("ingest.storage_bytes_per_sample", 2.0, epoch="2")),
        ("hitachi-v225g", "C2", slower("ingest.cache_hits", 0.1)),
        ("hitachi-v225g", "C3", slower("ingest.storage_bandwidth", 30.0, epoch="2")),
        ("hitachi-v225g", "C3 C5", slower("ingest.storage_bandwidth", 30.0, epoch="1")),
        ("hitachi-v225g", "C7", slower("storage.metadata_rate", 0.05)),
        ("hitachi-v225g", "C7", slower("ingest.samples_rate", 30.0, data="synthetic")),
        ("hitachi-v225g", "C10", slower("ingest.samples_rate", 0.7, data="memory")),
        ("hitachi-v225g", "C3", slower("ingest.samples_rate", 0.7, port_gbps="10")),
        ("hitachi-v225g", "C3 C5", slower("ingest.storage_bandwidth", 1.8, port_gbps="10")),
        ("hitachi-v225g", "C5", slower("sizing.bottleneck_agreement", 0.5)),
        ("dell-scaling-little", "B1 B2", slower("storage.random_read_iops", 0.05)),
        ("dell-scaling-little", "B3", slower("storage.random_read_bandwidth", 0.1)),
        ("dell-scaling-little", "B4", slower("storage.shared_file_read_bandwidth", 0.1)),
        ("dell-scaling-little", "B4", slower("storage.small_file_read_bandwidth", 0.05)),
        ("dell-scaling-little", "B1 B5", slower("storage.knee_outstanding", 0.1)),
        ("dell-scaling-little", "B2", slower("storage.read_bandwidth", 0.2)),
        ("dell-scaling-little", "B6", slower("sizing.bottleneck_agreement", 0.5, port_gbps="10")),
        ("dell-scaling-little", "B6", slower("sizing.bottleneck_agreement", 0.5, port_gbps="40")),
        ("dell-scaling-little", "B7", slower("container.read_over_host", 0.2)),
        ("dell-scaling-little", "B8", slower("mixed.accelerator_utilisation_loss", 5.0)),
        ("dell-scaling-little", "B8", slower("inference.latency_p99", 6.0, beside="training")),
        ("dell-scaling-little", "B9", slower("ingest.storage_bytes_per_sample", 1.5, format="tfrecord-gz")),
        ("weka-inference-nvme-dram", "A9 A10 A11",
         slower("inference.samples_rate", 0.5, storage="cephfs", data="storage")),
        ("weka-inference-nvme-dram", "A9", slower("inference.samples_rate", 0.5)),
        ("weka-inference-nvme-dram", "A9 A10", slower("inference.samples_rate", 3.0, storage="local")),
        ("weka-inference-nvme-dram", "A11", slower("inference.samples_rate", 2.0, data="memory")),
        ("weka-inference-nvme-dram", "A12", slower("storage.read_bandwidth", 0.05)),
        ("weka-inference-nvme-dram", "A12", slower("storage.read_bandwidth", 0.6, storage="nfs-tcp")),
        ("weka-inference-nvme-dram", "A12", slower("storage.read_bandwidth", 4.0, storage="nfs-tcp")),
        ("weka-inference-nvme-dram", "A12", slower("storage.connections_speedup", 0.4)),
    ],
)  # fmt: skip
def test_a_throttled_stage_fails_its_claims_and_no_other(seed: str, claims: str, throttle: Throttle) -> None:
    assert failed(seed, throttle) == set(claims.split())


@pytest.mark.parametrize(
    ("seed", "id_", "throttle"),
    [
        ("hpe-apollo6500-weka", "storage.fairness",
         lambda place: 0.1 if place.metric == "storage.read_bandwidth" and place.members == ("gpu-02",) else 1.0),
        ("dell-isilon-f800-dgx1", "nccl.correct", slower("collective.wrong_values", 2.0)),
    ],
)  # fmt: skip
def test_a_published_criterion_about_no_claim_fails_without_one(seed: str, id_: str, throttle: Throttle) -> None:
    made = certificate(seed, throttle)
    assert made.outcome is Outcome.NOT_CERTIFIED
    assert [way.id for way in made.of_no_claim if way.status is Status.FAIL] == [id_]
    assert {claim.status for claim in made.claims} <= {Status.PASS, None}


@every_seed
def test_every_entry_of_the_published_file_is_on_the_page(seed: str) -> None:
    """Scaled, or left out for a reason."""
    published, made = load(seed, [FOLDER]).model, certificate(seed)
    section = render_page(made, {})
    section = section[section.index('<section id="claims">') :]
    section = section[: section.index("</section>")]
    ways = {way.id: way for way in (*(way for claim in made.claims for way in claim.ways), *made.of_no_claim)}
    scaled = {
        entry.scaled.of: ways[entry.id].title for _, entry in each_entry(architecture(seed)) if entry.scaled is not None
    }
    left = {id_: part.reason for part in made.left_out for id_ in part.of}
    for _, entry in each_entry(published):
        text = scaled.get(entry.id) or left[entry.id]
        assert str(escape(text)) in section, entry.id
        assert entry.id not in left or f"<code>{entry.id}</code>" in section


@every_seed
def test_an_entry_that_a_scaled_file_forgets_is_named(seed: str) -> None:
    published, file = load(seed, [FOLDER]).model, architecture(seed)
    assert file.scale is not None
    for part in file.scale.left_out:
        others = tuple(other for other in file.scale.left_out if other is not part)
        shorter = file.model_copy(update={"scale": file.scale.model_copy(update={"left_out": others})})
        messages = [problem.message for problem in against_published(published, shorter)]
        assert len(messages) == len(part.of)
        assert all("scale it, or say why not" in message for message in messages)
    for index in range(len(file.criteria)):
        kept = file.criteria[:index] + file.criteria[index + 1 :]
        entry, fewer = file.criteria[index], file.model_copy(update={"criteria": kept})
        of = entry.scaled.of if entry.scaled else None
        again = any(other.scaled is not None and other.scaled.of == of for _, other in each_entry(fewer))
        missing = [f"{seed} has also {of}," in problem.message for problem in against_published(published, fewer)]
        assert missing == ([True] if of and not again else [])


def test_every_judged_claim_has_a_negative() -> None:
    """T3 is about checks of mounts, whose faults are in the catalogue of faults."""
    mark = next(m for m in test_a_throttled_stage_fails_its_claims_and_no_other.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    tried = {claim for _, claims, _ in mark.args[1] for claim in claims.split()}
    judged = {id_ for seed in SEEDS for id_, claim in architecture(seed).claims.items() if not claim.not_checkable}
    assert judged - tried == {"T3"}


def test_a_claim_with_a_criterion_of_its_own_fails_alone() -> None:
    """Claims that share all of their criteria fail together: they say the same of one number."""
    mark = next(m for m in test_a_throttled_stage_fails_its_claims_and_no_other.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    alone = {(seed, claims) for seed, claims, _ in mark.args[1]}
    own = set()
    for seed in SEEDS:
        file = architecture(seed)
        named = [entry.claim for entry in (*file.criteria, *file.curves) if entry.severity is Severity.REQUIRED]
        own |= {(seed, claims[0]) for claims in named if len(claims) == 1}
    assert own - alone == set()


@every_seed
def test_no_leg_reads_a_sample_twice(seed: str) -> None:
    """A shard that is read twice comes from a cache, and a cold leg then gives no number."""
    part = architecture(seed).profiles["lab"].ingest
    assert part is not None
    for name, job in part.jobs.items():
        dataset = part.datasets[job.dataset]
        rate = job.arrivals_per_s * job.workers or job.accelerators / job.step_s
        taken = 2 * rate * job.batch * (job.seconds + job.warmup_s)
        ahead = 2 * job.workers * (job.slots * job.batch + dataset.per_shard)
        cold = IngestData.STORAGE in job.data and not job.epochs
        assert not cold or taken + ahead < dataset.samples * dataset.copies, name


@every_seed
def test_a_leg_of_inference_has_requests_for_its_percentile(seed: str) -> None:
    part = architecture(seed).profiles["lab"].ingest
    assert part is not None
    for job in (job for job in part.jobs.values() if job.kind == "inference"):
        possible = job.arrivals_per_s * job.workers or job.accelerators / job.step_s
        assert 2 * possible * job.seconds >= 120
