"""The exception of all parsers."""

from __future__ import annotations

import re
from typing import Final

from rackproof.core.wording import shortened
from rackproof.errors import RackproofError

_LONGEST_REASON: Final = 240
_FAILURE: Final = re.compile(r"\(exit status \d+\)$")
"""A text of ``core.failure``, which names the program itself."""


class ParseError(RackproofError, ValueError):
    """The output of ``tool`` cannot be parsed; ``reason`` is one printable line of at most 240 characters.

    Validators and benchmarks report UNMEASURED.
    """

    def __init__(self, tool: str, reason: str) -> None:
        line = " ".join(reason.split())
        line = shortened("".join(c if c.isprintable() else "?" for c in line), _LONGEST_REASON)
        super().__init__(line if line.startswith(f"{tool}: ") or _FAILURE.search(line) else f"{tool}: {line}")
        self.tool = tool
        self.reason = line


class Unreliable(ParseError):
    """The figures of ``tool`` contradict each other, or the tool itself calls them unreliable.

    They say nothing about what was measured; benchmarks measure again.
    """


class Mismatch(ParseError):
    """``tool`` measured something else than it was asked to, or on another path; the reason names both values."""


class FromMemory(Mismatch):
    """Memory of the clients answered ``tool`` instead of the storage; the reason has the share. Benchmarks report
    INVALID."""
