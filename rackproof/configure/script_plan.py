"""Plan of a change of one node by a shell script. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.configure.rollback.journal import Later
from rackproof.core.plan import Change
from rackproof.shell import Script


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """Shell lines, the changes that they make, and what a rollback restores; empty when the node is as declared."""

    lines: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    kept: tuple[str, ...] | None = None
    """Journal lines of what the script changes; None: a rollback restores nothing of it."""
    later: tuple[Later, ...] = ()
    """Files whose new content only the script knows, for the journal."""
    head: tuple[str, ...] = ()
    """Lines before the others: functions and settings of the shell."""
    stdin: str | None = None
    """Secrets for the script: no argument, no file, nothing that is logged."""

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def script(self) -> str:
        return Script.of("set -eu", *self.head, *self.lines) if self.lines else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The changes in a few words each."""
        return tuple(change.what for change in self.changes)
