"""Racks of hardware that is not there, certified by the real command: its stages, checks, judge and files, over the
answers of stand-in programs that print in the tools' formats what a test tells them.

Only the ssh connection (``FakeFleet``), the reading of the inventory's file, pyinfra's process and waiting (for ports,
for the disk) are replaced. Every node says that it is a stand-in, and the certificate must say so, too.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackproof.architectures import load
from rackproof.bench import waiting
from rackproof.bench.collectives.nccl_used import bypasses_fabric
from rackproof.bench.firewall import ADDRESSES
from rackproof.bench.links import all_rails
from rackproof.cli import runs
from rackproof.cli.main import cli
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse.identity import IDENTITY_COMMAND
from rackproof.remote.command import CommandResult
from rackproof.report.document import plain
from rackproof.run import stages
from rackproof.run.converge import Converged
from tests.unit.certify import words
from tests.unit.certify.checked import LIKE, CheckedNode, checked_nodes
from tests.unit.certify.fabric import RackFabric
from tests.unit.certify.figures import FIGURES, Figures
from tests.unit.certify.nvlink_domain import imex_answer
from tests.unit.certify.storage import RackStorage, Rates
from tests.unit.deploys import deployed
from tests.unit.drive_nodes import SECTOR, Drive, DriveNodes
from tests.unit.fabric import DMABUF
from tests.unit.fakes import FakeFleet, identity_answer, reply
from tests.unit.gpu_nodes import BUSY, GpuNodes
from tests.unit.load_answers import Machine

INVENTORY = "rack.py"
BUSES = tuple(f"00000000:{bus.upper()}:00" for bus in words.BUSES)
STAND_IN_IDENTITY = (
    "/sys/class/dmi/id/sys_vendor:rackproof\n/sys/class/dmi/id/product_name:stand-in programs\nno hypervisor\n"
)
"""Answer of a node about its kind: it is no machine."""
REPORT = LIKE / "load/gpus.xml"
"""Two of its GPUs before and after each step, as in the written rack: all of them would be parsed for seconds."""

_RACKS = count()
"""A rack that continues another one's run does not print what that has printed: outputs of two runs differ in times."""


