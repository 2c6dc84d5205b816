"""A fleet that answers from a script, for tests of what runs on nodes without a node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from rackproof.architectures import load
from rackproof.bench.user import HOME, SETUP
from rackproof.core.architecture import Architecture
from rackproof.core.clocks import Clock
from rackproof.core.rack import Node, Rack
from rackproof.errors import NodeUnreachable
from rackproof.evidence.session import Session
from rackproof.evidence.store import EvidenceStore
from rackproof.parse.identity import IDENTITY_COMMAND
from rackproof.remote import batch
from rackproof.remote.command import CommandResult
from tests.unit.load_answers import Machine, load_answer

Answer = Callable[[str, str], CommandResult | None]
_PROGRAM = re.compile(rf"{HOME}/\w+\.py")
"""The kit's own programs have to be copied before they run."""
_QUOTED = r"(?:'[^']*'|\"'\"|[\w@%+=:,./-])+"
_COMMANDS = re.compile(rf"^set -- ({_QUOTED}(?: {_QUOTED})*)$", re.MULTILINE)
"""Commands of a batch: see ``shell.script``."""


Answer = Callable[[str, str], CommandResult | None]


def part_by_part(answer: Answer) -> Answer:
    """The same answers to the commands that one round trip asks in turn; None to that of one is None to all."""

    def whole(node: str, command: str) -> CommandResult | None:
        parts = re.findall(r"\(\n(.*?)\n\) 2>&1\necho \"rackproof-status \$\?\"", command, re.DOTALL)
        if not parts:
            return answer(node, command)
        text = ""
        for part in parts:
            if (own := answer(node, part)) is None or own.rc is None:
                return own
            text += f"{own.text}{own.stderr.decode()}rackproof-status {own.rc}\n"
        return reply(node, command, text)

    return whole


def reply(
    node: str, command: str, out: str | bytes = b"", rc: int | None = 0, err: str = "", error: str | None = None
) -> CommandResult:
    return CommandResult(node, command, rc, out.encode() if isinstance(out, str) else out, err.encode(), 0.1, 1, error)


def hanging(result: CommandResult) -> CommandResult:
    return CommandResult(result.node, result.command, None, error="no answer within 153 s")


def identity_answer(node: str, machine: int, boot: int = 0, more: str = "") -> CommandResult:
    """Output of ``IDENTITY_COMMAND`` on one of several machines after one of its boots."""
    text = (
        f"/etc/machine-id:{machine:032x}\n"
        f"/proc/sys/kernel/random/boot_id:{machine:08x}-{boot:04x}-4000-8000-000000000000\n"
        f"/sys/class/dmi/id/product_serial:SN{machine}\n"
    )
    return reply(node, IDENTITY_COMMAND, text + more)


@dataclass
class FakeServer:
    command: str
    result: CommandResult

    def poll(self) -> bool:
        return self.result.rc is None

    @property
    def output(self) -> bytes:
        return self.result.stdout

    def stop(self) -> CommandResult:
        return self.result


@dataclass
class FakePipe:
    """An end of a relay that carries nothing."""

    dead: bool
    alive: bool = True
    why: str = "it does not answer"

    def skip_to(self, mark: bytes, timeout_s: float) -> bool:
        return not self.dead

    def read(self, count: int) -> bytes:
        return b""

    def write(self, data: bytes) -> bool:
        return not self.dead

    def close(self) -> None:
        self.alive = False


