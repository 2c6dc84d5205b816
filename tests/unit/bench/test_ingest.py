"""Runs of the input pipeline: what counts, and what contradicts itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.ingest import steps as ingest
from rackproof.bench.ingest.bound import ACCELERATOR, DECODE, NETWORK, START, STORAGE, Counters, bound_by
from rackproof.bench.ingest.further import further_of
from rackproof.bench.ingest.proof import check_identity
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.runs import TOOL, Part
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.step import BenchContext, Step, expected
from rackproof.bench.storage.commands import DROP, drop_and_state, state_after
from rackproof.bench.storage.program_runs import configs_of
from rackproof.core.architecture import Architecture, DataSet, IngestJob, IngestProfile, Profile, Scale
from rackproof.core.architecture.base import Figure
from rackproof.core.clocks import Clock
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(32)

POINT = "/mnt/nfs-tcp"
SET = DataSet(storage="nfs-tcp", format="tfrecord", samples=24, per_shard=4, mean_bytes=3000)
JOB = IngestJob(
    workload="resnet50", dataset="photos", accelerator="v100", model="resnet50", batch=4, slowdown=10.0,
    accelerators=2, workers=2, crop=32, seconds=2, warmup_s=0,
)  # fmt: skip
NODES = ("gpu-01", "gpu-02")


def profile(**jobs: IngestJob) -> IngestProfile:
    return IngestProfile(datasets={"photos": SET}, jobs=jobs or {"train": JOB})


def steps(part: IngestProfile, nodes: int = 2) -> list[Step]:
    return ingest.plan(virtual_rack(), part, lab_rack(nodes))


class TestPlan:
    def test_a_step_for_each_number_of_nodes_and_place_of_the_data(self) -> None:
        changes = {"nodes": (1, 2), "data": ("storage", "memory", "synthetic")}
        job = IngestJob.model_validate(JOB.model_dump() | changes)
        assert [step.id.rpartition("/")[2] for step in steps(profile(train=job))] == [
            "storage-1", "storage-2", "memory-1", "memory-2", "synthetic-1", "synthetic-2",
        ]  # fmt: skip

    def test_every_measurement_has_its_place(self) -> None:
        job = IngestJob.model_validate({**JOB.model_dump(), "placement": (1, 2), "beside": "serve"})
        serve = IngestJob.model_validate({**JOB.model_dump(), "kind": "inference", "workload": "serve"})
        places = [place for step in steps(profile(train=job, serve=serve)) for place in step.expects]
        keys = {(place.metric, place.scope, place.members, tuple(sorted(place.labels.items()))) for place in places}
        assert len(keys) == len(places)
        assert {place.metric for place in places} >= {
            "ingest.placement_spread", "mixed.accelerator_utilisation_loss", "inference.latency_p99",
            "ingest.dataset_bytes_per_sample", "ingest.bytes_read_over_dataset",
        }  # fmt: skip
        assert {place.labels.get("gpus") for place in places if "gpus" in place.labels} == {"4"}

    def test_inference_is_measured_alone_and_beside_in_one_step(self) -> None:
        """Two steps would compare runs of different minutes."""
        serve = {**JOB.model_dump(), "kind": "inference", "workload": "serve", "beside": "train"}
        jobs = {"train": JOB, "serve": IngestJob.model_validate(serve)}
        places = [place for step in steps(profile(**jobs)) for place in step.expects]
        latencies = [(one.labels["beside"], one.step) for one in places if one.metric == "inference.latency_p99"]
        step = "ingest/nfs-tcp/serve/beside"
        assert latencies == [("nothing", step), ("training", step)]
        assert [one.step for one in places if one.metric == "mixed.inference_latency_loss"] == [step]

    @pytest.mark.parametrize(("cache", "planned"), [(None, False), ({"value": 8, "unit": "GB", "source": "x"}, True)])
    def test_a_size_over_unknown_caches_is_not_expected(self, cache: dict[str, Any] | None, planned: bool) -> None:
        rack = virtual_rack()
        assert rack.sizing is not None
        unit = rack.sizing.unit.model_copy(update={"cache": None if cache is None else Figure.model_validate(cache)})
        known = rack.model_copy(update={"sizing": rack.sizing.model_copy(update={"unit": unit})})
        local = IngestProfile(datasets={"photos": SET.model_copy(update={"storage": "local"})}, jobs={"train": JOB})
        for jobs, has in ((profile(), planned), (local, True)):
            (step,) = ingest.plan(known, jobs, lab_rack(2))
            assert ("ingest.dataset_over_caches" in {place.metric for place in step.expects}) == has

    def test_epochs_are_runs_of_one_step(self) -> None:
        job = IngestJob.model_validate({**JOB.model_dump(), "epochs": 2})
        (step,) = steps(profile(train=job))
        assert {place.labels["epoch"] for place in step.expects if place.metric == "ingest.cache_hits"} == {"1", "2"}

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"model": "resnet9000"}, "no rate of resnet9000 on v100: give rate"), ({"dataset": "none"}, "no data set"),
            ({"workers": 3}, "2 accelerators need 2 workers"), ({"placement": (1, 3)}, "cannot be placed evenly"),
            ({"beside": "none"}, "no job 'none' beside it"), ({"workers": 1}, "2 accelerators need 2 workers"),
        ],
    )  # fmt: skip
    def test_jobs_that_cannot_run_are_refused(self, change: dict[str, Any], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            IngestProfile.model_validate({"datasets": {"photos": SET}, "jobs": {"train": JOB.model_dump() | change}})

    def test_a_data_set_is_written_by_the_first_step_that_reads_it(self) -> None:
        job = IngestJob.model_validate(
            {**JOB.model_dump(), "data": ("storage", "memory"), "runs": 2, "beside": "serve"}
        )
        serve = IngestJob.model_validate({**JOB.model_dump(), "kind": "inference", "engine": "torch", "slowdown": 1})
        shown = {step.id.partition("/nfs-tcp/")[2]: step.commands for step in steps(profile(train=job, serve=serve))}
        programs = {name: [command.split()[2].rpartition("/")[2] for command in own] for name, own in shown.items()}
        assert programs == {
            "train/storage-2": [*["dataset_node.py"] * 3, "ingest_node.py"], "train/memory-2": ["ingest_node.py"],
            "train/beside": ["ingest_node.py", "ingest_node.py"], "serve/storage-2": ["ingest_node.py"],
        }  # fmt: skip
        assert [len(configs_of(command, TOOL)) for command in shown["train/beside"]] == [1, 2]
        (real,) = configs_of(shown["serve/storage-2"][0], TOOL)
        assert real["torch"] == {
            "model": "resnet50", "kind": "inference", "precision": "amp", "node": 0, "nodes": 1,
        }  # fmt: skip

    def test_a_batch_takes_the_models_time(self) -> None:
        assert JOB.step_s == pytest.approx(4 * 10 / 712.46, rel=1e-4)


# A run of two nodes as their programs print it


BEGIN = 1000.0


def config(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "job": "train", "folders": [f"{POINT}/rackproof-data/photos"], "mountpoints": [POINT], "data": "storage",
        "node": number, "nodes": 2, "accelerators": 2, "workers": 2, "slots": 2, "batch": 4, "step_s": 0.1, "crop": 32,
        "start_file": "/run/rackproof-bench/start-1", "start_limit_s": 60,
        "warmup_s": 1, "seconds": 10, "preload": 64, "seed": 1, "arrivals": 0.0, "local": False,
    } | changes  # fmt: skip


def document(own: dict[str, Any]) -> dict[str, Any]:
    """Half of the time the accelerators wait; 40 samples a second of 1000 B."""
    series = [[t, 100 * t + 50, 200 * t + 100, 50_000 * t, 0, 40_000 * t, 40_000 * t] for t in range(12)]
    pipeline = {
        "bytes": 440_000.0, "samples": 439.0, "drained": 1.0, "read_s": 15.0, "decode_s": 5.0, "wait_s": 0.1,
        "cpu_s": 4.4, "first_s": 0.2, "passes": 1.0,
    }  # fmt: skip
    return {
        "rackproof_ingest": 1, "job": own["job"], "node": "x", "start_at": BEGIN, "start_file": own["start_file"],
        "began_at": BEGIN + 0.01,
        "ended_at": BEGIN + 11.02, "seconds": 10.0, "busy_s": [5.0, 5.0], "steps": [50, 50],
        "pipeline": pipeline, "series": series,
        "latency_s": {"count": 110, "p50": 0.1, "p90": 0.2, "p99": 0.3, "max": 0.4},
        "processors": 2, "numpy": "2.4", "pillow": "13", "memory_bytes": 1_000_000, "peak_kib": 1,
        "dataset": {"index_bytes": 100, "format": "tfrecord", "samples": 10_000, "distinct": 10_000, "copies": 1,
                    "bytes": 10_000_000, "samples_sha256": "ab"},
    }  # fmt: skip


Change = Callable[[dict[str, dict[str, Any]], dict[str, dict[str, Any]]], object]


def answers(
    change: Change = lambda configs, documents: None, nodes: StorageNodes | None = None, counted: int = 440_100,
    rc: int = 0, cut: bool = False, more: Mapping[str, int] = {},
) -> list[CommandResult]:  # fmt: skip
    """All answers of one run; ``change`` edits configurations and documents by node. ``more``: bytes above ``counted``,
    by node."""
    rack = nodes or StorageNodes(virtual_rack())
    for node in NODES:
        rack.files[node] = {f"{POINT}/rackproof-data/photos/rackproof.000000.tfrecord": 400_000}
    storage = virtual_rack().storage["nfs-tcp"]
    folders = [f"{POINT}/rackproof-data/photos"]
    configs = {node: config(number) for number, node in enumerate(NODES)}
    documents = {node: document(configs[node]) for node in NODES}
    change(configs, documents)
    every: list[CommandResult | None] = []
    every += [rack.answer(node, drop_and_state(storage, folders, ["10.0.0.9"])) for node in NODES]
    every.append(reply("storage-01", DROP))
    for node in NODES:
        rack.moved.setdefault((node, POINT), [0, 0])[0] += counted + more.get(node, 0)
        text = json.dumps(documents[node]) + "\n"
        command = f"x python3 -I /run/rackproof-bench/ingest/ingest_node.py '{json.dumps(configs[node])}'"
        every.append(reply(node, command, text[: len(text) // 2] if cut and node == "gpu-02" else text, rc))
    every += [rack.answer(node, state_after(storage, folders, ["10.0.0.9"])) for node in NODES]
    assert None not in every
    return [answer for answer in every if answer is not None]


def place(metric: str, members: tuple[str, ...] = NODES, leg: str = "storage-2", **labels: str) -> Measurement:
    scope = Scope.RACK if members == NODES else Scope.NODE
    return expected(metric, scope, members, {"workload": "resnet50", **labels}, f"ingest/nfs-tcp/train/{leg}")


def beside(every: list[CommandResult], **changes: Any) -> list[CommandResult]:
    """The same run with the job ``serve`` on the same nodes; ``changes`` are those of its configuration."""
    both = []
    for answer in every:
        if own := configs_of(answer.command, TOOL):
            other = own[0] | {"job": "serve"} | changes
            text = answer.stdout.decode() + json.dumps(document(other)) + "\n"
            answer = CommandResult(answer.node, f"{answer.command} '{json.dumps(other)}'", 0, text.encode())
        both.append(answer)
    return both


def value(metric: str, every: list[CommandResult], members: tuple[str, ...] = NODES, **labels: str) -> float:
    (sample,) = read_ingest(every, virtual_rack())(place(metric, members, **labels)).samples
    return sample


class TestReader:
    @pytest.mark.parametrize(
        ("metric", "members", "number"),
        [
            ("ingest.samples_rate", NODES, 2 * 10 / 0.1 * 4 / 10), ("ingest.samples_rate", ("gpu-01",), 40.0),
            ("ingest.accelerator_utilisation", NODES, 50.0), ("ingest.storage_bandwidth", NODES, 0.08),
            ("ingest.storage_bytes_per_sample", NODES, 1000.0), ("ingest.cpu_time_per_sample", ("gpu-02",), 10.02),
            ("ingest.cpu_utilisation", ("gpu-01",), 50.0), ("ingest.cache_hits", ("gpu-01",), 0.0),
            ("ingest.bytes_read_over_dataset", NODES, 0.088), ("inference.latency_p99", NODES, 300.0),
        ],
    )  # fmt: skip
    def test_numbers_are_those_of_the_counters(self, metric: str, members: tuple[str, ...], number: float) -> None:
        assert value(metric, answers(), members) == pytest.approx(number, rel=1e-3, abs=1e-9)

    def test_conditions_say_how_and_what_bound(self) -> None:
        reading = read_ingest(answers(), virtual_rack())(place("ingest.samples_rate"))
        assert reading.conditions["cache"] == "warm on clients"  # 4096 of 400,000 B are cached
        assert reading.conditions["bound_by"] == STORAGE
        assert "no MLPerf result" in reading.conditions["accelerator"]
        assert reading.conditions["steps"] == 50
        assert reading.companions["counter_bytes"] == (880_200.0,)
        assert reading.companions["dataset_bytes"] == (10_000_000.0,)
        assert len(reading.used) == 2

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda c, d: d["gpu-02"].update(error="worker 1 of 2 died: signal 9"), "gpu-02: worker 1 of 2 died"),
            (lambda c, d: d["gpu-02"].update(job="other"), "gpu-02: 0 answers of train"),
            (lambda c, d: c["gpu-02"].update(batch=8), "gpu-02 was given another job than gpu-01"),
            (lambda c, d: c["gpu-02"].update(node=0), "expected the shares of 2 nodes"),
            (lambda c, d: d["gpu-02"].update(start_file="start-2"), "gpu-02 answers another command"),
            (lambda c, d: d["gpu-02"].update(began_at=1002.0), r"gpu-02 began \+2\.0 s off the common start"),
            (lambda c, d: d["gpu-02"].update(start_at=1005.0, began_at=1005.0, ended_at=1017.0),
             "the clock of gpu-01 is 5.0 s behind that of gpu-02"),
            (lambda c, d: d["gpu-02"]["dataset"].update(samples_sha256="cd"), "read different data sets"),
            (lambda c, d: d["gpu-01"].update(seconds=5.0), "expected 10 s, actual 5 s"),
            (lambda c, d: d["gpu-01"].update(busy_s=[15.0, 15.0]), "busy for 15 s of 10 s"),
            (lambda c, d: d["gpu-01"].update(busy_s=[1.0, 10.1]), "an accelerator was busy for 10.1 s of 10 s"),
            (lambda c, d: d["gpu-01"].update(busy_s=[6.0, 5.0]), "took 440 samples, its workers gave them 439"),
            (lambda c, d: d["gpu-01"].update(steps=[60, 50]), "took 440 samples, its workers gave them 439"),
            (lambda c, d: d["gpu-01"]["pipeline"].update(samples=3.0), "took 400 samples, its workers gave them 3"),
            (lambda c, d: d["gpu-01"].update(steps=None), "expected 2 values of steps"),
            (lambda c, d: d["gpu-01"].pop("steps"), "expected 2 values of steps"),
            (lambda c, d: d["gpu-01"]["series"][3].__setitem__(0, None), "series of counters is not complete"),
            (lambda c, d: d["gpu-01"]["series"][3].__setitem__(5, True), "series of counters is not complete"),
            (lambda c, d: d["gpu-01"]["series"][-1].__setitem__(2, 1e999), "series of counters is not complete"),
            (lambda c, d: d["gpu-01"].update(busy_s=[0.0, 0.0]), "no batch reached an accelerator"),
            (lambda c, d: d["gpu-01"].update(busy_s=[5.0]), "expected 2 values of busy_s"),
            (lambda c, d: d["gpu-01"].update(ended_at=1003.0), "it ran 3.0 s, less than"),
            (lambda c, d: d["gpu-01"].pop("pipeline"), "pipeline"),
            (lambda c, d: d["gpu-01"]["pipeline"].update(bytes=900_000.0), "% of 900000 B that it read"),
            (lambda c, d: [x["pipeline"].update(bytes=400_000.0) for x in d.values()], "more than 3% apart"),
        ],
    )  # fmt: skip
    def test_a_run_that_contradicts_itself_gives_no_number(self, change: Change, why: str) -> None:
        with pytest.raises(ParseError, match=why):
            value("ingest.samples_rate", answers(change))

    @pytest.mark.parametrize(("read", "why"), [(440.0, None), (430.0, "a pass over 880 samples, actual 870")])
    def test_a_pass_that_one_node_ends_early_gives_no_number(self, read: float, why: str | None) -> None:
        def one_pass(configs: Any, documents: Any) -> None:
            for node in NODES:
                configs[node]["seconds"] = 0
                documents[node]["dataset"]["samples"] = 880
            documents["gpu-02"]["pipeline"]["samples"] = read - 1

        every = answers(one_pass)
        if why is None:
            assert value("ingest.samples_rate", every) == pytest.approx(80.0)
            return
        with pytest.raises(ParseError, match=why):
            value("ingest.samples_rate", every)

    def test_a_cut_answer_gives_no_number(self) -> None:
        with pytest.raises(ParseError, match="gpu-02: its answer is cut off"):
            value("ingest.samples_rate", answers(cut=True))

    def test_an_exit_status_gives_no_number(self) -> None:
        with pytest.raises(ParseError):
            value("ingest.samples_rate", answers(rc=1))

    def test_bytes_from_a_cache_give_no_number(self) -> None:
        with pytest.raises(
            ParseError, match="100 % of 440000 B that it read came from the client's memory: the mount counted 100 B"
        ):
            value("ingest.storage_bytes_per_sample", answers(counted=100))

    def test_a_mount_that_is_gone_afterwards_gives_no_number(self) -> None:
        nodes = StorageNodes(virtual_rack(), mountinfo_after=lambda text: text.replace("nfs4", "ext4"))
        with pytest.raises(ParseError, match="mount: after the run"):
            value("ingest.samples_rate", answers(nodes=nodes))

    def test_a_series_that_runs_backwards_gives_no_bandwidth(self) -> None:
        def backwards(configs: Any, documents: Any) -> None:
            documents["gpu-01"]["series"][5][5] = 1

        with pytest.raises(ParseError, match="backwards"):
            value("ingest.storage_bandwidth", answers(backwards))

    def test_few_requests_have_no_99th_percentile(self) -> None:
        def few(configs: Any, documents: Any) -> None:
            for own in documents.values():
                own["latency_s"]["count"] = 49

        with pytest.raises(ParseError, match="98 requests"):
            value("inference.latency_p99", answers(few))

    def test_the_page_has_the_other_latencies_of_each_run(self) -> None:
        """The page shows those of the slowest node."""

        def slow(configs: Any, documents: Any) -> None:
            documents["gpu-02"]["latency_s"] |= {"p50": 0.15, "p90": 0.19, "max": 1.25}

        nodes = StorageNodes(virtual_rack())
        every = [*answers(nodes=nodes), *answers(slow, nodes=nodes)]
        reading = read_ingest(every, virtual_rack())(place("inference.latency_p99", beside="nothing"))
        assert reading.samples == (300.0, 300.0)
        further = {"p50": [100.0, 150.0], "p90": [200.0, 200.0], "max": [400.0, 1250.0]}
        assert reading.conditions["latency_ms"] == further
        assert "latency_ms" not in read_ingest(every, virtual_rack())(place("inference.samples_rate")).conditions

    @pytest.mark.parametrize(
        ("latencies", "why"),
        [({"p90": 0.31}, "gpu-02: its latencies of p50, p90, p99, max do not grow"),
         ({"max": 0.2}, "gpu-02: its latencies of p50, p90, p99, max do not grow"), ({"p50": None}, "latency_s.p50")],
    )  # fmt: skip
    def test_latencies_that_contradict_each_other_are_none(self, latencies: dict[str, float], why: str) -> None:
        def change(configs: Any, documents: Any) -> None:
            documents["gpu-02"]["latency_s"] |= latencies

        with pytest.raises(ParseError, match=why):
            value("inference.latency_p99", answers(change), beside="nothing")

    @pytest.mark.parametrize(
        ("columns", "expected"),
        [
            ((50_000, None), {"ports": [1250.0, 1250.0]}),
            ((50_000, 42_000), {"ports": [1250.0, 1250.0], "rdma_devices": [1050.0, 1050.0]}),
            ((0, 0), {"ports": [0.0, 0.0], "rdma_devices": [0.0, 0.0]}),
            ((None, None), {}),
        ],
    )  # fmt: skip
    def test_bytes_a_sample_stand_beside_those_of_the_ports(
        self, columns: tuple[int | None, int | None], expected: dict[str, list[float]]
    ) -> None:
        """40,000 B/s of samples of 1000 B were read; ``columns``: what ports and RDMA devices count in a second."""
        nodes = StorageNodes(virtual_rack())

        def carried(configs: Any, documents: Any) -> None:
            for own in documents.values():
                for row in own["series"]:
                    row[3:5] = [None if one is None else 1_000_000 + one * row[0] for one in columns]

        every = [*answers(carried, nodes=nodes), *answers(carried, nodes=nodes)]
        reading = read_ingest(every, virtual_rack())(place("ingest.storage_bytes_per_sample"))
        assert reading.samples == pytest.approx((1000.0, 1000.0), rel=1e-3)
        assert reading.conditions.get("nic_bytes_per_sample", {}) == expected
        assert (expected == {}) == ("nic_bytes_per_sample" not in reading.conditions)
        assert "nic_bytes_per_sample" not in read_ingest(every, virtual_rack())(place("ingest.samples_rate")).conditions

    def test_a_loss_is_counted_in_points(self) -> None:
        nodes = StorageNodes(virtual_rack())

        def slower(configs: dict[str, Any], documents: dict[str, Any]) -> None:
            for own in documents.values():
                own["busy_s"] = [4.0, 4.0]

        alone, together = answers(nodes=nodes), beside(answers(slower, nodes=nodes))
        assert value("mixed.accelerator_utilisation_loss", [*alone, *together]) == pytest.approx(10.0)
        loss = read_ingest([*alone, *together], virtual_rack())(place("mixed.accelerator_utilisation_loss"))
        before, after = (loss.conditions["utilisation_pct"][when] for when in ("alone", "beside"))
        assert before[0] - after[0] == pytest.approx(10.0)
        assert loss.conditions["beside"] == "serve"
        gained = read_ingest([*beside(answers(nodes=nodes)), *answers(slower, nodes=nodes)], virtual_rack())
        assert gained(place("mixed.accelerator_utilisation_loss")).samples == (0.0,)
        with pytest.raises(ParseError, match="1 runs alone, 0 beside"):
            value("mixed.accelerator_utilisation_loss", alone)

    @pytest.mark.parametrize(("p99", "percent"), [(0.9, 200.0), (0.36, 20.0), (0.2, 0.0)])
    def test_a_loss_of_latency_is_its_growth_in_percent(self, p99: float, percent: float) -> None:
        nodes = StorageNodes(virtual_rack())

        def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
            for own in documents.values():
                own["latency_s"] |= {"p90": 0.2, "p99": p99, "max": 1.0}

        every = [*answers(nodes=nodes), *beside(answers(change, nodes=nodes))]
        loss = read_ingest(every, virtual_rack())(place("mixed.inference_latency_loss"))
        assert loss.samples == pytest.approx((percent,))
        assert loss.conditions["beside"] == "serve"
        assert loss.conditions["latency_p99_ms"] == {"alone": [300.0], "beside": [pytest.approx(1000 * p99)]}

    @pytest.mark.parametrize(
        ("latencies", "why"),
        [({"p50": 0.0, "p90": 0.0, "p99": 0.0}, "alone is 0"), ({"p90": 0.31}, "do not grow"),
         ({"count": 49}, "98 requests"), ({"p99": None}, "latency_s.p99")],
    )  # fmt: skip
    def test_a_loss_of_latency_needs_both_latencies(self, latencies: dict[str, float | None], why: str) -> None:
        def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
            for own in documents.values():
                own["latency_s"] |= latencies

        nodes = StorageNodes(virtual_rack())
        alone = answers(change, nodes=nodes)
        with pytest.raises(ParseError, match=why):
            value("mixed.inference_latency_loss", [*alone, *beside(answers(nodes=nodes))])
        with pytest.raises(ParseError, match="1 runs alone, 0 beside"):
            value("mixed.inference_latency_loss", answers())

    def test_a_second_epoch_counts_what_its_own_caches_gave(self) -> None:
        nodes = StorageNodes(virtual_rack())
        first, second = answers(nodes=nodes), answers(nodes=nodes, counted=220_050)
        every = [*first, *(answer for answer in second[3:])]  # no caches are dropped in between
        assert value("ingest.cache_hits", every, ("gpu-01",), epoch="1") == 0.0
        assert value("ingest.cache_hits", every, ("gpu-01",), epoch="2") == pytest.approx(50.0)
        per_sample = [value("ingest.storage_bytes_per_sample", every, epoch=epoch) for epoch in ("1", "2")]
        assert per_sample == pytest.approx([1000.0, 500.0], rel=1e-3)
        reading = read_ingest(every, virtual_rack())(place("ingest.samples_rate", epoch="2"))
        assert reading.conditions["cache"] == "as the epoch before left it"
        again = [*every, *answers(nodes=nodes, counted=500_000)[3:]]
        with pytest.raises(ParseError, match="its samples have 0 to 440100 B, the storage gave 500000 B"):
            value("ingest.cache_hits", again, ("gpu-01",), epoch="2")

    def test_one_placement_has_no_spread(self) -> None:
        with pytest.raises(ParseError, match="not run equally often"):
            value("ingest.placement_spread", answers())

    def test_an_epoch_that_was_not_run_has_no_number(self) -> None:
        with pytest.raises(ParseError, match="no run of epoch 2"):
            value("ingest.samples_rate", answers(), epoch="2")


def sizing(
    slow: float = 1.0, decoded: float = 5.0, summed: float = 0.0, first: float | None = None, port_mb: float = 0.0,
    cpu: float = 1.0,
) -> list[CommandResult]:  # fmt: skip
    """The legs of the sizing model; ``slow`` divides the rate of the whole, ``decoded`` is its time to decode.

    Workers that decode nothing wait for reads, except for ``summed`` seconds of processor time for sums of records.
    ``first``: when the first batch of the whole came. ``port_mb``: MB/s that the ports of a node carry in reads.
    ``cpu``: factor of the processor time from memory."""
    nodes = StorageNodes(virtual_rack())

    def leg(data: str) -> Change:
        def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
            for node in NODES:
                configs[node]["data"] = data
                pipeline = documents[node]["pipeline"]
                if data == "memory":
                    documents[node]["busy_s"] = [10.0, 10.0]
                    pipeline |= {key: 2 * pipeline[key] for key in ("samples", "read_s", "decode_s", "cpu_s")}
                    pipeline["cpu_s"] *= cpu
                if data == "undecoded":
                    elapsed_s = configs[node]["seconds"] + configs[node]["warmup_s"]
                    pipeline |= {"read_s": configs[node]["workers"] * elapsed_s - summed, "cpu_s": 0.1 + summed}
                if data == "storage" and first is not None:
                    pipeline["first_s"] = first
                if data == "storage":
                    documents[node]["busy_s"] = [5.0 / slow, 5.0 / slow]
                    documents[node]["pipeline"]["decode_s"] = decoded
            if port_mb and data != "memory":
                carried(port_mb)(configs, documents)

        return change

    return [answer for data in ("memory", "undecoded", "storage") for answer in answers(leg(data), nodes=nodes)]


def part(files: int | None = None, **changes: Any) -> Part:
    own = config(0, **changes)
    answer = document(own)
    answer["dataset"] |= {} if files is None else {"files": files}
    return Part(own, Json(TOOL, "", answer), reply("gpu-01", "x"))


def test_a_local_drive_gives_whole_pages_and_no_storage_less_than_was_read() -> None:
    """1,100 files of 400 B were read, of 25,000: each may cost a page."""
    small = part(files=25_000)
    assert small.pages == pytest.approx(1_100 * 4096)
    assert part().pages == 0, "of a kit that did not count files"
    assert further_of("ingest.storage_bytes_per_sample", [{"gpu-01": part(local=True)}]) == {}, "ports carry none of it"
    check_identity([small], 440_100 + 4_500_000, cold=True, local=True)
    for own, counted, local in ((small, 460_000, False), (part(), 460_000, True), (small, 420_000, True)):
        with pytest.raises(ParseError, match=r"its samples have 440100 B, the storage gave .* more than 3% apart"):
            check_identity([own], counted, cold=True, local=local)


@pytest.mark.parametrize(
    ("metric", "members", "labels"),
    [
        ("ingest.samples_rate", NODES, {}), ("ingest.samples_rate", ("gpu-01",), {}),
        ("ingest.storage_bytes_per_sample", NODES, {}), ("ingest.cache_hits", ("gpu-02",), {"epoch": "1"}),
        ("ingest.bytes_read_over_dataset", NODES, {}), ("ingest.placement_spread", NODES, {}),
        ("ingest.cache_settling_ratio", ("gpu-01",), {}), ("inference.latency_p99", NODES, {"beside": "nothing"}),
        ("mixed.accelerator_utilisation_loss", NODES, {}),
        ("mixed.inference_latency_loss", NODES, {}), ("sizing.throughput_over_predicted", NODES, {}),
        ("sizing.bottleneck_agreement", NODES, {}),
    ],
)  # fmt: skip
def test_a_run_whose_storage_gave_more_than_its_samples_gives_no_number(
    metric: str, members: tuple[str, ...], labels: dict[str, str]
) -> None:
    """One of two nodes, in one of two runs."""

    def apart(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for own in configs.values():
            own |= {"node": 0, "nodes": 1} if "settling" in metric else {}

    nodes = StorageNodes(virtual_rack())
    every = [*answers(apart, nodes), *answers(apart, nodes, more={"gpu-02": 20_000})]
    with pytest.raises(ParseError, match=r"its samples have .*440100 B, the storage gave 460100 B: more than 3% apart"):
        value(metric, every, members, **labels)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("mixed.accelerator_utilisation_loss", {}),
        ("mixed.inference_latency_loss", {}),
        ("inference.latency_p99", {"beside": "training"}),
    ],
)
@pytest.mark.parametrize(
    ("folder", "point", "counted", "why"),
    [
        ("photos", POINT, 440_100, ""), ("photos", POINT, 880_200, ""),  # once, or once for each job
        ("photos", POINT, 910_000, "its samples have 440100 to 880200 B, the storage gave 910000 B"),
        ("pictures", POINT, 880_200, ""),
        ("pictures", POINT, 450_000, "its samples have 880200 B, the storage gave 450000 B"),
        ("photos", "/mnt/nfs-rdma", 440_100, ""),
        ("photos", "/mnt/nfs-rdma", 880_200, "its samples have 440100 B, the storage gave 880200 B"),
    ],
)  # fmt: skip
def test_the_storage_gave_two_jobs_their_samples(
    metric: str, labels: dict[str, str], folder: str, point: str, counted: int, why: str
) -> None:
    nodes, other = StorageNodes(virtual_rack()), {"folders": [f"{point}/{folder}"], "mountpoints": [point]}
    if folder == "photos" and point == POINT:
        other = {}
    every = [*answers(nodes=nodes), *beside(answers(nodes=nodes, counted=counted), **other)]
    if not why:
        assert value(metric, every, **labels) >= 0
        if labels:
            assert value(metric, every, beside="nothing") == pytest.approx(300.0)
        return
    with pytest.raises(ParseError, match=why):
        value(metric, every, **labels)


def test_a_job_that_gave_no_answer_was_not_beside_another() -> None:
    every = beside(answers())
    every = [replace(a, stdout=a.stdout.splitlines()[0] + b"\n") if configs_of(a.command, TOOL) else a for a in every]
    with pytest.raises(ParseError, match="0 answers of serve"):
        value("inference.latency_p99", every, beside="training")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: b"", "0 answers of serve"),  # its program was killed; the storage need not have an exact counter
        (lambda line: line.replace(b'"busy_s": [5.0, 5.0]', b'"busy_s": [0, 0]'), "no batch reached an accelerator"),
    ],
)
def test_a_job_that_did_not_work_was_not_beside_another(change: Callable[[bytes], bytes], why: str) -> None:
    def alone(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for own in configs.values():
            own["data"] = "memory"

    def changed(answer: CommandResult) -> CommandResult:
        own, *others = answer.stdout.splitlines()
        return replace(answer, stdout=own + b"\n" + b"".join(change(line) + b"\n" for line in others))

    every = beside(answers(alone))
    assert value("inference.latency_p99", every, beside="training") == pytest.approx(300.0)
    every = [changed(answer) if configs_of(answer.command, TOOL) else answer for answer in every]
    with pytest.raises(ParseError, match=why):
        value("inference.latency_p99", every, beside="training")


class TestSizing:
    """Two nodes: accelerators take 160 samples a second, processors decode 399, the storage gives 80."""

    def value(self, metric: str, every: list[CommandResult]) -> float:
        (sample,) = read_ingest(every, virtual_rack())(
            place(f"sizing.{metric}", leg="sizing", workload="ingest")
        ).samples
        return sample

    def test_the_slowest_stage_is_the_prediction(self) -> None:
        assert self.value("throughput_over_predicted", sizing()) == pytest.approx(1.0, rel=1e-3)
        assert self.value("throughput_over_predicted", sizing(slow=2.0)) == pytest.approx(0.5, rel=1e-3)

    def test_another_stage_than_predicted_is_no_agreement(self) -> None:
        assert self.value("bottleneck_agreement", sizing()) == 1.0
        assert self.value("bottleneck_agreement", sizing(decoded=60.0)) == 0.5

    @pytest.mark.parametrize(("cpu", "agreement"), [(2.57, 1.0), (2.75, 0.5)])
    def test_either_of_two_stages_that_are_as_good_as_full_may_bind(self, cpu: float, agreement: float) -> None:
        """From memory, processors decode 155 or 145 samples a second; the accelerators, which take 160, were busy."""
        assert self.value("bottleneck_agreement", sizing(cpu=cpu)) == agreement

    def test_processor_time_of_reads_is_the_processors_and_not_the_storage_s(self) -> None:
        """With 20 of 22 s for sums the storage gives ten times what it was asked for; both legs decode."""
        read = read_ingest(sizing(decoded=60.0, summed=20.0), virtual_rack())
        reading = read(place("sizing.bottleneck_agreement", leg="sizing", workload="ingest"))
        assert reading.conditions["predicted"] == "cpu"
        assert reading.samples == (1.0,)

    def test_a_run_that_its_start_bound_agrees_with_nothing(self) -> None:
        with pytest.raises(ParseError, match="start of workers bound a run"):
            self.value("bottleneck_agreement", sizing(first=9.0))
        assert self.value("bottleneck_agreement", sizing(first=3.4)) == 1.0, "a second of it is the warm-up"

    def test_conditions_name_the_predicted_stage(self) -> None:
        read = read_ingest(sizing(), virtual_rack())
        reading = read(place("sizing.bottleneck_agreement", leg="sizing", workload="ingest"))
        assert reading.conditions["predicted"] == "storage_bandwidth"
        assert reading.conditions["predicted_rate"] == pytest.approx(80.0)

    @pytest.mark.parametrize(
        ("gbps", "carries", "predicted", "agreement"),
        [
            ("10", 0.02, "network", 1.0),  # full: 160 kb/s
            ("10", 0.015, "storage_bandwidth", 1.0),
            ("40", 0.02, "storage_bandwidth", 1.0),
            ("100", 0.2, "gpu", 0.5),  # full while nothing else is done: of the storage no more is known than that
            (None, 0.02, "storage_bandwidth", 1.0),  # no limit outside of the series
        ],
    )
    def test_a_full_port_is_predicted_at_its_rate_in_the_step(
        self, gbps: str | None, carries: float, predicted: str, agreement: float
    ) -> None:
        read = read_ingest(sizing(port_mb=carries), shaped_rack())
        labels = {"workload": "ingest"} | ({"port_gbps": gbps} if gbps else {})
        reading = read(place("sizing.bottleneck_agreement", leg="sizing", **labels))
        assert (reading.conditions["predicted"], reading.samples) == (predicted, (agreement,))
        if predicted == "network":
            assert reading.conditions["predicted_rate"] == pytest.approx(2 * 20_000 / 1000, rel=0.01)

    def test_full_ports_of_the_storage_are_the_network_too(self) -> None:
        read = read_ingest(sizing(port_mb=0.01), shaped_rack("storage"))
        reading = read(place("sizing.bottleneck_agreement", leg="sizing", workload="ingest", port_gbps="10"))
        assert (reading.conditions["predicted"], reading.samples) == ("storage_ports", (1.0,))

    def test_a_missing_leg_or_workload_gives_no_number(self) -> None:
        with pytest.raises(ParseError, match="not measured equally often"):
            self.value("bottleneck_agreement", sizing()[:-6])
        with pytest.raises(ParseError, match="has no workload 'none'"):
            read_ingest(sizing(), virtual_rack())(
                place("sizing.throughput_over_predicted", leg="sizing", workload="none")
            )


class TestStage:
    @pytest.mark.parametrize(
        ("changes", "stage"),
        [({}, STORAGE), ({"utilisation": 0.96}, ACCELERATOR), ({"first_share": 0.4}, START),
         ({"decode_s": 30.0}, DECODE), ({"port": 0.97}, NETWORK), ({"port": 0.5}, STORAGE),
         ({"read_s": 0.0, "decode_s": 0.0}, ACCELERATOR)],
    )  # fmt: skip
    def test_the_counters_name_the_stage(self, changes: dict[str, float], stage: str) -> None:
        counters = Counters(utilisation=0.5, first_share=0.0, read_s=10.0, decode_s=5.0, cpu=0.5, port=None)
        assert bound_by(counters._replace(**changes)).stage == stage  # type: ignore[arg-type]


def count_reads(nodes: StorageNodes, result: CommandResult) -> None:
    """The mount counts what the jobs of a run have read."""
    for line in result.stdout.decode().splitlines():
        own = json.loads(line)
        if "error" not in own:
            read = int(own["pipeline"]["bytes"]) + own["dataset"]["index_bytes"]
            nodes.moved.setdefault((result.node, POINT), [0, 0])[0] += read


class TestRunner:
    @pytest.fixture
    def context(self, tmp_path: Path) -> Iterator[BenchContext]:
        """One node, whose programs really run on this machine."""
        nodes = StorageNodes(virtual_rack())
        mount, home = tmp_path / "mount", tmp_path / "home"
        mount.mkdir()
        home.mkdir()

        def answer(node: str, command: str) -> CommandResult | None:
            result = node_programs.answer(node, command, POINT, mount, home)
            if result is None:
                return nodes.answer(node, command)
            if configs_of(command, TOOL):
                count_reads(nodes, result)
            return result

        with scripted(tmp_path / "run", answer, lab_rack(1)) as session:
            self.lines: list[str] = []
            yield BenchContext(session, self.lines.append)

    def test_a_leg_from_the_data_set_to_its_numbers(
        self, context: BenchContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (step,), job = steps(profile(), 1), JOB
        run = node_programs.punctual(monkeypatch, lambda: step.execute(context))
        measured = {(m.metric, m.scope): m for m in run}
        rate = measured["ingest.samples_rate", Scope.RACK]
        assert rate.samples, rate.reason
        *making, shown = step.commands
        asked = [text for _, text in context.session.fleet.asked]  # type: ignore[attr-defined]
        (ran,) = [own for text in asked for own in configs_of(text, TOOL)][-1:]
        (planned,) = configs_of(shown, TOOL)
        assert {key: value for key, value in ran.items() if not key.startswith("start_")} == planned
        assert all(any(text.endswith(command) for text in asked) for command in making)
        assert 0 < rate.samples[0] <= 2 * 71.3
        size = measured["ingest.dataset_bytes_per_sample", Scope.RACK].samples[0]
        per_sample = measured["ingest.storage_bytes_per_sample", Scope.RACK].samples[0]
        assert per_sample == pytest.approx(size, rel=0.2)  # of few shards, some twice
        assert ("ingest.dataset_over_caches", Scope.RACK) not in measured  # no cache of the storage is given
        assert rate.conditions["job"]["step_s"] == job.step_s
        reading = read_ingest([], virtual_rack())
        with pytest.raises(ParseError, match="no run of train"):
            reading(rate)
        own = Profile(ingest=profile(train=job))
        assert profile_mismatch(rate, _reading(rate), own) is None
        other = Profile(ingest=profile(train=job.model_copy(update={"seconds": 20})))
        assert "the profile asks for 20" in (profile_mismatch(rate, _reading(rate), other) or "")

    def test_a_node_whose_clock_is_not_read_gives_no_number(self, context: BenchContext) -> None:
        context.session.fleet.clocks["gpu-01"] = "no answer within 5 s"  # type: ignore[attr-defined]
        (step,) = steps(profile(), 1)
        assert {m.reason for m in step.execute(context)} == {"gpu-01: its clock was not read: no answer within 5 s"}
        assert Clock(0, 0).within(1)

    def test_a_node_that_is_gone_gives_no_number(self, context: BenchContext) -> None:
        context.session.fleet.dead.add("gpu-01")  # type: ignore[attr-defined]
        (step,) = steps(profile(), 1)
        assert {m.reason for m in step.execute(context)} == {"gpu-01 does not answer"}


def _reading(measurement: Measurement) -> Any:
    from rackproof.bench.reading import Reading

    return Reading(measurement.samples, (), measurement.conditions)


def shaped_rack(role: str = "gpu") -> Architecture:
    """The virtual rack with ports of 160 kb/s in place of 10 Gb/s, in jobs of several rates only."""
    port = {"title": "Rate of a port", "published": 10, "here": 0.00016, "unit": "Gb/s", "reason": "Small samples."}
    link = {"role": role, "published": 40, "unit": "Gb/s", "by": ["port"], "reason": "Weighed against 10 Gb/s."}
    scale = {"of": "x", "factors": {"port": port}, "links": {"p": {**link, "series": True, "only_series": True}}}
    return virtual_rack().model_copy(update={"scale": Scale.model_validate(scale)})


def carried(mb: float) -> Change:
    """Ports of each node carry ``mb`` MB a second; workers wait for reads."""

    def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for own in documents.values():
            own["series"] = [[*row[:3], int(mb * 1e6) * row[0], *row[4:]] for row in own["series"]]

    return change


@pytest.mark.parametrize(
    ("mb", "stage"),
    [(1, STORAGE), (20.5, NETWORK), (11, NETWORK), (9, STORAGE)],  # 180 Mb/s of a node, and of the one server
)
def test_a_full_port_of_node_or_storage_is_the_network(mb: float, stage: str) -> None:
    reading = read_ingest(answers(carried(mb)), virtual_rack())(place("ingest.samples_rate"))
    assert reading.conditions["bound_by"] == stage, reading.conditions["bound_because"]


def test_ports_of_an_unknown_rate_bind_nothing() -> None:
    sizing = virtual_rack().sizing
    assert sizing is not None
    other = virtual_rack().model_copy(update={"sizing": sizing.model_copy(update={"storage": "nfs-rdma"})})
    reading = read_ingest(answers(carried(100)), other)(place("ingest.samples_rate"))
    assert reading.conditions["bound_by"] == STORAGE
