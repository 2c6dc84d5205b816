"""Nodes from ``terraform output -json`` (or OpenTofu's): one output with a list or a mapping of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackproof.core.nearest import suggestion
from rackproof.inventories.records import LISTS, Groups, Record, Roles, SourceError, grouped, listed, read_json


def from_terraform(
    path: str | Path,
    *,
    output: str = "nodes",
    name: str = "name",
    role: str = "role",
    keys: Mapping[str, str] | None = None,
    roles: Roles | None = None,
    data: Mapping[str, Any] | None = None,
) -> Groups:
    """Groups of nodes from one output: a list of objects, or a mapping from names to objects.

    ``keys`` maps a key of the node's data to an attribute; default: all attributes. ``data`` is added
    to every node. Raises SourceError.
    """
    document = read_json(path)
    if not isinstance(document, dict) or not all(isinstance(v, dict) and "value" in v for v in document.values()):
        raise SourceError(f"{path}: expected the output of terraform output -json: outputs with a value")
    if output not in document:
        raise SourceError(f"{path}: no output {output!r}; {suggestion(output, document)}")
    value = document[output]["value"]
    if isinstance(value, dict):
        value = [{name: key, **entry} if isinstance(entry, dict) else entry for key, entry in value.items()]
    if not isinstance(value, list):
        raise SourceError(f"{path}: {output}: expected a list or a mapping of nodes, actual {type(value).__name__}")
    records = []
    for index, entry in enumerate(value, 1):
        where = f"{path}: {output}[{index}]"
        if not isinstance(entry, dict):
            raise SourceError(f"{where}: expected an object, actual {type(entry).__name__}")
        for needed in (name, role, *(keys or {}).values()):
            if needed not in entry:
                raise SourceError(f"{where}: no attribute {needed!r}; {suggestion(needed, entry)}")
        chosen = keys or {key: key for key in entry if key not in (name, role)}
        node_data = dict(data or {})
        for key, attribute in chosen.items():
            if entry[attribute] is not None:
                node_data[key] = listed(entry[attribute]) if key in LISTS else entry[attribute]
        records.append(Record(where, str(entry[name]), str(entry[role] or ""), node_data))
    return grouped(records, path, roles)
