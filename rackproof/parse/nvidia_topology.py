"""nvidia-smi: ``topo -m`` (connection types between devices) and ``nvlink -s`` (speed of each NVLink)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.nvidia_smi import lines_by_gpu
from rackproof.parse.text import ANSI, excerpt, last_words, real, whole_lines

TOOL: Final = "nvidia-smi"


@dataclass(frozen=True, slots=True)
class Topology:
    devices: tuple[str, ...]
    """Columns in order: ``GPU0`` … ``NIC0`` …"""
    paths: Mapping[tuple[str, str], str]
    """Connection from row to column: X, NV18, PIX, PXB, PHB, NODE, SYS …"""

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if device.startswith("GPU"))


@dataclass(frozen=True, slots=True)
class NvLink:
    index: int
    gb_per_s: float | None
    """GB/s (10^9 B) in each direction; None when the link is inactive."""


@dataclass(frozen=True, slots=True)
class GpuLinks:
    index: int
    name: str
    uuid: str
    links: tuple[NvLink, ...]
    note: str | None
    """The tool's message when it lists no links: the GPU has none, or all are inactive."""


_DEVICE: Final = re.compile(r"(?:GPU|NIC|mlx\d+_)\d+")
_PATH: Final = re.compile(r"X|NV\d{1,3}|PIX|PXB|PSB|PHB|NODE|SYS|SOC|N/A")
_AFFINITIES: Final = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_LAST_OF_LEGEND: Final = r"  NV#  = .*bonded set of # NVLinks"
_LEGEND: Final = re.compile(r"\s+(NIC\d+): (\S+)\s*")


def parse_topology(output: str | bytes) -> Topology:
    """Read the matrix of ``nvidia-smi topo -m``; every device in the header must have a row."""
    lines = [ANSI.sub("", line) for line in whole_lines(TOOL, output, closing=_LAST_OF_LEGEND)]
    devices: tuple[str, ...] = ()
    paths: dict[tuple[str, str], str] = {}
    rows: set[str] = set()
    for line in lines:
        words = line.split()
        if not words:
            continue
        if not devices:
            if words[0] == "GPU0" and line[0].isspace():
                devices = _header(line)
            continue
        if words[0] in devices and words[0] not in rows:
            row = _row(words, devices, line)
            paths.update({(words[0], device): path for device, path in zip(devices, row, strict=True)})
            rows.add(words[0])
        elif _DEVICE.fullmatch(words[0]) and not _LEGEND.fullmatch(line):
            raise ParseError(TOOL, f"unexpected row {excerpt(line)}")
    if not devices:
        raise ParseError(TOOL, f"no topology matrix; the output ends with {last_words(chr(10).join(lines))}")
    if len(rows) != len(devices):
        raise ParseError(TOOL, f"matrix has {len(devices)} columns but {len(rows)} rows")
    return Topology(devices, MappingProxyType(paths))


def _header(line: str) -> tuple[str, ...]:
    rest = line
    for title in _AFFINITIES:
        rest = rest.replace(title, "")
    devices = tuple(rest.split())
    if len(set(devices)) != len(devices) or not all(_DEVICE.fullmatch(device) for device in devices):
        raise ParseError(TOOL, f"unknown header of the topology matrix: {excerpt(line)}")
    return devices


def _row(words: list[str], devices: tuple[str, ...], line: str) -> list[str]:
    row = words[1 : len(devices) + 1]
    if len(row) != len(devices) or not all(_PATH.fullmatch(path) for path in row):
        raise ParseError(TOOL, f"row does not fit the matrix: {excerpt(line)}")
    if [device for device, path in zip(devices, row, strict=True) if path == "X"] != [words[0]]:
        raise ParseError(TOOL, f"row is not X to itself alone: {excerpt(line)}")
    return row


_LINK: Final = re.compile(r"\s*Link (\d{1,3}): (?:(\S+) GB/s|<?(?i:inactive)>?)\s*")
_NOTE: Final = re.compile(r".*(?:does not have or support Nvlink|all links are (?i:inactive)).*")


def parse_nvlink_status(output: str | bytes) -> tuple[GpuLinks, ...]:
    """Read ``nvidia-smi nvlink -s``; a GPU without links must have a message that says so."""
    gpus = lines_by_gpu(output, rf"{_LINK.pattern}|{_NOTE.pattern}")
    return tuple(_links(gpu, lines) for gpu, lines in gpus)


def _links(gpu: re.Match[str], lines: Iterable[str]) -> GpuLinks:
    links: dict[int, NvLink] = {}
    note = None
    for line in lines:
        if link := _LINK.fullmatch(line):
            speed = real(TOOL, "speed of an NVLink", link[2]) if link[2] else None
            if int(link[1]) in links:
                raise ParseError(TOOL, f"GPU {gpu[1]} lists link {link[1]} twice")
            links[int(link[1])] = NvLink(int(link[1]), speed)
        elif _NOTE.fullmatch(line):
            note = line.strip()
        else:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
    if not links and note is None:
        raise ParseError(TOOL, f"GPU {gpu[1]} has no links and no message about them")
    return GpuLinks(int(gpu[1]), gpu[2], gpu[3], tuple(links.values()), note)
