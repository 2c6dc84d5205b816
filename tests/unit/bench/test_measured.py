"""Measurements of a real GPU are read again from the recorded outputs (tests/data/README.md, "measured")."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench.collectives.reader import read_collectives
from rackproof.bench.gpu.reader import DIAGNOSED, MEMORY, PRODUCTS, TO_DEVICE, TO_HOST, WRONG, read_gpus
from rackproof.bench.reading import Read, Reading
from rackproof.bench.step import expected
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import Mismatch, ParseError
from rackproof.remote.command import CommandResult

FOLDER = Path(__file__).parents[2] / "data/measured/h200"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
REFUSED = "collectives-torch-all_reduce-refused"


@cache
def step(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return document


def answers(name: str) -> list[CommandResult]:
    return [
        CommandResult(
            answer["node"], answer["command"], answer["rc"],
            *("".join(answer.get(stream, ())).encode() for stream in ("stdout", "stderr")),
        )
        for answer in step(name)["answers"]
    ]  # fmt: skip


def architecture(name: str) -> Architecture:
    """One H200 in each machine; for the run that was refused with a fabric of one rail."""
    model = load("h200-single").model
    if name != REFUSED:
        return model
    fabric = load("hgx-h100-roce").model.fabric
    assert fabric is not None
    return model.model_copy(update={"fabric": fabric.model_copy(update={"rails": 1})})


def read(name: str, results: list[CommandResult] | None = None) -> Read:
    reader = read_gpus if step(name)["step"].startswith("gpu/") else read_collectives
    return reader(answers(name) if results is None else results, architecture(name))


def places(name: str) -> list[tuple[Measurement, dict[str, Any]]]:
    document = step(name)
    return [
        (expected(m["metric"], Scope(m["scope"]), m["members"], m["labels"], document["step"]), m)
        for m in document["measurements"]
    ]


def figure(name: str, metric: str) -> Reading:
    place = next(place for place, _ in places(name) if place.metric == metric)
    return read(name)(place)


@pytest.mark.parametrize("name", [name for name in FILES if name != REFUSED])
def test_every_number_is_that_of_the_run(name: str) -> None:
    reading = read(name)
    assert places(name)
    for place, entry in places(name):
        assert list(reading(place).samples) == entry["samples"], (place.metric, place.labels)


def test_the_figures_are_those_of_an_h200() -> None:
    """55 GB/s of a PCIe Gen5 link, nine tenths of 4.8 TB/s, and three quarters of 989 TFLOPS at 700 W."""
    for metric in (TO_DEVICE, TO_HOST):
        copies = figure("gpu-copies", metric)
        assert all(55 < sample < 56 for sample in copies.samples)
        assert (copies.conditions["sm_clock_min_mhz"], copies.conditions["temperature_max_c"]) == (1980, 37)
        assert copies.conditions["clocks_limited_by"] == "nothing"
    memory = figure("gpu-triad-fp32", MEMORY)
    assert all(4300 < sample < 4400 for sample in memory.samples)
    products = figure("gpu-product-bf16", PRODUCTS)
    assert all(740 < sample < 752 for sample in products.samples)
    assert products.conditions["sm_clock_min_mhz"] < 1980
    assert 680 < products.conditions["power_max_w"] < 701
    assert products.conditions["clocks_limited_by"] == "power limit"
    for name in ("gpu-triad-fp32", "gpu-product-bf16", "gpu-product-fp64"):
        assert figure(name, WRONG).samples == (0.0,)


@pytest.mark.parametrize("id_", ["h200-single", "nvidia-dgx-h200"])
def test_a_healthy_h200_passes_without_a_warning(id_: str) -> None:
    criteria = {entry.metric: entry for entry in load(id_).model.criteria if entry.metric != WRONG}
    for name, metric in (
        ("gpu-copies", TO_DEVICE), ("gpu-copies", TO_HOST), ("gpu-triad-fp32", MEMORY), ("gpu-product-bf16", PRODUCTS)
    ):  # fmt: skip
        samples, entry = figure(name, metric).samples, criteria[metric]
        assert entry.pass_.warn is not None
        assert min(samples) >= entry.pass_.warn
        assert 100 * stdev(samples) / mean(samples) <= (entry.max_cv_pct or 100)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("collectives") and name != REFUSED])
def test_what_nccl_used_is_read_from_its_log(name: str) -> None:
    between = "node" not in name
    for place, _ in places(name):
        conditions = read(name)(place).conditions
        assert conditions["nccl"] == "2.28.9"
        assert conditions["ranks"] == (2 if between else 1)
        assert conditions["network"] == ("NET/Socket" if between else "none")


def test_a_run_over_tcp_has_no_bandwidth_where_rdma_is_declared() -> None:
    reading = read(REFUSED)
    for place, entry in places(REFUSED):
        assert "expected RDMA, actual NET/Socket on 4 connections" in entry["reason"]
        with pytest.raises(Mismatch, match="expected RDMA, actual NET/Socket on 4 connections"):
            reading(place)


@pytest.mark.parametrize("name", FILES)
def test_no_output_cut_anywhere_gives_another_number(name: str) -> None:
    """Half of the lines of each output in turn: the run has no number, or the same one."""
    for number, answer in enumerate(answers(name)):
        lines = answer.stdout.splitlines(keepends=True)
        results = answers(name)
        results[number] = CommandResult(answer.node, answer.command, answer.rc, b"".join(lines[: len(lines) // 2]))
        for place, entry in places(name):
            try:
                samples = list(read(name, results)(place).samples)
            except ParseError:
                continue
            assert samples == entry.get("samples"), (answer.command, place.metric)


def test_a_missing_dcgm_is_named() -> None:
    """The command prints the time whatever happens, which is no document of DCGM."""
    command = "dcgmi diag -r memory_bandwidth -j; status=$?; date +%s.%N; (exit $status)"
    run = CommandResult("h200-01", command, 127, b"1795819864.505223658\n", b"sh: 1: dcgmi: not found\n")
    place, _ = places("gpu-copies")[0]
    asked = place.model_copy(update={"metric": DIAGNOSED, "labels": {"test": "memory_bandwidth"}})
    with pytest.raises(ParseError, match="dcgmi is not installed"):
        read("gpu-copies", [*answers("gpu-copies"), run])(asked)
