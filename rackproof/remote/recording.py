"""A recording: what one machine answered to exact commands. Pure.

The file is JSON that a person can read and a diff can show. Output is a list of pieces of text whose concatenation
is the exact output; output that is not UTF-8 is kept as base64; what is empty is left out::

    {"schema": "rackproof.recording/v2", "rackproof": "0.1.0", "recorded": "2026-11-21T07:45:00Z",
     "node": "gpu-01", "groups": ["gpu"], "data": {"virtual": true},
     "commands": [{"command": "uname -r", "rc": 0, "elapsed_s": 0.012, "timeout_s": 20.0,
                   "stdout_sha256": "2ad1…", "stdout": ["6.12.48\\n"]}],
     "sha256": "91c0…"}

Secrets are redacted before (``redaction.py``); each sha256 is of what is stored, the last one of everything else in
the document, so that nothing in it can be changed unnoticed. Spacing and the order of keys are of no account.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rackproof.core.evidence import canonical
from rackproof.core.rack import Node
from rackproof.errors import RackproofError, RunError
from rackproof.remote.command import CommandResult
from rackproof.remote.redaction import redact_data, redacted

SCHEMA = "rackproof.recording/v2"
_VERSIONED = re.compile(r"rackproof\.recording/v(\d{1,6})")
_VERSION = 2
_STREAMS = ("stdout", "stderr")

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
    recorded: str | None = field(default=None, compare=False)
    """When it was written, UTC, ISO 8601; None where that is not known."""
    rackproof: str | None = field(default=None, compare=False)
    """Version of the kit that wrote it."""

    def to_json(self) -> str:
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "rackproof": self.rackproof,
            "recorded": self.recorded,
            "node": self.node.name,
            "groups": list(self.node.groups),
            "data": redact_data(public_data(self.node.data)),
            "commands": [_result_to_plain(redacted(result)) for result in self.results.values()],
        }
        document["sha256"] = _digest(document)
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, name: str) -> Recording:
        """Read a recording; ``name`` stands for the file in errors. Raises RunError, one line."""
        document = _document(text, name)
        _check_version(document.get("schema"), name)
        try:
            node = Node(str(document["node"]), tuple(document["groups"]), dict(document["data"]))
            results = [_result_from_plain(node.name, plain) for plain in document["commands"]]
            recorded, version = document["recorded"], document["rackproof"]
            stands = _digest({key: value for key, value in document.items() if key != "sha256"}) == document["sha256"]
        except _Edited as edited:
            raise RunError(f"{name}: edited by hand or damaged: {edited}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RunError(f"{name}: damaged recording: {type(error).__name__}: {error}") from None
        if not stands:
            raise RunError(f"{name}: edited by hand or damaged: sha256 of the recording does not match")
        return Recording(node, by_command(results), recorded, version)


class _Edited(Exception):
    """An output is not what its sha256 says."""


def by_command(results: Iterable[CommandResult]) -> dict[str, CommandResult]:
    """Index results; of two answers to one command the first counts, as it does for a reader."""
    results_by_command: dict[str, CommandResult] = {}
    for result in results:
        results_by_command.setdefault(result.command, result)
    return results_by_command


def public_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data without access details: how to log in, and whatever is named like a secret."""

    def private(key: str) -> bool:
        low = key.lower()
        return low.startswith(_PRIVATE[:2]) or any(word in low for word in _PRIVATE[2:])

    return {key: value for key, value in data.items() if not private(key)}


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        stripped = text.strip()
        if stripped.startswith("{") and not stripped.endswith("}"):
            raise RunError(
                f"{name}: truncated: the recording ends in the middle, in line {len(text.splitlines())}"
            ) from None
        raise RunError(f"{name}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise RunError(f"{name}: not a recording (expected schema {SCHEMA}, actual none)")
    return document


def _check_version(schema: object, name: str) -> None:
    """Raises RunError. An older version is refused as well: it has no hashes, and would be the way around them."""
    if schema == SCHEMA:
        return
    match = _VERSIONED.fullmatch(schema) if isinstance(schema, str) else None
    if match is None:
        raise RunError(f"{name}: not a recording (expected schema {SCHEMA}, actual {str(schema)[:60]})")
    kind = "a newer" if int(match[1]) > _VERSION else "an older"
    raise RunError(f"{name}: written by {kind} rackproof ({schema}), this one reads v{_VERSION}; record it again")


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(document)).hexdigest()


def _result_to_plain(result: CommandResult) -> dict[str, Any]:
    plain: dict[str, Any] = {"command": result.command, "rc": result.rc}
    if result.error is not None:
        plain["error"] = result.error
    plain |= {"elapsed_s": round(result.elapsed_s, 3), "timeout_s": result.timeout_s}
    for stream, data in zip(_STREAMS, (result.stdout, result.stderr), strict=True):
        if data:
            plain[f"{stream}_sha256"] = hashlib.sha256(data).hexdigest()
            plain[stream] = _bytes_to_plain(data)
    return plain


def _result_from_plain(node: str, plain: dict[str, Any]) -> CommandResult:
    rc, error, command = plain["rc"], plain.get("error"), plain["command"]
    if not isinstance(command, str):
        raise TypeError(f"command {command!r}")
    if rc is not None and (not isinstance(rc, int) or isinstance(rc, bool)):
        raise ValueError(f"rc {rc!r} of {command!r}")
    if (rc is None) != (error is not None):
        raise ValueError(f"{command!r} needs either an exit status or an error")
    stdout, stderr = (_stream(plain, stream, command) for stream in _STREAMS)
    return CommandResult(
        node, command, rc, stdout, stderr, float(plain["elapsed_s"]), float(plain["timeout_s"]), error
    )  # fmt: skip


def _stream(plain: dict[str, Any], stream: str, command: str) -> bytes:
    data = _bytes_from_plain(plain.get(stream, []))
    expected = plain.get(f"{stream}_sha256")
    if (hashlib.sha256(data).hexdigest() if data else None) != expected:
        what = "output" if stream == "stdout" else "error output"
        raise _Edited(f"sha256 of the {what} of {command!r} does not match")
    return data


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
