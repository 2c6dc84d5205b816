"""Which kit is on a node."""

from __future__ import annotations

from rackproof.configure.facts import Answer, complete
from rackproof.configure.health_check import kit


class InstalledKit(Answer[str]):
    """The stamp of the kit that is installed; empty when there is none that starts."""

    def command(self, directory: str) -> str:
        return complete(kit.state_command(directory))

    def parse(self, lines: list[str]) -> str:
        return lines[0].strip() if lines else ""
