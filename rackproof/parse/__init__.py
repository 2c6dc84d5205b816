"""Parsers of tool output: text in, frozen records out.

Pure functions, one module a tool. Each takes the tool's whole standard output (``str`` or ``bytes``) and either returns
what the tool said or raises :class:`ParseError`. None returns an empty record for an empty, truncated or foreign text,
and none guesses a number: what a tool reports as not available is ``None``, never 0.

Keep the final newline. Where a last line could have lost its tail unnoticed (mountinfo, mountstats, ``rdma link``,
tables of results), one without a newline counts as cut off.
"""

from __future__ import annotations

from rackproof.parse.errors import ParseError

__all__ = ["ParseError"]
