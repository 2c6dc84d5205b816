"""Parsers of tool output: text in, frozen records out.

Pure functions, one module per tool. Each takes the tool's whole standard output (``str`` or ``bytes``) and returns the
parsed record or raises :class:`ParseError`. Empty, truncated or unrelated text always raises. Values that a tool
reports as not available are ``None``, never 0.

Callers keep the final newline. Where a truncated last line would still parse (mountinfo, mountstats, ``rdma link``,
result tables), a last line without a newline counts as cut off.
"""

from __future__ import annotations

from rackproof.parse.errors import FromMemory, Mismatch, ParseError, Unreliable

__all__ = ["FromMemory", "Mismatch", "ParseError", "Unreliable"]
