"""Real accelerators: what computed, and how busy the driver saw each GPU in the timed part. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any, Final

from rackproof.bench.ingest.runs import TOOL, Part, Run
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.gpu_list import parse_gpu_list
from rackproof.parse.gpu_load import parse_gpu_links

METRIC: Final = "gpu.utilisation"
STEPS: Final = 20
"""Least number of steps of each rank: a rate counts whole steps."""
SAMPLED: Final = 0.5
"""Least share of the timed part's seconds with a sample of the GPU; a driver that is slow to answer leaves some out."""


def check_real(node: str, part: Part) -> None:
    """Checks that each rank ran the requested job, on a device of its own, for enough steps. Raises ParseError."""
    asked, about = part.real, _abouts(part)
    if any(steps < STEPS for steps in part.steps):
        raise ParseError(TOOL, f"{node}: {min(part.steps):.0f} steps of a rank, a rate needs {STEPS}")
    world = int(part.config["accelerators"]) * int(asked["nodes"]) if asked["kind"] == "training" else 1
    for place, rank in enumerate(about):
        if rank.get("world") != world:
            raise Mismatch(TOOL, f"{node}: rank {place} trained with {rank.get('world')} ranks, expected {world}")
        if asked["backend"] == "nccl":
            uuid = str(rank.get("uuid", "")).lower().removeprefix("gpu-")
            if uuid and uuid != str(asked["gpus"][place]).lower().removeprefix("gpu-"):
                raise Mismatch(TOOL, f"{node}: rank {place}: expected {asked['gpus'][place]}, actual {rank['uuid']}")


def _abouts(part: Part) -> list[dict[str, Any]]:
    about = part.answer.values.get("real")
    if not isinstance(about, list) or len(about) != part.config["accelerators"]:
        raise ParseError(TOOL, "it does not say what its ranks ran on")
    return about


def text_of(parts: Sequence[Part]) -> str:
    """Text for users: engine, versions and devices."""
    asked, ranks = parts[0].real, [rank for part in parts for rank in _abouts(part)]
    devices = sorted({str(rank["device"]) for rank in ranks})
    versions = sorted({f"PyTorch {rank['torch']}, torchvision {rank['torchvision']}" for rank in ranks})
    how = "training with DistributedDataParallel" if asked["kind"] == "training" else "forward passes"
    mixed = "automatic mixed precision"
    precision = {"amp": mixed, "fp16": f"{mixed} with float16"}.get(asked["precision"], "fp32")
    return (
        f"real: {asked['model']}, {how}, {precision}, {asked['backend']}, on {' and '.join(devices)};"
        f" {' and '.join(versions)}; no MLPerf result"
    )


def utilisation(run: Run, part: Part, node: str, device: int) -> float:
    """Mean of the driver's utilisation of one GPU over the timed part, percent. Raises ParseError."""
    if part.real.get("backend") != "nccl":
        raise ParseError(TOOL, f"{node} computed on processors, not on its GPUs")
    listed, sampled = run.lists.get(node), run.samples.get(node)
    if listed is None or sampled is None:
        raise ParseError("nvidia-smi", f"{node}: its GPUs were not sampled")
    if sampled.error is not None:
        raise ParseError("nvidia-smi", f"{node}: {sampled.error}")
    gpus = parse_gpu_list(listed.stdout)
    if device >= len(gpus) or gpus[device].uuid != part.real["gpus"][device]:
        raise Mismatch("nvidia-smi", f"{node}: gpu{device} is not the one of rank {device}")
    begin_s = part.start_at + float(part.config["warmup_s"])
    rounds = [
        one.used_pct
        for one in parse_gpu_links(sampled.stdout)
        if one.bus_id.rpartition(".")[0].upper() == gpus[device].bus_id
        and one.at_s is not None
        and begin_s + 1 <= one.at_s <= begin_s + part.window_s  # the driver looks back for up to a second
    ]
    if any(used is None for used in rounds):
        raise ParseError("nvidia-smi", f"{node}: gpu{device} does not report its utilisation")
    if len(rounds) < max(3.0, SAMPLED * part.window_s):
        raise ParseError("nvidia-smi", f"{node}: {len(rounds)} samples of gpu{device} in {part.window_s:.0f} s")
    return mean(float(used or 0) for used in rounds)
