"""Recordings: results of one machine's commands. Pure.

The file is JSON for readers and diffs. Output is a list of lines; output that is not UTF-8 is base64; empty streams are
left out::

    {"schema": "rackproof.recording/v2", "rackproof": "0.1.0", "recorded": "2026-11-21T07:45:00Z",
     "node": "gpu-01", "groups": ["gpu"], "data": {"virtual": true},
     "commands": [{"command": "uname -r", "rc": 0, "elapsed_s": 0.012, "timeout_s": 20.0,
                   "stdout_sha256": "2ad1…", "stdout": ["6.12.48\\n"]}],
     "sha256": "91c0…"}

Secrets are already redacted (``redaction.py``): each sha256 is that of the stored output, the last one that of the rest
of the document, regardless of spacing and the order of keys. So every edit is noticed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rackproof.core.evidence import canonical
from rackproof.core.node_data import wrong, wrong_name
from rackproof.core.rack import Node
from rackproof.errors import RackproofError, RunError
from rackproof.remote.command import CommandResult
from rackproof.remote.redaction import redact_data, redacted

SCHEMA = "rackproof.recording/v2"
_VERSIONED = re.compile(r"rackproof\.recording/v(\d{1,6})")
_VERSION = 2
_STREAMS = ("stdout", "stderr")

_PRIVATE = ("ssh_", "_", "pass", "secret", "token", "key")
"""Private inventory data: its name starts with one of the first two, or contains one of the others."""


class Unmeasured(RackproofError):
    """A node did not answer a command; ``str()`` is the reason, one line."""


class Reader(Protocol):
    """Answers read-only commands about one machine."""

    def read(self, command: str) -> CommandResult:
        """Result of this exact command. Failures on the node do not raise."""
        ...


@dataclass(frozen=True, slots=True)
class Recording:
    """Results by command, in the order in which they were read, and the node with its inventory data."""

    node: Node
    results: Mapping[str, CommandResult] = field(default_factory=dict)
    recorded: str | None = field(default=None, compare=False)
    """Time of writing, UTC, ISO 8601; None if unknown."""
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
        """Parse a recording; ``name`` is the file in errors. Raises RunError, one line."""
        document = _document(text, name)
        _check_version(document.get("schema"), name)
        try:
            node = Node(document["node"], tuple(document["groups"]), dict(document["data"]))
            if problem := wrong_name(node.name, node.groups) or wrong(node.data):
                raise ValueError(problem)
            results = [_result_from_plain(node.name, plain) for plain in document["commands"]]
            recorded, version = document["recorded"], document["rackproof"]
            intact = _digest({key: value for key, value in document.items() if key != "sha256"}) == document["sha256"]
        except _Edited as edited:
            raise RunError(f"{name}: edited by hand or damaged: {edited}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RunError(f"{name}: damaged recording: {type(error).__name__}: {error}; record it again") from None
        if not intact:
            raise RunError(f"{name}: edited by hand or damaged: sha256 of the recording does not match")
        return Recording(node, by_command(results), recorded, version)


class _Edited(Exception):
    """An output does not match its sha256."""


def by_command(results: Iterable[CommandResult]) -> dict[str, CommandResult]:
    """Index results by command; the first of several results of one command counts, as for readers."""
    results_by_command: dict[str, CommandResult] = {}
    for result in results:
        results_by_command.setdefault(result.command, result)
    return results_by_command


def public_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data without logins and secrets (recognised by name), at any depth."""

    def private(key: str) -> bool:
        low = key.lower()
        return low.startswith(_PRIVATE[:2]) or any(word in low for word in _PRIVATE[2:])

    return {key: _without_secrets(value) for key, value in data.items() if not private(key)}


_SECRET_KEY = re.compile(r"(?i)(pass(word|wd|phrase)?|secret|token|credential|(api|private|access)_?key)s?$")
"""Secret keys of a nested mapping; ``password_from`` names a variable, ``key`` a signing key and its digest."""


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        inside = {key: _without_secrets(inner) for key, inner in value.items()}
        return {k: v for k, v in inside.items() if isinstance(v, dict) or not _SECRET_KEY.search(str(k))}
    return [_without_secrets(inner) for inner in value] if isinstance(value, list | tuple) else value


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        stripped = text.strip()
        if stripped.startswith("{") and not stripped.endswith("}"):
            raise RunError(f"{name}: truncated: the recording ends in line {len(text.splitlines())}") from None
        raise RunError(f"{name}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise RunError(f"{name}: not a recording (expected a JSON object with schema {SCHEMA})")
    return document


def _check_version(schema: object, name: str) -> None:
    """Raises RunError, also for older versions: they have no hashes, so edits of them would go unnoticed."""
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
        node, command, rc, stdout, stderr, _seconds(plain["elapsed_s"]), _seconds(plain["timeout_s"]), error
    )  # fmt: skip


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{str(value)[:60]!r} are no seconds")
    return float(value)


def _stream(plain: dict[str, Any], stream: str, command: str) -> bytes:
    data = _bytes_from_plain(plain.get(stream, []))
    expected = plain.get(f"{stream}_sha256")
    if (hashlib.sha256(data).hexdigest() if data else None) != expected:
        title = "output" if stream == "stdout" else "error output"
        raise _Edited(f"sha256 of the {title} of {command!r} does not match")
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
