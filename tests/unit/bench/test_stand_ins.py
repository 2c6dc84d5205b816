"""Every tool of links, collectives and GPUs × everything that a run can do wrong: no number, or one that fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.gpu import steps as gpu
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.core.architecture import Architecture, GpuProfile
from rackproof.core.evidence import Measurement
from rackproof.remote.command import CommandResult, program
from tests.unit.bench import test_collectives, test_gpu, test_link_gpu
from tests.unit.bench.test_bench import lab_rack, measure
from tests.unit.benchmarked import measurements
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import scripted, virtual_rack
from tests.unit.gpu_nodes import GpuNodes
from tests.unit.judging import bar, criterion

pytestmark = pytest.mark.few(40)

Text = Callable[[str], str]
HANG = "did not end within 99 s"


@dataclass(frozen=True)
class Tool:
    """``run``: measures with what its runs return; ``is_run``: whether a command is one of its runs."""

    run: Callable[[Path, Callable[[CommandResult], CommandResult]], list[Measurement]]
    operation: Text
    """Turns its output into that of another operation; ``size``: of another size; ``fewer``: of fewer ranks or GPUs."""
    size: Text
    fewer: Text | None = None
    wrong: Text | None = None
    twice: Text = lambda text: 2 * text


def changed(nodes: Any, is_run: Callable[[str], bool], change: Callable[[CommandResult], CommandResult]) -> Any:
    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        return change(result) if result is not None and is_run(command) and result.stdout else result

    return answer


@cache
def asking(*metrics: tuple[str, str]) -> Architecture:
    """The virtual rack with criteria of these metrics and units alone."""
    asked = [
        criterion(id=metric.rpartition("_")[2], metric=metric, scope="pair", bar=bar("ge", 1, unit))
        for metric, unit in metrics
    ]
    document = virtual_rack().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return Architecture.model_validate(document | {"criteria": asked, "curves": [], "outliers": []})


def of_link(id_: str, name: str) -> Callable[..., list[Measurement]]:
    def run(folder: Path, change: Callable[[CommandResult], CommandResult]) -> list[Measurement]:
        made = asking(("link.rdma_write_bandwidth_both", "Gb/s"), ("link.rdma_read_latency", "us"))
        steps = [step for step in plan_steps(made, "lab", lab_rack()) if step.id == id_]
        return measure(folder, steps, changed(FabricNodes(), lambda command: program(command) == name, change))

    return run


def of_gpu_memory(metric: str) -> Callable[..., list[Measurement]]:
    def run(folder: Path, change: Callable[[CommandResult], CommandResult]) -> list[Measurement]:
        steps = test_link_gpu.planned(test_link_gpu.architecture(metric=metric))
        return measure(folder, steps, changed(FabricNodes(), lambda command: command.startswith("numactl"), change))

    return run


def of_collective(engine: str) -> Callable[..., list[Measurement]]:
    def run(folder: Path, change: Callable[[CommandResult], CommandResult]) -> list[Measurement]:
        bench = test_collectives.bench(engine)
        steps = [step for step in bench.steps() if step.id == f"collectives/{engine}/all_reduce"]
        return bench.measure(folder, changed(FabricNodes(), lambda c: program(c) == "mpirun", change).__call__, steps)

    return run


def of_gpus(kind: str) -> Callable[..., list[Measurement]]:
    def run(folder: Path, change: Callable[[CommandResult], CommandResult]) -> list[Measurement]:
        made = asking()
        assert made.gpu is not None
        made = made.model_copy(update={"gpu": made.gpu.model_copy(update={"count": 2, "model": "NVIDIA H200"})})
        rack = lab_rack()
        for node in rack.group("gpu"):
            node.data["simulated_gpus"] = False  # type: ignore[index]
        steps = [s for s in gpu.plan(made, GpuProfile.model_validate(test_gpu.PROFILE), rack) if kind in s.id]
        nodes = changed(GpuNodes(), lambda c: "dcgmi" in c or "nvbandwidth" in c or "-I" in c, change)
        with scripted(folder, nodes, rack, made) as session:
            run_steps(session, steps, set(), lambda text: None)
        return measurements(folder)

    return run


def replaced(*pairs: tuple[str, str]) -> Text:
    def edit(text: str) -> str:
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return edit


def of_document(change: Callable[[dict[str, Any]], object]) -> Text:
    def edit(text: str) -> str:
        line, *after = text.splitlines(keepends=True)
        document = json.loads(line)
        change(document)
        return json.dumps(document) + "\n" + "".join(after)

    return edit


def halved(document: dict[str, Any]) -> None:
    for row in document["results"]:
        row.update(bytes=row["bytes"] // 2, algbw_GBps=row["algbw_GBps"] / 2, busbw_GBps=row["busbw_GBps"] / 2)


ROWS = re.compile(r"(?m)^(\d+) (\d+) (float .*?) ([\d.]+) ([\d.]+) (\d+) ([\d.]+) ([\d.]+) ([\d.]+) (\d+)$")
JSON_ENGINE: dict[str, Any] = {
    "operation": of_document(lambda d: d.update(op="broadcast")),
    "size": of_document(halved),
    "fewer": of_document(lambda d: d.update(hosts=d["hosts"][:1], ranks=1)),
    "wrong": of_document(lambda d: [row.update(wrong=3) for row in d["results"]]),
}
BANDWIDTH: dict[str, Text] = {
    "operation": replaced(("RDMA_Write", "RDMA_Read")),
    "size": replaced((" 65536 ", " 32768 "), ("0.000260", "0.000520")),
}
TOOLS: dict[str, Tool] = {
    "ib_write_bw": Tool(of_link("links/rail0/round1/rdma-bandwidth", "ib_write_bw"), **BANDWIDTH),
    "ib_write_bw -b": Tool(
        of_link("links/rail0/round1/rdma-both-ways", "ib_write_bw"),
        operation=replaced((" Bidirectional", "")),
        size=replaced((" 65536 ", " 32768 "), ("0.000260", "0.001040")),
    ),
    "ib_write_bw on GPU memory": Tool(
        of_gpu_memory(test_link_gpu.METRIC),
        BANDWIDTH["operation"],
        replaced((" 8388608 ", " 4194304 "), ("0.000010", "0.000020")),
    ),
    "ib_read_lat on GPU memory": Tool(
        of_gpu_memory(test_link_gpu.LATENCY),
        operation=replaced(("RDMA_Read", "RDMA_Write")),
        size=replaced(("\n 2       200", "\n 64      200")),
    ),
    "ib_write_lat": Tool(
        of_link("links/rail0/round1/rdma-latency", "ib_write_lat"),
        operation=BANDWIDTH["operation"],
        size=replaced(("\n 2       200", "\n 64      200")),
    ),
    "ib_read_lat": Tool(
        of_link("links/rail0/round1/rdma-read-latency", "ib_read_lat"),
        operation=replaced(("RDMA_Read", "RDMA_Write")),
        size=replaced(("\n 2       200", "\n 64      200")),
    ),
    "iperf3": Tool(
        of_link("links/rail0/round1/tcp-bandwidth", "iperf3"),
        operation=of_document(lambda d: d["start"]["test_start"].update(protocol="UDP")),
        size=of_document(lambda d: d["start"]["test_start"].update(duration=1)),
        fewer=of_document(lambda d: d["start"]["connected"].pop() and d["start"]["test_start"].update(num_streams=9)),
    ),
    "mpi": Tool(of_collective("mpi"), **JSON_ENGINE),
    "torch": Tool(of_collective("torch"), **JSON_ENGINE),
    "nccl-tests": Tool(
        of_collective("nccl-tests"),
        operation=lambda text: "# Collective test starting: all_gather_perf\n" + text,
        size=lambda text: re.sub(r"(?m)^\d+ \d+ float", "4096 1024 float", text),
        fewer=lambda text: "".join(line for line in text.splitlines(keepends=True) if "Rank  1" not in line),
        wrong=lambda text: re.sub(r"(?m)^(\d+ \d+ float .*) 0$", r"\1 3", text).replace(
            "Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"
        ),
    ),
    "nvbandwidth": Tool(
        of_gpus("copies"),
        operation=replaced(("host_to_device_memcpy_ce", "all_to_host"), ("device_to_host_memcpy_ce", "one_to_all"),
                           ("device_to_device_memcpy_read_ce", "all_to_one")),
        size=replaced(('"Passed"', '"Waived"')),
        fewer=of_document(test_gpu.one_gpu),
    ),
    "product": Tool(
        of_gpus("product"),
        operation=of_document(lambda d: d.update(what="triad")),
        size=of_document(lambda d: d.update(sizes=[64])),
        fewer=of_document(lambda d: d["gpus"].pop()),
        wrong=of_document(lambda d: [one.update(wrong=3) for one in d["gpus"]]),
    ),
    "triad": Tool(
        of_gpus("triad"),
        operation=of_document(lambda d: d.update(what="product")),
        size=of_document(lambda d: [one.update(bytes=64) for one in d["gpus"]]),
        fewer=of_document(lambda d: d["gpus"].pop()),
        wrong=of_document(lambda d: [one.update(wrong=3) for one in d["gpus"]]),
    ),
    "dcgmi": Tool(
        of_gpus("diagnosis"),
        operation=replaced(('"memory_bandwidth"', '"pcie"'), ('"targeted_stress"', '"memory"')),
        size=replaced(('"Pass"', '"Skip"')),
    ),
}  # fmt: skip


def cases() -> Iterator[Any]:
    for name, tool in TOOLS.items():
        edits = {
            "another operation": tool.operation, "another size": tool.size, "fewer ranks": tool.fewer,
            "two runs in one output": tool.twice, "nothing": lambda text: "",
            "cut off": lambda text: text[: len(text) // 2],
        }  # fmt: skip
        for case, edit in edits.items():
            if edit is not None:
                for status in (0, 1):
                    yield pytest.param(tool, edit, status, None, id=f"{name}: {case}, status {status}")
        for status in (1, 124, 139):
            yield pytest.param(tool, lambda text: text, status, None, id=f"{name}: good output, status {status}")
        yield pytest.param(tool, lambda text: text, None, HANG, id=f"{name}: hang after a good output")


@pytest.mark.parametrize(("tool", "edit", "status", "error"), list(cases()))
def test_what_a_run_did_wrong_gives_no_number(
    tmp_path: Path, tool: Tool, edit: Text, status: int | None, error: str | None
) -> None:
    def change(result: CommandResult) -> CommandResult:
        return replace(result, stdout=edit(result.text).encode(), rc=status, error=error)

    taken = tool.run(tmp_path, change)
    assert taken
    assert not [(m.metric, m.samples) for m in taken if m.samples]
    assert all(m.reason for m in taken)


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if tool.wrong])
def test_wrong_values_are_counted_whatever_the_status(tmp_path: Path, name: str, status: int) -> None:
    """A criterion of at most 0 fails then. A program that failed for another reason has no bandwidth."""
    tool = TOOLS[name]
    wrong = tool.wrong
    assert wrong is not None
    taken = tool.run(tmp_path, lambda result: replace(result, stdout=wrong(result.text).encode(), rc=status))
    counts = [m for m in taken if m.metric.endswith("wrong_values")]
    assert counts
    assert all(min(m.samples, default=1) > 0 for m in counts), [m.reason for m in counts]
    assert not status or not [m for m in taken if m.samples and not m.metric.endswith("wrong_values")]


@pytest.mark.parametrize("name", TOOLS)
def test_a_healthy_run_gives_every_number(tmp_path: Path, name: str) -> None:
    taken = TOOLS[name].run(tmp_path, lambda result: result)
    assert taken
    assert all(m.samples for m in taken), [m.reason for m in taken if m.reason]
