"""Fields of a verdict that come from the architecture's entry."""

from __future__ import annotations

from typing import Any

from rackproof.core.architecture import JudgedEntry, Severity


def about(entry: JudgedEntry, id_: str) -> dict[str, Any]:
    """Fields of the verdict that do not depend on measurements."""
    return {
        "id": id_,
        "kind": "criterion",
        "title": entry.title,
        "required": entry.severity is Severity.REQUIRED,
        "source": entry.source,
        "reason": entry.reason,
        "hint": entry.hint,
        "claim": entry.claim,
        "published": entry.published,
        "changed": entry.changed,
    }
