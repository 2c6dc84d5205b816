"""slurm.conf."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rackproof.core.rack import expand
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer

_TOOL: Final = "slurm.conf"
HEADER: Final = "# Written by rackproof"
"""First words of a file that the kit wrote."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """Hardware of one node."""

    sockets: int
    cores: int
    """Per socket."""
    threads: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class SlurmConf:
    ours: bool
    """The kit wrote the file."""
    values: Mapping[str, str]
    """By key in lower case, without nodes and partitions."""
    nodes: Mapping[str, NodeLine]
    """Empty for a file that is not the kit's."""
    partitions: tuple[str, ...]
    kept: Mapping[str, str] = field(default_factory=dict)
    """CpuSpecList by node, where it has one."""

    @property
    def controller(self) -> str | None:
        host = self.values.get("slurmctldhost") or self.values.get("controlmachine")
        return host.split("(")[0] if host else None


def parse_slurm_conf(text: str) -> SlurmConf:
    """Content of slurm.conf. Lines of nodes are read where the kit wrote the file."""
    ours = text.startswith(HEADER)
    values: dict[str, str] = {}
    nodes: dict[str, NodeLine] = {}
    partitions: list[str] = []
    kept: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        key, equals, value = line.partition("=")
        if not equals:
            continue
        name = key.strip().lower()
        if name == "nodename":
            if ours:
                lines, processors = _node_lines(line)
                nodes |= lines
                kept |= dict.fromkeys(lines, processors) if processors else {}
        elif name == "partitionname":
            partitions.append(value.split()[0] if value.split() else "")
        else:
            values.setdefault(name, value.strip())
    return SlurmConf(ours, values, nodes, tuple(partitions), kept)


def _node_lines(line: str) -> tuple[dict[str, NodeLine], str]:
    """The nodes of a line, and their CpuSpecList."""
    try:
        words = dict(word.partition("=")[::2] for word in shlex.split(line))
        numbers = [
            integer(_TOOL, key, words[key], minimum=1)
            for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
        ]
        return dict.fromkeys(expand(words["NodeName"]), NodeLine(*numbers)), words.get("CpuSpecList", "")
    except (KeyError, ValueError):
        raise ParseError(_TOOL, f"unreadable line of nodes: {excerpt(line)}") from None
