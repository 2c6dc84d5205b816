"""Answers of nodes with GPUs: their list, nvbandwidth, the kit's program, and samples of their load."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from rackproof.bench.gpu.reader import is_program
from rackproof.parse.gpu_list import LIST
from rackproof.parse.gpu_load import SAMPLER
from rackproof.remote.command import CommandResult, program
from tests.unit.fakes import reply

NAME = "NVIDIA H200"
BUSES = ("00000000:18:00", "00000000:2A:00")
BUSY = "P0, 98, 5, 5, 16, 16, 0x0000000000000004, 1755, 690.12, 61"


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


@dataclass
class GpuNodes:
    """Nodes with GPUs; a test changes one thing."""

    count: int = 2
    name: str = NAME
    buses: tuple[str, ...] = BUSES
    product: float = 760e12
    triad: float = 4.1e12
    """Operations and bytes a second of the first GPU."""
    listed: str | None = None
    to_device: list[float] = field(default_factory=lambda: [55.1, 55.4])
    to_host: list[float] = field(default_factory=lambda: [54.9, 55.0])
    peers: float = 396.0
    peer: dict[tuple[int, int], float] = field(default_factory=dict)
    """Bandwidths that differ from ``peers``, by the GPU that reads and the one that it reads from."""
    edit: dict[str, Any] = field(default_factory=dict)
    """Functions by ``copies`` and ``program``, which change the document of one run before it is printed."""
    text: dict[str, str] = field(default_factory=dict)
    """Format of the whole output, by the same names, with ``{}`` for the document."""
    ends: dict[str, int | None] = field(default_factory=dict)
    """Exit status, by the same names."""
    samples: str = "".join(f"{bus}.0, {BUSY}\n" for _ in range(5) for bus in BUSES)
    in_turn: list[str] = field(default_factory=list)
    """The same of the first steps, in their order; ``samples`` afterwards."""
    runs: int = 0

    def answer(self, node: str, command: str) -> CommandResult | None:
        if command == LIST:
            lines = [f"{k}, {uuid(k)}, {self.buses[k]}.0, {self.name}\n" for k in range(self.count)]
            return reply(node, command, "".join(lines) if self.listed is None else self.listed)
        if command == SAMPLER:
            return reply(node, command, self.in_turn.pop(0) if self.in_turn else self.samples, rc=143)
        if program(command) == "nvbandwidth":
            return self._reply(node, command, "copies", self.copies(command))
        if command.startswith("dcgmi diag "):
            return self._reply(node, command, "diagnosis", self.diagnosis(command))
        if is_program(command):
            return self._reply(node, command, "program", self.program(command))
        return None

    def _reply(self, node: str, command: str, kind: str, document: dict[str, Any]) -> CommandResult:
        self.runs += 1
        self.edit.get(kind, lambda made: None)(document)
        output = self.text.get(kind, "{}\n").replace("{}", json.dumps(document))
        if kind in ("copies", "diagnosis"):
            output += f"1795385382.{self.runs:09d}\n"
        rc = self.ends.get(kind, 0)
        if rc is None:
            return reply(node, command, output, rc=None, error="did not end within 99 s")
        return reply(node, command, output, rc=rc)

    def copies(self, command: str) -> dict[str, Any]:
        words = shlex.split(command)
        tests = words[words.index("-t") + 1 : words.index("&&")]
        shift = self.runs / 1e5
        rows: dict[str, list[list[float | None]]] = {
            "host_to_device_memcpy_ce": [[value + shift for value in self.to_device]],
            "device_to_host_memcpy_ce": [[value + shift for value in self.to_host]],
            "device_to_device_memcpy_read_ce": [
                [None if a == b else self.peer.get((a, b), self.peers + a) + shift for b in range(self.count)]
                for a in range(self.count)
            ],
        }
        entries = [
            {
                "name": test,
                "status": "Passed",
                "bandwidth_matrix": [["N/A" if v is None else f"{v:.6g}" for v in row] for row in rows[test]],
                "sum": sum(v or 0 for row in rows[test] for v in row),
            }
            for test in tests
        ]
        devices = [f"{k}: {self.name} ({self.buses[k]}): (gpu-01)" for k in range(self.count)]
        head = {"CUDA Runtime Version": 12080, "Driver Version": "580.126.20", "GPU Device list": devices}
        return {"nvbandwidth": head | {"testcases": entries}}

    def diagnosis(self, command: str) -> dict[str, Any]:
        """As DCGM 4 prints it."""

        def test(name: str) -> dict[str, Any]:
            results = [{"entity_group": "GPU", "entity_id": k, "status": "Pass"} for k in range(self.count)]
            return {"name": name, "results": results, "test_summary": {"status": "Pass"}}

        tests = [test(name) for name in shlex.split(command)[3].split(",")]
        categories = [{"category": "Deployment", "tests": [test("software")]}, {"category": "Stress", "tests": tests}]
        return {"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.2.3"}}

    def program(self, command: str) -> dict[str, Any]:
        what, precision, runs, seconds, listed, _, *uuids = shlex.split(command)[3:]
        sizes = [int(size) for size in listed.split(",")]
        gpus = []
        for number, asked in enumerate(uuids):
            one: dict[str, Any] = {
                "asked": asked, "uuid": asked, "name": self.name, "torch": "2.8.0", "cuda": "12.8", "wrong": 0,
                "checked": 4096, "samples": [
                    {"count": 1000, "seconds": float(seconds) * (1 + run / 1000)} for run in range(int(runs))
                ],
            }  # fmt: skip
            if what == "product":
                shapes = list(product(sizes, repeat=3))
                one |= {"tried": [[*shape, 700.0 + k] for k, shape in enumerate(shapes)], "best": list(shapes[-1])}
                work = 2 * shapes[-1][0] * shapes[-1][1] * shapes[-1][2]
                rate = self.product + number * 1e12
            else:
                one |= {"bytes": sizes[0]}
                work, rate = 3 * sizes[0], self.triad
            for sample in one["samples"]:
                sample["count"] = round(sample["seconds"] * rate / work)
            gpus.append(one)
        return {
            "rackproof_gpu": 1, "what": what, "precision": precision, "runs": int(runs), "seconds": float(seconds),
            "sizes": sizes, "began": 1795385382.0 + self.runs, "gpus": gpus,
        }  # fmt: skip
