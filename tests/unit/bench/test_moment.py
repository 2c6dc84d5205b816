"""The common start: told to all nodes when all are ready, to none before, and never waited for without end."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench import moment
from rackproof.bench.moment import CommonStart
from rackproof.bench.step import BenchContext
from rackproof.bench.user import HOME, BenchUsers
from rackproof.core.clocks import Clock
from rackproof.core.evidence import Kind
from rackproof.core.rack import Node, Rack
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import MAX_PARALLEL, Fleet
from tests.unit.fakes import lab_rack, reply, scripted

NODES = ("gpu-01", "gpu-02")
COMMANDS = dict.fromkeys(NODES, f"python3 -I {HOME}/x_node.py '{{}}'")
UNREADY = "gpu-02: its program was not ready within 0 s (start_s)"
FAULT = "worker 1 of 2 died: signal 9"
Readiness = Callable[[str], CommandResult | None]


class Nodes:
    """Programs that run until they are told something; ``readiness`` answers for a node that is asked."""

    def __init__(self, readiness: Readiness = lambda node: None, ended: dict[str, CommandResult] | None = None) -> None:
        self.readiness, self.ended = readiness, ended or {}
        self.full = False
        self.told: dict[str, str] = {}
        self.asked: list[str] = []
        self.all_told = threading.Event()

    def answer(self, node: str, command: str) -> CommandResult | None:
        if f"start={HOME}/start-" in command:
            told = re.search(r" told=(.*)", command)
            if told is None:
                self.asked.append(node)
                return self.readiness(node)
            if self.full:
                self.all_told.set()
                return reply(node, command, rc=1, err="No space left on device")
            self.told[node] = shlex.split(told[1])[0]
            if set(self.told) == set(NODES):
                self.all_told.set()
            return None
        if command != COMMANDS[node]:
            return None
        if node in self.ended:
            return self.ended[node]
        assert self.all_told.wait(20)
        return reply(node, command, "{}\n")

    @contextmanager
    def start(self, folder: Path, ready_s: float = 30) -> Iterator[CommonStart]:
        with scripted(folder, self.answer, lab_rack(2)) as session:
            users = BenchUsers.of(BenchContext(session, lambda line: None))
            assert users.ready(NODES) == {}
            fleet: Any = session.fleet
            fleet.files |= {(node, f"{HOME}/x_node.py"): b"" for node in NODES}
            yield CommonStart(session, users, ["train"], ready_s)


def test_all_nodes_get_the_same_moment_by_their_own_clocks(tmp_path: Path) -> None:
    nodes = Nodes()
    with nodes.start(tmp_path) as start:
        start.session.fleet.clocks["gpu-02"] = Clock(99.9, 100.1)  # type: ignore[attr-defined]
        results, why = start.run(COMMANDS, 10)
    assert why == ""
    assert [result.ok for result in results.values()] == [True, True]
    assert float(nodes.told["gpu-02"]) - float(nodes.told["gpu-01"]) == pytest.approx(100, abs=0.002)
    recorded = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    assert [command for command in recorded if command in COMMANDS.values()] == list(COMMANDS.values())
    assert all(any(f"told={told}" in command for command in recorded) for told in nodes.told.values())


def test_no_file_of_the_account_that_measures_is_opened_as_root(tmp_path: Path) -> None:
    nodes = Nodes()
    with nodes.start(tmp_path) as start:
        start.run(COMMANDS, 10)
        users = start.session.fleet.users  # type: ignore[attr-defined]
        own = [(node, user) for node, command, user in users if f"start={HOME}/start-" in command]
        assert len(own) == 4
        assert all(user == start.users[node].prefix for node, user in own)


def test_a_node_that_is_not_ready_yet_is_asked_again(tmp_path: Path) -> None:
    def readiness(node: str) -> CommandResult | None:
        early = node == "gpu-02" and nodes.asked.count(node) < 3
        return reply(node, "ready.sh", rc=3) if early else None

    nodes = Nodes(readiness)
    with nodes.start(tmp_path) as start:
        _, why = start.run(COMMANDS, 10)
    assert why == ""
    assert (nodes.asked.count("gpu-01"), nodes.asked.count("gpu-02")) == (1, 3)
    float(nodes.told["gpu-01"])


@pytest.mark.parametrize(
    ("answer", "told", "why"),
    [
        (lambda node: reply(node, "ready.sh", FAULT), f"not started: gpu-02: {FAULT}", ""),
        (lambda node: reply(node, "ready.sh", rc=None, error="connection lost"), "not started: gpu-02: connection lost",
         "gpu-02: connection lost"),
        (lambda node: reply(node, "ready.sh", rc=3), f"not started: {UNREADY}", UNREADY),
        (lambda node: reply(node, "ready.sh", f"{FAULT}\nno index\n", rc=3),
         f"not started: gpu-02: {FAULT}; no index", ""),
    ],
)  # fmt: skip
def test_every_node_is_told_why_there_is_no_start(
    tmp_path: Path, answer: Callable[[str], CommandResult], told: str, why: str
) -> None:
    nodes = Nodes(lambda node: answer(node) if node == "gpu-02" else None)
    with nodes.start(tmp_path, ready_s=0) as start:
        _, reason = start.run(COMMANDS, 10)
    assert set(nodes.told.values()) == {told}
    assert reason == why


def test_a_program_that_ends_without_a_word_stops_the_others(tmp_path: Path) -> None:
    """It was never ready: without this the others wait for as long as ``start_s``."""
    ended = {"gpu-01": reply("gpu-01", COMMANDS["gpu-01"], rc=1, err="No module named numpy")}
    nodes = Nodes(lambda node: reply(node, "ready.sh", rc=3), ended)
    with nodes.start(tmp_path, ready_s=3600) as start:
        results, why = start.run(COMMANDS, 10)
    assert why == ""
    assert not results["gpu-01"].ok
    assert set(nodes.told.values()) == {"not started: gpu-01: python3: No module named numpy (exit status 1)"}


def test_a_start_that_cannot_be_told_is_a_reason(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.full = True
    with nodes.start(tmp_path) as start:
        _, why = start.run(COMMANDS, 10)
    assert why.startswith("gpu-01: did not get the start time: ")
    assert "No space left on device" in why


def test_a_clock_that_is_not_known_well_gives_no_start(tmp_path: Path) -> None:
    nodes = Nodes()
    with nodes.start(tmp_path) as start:
        start.session.fleet.clocks["gpu-02"] = Clock(-0.4, 0.4)  # type: ignore[attr-defined]
        _, why = start.run(COMMANDS, 10)
    assert why == "gpu-02: its clock is known to 0.8 s only: the node is busy"
    assert set(nodes.told.values()) == {f"not started: {why}"}


def test_a_fault_of_the_controller_ends_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("a bug")

    nodes = Nodes()
    monkeypatch.setattr(moment, "moments", broken)
    with nodes.start(tmp_path) as start, pytest.raises(RuntimeError, match="a bug"):
        start.run(COMMANDS, 10)
    assert set(nodes.told.values()) == {"not started: an error of the controller"}


def test_many_nodes_are_told_with_more_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment.time, "time", lambda: 1000.0)
    nodes = Nodes()
    with nodes.start(tmp_path) as start:
        start.run(COMMANDS, 10)
    assert float(nodes.told["gpu-01"]) == 1000 + moment.LEAD_S + 2 * moment.NODE_S


def test_all_nodes_of_a_large_rack_start_together() -> None:
    """Programs that wait for each other are all begun, however many a fleet usually asks at once."""
    names = [f"gpu-{number:03d}" for number in range(MAX_PARALLEL + 6)]
    fleet = Fleet(Rack("x.py", tuple(Node(name, ("gpu",), {}) for name in names)))
    together = threading.Barrier(len(names), timeout=60)
    answers = fleet.each(names, lambda connection: together.wait() >= 0, "the others", parallel=len(names))
    assert answers == dict.fromkeys(names, True)
