"""Facts of the health check."""

from __future__ import annotations

from rackproof.configure.facts import Answer, complete
from rackproof.configure.health_check import kit


class InstalledKit(Answer[str]):
    """Stamp of the installed kit; empty when none is installed or it does not start."""

    def command(self, directory: str) -> str:
        return complete(kit.state_command(directory))

    def parse(self, lines: list[str]) -> str:
        return lines[0].strip() if lines else ""
