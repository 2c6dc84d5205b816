"""Facts about Slurm, one question a node."""

from __future__ import annotations

from rackproof.configure.fact_prefetch import Timely
from rackproof.configure.facts import Answer, complete
from rackproof.configure.slurm import nodes, registration


class SlurmNodeState(Answer[nodes.NodeState]):
    """Clock, hardware, key and configuration of a node."""

    def command(self) -> str:
        return Timely(complete(nodes.state_command()))

    def parse(self, lines: list[str]) -> nodes.NodeState:
        return nodes.parse_state(lines)


class SlurmRegistration(Answer[registration.Registration]):
    """The controller's state of this node, where the kit changed its part of Slurm."""

    def command(self, node: str) -> str:
        return complete(registration.state_command(node))

    def parse(self, lines: list[str]) -> registration.Registration:
        return registration.parse_state(lines)
