"""A recording: what one machine answered to exact commands. Pure.

The file is JSON that a person can read and a diff can show. Output is a list of pieces of text whose concatenation
is the exact output; output that is not UTF-8 is kept as base64::

    {"schema": "rackproof.recording/v1", "node": "gpu-01", "groups": ["gpu"], "data": {"virtual": true},
     "commands": [{"command": "uname -r", "rc": 0, "stdout": ["6.12.48\\n"], "stderr": [], "timeout_s": 20.0, …}]}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rackproof.core.rack import Node
from rackproof.errors import RackproofError, RunError
from rackproof.remote.command import CommandResult

SCHEMA = "rackproof.recording/v1"

_PRIVATE = ("ssh_", "_", "pass", "secret", "token", "key")
"""Inventory data whose name contains one of the words (or starts with one of the prefixes) stays out."""


class Unmeasured(RackproofError):
    """A question to a node has no answer; ``str()`` is the reason, one line."""


class Reader(Protocol):
    """Whatever can answer a read-only command about one machine."""

    def read(self, command: str) -> CommandResult:
        """The result of exactly this command; never raises for what happened on the node."""
        ...


@dataclass(frozen=True, slots=True)
class Recording:
    """Results by command, in the order in which they were read, with the node as the inventory describes it."""

    node: Node
    results: Mapping[str, CommandResult] = field(default_factory=dict)

    def to_json(self) -> str:
        document = {
            "schema": SCHEMA,
            "node": self.node.name,
            "groups": list(self.node.groups),
            "data": public_data(self.node.data),
            "commands": [_result_to_plain(result) for result in self.results.values()],
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, name: str) -> Recording:
        """Read a recording; ``name`` stands for the file in errors. Raises RunError, one line."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise RunError(f"{name}: not JSON: {error}") from None
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise RunError(f"{name}: not a recording (expected schema {SCHEMA}, actual {schema})")
        try:
            node = Node(str(document["node"]), tuple(document["groups"]), dict(document["data"]))
            results = [_result_from_plain(node.name, plain) for plain in document["commands"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{name}: damaged recording: {type(error).__name__}: {error}") from None
        return Recording(node, by_command(results))


def by_command(results: Iterable[CommandResult]) -> dict[str, CommandResult]:
    """Index results; of two answers to one command the first counts, as it does for a reader."""
    found: dict[str, CommandResult] = {}
    for result in results:
        found.setdefault(result.command, result)
    return found


def public_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data without access details: how to log in, and whatever is named like a secret."""

    def private(key: str) -> bool:
        low = key.lower()
        return low.startswith(_PRIVATE[:2]) or any(word in low for word in _PRIVATE[2:])

    return {key: value for key, value in data.items() if not private(key)}


def _result_to_plain(result: CommandResult) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "command": result.command,
        "rc": result.rc,
        "stdout": _bytes_to_plain(result.stdout),
        "stderr": _bytes_to_plain(result.stderr),
        "elapsed_s": round(result.elapsed_s, 3),
        "timeout_s": result.timeout_s,
    }
    if result.error is not None:
        plain["error"] = result.error
    return plain


def _result_from_plain(node: str, plain: dict[str, Any]) -> CommandResult:
    rc, error = plain["rc"], plain.get("error")
    if rc is not None and (not isinstance(rc, int) or isinstance(rc, bool)):
        raise ValueError(f"rc {rc!r} of {plain['command']!r}")
    if (rc is None) != (error is not None):
        raise ValueError(f"{plain['command']!r} needs either an exit status or an error")
    return CommandResult(
        node, str(plain["command"]), rc, _bytes_from_plain(plain["stdout"]), _bytes_from_plain(plain["stderr"]),
        float(plain.get("elapsed_s", 0.0)), float(plain.get("timeout_s", 0.0)), error,
    )  # fmt: skip


def _bytes_to_plain(data: bytes) -> list[str] | dict[str, str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text.splitlines(keepends=True)


def _bytes_from_plain(plain: Any) -> bytes:
    if isinstance(plain, dict):
        try:
            return base64.b64decode(plain["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"base64: {error}") from None
    if not isinstance(plain, list):
        raise TypeError(f"output is {type(plain).__name__}, not a list of text")
    return "".join(plain).encode("utf-8")
