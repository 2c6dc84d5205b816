"""Racks of hardware that is not there, certified by the real command: its stages, checks, judge and files, over the
answers of stand-in programs that print in the tools' formats what a test tells them.

Only the ssh connection (``FakeFleet``), the reading of the inventory's file and pyinfra's process are replaced. Every
node says that it is a stand-in, and the certificate must say so, too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackproof.architectures import load
from rackproof.bench import waiting
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
from tests.unit.certify.checked import LIKE, CheckedNode, checked_nodes
from tests.unit.certify.fabric import RackFabric
from tests.unit.certify.storage import RackStorage, Rates
from tests.unit.certify.words import WORDS
from tests.unit.deploys import deployed
from tests.unit.fakes import FakeFleet, identity_answer, reply
from tests.unit.gpu_nodes import BUSY, GpuNodes
from tests.unit.load_answers import Machine

INVENTORY = "rack.py"
SLOTS = ("1a", "3c", "4d", "5e", "9c", "bc", "cc", "dc")
"""Bus addresses of the adapters of the rails; the GPUs are one bus behind."""
BUSES = tuple(f"00000000:{slot}:00" for slot in ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB"))
STAND_IN_IDENTITY = (
    "/sys/class/dmi/id/sys_vendor:rackproof\n/sys/class/dmi/id/product_name:stand-in programs\nno hypervisor\n"
)
"""What a node answers about its kind: it is no machine."""
REPORT = LIKE / "load/gpus.xml"
"""Two of its GPUs before and after each step, as in the written rack: all of them would be parsed for seconds."""
FACTS = "Linux 6.8.0-79-generic x86_64\nUbuntu 24.04.3 LTS\n224\nMemTotal: 2113445432 kB\n"


_RACKS = count()
"""A rack that continues another one's run does not print what that has printed: outputs of two runs differ in times."""


def _gpus(runs: int) -> GpuNodes:
    samples = "".join(f"{bus}.0, {BUSY}\n" for _ in range(5) for bus in BUSES)
    return GpuNodes(
        count=8, name="NVIDIA H100 80GB HBM3", buses=BUSES, product=775e12, triad=2.9e12, to_device=[55.1] * 8,
        to_host=[54.9] * 8, samples=samples, runs=runs,
    )  # fmt: skip


@dataclass
class WrittenRack:
    """Four healthy nodes; a test changes one thing before it certifies them."""

    file: str = "nvidia-dgx-h100"
    """Id or path of the architecture."""
    nodes: int = 4
    architecture: Architecture = field(init=False)
    names: list[str] = field(init=False)
    rack: Rack = field(init=False)
    gpus: dict[str, GpuNodes] = field(init=False)
    fabric: RackFabric = field(init=False)
    storage: RackStorage = field(init=False)
    machines: dict[str, Machine] = field(init=False)
    checked: dict[str, CheckedNode] = field(init=False)
    instead: Callable[[str, str], CommandResult | None] = lambda node, command: None
    """Other answers to benchmarks, by node and command."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.names = [f"gpu-{number:02d}" for number in range(1, self.nodes + 1)]
        self.checked = dict(checked_nodes(self.names, "dgx-h100", WORDS))
        self.architecture = model = load(self.file).model
        rails = model.fabric.rails if model.fabric else 0
        self.rack = Rack(INVENTORY, tuple(_node(name, number, rails) for number, name in enumerate(self.names, 1)))
        before = next(_RACKS)
        self.gpus = {name: _gpus(5000 * before + 1000 * number) for number, name in enumerate(self.names)}
        addresses = {address: node.name for node in self.rack.nodes for address in _addresses(node)}
        self.fabric = RackFabric(addresses, adapters=rails, serial=count(1 + 1_000_000 * before))
        ingest = model.profiles["full"].ingest
        self.storage = RackStorage(
            model, Rates(read=4.5e9, write=2.3e9, randread=400e6), clients=self.names,
            runs=dict(ingest.dlio) if ingest else {},
        )  # fmt: skip
        self.machines = {name: Machine(gpus=REPORT.read_text(), processors=224) for name in self.names}
        for machine in self.machines.values():
            machine.uptime_s += 1e5 * before

    def answer(self, node: str, command: str) -> CommandResult | None:
        if command == stages.FACTS:
            return reply(node, command, FACTS)
        if command == IDENTITY_COMMAND:
            return identity_answer(node, self.names.index(node), more=STAND_IN_IDENTITY)
        if command == ADDRESSES:
            return self.check(node, command)
        with self._lock:
            return (
                self.instead(node, command)
                or self.gpus[node].answer(node, command)
                or self.fabric.answer(node, command)
                or self.storage.answer(node, command)
            )

    def check(self, node: str, command: str) -> CommandResult:
        return self.checked[node].answer(command)

    def converge(self, rack: Rack, *, dry: bool = False, **_: Any) -> Converged:
        return deployed(self.names, dict.fromkeys(self.names, ("Base | Files",)), dry=dry, inventory=rack.source)

    def certify(self, folder: Path, *more: str) -> Certified:
        """Certify it with the reports in ``folder``, as a user does."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(waiting, "PAUSE_S", 0.0)
            patch.setattr(all_rails, "END_S", 0.0)
            patch.setattr(stages, "Fleet", self._fleet)
            patch.setattr(stages, "converge", self.converge)
            patch.setattr(runs, "load_rack", lambda inventory: self.rack)
            arguments = ["certify", INVENTORY, "--architecture", self.file, "--quiet", "--output", str(folder), *more]
            result = CliRunner().invoke(cli, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Certified(max(folder.iterdir()), result)

    def _fleet(self, rack: Rack) -> FakeFleet:
        return FakeFleet(rack, self.answer, checks=self.check, machines=self.machines)


def _node(name: str, number: int, rails: int) -> Node:
    data = {
        "fabric_addresses": [f"10.60.{rail}.{number}/24" for rail in range(rails)],
        "fabric_paths": [f"pci-0000:{slot}:00.0" for slot in SLOTS[:rails]],
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
        return str(self.certificate["outcome"])

    @property
    def certificate(self) -> dict[str, Any]:
        return plain(json.loads((self.folder / "certificate.json").read_text()))

    @property
    def page(self) -> str:
        return (self.folder / "certificate.html").read_text()

    def open(self) -> dict[str, dict[str, str]]:
        """Required verdicts that did not pass: status and message by id and subject."""
        verdicts: dict[str, dict[str, str]] = {}
        for v in self.certificate["verdicts"]:
            if v["required"] and v["status"] not in ("PASS", "WARN"):
                verdicts.setdefault(v["id"], {})[v["subject"]] = f"{v['status']}: {v['message']}"
        return verdicts
