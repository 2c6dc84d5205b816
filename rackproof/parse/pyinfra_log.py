"""Lines of pyinfra's own log, without colours."""

from __future__ import annotations

import re
from typing import Final

_OPERATION: Final = re.compile(r"^--> Starting operation: (?P<name>.*?)(?: \([^()]*=.*\))?$")
_NODE: Final = re.compile(r"^\s*\[(?P<node>[^\]]+)\]\s+(?P<text>.*)$", re.DOTALL)
_PROBLEM: Final = re.compile(
    r"^(?:--> \w+ error in [^:]*|(?:[\w.]+\.)?(?P<kind>\w*(?:Error|Exception))): (?P<text>.+)$"
)
_CONNECT: Final = re.compile(
    r"^(Could not connect|Authentication error|Could not resolve|EOF error|SSH (host key )?error|Host key|No host key)",
    re.I,
)


def operation_in(line: str) -> str | None:
    """Name of the operation that begins with this line, without its arguments."""
    match = _OPERATION.match(line)
    return match["name"].strip() if match else None


def node_line(line: str) -> tuple[str, str] | None:
    """Node and text of a line ``[NODE] TEXT``."""
    match = _NODE.match(line)
    return (match["node"], match["text"]) if match else None


def problem_in(line: str) -> str | None:
    """``KIND: TEXT`` of an error that belongs to no node."""
    match = _PROBLEM.match(line.strip())
    return f"{match['kind'] or 'error'}: {match['text']}" if match else None


def is_unconnected(text: str) -> bool:
    """Whether the text of a node says why pyinfra did not connect to it."""
    return _CONNECT.match(text) is not None
