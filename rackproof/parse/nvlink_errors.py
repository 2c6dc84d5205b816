"""nvidia-smi: ``nvlink -e``, the error counters of every NVLink, as drivers before and since NVLink 5 print them.

Until Hopper a link has three counters: Replay, Recovery and CRC. Since Blackwell it has about twenty, many of which
count no faults: packets and bytes, corrected codewords by the number of corrected symbols (``FEC Errors - 0`` is in the
billions on a good link), and bit errors before correction (``Raw``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.nvidia_smi import LISTED_GPU
from rackproof.parse.text import excerpt, whole_lines

TOOL: Final = "nvidia-smi"

FAULTS: Final = frozenset(
    {
        "Replay Errors",
        "Recovery Errors",
        "CRC Errors",
        "Malformed packet Errors",
        "Buffer overrun Errors",
        "Rx Errors",
        "Rx remote Errors",
        "Rx General Errors",
        "Local link integrity Errors",
        "Link recovery failed events",
        "Effective Errors",
        "Symbol Errors",
    }
)
"""Counters of both generations that stay 0 on a good link, as the tool spells them."""
_FAULTS: Final = frozenset(kind.lower() for kind in FAULTS)


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """Counters of one link since the driver was loaded or the counters were reset."""

    link: int
    counters: Mapping[str, int | None]
    """Counters of ``FAULTS`` by the tool's names; None where the tool reports the counter as unavailable."""


@dataclass(frozen=True, slots=True)
class GpuLinkErrors:
    index: int
    name: str
    uuid: str
    links: tuple[LinkErrors, ...]
    """Empty for a GPU without active NVLinks."""


_COUNTER: Final = re.compile(r"\s*Link (\d{1,3}): ([A-Za-z][A-Za-z0-9 /-]*?)(?: \(.*\))?: (\S+)\s*")
_SILENT: Final = re.compile(r".*(?:does not have or support Nvlink|all links are inActive).*")
_INACTIVE: Final = re.compile(r"\s*Link (\d{1,3}): <?[Ii]nactive>?\s*")


def parse_nvlink_errors(output: str | bytes) -> tuple[GpuLinkErrors, ...]:
    """``nvidia-smi nvlink -e``. Raises ParseError where links have different counters: some are missing then."""
    gpus: list[tuple[int, str, str]] = []
    counters: dict[int, dict[int, dict[str, int | None]]] = {}
    silent: set[int] = set()
    for line in whole_lines(TOOL, output, closing=rf"{_COUNTER.pattern}|{_SILENT.pattern}"):
        if gpu := LISTED_GPU.fullmatch(line):
            gpus.append((int(gpu[1]), gpu[2], gpu[3]))
            counters[len(gpus) - 1] = {}
        elif not line.strip():
            continue
        elif not gpus:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
        elif _SILENT.fullmatch(line):
            silent.add(len(gpus) - 1)
        elif inactive := _INACTIVE.fullmatch(line):
            counters[len(gpus) - 1].setdefault(int(inactive[1]), {})
        elif counter := _COUNTER.fullmatch(line):
            _count(counters[len(gpus) - 1].setdefault(int(counter[1]), {}), counter[2], counter[3])
        else:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
    if not gpus:
        raise ParseError(TOOL, "no GPU listed")
    for number, (index, _, _) in enumerate(gpus):
        if not counters[number] and number not in silent:
            raise ParseError(TOOL, f"GPU {index} has no counters and no message about them")
    _same_counters(counters)
    return tuple(
        GpuLinkErrors(
            *gpu, tuple(LinkErrors(link, MappingProxyType(kinds)) for link, kinds in sorted(counters[number].items()))
        )
        for number, gpu in enumerate(gpus)
    )


def _count(kinds: dict[str, int | None], kind: str, value: str) -> None:
    if kind.lower() not in _FAULTS:
        return
    if kind in kinds:
        raise ParseError(TOOL, f"a link has two counts of {kind}")
    if value != "N/A" and not re.fullmatch(r"\d{1,20}", value, re.ASCII):
        raise ParseError(TOOL, f"{kind} is not a count: {excerpt(value)}")
    kinds[kind] = None if value == "N/A" else int(value)


def _same_counters(counters: Mapping[int, Mapping[int, Mapping[str, int | None]]]) -> None:
    sets = {frozenset(kinds) for links in counters.values() for kinds in links.values() if kinds}
    if len(sets) > 1:
        raise ParseError(TOOL, "links have different counters; the output is incomplete")
