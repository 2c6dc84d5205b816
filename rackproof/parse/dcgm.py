"""DCGM: ``dcgmi diag -j`` of versions 2, 3 and 4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_json

TOOL: Final = "dcgmi"
_STATUS: Final = {"pass": "Pass", "fail": "Fail", "warn": "Warn", "skip": "Skip", "not run": "Skip"}
_NAMED: Final = {"gpu_memory": "memory"}
"""Tests that versions 2 and 3 print under another name than ``-r`` takes."""
UNREADABLE: Final = "unreadable"
_SHOWN: Final = 300
_TITLES: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


@dataclass(frozen=True, slots=True)
class DiagResult:
    test: str
    status: str
    """Pass, Fail, Warn, Skip, an unknown word as printed, or ``unreadable``."""
    gpus: str
    """Comma-separated GPU ids; empty for a result of the whole node, or of another device."""
    says: str
    """The tool's message."""
    warned: bool = False
    """Whether the message is a warning, which version 4 also prints beside Pass."""

    @property
    def named(self) -> str:
        """The test as ``-r`` and version 4 name it: ``Memory Bandwidth`` is ``memory_bandwidth``."""
        name = self.test.lower().replace(" ", "_")
        return _NAMED.get(name, name)

    @property
    def bad(self) -> bool:
        """A warning, too: DCGM fails a test for what it knows to be broken, and warns of the rest."""
        return self.status in ("Fail", "Warn")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    results: tuple[DiagResult, ...]
    """Every result of every test; at least one."""
    before: str
    """Text that the tool printed before its document."""


def parse_dcgm_diag(output: str | bytes) -> Diagnosis:
    """Entries that cannot be read are results with the status ``unreadable``; the others keep theirs."""
    document = find_json(
        TOOL, output, lambda value: isinstance(value, dict) and any(title in value for title in _TITLES)
    )
    root = Json(TOOL, "", document.value)
    title = next(title for title in _TITLES if title in root.values)
    results: list[DiagResult] = []
    if error := _words(root.child(title).values.get("runtime_error", "")):
        results.append(DiagResult("the diagnosis", UNREADABLE, "", error))
    for category in _entries(root.child(title).values.get("test_categories")):
        name = category.get("category") if category else None
        for test in _entries(category.get("tests") if category else None):
            name = test.get("name") if test else name
            own = [_result(str(name or "a test"), one) for one in _entries(test.get("results") if test else None)]
            results += [*own, *_summary(str(name or "a test"), test, own)]
    if not any(result.status != UNREADABLE for result in results):
        raise ParseError(TOOL, "no test was run")
    return Diagnosis(tuple(results), " ".join(document.before.split())[:_SHOWN])


def _summary(name: str, test: dict[str, Any] | None, own: Sequence[DiagResult]) -> list[DiagResult]:
    """Version 4's summary of a test, if no result has the same status: it has the errors of no single device."""
    summary = test.get("test_summary") if test else None
    if summary is None:
        return []
    whole = replace(_result(name, summary if isinstance(summary, dict) else None), gpus="")
    return [] if whole.status in {result.status for result in own} and not whole.warned else [whole]


def _entries(value: Any) -> list[dict[str, Any] | None]:
    """Objects of a list, None for anything else in it. What is no list, or empty, is one unreadable entry."""
    if not isinstance(value, list) or not value:
        return [None]
    return [entry if isinstance(entry, dict) else None for entry in value]


def _result(name: str, entry: dict[str, Any] | None) -> DiagResult:
    status = entry.get("status") if entry else None
    if entry is None or not isinstance(status, str) or not status.strip():
        return DiagResult(name, UNREADABLE, "", "")
    gpus = entry.get("gpu_ids", entry.get("gpu_id", entry.get("entity_id", "")))
    if entry.get("entity_group", "GPU") != "GPU":
        gpus = ""
    words, warned = _words(entry.get("warnings", entry.get("info", ""))), bool(_words(entry.get("warnings", "")))
    return DiagResult(name, _STATUS.get(status.lower(), status), str(gpus), words, warned)


def _words(value: Any) -> str:
    """A string, a list of strings, or a list of objects with a ``warning``."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, value)))
    if isinstance(value, dict):
        return _words(value.get("warning", value.get("message", "")))
    return re.sub(r"\s+", " ", str(value)).strip()
