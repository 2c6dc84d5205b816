"""``gdscheck -p``: file systems that GPUDirect Storage can use on a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import last_words, whole_lines

TOOL: Final = "gdscheck"


@dataclass(frozen=True, slots=True)
class Gds:
    version: str
    drivers: Mapping[str, str]
    """``NVMe``, ``NFS``, ``WekaFS`` …: Supported, Unsupported, or ``compat`` (through the page cache, not direct)."""
    gpus: Mapping[int, bool]
    """Index: supports GDS."""
    compat_mode: bool | None
    """The library falls back to copies where GDS is not possible, or always copies."""
    verified: bool | None
    """True: the output ends with "Platform verification succeeded", so it is complete. None: no verdict."""
    forced: bool = False
    """The library copies everything through host memory, whatever file systems and GPUs support."""


_DRIVER: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9 ]*?)\s*: ([A-Za-z]+)\s*")
_GPU: Final = re.compile(r"\s*GPU index (\d{1,4}) .*?(supports GDS|does not support GDS|[Uu]nsupported).*")
_VERDICT: Final = re.compile(r"\s*Platform verification (\w+)\s*")
_VERSION: Final = re.compile(r"\s*GDS release version: (\S+)\s*")
_COMPAT: Final = re.compile(r"\s*properties\.(use|force)_compat_mode\s*: (true|false)\s*")


def parse_gdscheck(output: str | bytes) -> Gds:
    lines = whole_lines(TOOL, output, closing=r".*Platform verification succeeded\s*")
    version = next((match[1] for line in lines if (match := _VERSION.fullmatch(line))), None)
    if version is None:
        raise ParseError(TOOL, f"no version; the output ends with {last_words(chr(10).join(lines))}")
    drivers: dict[str, str] = {}
    gpus: dict[int, bool] = {}
    section = ""
    for line in lines:
        if line.strip().endswith(":") and not line.strip().startswith("--"):
            section = line.strip().rstrip(":")
        elif section == "DRIVER CONFIGURATION" and (driver := _DRIVER.fullmatch(line)):
            drivers[driver[1]] = driver[2]
        elif gpu := _GPU.fullmatch(line):
            gpus[int(gpu[1])] = gpu[2] == "supports GDS"
    if not drivers:
        raise ParseError(TOOL, "no table of drivers")
    modes = {match[1]: match[2] == "true" for line in lines if (match := _COMPAT.fullmatch(line))}
    compat = any(modes.values()) or modes.get("use")
    verdict = {match[1] for line in lines if (match := _VERDICT.fullmatch(line))}
    verified = verdict == {"succeeded"} if verdict else None
    return Gds(version, MappingProxyType(drivers), MappingProxyType(gpus), compat, verified, modes.get("force", False))
