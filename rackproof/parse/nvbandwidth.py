"""``nvbandwidth -j``: one matrix of bandwidths per test; the document may stand between other text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_object
from rackproof.parse.text import excerpt, matched, real

TOOL: Final = "nvbandwidth"
TOLERANCE: Final = 1e-4
"""Relative tolerance between the printed sum and the cells, which have six significant digits."""
_BEGIN: Final = re.compile(r'(?=\{\s*"nvbandwidth")')
_PASSED: Final = "Passed"
_ABSENT: Final = "N/A"
_DEVICE: Final = r"(\d{1,3}): (.*\S) \(([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)(?:: \(.*\))?"

Matrix = tuple[tuple[float | None, ...], ...]
"""GB/s (10^9 B), by row and column; None where the tool measured nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    bus_id: str
    """``00000000:18:00``, without the function."""


@dataclass(frozen=True, slots=True)
class NvBandwidth:
    statuses: Mapping[str, str]
    """``Passed``, ``Waived``, ``Not Found``, ``Error`` … by test."""
    matrices: Mapping[str, Matrix]
    """Matrices of the tests that passed."""
    devices: tuple[Device, ...]
    """In the order of rows and columns; empty before version 0.6, which does not list them."""
    driver: str

    def matrix(self, test: str) -> Matrix:
        """Raises ParseError for a test that did not pass, with its status."""
        if test not in self.statuses:
            raise ParseError(TOOL, f"no result of {test}, it has {', '.join(self.statuses)}")
        if test not in self.matrices:
            raise ParseError(TOOL, f"{test}: expected status {_PASSED}, actual {self.statuses[test]}")
        return self.matrices[test]


def parse_nvbandwidth(output: str | bytes) -> NvBandwidth:
    """Raises ParseError without exactly one complete document, with an error in it, or where sums contradict cells."""
    root = find_object(TOOL, output, TOOL, start=_BEGIN).child(TOOL)
    if root.has("error"):
        raise ParseError(TOOL, excerpt(str(root.values["error"]), 140))
    statuses: dict[str, str] = {}
    matrices: dict[str, Matrix] = {}
    for test in root.children("testcases"):
        name, status = test.string("name"), test.string("status")
        if name in statuses:
            raise ParseError(TOOL, f"{name} has two results")
        statuses[name] = status
        if test.has("error"):
            raise ParseError(TOOL, f"{name}: {excerpt(str(test.values['error']), 140)}")
        if status == _PASSED:
            matrices[name] = _matrix(test, name)
    if not statuses:
        raise ParseError(TOOL, "no test was run")
    devices = tuple(_devices(root.strings("GPU Device list"))) if root.has("GPU Device list") else ()
    return NvBandwidth(statuses, matrices, devices, root.string("Driver Version"))


def _matrix(test: Json, name: str) -> Matrix:
    rows = test.values.get("bandwidth_matrix")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        test.refuse("bandwidth_matrix", "is not a matrix")
    matrix = tuple(tuple(_cell(cell, name) for cell in row) for row in rows)
    if len({len(row) for row in matrix}) != 1:
        test.refuse("bandwidth_matrix", "has rows of different lengths")
    added, printed = sum(cell or 0.0 for row in matrix for cell in row), test.number("sum")
    if abs(added - printed) > TOLERANCE * max(added, printed):
        raise ParseError(TOOL, f"{name}: its sum is {exact(printed)}, its cells add up to {exact(added)}")
    return matrix


def _cell(cell: Any, name: str) -> float | None:
    """A printed number, which is a string."""
    if not isinstance(cell, str):
        raise ParseError(TOOL, f"{name}: expected a bandwidth, got {excerpt(str(cell))}")
    return None if cell == _ABSENT else real(TOOL, name, cell)


def _devices(lines: tuple[str, ...]) -> list[Device]:
    devices = []
    for number, line in enumerate(lines):
        match = matched(TOOL, re.compile(_DEVICE), line, "a device")
        if int(match[1]) != number:
            raise ParseError(TOOL, f"expected device {number}, got {excerpt(line)}")
        devices.append(Device(match[2], match[3].upper()))
    return devices
