"""``lscpu -J``: processors of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import find_object
from rackproof.parse.text import integer, processor_list

LSCPU: Final = "lscpu -J"
_TOOL: Final = "lscpu"


@dataclass(frozen=True, slots=True)
class Processors:
    model: str | None
    """None where the machine does not report it."""
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    online: int
    """Hardware threads that are online."""
    offline: int
    numa_nodes: int | None
    """NUMA nodes with processors; memory-only nodes are left out. None: the kernel reports none."""

    @property
    def cores(self) -> int:
        return self.sockets * self.cores_per_socket


def parse_lscpu(output: str | bytes) -> Processors:
    """``lscpu -J``; fields are a flat list, or nested since util-linux 2.37."""
    document = find_object(_TOOL, output, "lscpu").values
    fields: dict[str, str | None] = {}
    for name, data in _fields(document["lscpu"]):
        if name in fields and fields[name] != data and name != "Model name":
            raise ParseError(_TOOL, f"{name} is listed twice")
        fields.setdefault(name, data)
    nodes = _number(fields, "NUMA node(s)") if fields.get("NUMA node(s)") else None
    lists = [fields.get(name) for name in fields if re.fullmatch(r"NUMA node\d+ CPU\(s\)", name)]
    if len(lists) != (nodes or 0):
        raise ParseError(_TOOL, f"{nodes} NUMA nodes, but processor lists of {len(lists)}")
    processors = Processors(
        model=fields.get("Model name"),
        sockets=_number(fields, "Socket(s)"),
        cores_per_socket=_number(fields, "Core(s) per socket"),
        threads_per_core=_number(fields, "Thread(s) per core"),
        online=len(processor_list(_TOOL, _text(fields, "On-line CPU(s) list"))),
        offline=len(processor_list(_TOOL, fields.get("Off-line CPU(s) list") or "")),
        numa_nodes=None if nodes is None else sum(1 for text in lists if text),
    )
    if processors.online + processors.offline != _number(fields, "CPU(s)") or not processors.online:
        raise ParseError(
            _TOOL, f"{fields['CPU(s)']} processors, {processors.online} online, {processors.offline} offline"
        )
    return processors


def _fields(entries: Any) -> Iterator[tuple[str, str | None]]:
    pending = [entries]
    while pending:
        several = pending.pop()
        if not isinstance(several, list):
            raise ParseError(_TOOL, "fields are not a list")
        for entry in several:
            name = entry.get("field") if isinstance(entry, dict) else None
            data = entry.get("data") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not isinstance(data, str | None):
                raise ParseError(_TOOL, "an entry has no field")
            yield name.removesuffix(":"), data
            if "children" in entry:
                pending.append(entry["children"])


def _text(fields: dict[str, str | None], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise ParseError(_TOOL, f"has no field {name}")
    return value


def _number(fields: dict[str, str | None], name: str) -> int:
    return integer(_TOOL, name, _text(fields, name))
