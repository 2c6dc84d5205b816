"""NVLink domain and partition of a node's GPUs: ``ClusterUUID`` and ``CliqueId`` of ``nvidia-smi -q``, "Fabric"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt

DOMAIN: Final = "timeout 60 nvidia-smi -q 2>/dev/null | grep -wE 'CliqueId|ClusterUUID' || [ $? -eq 1 ]"
_NONE: Final = "00000000-0000-0000-0000-000000000000"
"""Of GPUs whose NVLink ends in the node."""

Domain = tuple[str, str]
"""UUID of the NVLink domain and number of the partition in it: GPUs share memory where both are equal."""


def parse_nvlink_domains(lines: Iterable[str]) -> frozenset[Domain]:
    """Output of ``DOMAIN``: the domains of the node's GPUs; empty without a driver, or on GPUs of no domain."""
    values: dict[str, list[str]] = {"CliqueId": [], "ClusterUUID": []}
    for line in lines:
        match = re.fullmatch(r"\s*(CliqueId|ClusterUUID)\s*:\s*(\S.*?)\s*", line)
        if match is None:
            raise ParseError("nvidia-smi", f"expected an NVLink domain, got {excerpt(line)}")
        values[match[1]].append(match[2])
    cliques, uuids = values["CliqueId"], values["ClusterUUID"]
    if len(cliques) != len(uuids):
        raise ParseError("nvidia-smi", f"{len(uuids)} NVLink domains and {len(cliques)} partitions")
    return frozenset(pair for pair in zip(uuids, cliques, strict=True) if pair[0] not in (_NONE, "N/A"))
