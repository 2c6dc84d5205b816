"""Facts about Slurm, one question a node."""

from __future__ import annotations

from rackproof.configure.fact_prefetch import Timely
from rackproof.configure.facts import Answer, complete
from rackproof.configure.slurm import nodes


class SlurmNodeState(Answer[nodes.NodeState]):
    """Clock, hardware, key and configuration of a node."""

    def command(self) -> str:
        return Timely(complete(nodes.state_command()))

    def parse(self, lines: list[str]) -> nodes.NodeState:
        return nodes.parse_state(lines)


class SlurmChanged(Answer[bool]):
    """Whether the kit changed this node's Slurm since it last registered."""

    def command(self) -> str:
        return complete(f"[ ! -e {nodes.CHANGED} ] || echo changed")

    def parse(self, lines: list[str]) -> bool:
        return lines == ["changed"]
