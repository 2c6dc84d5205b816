"""Real accelerators: ranks that a stand-in for PyTorch carries out, and what the driver says of their GPUs."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.readers import reader_of
from rackproof.bench.reading import Reading
from rackproof.core.architecture import IngestJob, Profile
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse.gpu_list import LIST
from rackproof.parse.gpu_load import SAMPLER
from rackproof.remote.command import CommandResult
from tests.unit.bench.test_ingest import JOB, NODES, Change, answers, place, profile, steps
from tests.unit.bench.test_ingest_node import dataset, ran
from tests.unit.fakes import reply, virtual_rack
from tests.unit.gpu_nodes import BUSES, NAME, uuid
from tests.unit.refusals import refuses

pytestmark = pytest.mark.few(9)

STAND_IN = Path(__file__).parents[2] / "data/stand_in_ranks"
REAL = IngestJob(
    workload="resnet50", dataset="photos", engine="torch", model="resnet50", batch=4, accelerators=2, workers=2,
    crop=32, seconds=10, warmup_s=1, arrivals_per_s=0.0,
)  # fmt: skip


# Ranks on this machine


def torch(**changes: Any) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "model": "resnet18", "kind": "training", "precision": "amp", "backend": "gloo", "python": sys.executable,
        "master": f"127.0.0.1:{port}", "node": 0, "nodes": 1,
        "interface": "", "gpus": [], "folder": str(STAND_IN),
    } | changes  # fmt: skip


def trained(folder: Path, own: dict[str, Any], **changes: Any) -> dict[str, Any]:
    more = {"accelerators": 2, "workers": 2, "batch": 2, "step_s": 0, "seconds": 4} | changes
    return ran(folder, torch=own, **more)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return dataset(tmp_path / "photos")


@pytest.mark.parametrize(
    ("data", "changes"),
    [("storage", {}), ("synthetic", {}), ("storage", {"precision": "fp16", "model": "googlenet"})],
)
def test_ranks_of_a_training_make_the_same_steps(photos: Path, data: str, changes: dict[str, Any]) -> None:
    answer = trained(photos, torch(**changes), data=data)
    assert "error" not in answer, answer
    assert answer["steps"][0] >= 3
    assert abs(answer["steps"][0] - answer["steps"][1]) <= 1  # of the same ones, at the edges of the timed part
    assert [rank["world"] for rank in answer["real"]] == [2, 2]
    assert answer["real"][0]["torch"] == "0.0-stand-in"
    assert all(0 < busy <= 4.001 for busy in answer["busy_s"])
    assert (answer["pipeline"]["samples"] > 0) == (data == "storage")
    if data == "storage":  # every sample that the ranks took was read
        assert sum(answer["steps"]) * 2 <= answer["pipeline"]["samples"]


def test_forward_passes_have_latencies(photos: Path) -> None:
    answer = trained(photos, torch(kind="inference"), arrivals=5)
    assert "error" not in answer, answer
    assert answer["latency_s"]["count"] == sum(answer["steps"]) > 0
    assert answer["latency_s"]["p50"] > 0


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_a_gpu_that_waits_for_batches_is_not_busy(photos: Path, kind: str) -> None:
    """Its steps end while the rank waits for the next batch: it must not count as busy until that one comes."""
    gpu = torch(backend="nccl", gpus=[uuid(0)], kind=kind)
    answer = trained(photos, gpu, accelerators=1, workers=1, batch=64)
    assert "error" not in answer, answer
    assert answer["real"][0]["uuid"] == uuid(0)
    assert answer["steps"][0] >= 3
    assert 0 < answer["busy_s"][0] < 2  # of 4 s; a step of 20 ms takes a batch that is read and decoded in 200 ms


def test_a_gpu_that_waits_for_nothing_is_busy(photos: Path) -> None:
    answer = trained(photos, torch(backend="nccl", gpus=[uuid(0)]), accelerators=1, data="synthetic")
    assert "error" not in answer, answer
    assert answer["busy_s"][0] > 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "resnet9000"}, "rank 0: AttributeError:"),
        ({"folder": ""}, "torchrun ended before the start: ModuleNotFoundError: No module named 'torch'"),
        ({"python": "/nonexistent/python3"}, "/nonexistent/python3: No such file"),
    ],
)
def test_what_does_not_start_is_named(photos: Path, changes: dict[str, Any], why: str) -> None:
    answer = trained(photos, torch(**changes))
    assert set(answer) == {"rackproof_ingest", "job", "error"}
    assert why in answer["error"] or (why.startswith("rank 0") and "AttributeError" in answer["error"])


def test_a_rank_that_fails_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "crash")
    answer = trained(photos, torch(), seconds=30)
    assert "rank " in answer["error"]
    assert "illegal memory access" in answer["error"] or "before the end" in answer["error"]


@pytest.mark.skipif("RACKPROOF_TORCH_PYTHON" not in os.environ, reason="names a Python with PyTorch and torchvision")
@pytest.mark.parametrize(
    ("kind", "model", "precision"),
    [("training", "squeezenet1_1", "amp"), ("inference", "squeezenet1_1", "amp"), ("training", "googlenet", "fp16")],
)
def test_real_pytorch_on_processors(photos: Path, kind: str, model: str, precision: str) -> None:
    python = os.environ["RACKPROOF_TORCH_PYTHON"]
    own = torch(folder="", python=python, model=model, kind=kind, precision=precision)
    text = {"accelerators": 2, "batch": 2, "crop": 64, "step_s": 0, "seconds": 30, "torch": own}
    answer = ran(photos, **text)
    assert "error" not in answer, answer
    assert sum(answer["steps"]) > 0


# What counts


def ranks(change: Change = lambda configs, documents: None) -> Change:
    """Two nodes with two GPUs each."""

    def real(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for number, node in enumerate(NODES):
            configs[node] |= {"step_s": 0.0}
            configs[node]["torch"] = {
                "model": "resnet50", "kind": "training", "precision": "amp", "backend": "nccl", "python": "python3",
                "folder": "", "master": "10.0.0.1:29500", "node": number, "nodes": 2, "interface": "fabric0",
                "gpus": [uuid(0), uuid(1)],
            }  # fmt: skip
            documents[node]["real"] = [
                {
                    "torch": "2.9",
                    "torchvision": "0.24",
                    "device": NAME,
                    "uuid": uuid(k).removeprefix("GPU-"),
                    "world": 4,
                }
                for k in range(2)
            ]
        change(configs, documents)

    return real


def sampled(used: Callable[[int, int], str] = lambda t, gpu: str(90 + gpu), first: int = 995, last: int = 1015) -> str:
    """Output of the sampler: the timed part is from 1001 to 1011."""
    lines = []
    for t in range(first, last):
        lines.append(f"{t}.000000000")
        lines += [
            f"{bus}.0, P0, {used(t, k)}, 5, 5, 16, 16, 0x0000000000000004, 1755, 690.12, 61"
            for k, bus in enumerate(BUSES[:2])
        ]
    return "\n".join(lines) + "\n"


HEALTHY = ranks()


def run(
    change: Change = HEALTHY, text: str | None = None, listed: str | None = None, counted: int = 440_100
) -> list[CommandResult]:
    every = answers(change, counted=counted)
    own = "".join(f"{k}, {uuid(k)}, {BUSES[k]}.0, {NAME}\n" for k in range(2)) if listed is None else listed
    at = next(i for i, answer in enumerate(every) if "ingest_node.py" in answer.command)
    lists = [reply(node, LIST, own) for node in NODES]
    samples = [reply(node, SAMPLER, sampled() if text is None else text, 143) for node in NODES]
    return [*lists, *every[:at], *every[at : at + 2], *samples, *every[at + 2 :]]


def gpu(member: str = "gpu-02/gpu1") -> Measurement:
    return place("gpu.utilisation", (member,)).model_copy(update={"scope": Scope.GPU})


def test_utilisation_is_the_mean_of_the_timed_part() -> None:
    def used(t: int, k: int) -> str:
        return str(91 + k) if 1002 <= t <= 1011 else "0"

    reading = read_ingest(run(text=sampled(used)), virtual_rack())(gpu())
    assert reading.samples == (92.0,)
    assert SAMPLER in {answer.command for answer in reading.used}
    assert reading.conditions["accelerator"].startswith("real: resnet50, training with DistributedDataParallel")
    assert "no MLPerf result" in reading.conditions["accelerator"]
    assert reading.conditions["gpus"] == 4
    assert reader_of("gpu.utilisation") is reader_of("ingest.samples_rate")
    assert reader_of("gpu.matmul_rate") is not reader_of("ingest.samples_rate")


def test_a_rate_counts_whole_steps() -> None:
    (rate,) = read_ingest(run(), virtual_rack())(place("ingest.samples_rate")).samples
    assert rate == pytest.approx(4 * 50 * 4 / 10)


test_what_the_driver_does_not_say_is_no_utilisation = refuses(
    lambda every: read_ingest(every, virtual_rack())(gpu()),
    (run(text=sampled(lambda t, k: "[N/A]")), "does not report its utilisation"),
    (run(text=sampled(last=1003)), "1 samples of gpu1 in 10 s"),
    (run(text="\n".join(line for line in sampled().splitlines() if ", " in line) + "\n"), "0 samples of gpu1"),
    (run(text="NVIDIA-SMI has failed\n"), "expected the link of a GPU"),
    (run(listed=f"0, {uuid(0)}, {BUSES[0]}.0, {NAME}\n"), "gpu1 is not the one of rank 1"),
    ([answer for answer in run() if answer.command != SAMPLER], "were not sampled"),
    (run(ranks(lambda c, d: [x["torch"].update(backend="gloo") for x in c.values()])), "computed on processors"),
    (run(ranks(lambda c, d: d["gpu-02"].update(steps=[50, 19]))), "gpu-02: 19 steps of a rank, a rate needs 20"),
    (run(ranks(lambda c, d: d["gpu-02"]["real"].pop())), "does not say what its ranks ran on"),
    (run(ranks(lambda c, d: d["gpu-01"]["real"][1].update(world=2))), "rank 1 trained with 2 ranks, expected 4"),
    (run(ranks(lambda c, d: d["gpu-01"]["real"][1].update(uuid="0"))), "rank 1: expected GPU-"),
    (run(ranks(lambda c, d: c["gpu-02"]["torch"].update(model="vgg16"))), "was given another job"),
    (run(counted=500_000), "its samples have 440100 B, the storage gave 500000 B"),
)


def test_each_gpu_has_its_place() -> None:
    (step,) = steps(profile(train=REAL))
    own = [one for one in step.expects if one.metric == "gpu.utilisation"]
    assert [one.members for one in own] == [(f"{node}/gpu{k}",) for node in NODES for k in range(2)]
    assert {one.scope for one in own} == {Scope.GPU}


def test_another_model_than_the_profiles_is_seen() -> None:
    measurement = gpu()
    reading = read_ingest(run(), virtual_rack())(measurement)
    recorded = Reading(reading.samples, (), reading.conditions)
    job = REAL.model_copy(update={"slots": 2})
    assert profile_mismatch(measurement, recorded, Profile(ingest=profile(train=job))) is None
    other = job.model_copy(update={"model": "vgg16"})
    assert "the profile asks for vgg16" in (
        profile_mismatch(measurement, recorded, Profile(ingest=profile(train=other))) or ""
    )
    emulated = JOB.model_copy(update={"seconds": 10, "warmup_s": 1, "slowdown": 1.0})
    assert profile_mismatch(measurement, recorded, Profile(ingest=profile(train=emulated))) is not None


test_what_real_accelerators_cannot_do_is_refused = refuses(
    lambda change: IngestJob.model_validate(REAL.model_dump(exclude_unset=True) | change),
    ({"slowdown": 2.0}, "slowdown and rate are of emulated"),
    ({"epochs": 2}, "with emulated accelerators"),
    ({"workers": 3}, "2 accelerators need 2 workers"),
    error=ValueError,
)
