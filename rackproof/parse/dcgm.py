"""DCGM: ``dcgmi diag -r 1 -j`` of versions 2, 3 and 4."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_json
from rackproof.parse.text import excerpt

TOOL: Final = "dcgmi"
_STATUS: Final = {"pass": "Pass", "fail": "Fail", "warn": "Warn", "skip": "Skip", "not run": "Skip"}
_TITLES: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


@dataclass(frozen=True, slots=True)
class DiagResult:
    test: str
    status: str
    """Pass, Fail, Warn or Skip."""
    gpus: str
    """Comma-separated GPU ids; empty for a result of the whole node."""
    says: str
    """The tool's message."""


def parse_dcgm_diag(output: str | bytes) -> tuple[DiagResult, ...]:
    """Every result of every test; at least one."""
    document = find_json(
        TOOL, output, lambda value: isinstance(value, dict) and any(title in value for title in _TITLES)
    )
    root = Json(TOOL, "", document.value)
    title = next(title for title in _TITLES if title in root.values)
    results: list[DiagResult] = []
    for category in root.child(title).children("test_categories"):
        for test in category.children("tests"):
            name = test.string("name")
            entries = test.children("results")
            if not entries:
                raise ParseError(TOOL, f"{name} has no result")
            results += [_result(name, entry) for entry in entries]
    if not results:
        raise ParseError(TOOL, "no test was run")
    return tuple(results)


def _result(name: str, entry: Json) -> DiagResult:
    status = _STATUS.get(entry.string("status").lower())
    if status is None:
        raise ParseError(TOOL, f"{name} has an unknown status {excerpt(entry.string('status'))}")
    gpus = entry.values.get("gpu_ids", entry.values.get("gpu_id", entry.values.get("entity_id", "")))
    return DiagResult(name, status, str(gpus), _words(entry.values.get("warnings", entry.values.get("info", ""))))


def _words(value: Any) -> str:
    """A string, a list of strings, or a list of objects with a ``warning``."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, value)))
    if isinstance(value, dict):
        return _words(value.get("warning", value.get("message", "")))
    return re.sub(r"\s+", " ", str(value)).strip()