@dataclass
class WrittenRack:
    """The healthy nodes of an architecture; a test changes one thing before it certifies them."""

    file: str = "nvidia-dgx-h100"
    """Id or path of the architecture."""
    like: str = "nvidia-dgx-h100"
    """Id of the published architecture whose nodes it has, if it is none itself."""
    figures: Figures = field(init=False)
    architecture: Architecture = field(init=False)
    names: list[str] = field(init=False)
    rack: Rack = field(init=False)
    gpus: dict[str, GpuNodes] = field(init=False)
    fabric: RackFabric = field(init=False)
    storage: RackStorage = field(init=False)
    drives: DriveNodes = field(init=False)
    machines: dict[str, Machine] = field(init=False)
    checked: dict[str, CheckedNode] = field(init=False)
    instead: Callable[[str, str], CommandResult | None] = lambda node, command: None
    """Other answers to benchmarks, by node and command."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        kind = self.file if self.file in FIGURES else self.like
        self.figures = figures = FIGURES[kind]
        self.names = names = [f"gpu-{number:02d}" for number in range(1, figures.nodes + 1)]
        self.architecture = model = load(self.file).model
        exchanged = words.words_of(model)
        self.checked = dict(checked_nodes(names, folders_of(model, kind), exchanged))
        self.rack = Rack(INVENTORY, tuple(_node(name, number, model) for number, name in enumerate(names, 1)))
        before = next(_RACKS)
        self.gpus = {name: _gpus(model, figures, 5000 * before + 1000 * n) for n, name in enumerate(names)}
        self.fabric = _fabric(self.rack, model, figures, count(1 + 1_000_000 * before))
        dlio = model.profiles["full"].ingest.dlio if model.profiles["full"].ingest else {}
        demand = model.workloads["resnet50"].rate_per_gpu.value if dlio else None
        self.storage = RackStorage(
            model, Rates(read=4.5e9, write=2.3e9, randread=400e6), clients=names, runs=dict(dlio),
            demand=demand or 0.0, gpus=len(next(iter(self.gpus.values())).buses),
        )  # fmt: skip
        self.drives = DriveNodes({name: list(_drives(name, model)) for name in names})
        report = words.exchanged(REPORT.read_text(), exchanged)
        self.machines = {name: Machine(gpus=report, processors=words.processors(model)) for name in names}
        for machine in self.machines.values():
            machine.uptime_s += 1e5 * before

    def answer(self, node: str, command: str) -> CommandResult | None:
        if command == stages.FACTS:
            return reply(node, command, words.facts(self.architecture))
        if command == IDENTITY_COMMAND:
            return identity_answer(node, self.names.index(node), more=STAND_IN_IDENTITY)
        if command == ADDRESSES:
            return self.check(node, command)
        with self._lock:
            return (
                self.instead(node, command)
                or self.gpus[node].answer(node, command)
                or self.fabric.answer(node, command)
                or self.drives.answer(node, command)
                or self.storage.answer(node, command)
            )

    def check(self, node: str, command: str) -> CommandResult:
        if imex := imex_answer(command, [one.fabric_address() or "" for one in self.rack.nodes]):
            return reply(node, command, imex)
        return self.checked[node].answer(command)

    def converge(self, rack: Rack, *, dry: bool = False, **_: Any) -> Converged:
        return deployed(self.names, dict.fromkeys(self.names, ("Base | Files",)), dry=dry, inventory=rack.source)

    def certify(self, folder: Path, *more: str) -> Certified:
        """Certify it with the reports in ``folder``, as a user does."""
        return self.command("certify", folder, *more)

    def command(self, verb: str, folder: Path, *more: str) -> Certified:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda file: None)
            patch.setattr(waiting, "PAUSE_S", 0.0)
            patch.setattr(all_rails, "END_S", 0.0)
            patch.setattr(stages, "Fleet", self._fleet)
            patch.setattr(stages, "converge", self.converge)
            patch.setattr(runs, "load_rack", lambda inventory: self.rack)
            arguments = [verb, INVENTORY, "--architecture", self.file, "--quiet", "--output", str(folder), *more]
            result = CliRunner().invoke(cli, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Certified(max(folder.iterdir()), result)

    def _fleet(self, rack: Rack) -> FakeFleet:
        return FakeFleet(rack, self.answer, checks=self.check, machines=self.machines)


def folders_of(model: Architecture, kind: str) -> list[str]:
    """Folders of own answers, the most particular one first."""
    over = ["infiniband"] if model.fabric and model.fabric.kind == "infiniband" else []
    return [kind, *over, "common"]


def _gpus(model: Architecture, figures: Figures, runs: int) -> GpuNodes:
    gpu = model.gpu
    assert gpu is not None
    buses, generation = BUSES[: gpu.count], gpu.pcie_generation or 5
    busy = BUSY.replace(" 5, 5, 16", f" {generation}, {generation}, 16")
    return GpuNodes(
        count=gpu.count, name=gpu.model, buses=buses, product=figures.product, triad=figures.triad,
        to_device=[figures.to_device] * gpu.count, to_host=[figures.to_host] * gpu.count, peers=figures.peers,
        samples="".join(f"{bus}.0, {busy}\n" for _ in range(5) for bus in buses), runs=runs,
    )  # fmt: skip


def _drives(node: str, model: Architecture) -> Iterator[Drive]:
    """Drives of the declared number and size, those for the system smaller where none is declared."""
    numbers = count()
    for drives in model.roles["gpu"].expect.drives:
        size_tb = drives.size_tb or (1.92 if drives.use == "os" else 3.84)
        for number in range(drives.count or 0):
            slot = f"0000:{0x20 + next(numbers):02x}:00.0"
            yield Drive(f"{node}-{drives.use}{number}", int(size_tb * 1e12 / SECTOR), 6.5e9 + 1e6 * number, slot)


def _fabric(rack: Rack, model: Architecture, figures: Figures, serial: Iterator[int]) -> RackFabric:
    addresses = {address: node.name for node in rack.nodes for address in _addresses(node)}
    gpu, fabric = model.gpu, model.fabric
    made = RackFabric(
        addresses, serial=serial, bus=dict(figures.bus), rate=lambda node, device: figures.port,
        gpu=gpu.model if gpu else "", gpus=gpu.count if gpu else 0, adapters=model.rails,
        nvlink=bypasses_fabric(model),
    )  # fmt: skip
    if gpu and gpu.gpudirect == "dmabuf":
        made.gpu_memory += DMABUF
    if fabric:
        made.port, made.device = fabric.interface_prefix, fabric.rdma_prefix
        made.adapter = "RoCE" if fabric.kind == "roce" else "IB"
    return made


def _node(name: str, number: int, model: Architecture) -> Node:
    data = {
        "fabric_addresses": [f"10.60.{rail}.{number}/24" for rail in range(model.rails)],
        "fabric_paths": [f"pci-0000:{bus}:00.0" for bus in words.RAILS[: model.rails]],
        "nic_ports": {nic.purpose: words.names_of(nic, model) for nic in model.roles["gpu"].expect.nics},
    }
    return Node(name, ("gpu",), data)


def _addresses(node: Node) -> Iterable[str]:
    return (str(entry).partition("/")[0] for entry in node.data["fabric_addresses"])


@dataclass
class Certified:
    """A run's folder, and what the command printed."""

    folder: Path
    result: Result

    @property
    def outcome(self) -> str:
        return str(self._verdicts["outcome"])

    @property
    def certificate(self) -> dict[str, Any]:
        return plain(json.loads((self.folder / "certificate.json").read_text()))

    @property
    def _verdicts(self) -> dict[str, Any]:
        """A run of one stage has them, too, and no certificate."""
        return plain(json.loads((self.folder / "verdicts.json").read_text()))

    @property
    def page(self) -> str:
        return (self.folder / "certificate.html").read_text()

    def open(self) -> dict[str, dict[str, str]]:
        """Required verdicts that did not pass: status and message by id and subject."""
        verdicts: dict[str, dict[str, str]] = {}
        for v in self._verdicts["verdicts"]:
            if v["required"] and v["status"] not in ("PASS", "WARN"):
                verdicts.setdefault(v["id"], {})[v["subject"]] = f"{v['status']}: {v['message']}"
        return verdicts
