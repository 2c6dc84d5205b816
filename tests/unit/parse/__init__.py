"""Tests of the parsers; ``tool_output`` reads what they are fed with."""

from __future__ import annotations

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "data" / "tools"


def tool_output(name: str) -> str:
    return (TOOLS / name).read_text(encoding="utf-8")