@dataclass
class FakeConnection:
    fleet: FakeFleet
    node: Node

    @property
    def host_key(self) -> str:
        return f"ssh-ed25519 SHA256:{self.node.name}"

    def run(
        self, command: str, timeout_s: float, stdin: bytes | None = None, user: str = "", *, hold: bool = False
    ) -> CommandResult:
        name = self.node.name
        if stdin is not None and batch.MAGIC in stdin:
            return reply(name, command, self._batch(stdin.decode()))
        absent = [path for path in _PROGRAM.findall(command) if (name, path) not in self.fleet.files]
        assert not absent, f"{name} has not got {absent}"
        self.fleet.asked.append((name, command))
        self.fleet.users.append((name, command, user))
        self.fleet.held |= {command} if hold else set()
        if name in self.fleet.dead:
            return reply(name, command, rc=None, error="connection lost")
        answer = self.fleet.answer(name, command) or load_answer(self.fleet.machines, name, command)
        if answer is None and command == SETUP:
            return reply(name, command, "uid 990 gid 991\n")
        return reply(name, command) if answer is None else answer

    def _batch(self, script: str) -> bytes:
        """As ``batch.sh`` answers."""
        (listed,) = _COMMANDS.findall(script)
        files: dict[str, bytes] = {}
        for number, one in enumerate(shlex.split(listed)):
            result = (self.fleet.checks or self.fleet.answer)(self.node.name, one) or reply(self.node.name, one)
            files |= {
                f"{number}.a": b"1 100.0", f"{number}.out": result.stdout, f"{number}.err": result.stderr,
                f"{number}.rc": b"%d 100.1" % (result.rc or 0),
            }  # fmt: skip
        listing = "".join(f"{name} {len(data)}\n" for name, data in files.items())
        head = f"{batch.MAGIC.decode()} complete 101.0\n{listing}\n"
        return head.encode() + b"".join(files.values())

    @contextmanager
    def serving(self, command: str, timeout_s: float, user: str = "") -> Iterator[FakeServer]:
        if self.node.name in self.fleet.dead:
            raise NodeUnreachable(self.node.name, "connection lost")
        self.fleet.asked.append((self.node.name, command))
        self.fleet.users.append((self.node.name, command, user))
        result = self.fleet.answer(self.node.name, command)
        yield FakeServer(command, result or reply(self.node.name, command, rc=None, error="did not end by itself"))

    def clock(self, base_s: float) -> Clock | str:
        return self.fleet.clocks.get(self.node.name, Clock(0.0, 0.0))

    def put(self, data: bytes, path: str, user: str = "") -> None:
        self.fleet.files[self.node.name, path] = data

    def pipe(self, command: str, timeout_s: float, user: str = "") -> FakePipe:
        self.fleet.users.append((self.node.name, command, user))
        return FakePipe(self.node.name in self.fleet.dead)


@dataclass
class FakeFleet:
    """``answer(node, command)`` gives the result, or None for a silent success."""

    rack: Rack
    answer: Answer
    dead: set[str] = field(default_factory=set)
    checks: Answer | None = None
    """Answers the commands that come many at once, as those of validators do, instead of ``answer``."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    users: list[tuple[str, str, str]] = field(default_factory=list)
    """Node, command and its prefix for another user."""
    held: set[str] = field(default_factory=set)
    """Commands that end with their connection."""
    machines: dict[str, Machine] = field(default_factory=dict)
    """Which answer ``guard.sh``."""
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    clocks: dict[str, Clock | str] = field(default_factory=dict)
    """Other offsets than none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getitem__(self, name: str) -> FakeConnection:
        return FakeConnection(self, self.rack.node(name))

    def each(
        self, nodes: Iterable[str], action: Callable[[Any], Any], what: str = "", parallel: int = 0
    ) -> dict[str, Any]:
        return {name: action(self[name]) for name in nodes}

    def run(
        self, commands: Mapping[str, str], timeout_s: float, *, hold: bool = False, parallel: int = 0
    ) -> dict[str, CommandResult]:
        def run(connection: FakeConnection) -> CommandResult:
            return connection.run(commands[connection.node.name], timeout_s, hold=hold)

        return self.each(commands, run, "; ".join(commands.values()), parallel)

    def reachable(self, nodes: Iterable[str]) -> dict[str, str | None]:
        return {name: "connection lost" if name in self.dead else None for name in nodes}


def at_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Purposes, or commands, of what a fleet does on all nodes at once, however many there are."""
    purposes, plain = list[str](), FakeFleet.each

    def each(
        fleet: FakeFleet, nodes: Iterable[str], action: Callable[[Any], Any], what: str = "", parallel: int = 0
    ) -> dict[str, Any]:
        names = list(nodes)
        purposes.extend([what] if parallel >= len(names) > 0 else [])
        return plain(fleet, names, action, what, parallel)

    monkeypatch.setattr(FakeFleet, "each", each)
    return purposes


def lab_rack(gpu: int = 2) -> Rack:
    nodes = [Node("storage-01", ("storage",), {"fabric_addresses": ["10.77.0.11/24"], "virtual": True})]
    for k in range(1, gpu + 1):
        data = {"fabric_addresses": [f"10.77.0.{20 + k}/24"], "virtual": True, "simulated_gpus": True}
        nodes.append(Node(f"gpu-{k:02d}", ("gpu",), data))
    return Rack("inventories/lab.py", tuple(nodes))


def virtual_rack() -> Architecture:
    return load(Path(__file__).parents[2] / "architectures" / "virtual-rack.yaml").model


@contextmanager
def scripted(
    folder: Path, answer: Answer, rack: Rack | None = None, architecture: Architecture | None = None
) -> Iterator[Session]:
    """A session whose nodes answer from a function; evidence goes to ``folder``."""
    rack = rack or lab_rack()
    with EvidenceStore(folder) as store:
        fleet: Any = FakeFleet(rack, answer)
        yield Session(rack, architecture or virtual_rack(), fleet, store)
