"""The one exception of the parsers."""

from __future__ import annotations

from typing import Final

_LONGEST_REASON: Final = 240


class ParseError(ValueError):
    """``tool`` did not print what it should have; ``reason`` is one printable line.

    The caller turns it into UNMEASURED: an output that cannot be read is no number and no answer.
    """

    def __init__(self, tool: str, reason: str) -> None:
        line = " ".join(reason.split())
        line = "".join(c if c.isprintable() else "?" for c in line)
        if len(line) > _LONGEST_REASON:
            line = line[: _LONGEST_REASON - 1] + "…"
        super().__init__(f"{tool}: {line}")
        self.tool = tool
        self.reason = line
