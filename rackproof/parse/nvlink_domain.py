"""NVLink domain and partition of a node's GPUs: ``ClusterUUID`` and ``CliqueId`` of ``nvidia-smi -q``, "Fabric"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rackproof.core.nvlink_domain import HEAD, Domain
from rackproof.parse.errors import ParseError
from rackproof.parse.text import UUID, excerpt, integer, matched, text_of, whole_lines

DOMAIN: Final = "timeout 60 nvidia-smi -q 2>/dev/null | grep -wE 'CliqueId|ClusterUUID' || [ $? -eq 1 ]"
_TOOL: Final = "nvidia-smi"
_NONE: Final = "00000000-0000-0000-0000-000000000000"
"""UUID of GPUs whose NVLink ends in the node."""


def parse_gpu_domains(output: str | bytes) -> tuple[Domain | None, ...]:
    """Output of ``DOMAIN``: the domain of each GPU, None where it is in none. Raises ParseError, also for no output."""
    values: dict[str, list[str]] = {"CliqueId": [], "ClusterUUID": []}
    for line in text_of(_TOOL, output).splitlines():
        match = matched(
            _TOOL, rf"\s*(?:(CliqueId)\s*:\s*(\d+|N/A)|(ClusterUUID)\s*:\s*({UUID}|N/A))\s*", line, "an NVLink domain"
        )
        values[match[1] or match[3]].append(match[2] or match[4])
    cliques, uuids = values["CliqueId"], values["ClusterUUID"]
    if len(cliques) != len(uuids):
        raise ParseError(_TOOL, f"{len(uuids)} NVLink domains and {len(cliques)} partitions")
    pairs = zip(uuids, cliques, strict=True)
    return tuple(None if pair[0] == _NONE or "N/A" in pair else pair for pair in pairs)


def parse_nvlink_domains(lines: Iterable[str]) -> frozenset[Domain]:
    """Output of ``DOMAIN``: the domains of the node's GPUs; empty without a driver, or on GPUs of no domain."""
    text = "\n".join(lines)
    return frozenset(domain for domain in parse_gpu_domains(text) if domain is not None) if text else frozenset()


def parse_compared(output: str | bytes) -> dict[str, frozenset[Domain]]:
    """The kit's own table of all nodes, see ``rackproof/core/nvlink_domain.py``. Raises ParseError."""
    lines = whole_lines(_TOOL, output)
    if lines[0] != HEAD:
        raise ParseError(_TOOL, f"the NVLink domains of the nodes were not compared: {excerpt(lines[0])}")
    count = integer(_TOOL, "number of nodes", lines[-1].removesuffix(" nodes"))
    domains: dict[str, frozenset[Domain]] = {}
    for line in lines[1:-1]:
        name, _, shown = line.partition(" ")
        pairs = [] if shown == "none" else [re.fullmatch(rf"({UUID})\.(\d+)", pair) for pair in shown.split(", ")]
        if None in pairs:
            raise ParseError(_TOOL, f"expected a node and its NVLink domains, got {excerpt(line)}")
        domains[name] = frozenset((pair[1], pair[2]) for pair in pairs if pair is not None)
    if len(domains) != count:
        raise ParseError(_TOOL, f"expected {count} nodes, actual {len(domains)}")
    return domains
