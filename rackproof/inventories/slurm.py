"""Nodes from Slurm: ``scontrol show nodes``, as text (with or without ``-o``) or with ``--json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackproof.core.nearest import suggestion
from rackproof.inventories.records import Groups, Record, SourceError, grouped, read_json, read_text
from rackproof.parse.errors import ParseError
from rackproof.parse.slurm import parse_scontrol_records

_EMPTY = ("", "(null)", "N/A", "none")


def from_slurm(
    path: str | Path,
    *,
    groups: Mapping[str, str] | None = None,
    role: str = "gpu",
    data: Mapping[str, Any] | None = None,
) -> Groups:
    """Groups of nodes from a file with the output of ``scontrol show nodes``.

    ``groups`` maps a partition or feature to a group; a node's first match counts, and nodes without a match are left
    out. Without ``groups`` all nodes belong to the group ``role``. ``ssh_hostname`` is a NodeAddr that differs from the
    name. ``data`` is added to every node. Raises SourceError.
    """
    text = read_text(path)
    nodes = _of_json(path) if text.lstrip().startswith("{") else _of_text(path, text)
    existing = sorted({word for _, _, words in nodes for word in words})
    for word in groups or {}:
        if word not in existing:
            raise SourceError(f"{path}: no partition or feature {word!r}; {suggestion(word, existing)}")
    records = []
    for name, address, words in nodes:
        group = role if groups is None else next((groups[word] for word in groups if word in words), None)
        if group is None:
            continue
        node_data = dict(data or {})
        if address and address != name:
            node_data["ssh_hostname"] = address
        records.append(Record(f"{path}: NodeName={name}", name, group, node_data))
    return grouped(records, path)


_Nodes = list[tuple[str, str, list[str]]]
"""Name, address, and partitions with features."""


def _of_text(path: str | Path, text: str) -> _Nodes:
    # Without -o a record has several lines, indented after the first.
    joined = re.sub(r"\n[ \t]+(?=\S)", " ", text.replace("\r\n", "\n"))
    try:
        records = parse_scontrol_records(
            "\n".join(line for line in joined.split("\n") if line.strip()) + "\n", "NodeName"
        )
    except ParseError as error:
        raise SourceError(f"{path}: not the output of scontrol show nodes: {error}") from None
    return [
        (
            record["NodeName"],
            _set(record.get("NodeAddr")),
            [*_words(record.get("Partitions")), *_words(record.get("AvailableFeatures"))],
        )
        for record in records
    ]


def _of_json(path: str | Path) -> _Nodes:
    document = read_json(path)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise SourceError(f"{path}: expected the output of scontrol show nodes --json, with a list under nodes")
    records: _Nodes = []
    for index, node in enumerate(nodes, 1):
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise SourceError(f"{path}: nodes[{index}]: no name")
        words = [*_words(node.get("partitions")), *_words(node.get("features"))]
        records.append((node["name"], _set(node.get("address")), words))
    return records


def _words(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return [str(entry) for entry in value]
    return [word for word in str(value or "").split(",") if word not in _EMPTY]


def _set(value: Any) -> str:
    return "" if value is None or str(value) in _EMPTY else str(value)
