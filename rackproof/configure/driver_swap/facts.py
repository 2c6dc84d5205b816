"""Facts of nodes whose driver is to be replaced."""

from __future__ import annotations

from rackproof.configure.driver_swap import gpu_users
from rackproof.configure.fact_prefetch import Timely
from rackproof.configure.facts import Answer, complete


class DriverUse(Answer[gpu_users.Use]):
    """Programs and jobs that currently use driver and network stack."""

    def command(self, node: str) -> str:
        return Timely(complete(gpu_users.use_command(node)))

    def parse(self, lines: list[str]) -> gpu_users.Use:
        return gpu_users.parse_use(lines)
