"""Facts of rollback."""

from __future__ import annotations

from rackproof.configure.facts import Answer, complete
from rackproof.configure.rollback import restore


class Kept(Answer[tuple[restore.KeptRun, ...]]):
    """Journals of all runs, oldest first."""

    def command(self) -> str:
        return complete(restore.kept_command())

    def parse(self, lines: list[str]) -> tuple[restore.KeptRun, ...]:
        return restore.parse_kept(lines)
