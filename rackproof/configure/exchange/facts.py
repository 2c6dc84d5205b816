"""One question, to nodes whose driver is to be exchanged."""

from __future__ import annotations

from rackproof.configure.asking import Timely
from rackproof.configure.exchange import use
from rackproof.configure.facts import Answer, complete


class DriverUse(Answer[use.Use]):
    """Programs and jobs that work with driver and network stack, at this moment."""

    def command(self, node: str) -> str:
        return Timely(complete(use.use_command(node)))

    def parse(self, lines: list[str]) -> use.Use:
        return use.parse_use(lines)
