"""Plan of a change to adapters or their drivers."""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.core.plan import Change


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """Shell lines, and the changes that they make; empty when the node is as declared."""

    lines: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def script(self) -> str:
        return "\n".join(("set -eu", *self.lines))
