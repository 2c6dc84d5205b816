"""Racks of many nodes with two rails, whose all-to-all shows the faults that they are given."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rackproof.bench.collectives.command import launcher_of, leads, requested_by
from rackproof.bench.collectives.group_reader import SETS
from rackproof.core.collective import least_received
from rackproof.core.rack import Node, Rack
from rackproof.remote.command import CommandResult
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import reply

RAILS = 2
PER_RACK = 8


def rack_of(count: int, known: bool = True, launcher: str | None = None) -> Rack:
    """``known``: the inventory names racks and leaf switches."""
    nodes = [Node("storage-01", ("storage",), {"fabric_addresses": ["10.77.0.11/24", "10.77.0.12/24"]})]
    for k in range(count):
        data: dict[str, object] = {"fabric_addresses": [f"10.77.0.{20 + k}/24", f"10.77.0.{120 + k}/24"]}
        if known:
            data |= {"rack": f"r{k // PER_RACK}", "leaf_switches": [f"leaf-{k // PER_RACK}-{rail}" for rail in (0, 1)]}
        if launcher:
            data["collectives"] = {"launcher": launcher}
        nodes.append(Node(f"gpu-{k + 1:02d}", ("gpu",), data))
    return Rack("inventories/lab.py", tuple(nodes))


def slow(text: str) -> str:
    """A tenth of the rate."""
    document = json.loads(text)
    for row in document["results"]:
        row["samples_us"] = [10 * sample for sample in row["samples_us"]]
        row["time_us"] *= 10
        row["algbw_GBps"] /= 10
        row["busbw_GBps"] /= 10
    return json.dumps(document) + "\n"


def wrong(text: str) -> str:
    document = json.loads(text)
    for row in document["results"]:
        row["wrong"] = 3
    return json.dumps(document) + "\n"


HANG = "did not end within 154 s"


@dataclass
class Fault:
    """Shows in every set with all of ``nodes`` (a link), or with any of them."""

    nodes: frozenset[str]
    rail: int | None = None
    link: bool = False
    shows: Callable[[str], str] | str = slow
    """Changes the output; a text: why the job does not end."""
    passes: int = 0
    """Every so many jobs pass in spite of it; 0: none."""
    seen: int = 0

    def strikes(self, nodes: Iterable[str], rails: Iterable[int]) -> bool:
        among = set(nodes)
        if not (self.nodes <= among if self.link else self.nodes & among):
            return False
        if self.rail is not None and self.rail not in rails:
            return False
        self.seen += 1
        return not self.passes or bool(self.seen % self.passes)


@dataclass
class GroupNodes(FabricNodes):
    adapters: int = RAILS
    faults: list[Fault] = field(default_factory=list)
    jobs: list[tuple[str, ...]] = field(default_factory=list)
    """Nodes of every launch."""
    followed: Callable[[CommandResult], CommandResult] = lambda answer: answer
    """Changes the answers of nodes beside the first, where each runs a command."""
    before_job: Callable[[int], None] = lambda number: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, node: str, command: str) -> CommandResult | None:
        with self.lock:
            if SETS in command and launcher_of(command):
                return self._job(node, command)
            return super().answer(node, command)

    def _job(self, node: str, command: str) -> CommandResult:
        bare = command.partition(SETS)[0]
        asked = requested_by(bare)
        if not leads(bare):
            return self.followed(reply(node, command))
        self.before_job(len(self.jobs))
        self.jobs.append(asked.hosts)
        rails = [0, 1] if asked.interface is None else [int(asked.interface.removeprefix("fabric"))]
        if named := asked.environment.get("NCCL_IB_HCA"):
            rails = [int(name.removeprefix("rxe")) for name in named.removeprefix("=").split(",")]
        text = self.edit("group", self._collective(node, bare))
        if asked.interface is None:  # both rails at once
            moved = (asked.iterations + asked.warmup) * sum(
                least_received(asked.op, size, len(asked.hosts), asked.ranks_per_node) for size in asked.sizes
            )
            for host in asked.hosts:
                self.counts[host, self.way("fabric0")]["rx_bytes"] -= moved
                for rail in rails:
                    self.counts[host, self.way(f"fabric{rail}")]["rx_bytes"] += moved // len(rails) + 1
        for fault in self.faults:
            if fault.strikes(asked.hosts, rails):
                if isinstance(fault.shows, str):
                    return reply(node, command, rc=None, error=fault.shows)
                text = fault.shows(text)
        return reply(node, command, text)


def nodes_of(rack: Rack, faults: Iterable[Fault] = ()) -> GroupNodes:
    addresses = {
        str(address).partition("/")[0]: node.name for node in rack.nodes for address in node.data["fabric_addresses"]
    }
    return GroupNodes(addresses, faults=list(faults))


__all__ = ["HANG", "Fault", "GroupNodes", "nodes_of", "rack_of", "slow", "wrong"]
