"""nvidia-smi: ``nvlink -e``, the error counters of every NVLink, as drivers before and since NVLink 5 print them.

Until Hopper a link has three counters: Replay, Recovery and CRC. Since Blackwell it has about twenty, many of which
count no faults: packets and bytes, corrected codewords by the number of corrected symbols (``FEC Errors - 0`` is in the
billions on a good link), and bit errors before correction (``Raw``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.nvidia_smi import lines_by_gpu
from rackproof.parse.text import excerpt

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
    gpus = [
        (gpu, _counters(gpu, lines)) for gpu, lines in lines_by_gpu(output, rf"{_COUNTER.pattern}|{_SILENT.pattern}")
    ]
    _same_counters(links for _, links in gpus)
    return tuple(
        GpuLinkErrors(
            int(gpu[1]), gpu[2], gpu[3],
            tuple(LinkErrors(link, MappingProxyType(kinds)) for link, kinds in sorted(links.items())),
        )
        for gpu, links in gpus
    )  # fmt: skip


def _counters(gpu: re.Match[str], lines: Iterable[str]) -> dict[int, dict[str, int | None]]:
    """Counters of each link of a GPU; none of inactive ones."""
    links: dict[int, dict[str, int | None]] = {}
    silent = False
    for line in lines:
        if _SILENT.fullmatch(line):
            silent = True
        elif inactive := _INACTIVE.fullmatch(line):
            links.setdefault(int(inactive[1]), {})
        elif counter := _COUNTER.fullmatch(line):
            _count(links.setdefault(int(counter[1]), {}), counter[2], counter[3])
        else:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
    if not links and not silent:
        raise ParseError(TOOL, f"GPU {gpu[1]} has no counters and no message about them")
    return links


def _count(kinds: dict[str, int | None], kind: str, value: str) -> None:
    if kind.lower() not in _FAULTS:
        return
    if kind in kinds:
        raise ParseError(TOOL, f"a link has two counts of {kind}")
    if value != "N/A" and not re.fullmatch(r"\d{1,20}", value, re.ASCII):
        raise ParseError(TOOL, f"{kind} is not a count: {excerpt(value)}")
    kinds[kind] = None if value == "N/A" else int(value)


def _same_counters(gpus: Iterable[Mapping[int, Mapping[str, int | None]]]) -> None:
    sets = {frozenset(kinds) for links in gpus for kinds in links.values() if kinds}
    if len(sets) > 1:
        raise ParseError(TOOL, "links have different counters; the output is incomplete")
