"""Nodes from a table: a CSV file with a line of column names."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackproof.core.nearest import suggestion
from rackproof.inventories.records import (
    LISTS,
    Groups,
    Record,
    Roles,
    SourceError,
    grouped,
    listed,
    read_text,
    with_rails,
)

Columns = Mapping[str, str | Sequence[str]]
"""Key of the node's data: column, or columns in the order of the rails."""


def from_csv(
    path: str | Path,
    *,
    name: str = "name",
    role: str = "role",
    columns: Columns | None = None,
    roles: Roles | None = None,
    delimiter: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> Groups:
    """Groups of nodes from a CSV file.

    ``columns`` names the columns that become data; without it every other column does, under its own name. Empty cells
    are left out. ``fabric_addresses``, ``fabric_macs`` and ``fabric_paths`` are one entry a rail: several columns, or
    one whose entries are divided by blanks or semicolons. ``data`` is added to every node. ``delimiter``: the one of
    ``,`` ``;`` and tab that stands in the first line. Raises SourceError.
    """
    text = read_text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise SourceError(f"{path}: empty; expected a line of column names")
    delimiter = delimiter or max(",;\t", key=lines[0].count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, strict=True)
    records: list[Record] = []
    header: list[str] | None = None
    try:
        for row in reader:
            if not any(cell.strip() for cell in row) or row[0].lstrip().startswith("#"):
                continue
            cells = [cell.strip() for cell in row]
            if header is None:
                header = _header(path, reader.line_num, cells, name, role, columns)
                continue
            where = f"{path}:{reader.line_num}"
            if len(cells) != len(header):
                raise SourceError(f"{where}: expected {len(header)} cells, actual {len(cells)}; is a quote missing?")
            found = dict(zip(header, cells, strict=True))
            node_data = {**(data or {}), **_data(found, name, role, columns)}
            records.append(Record(where, found[name], found[role], node_data))
    except csv.Error as error:
        raise SourceError(f"{path}:{reader.line_num}: {error}") from None
    return grouped(records, path, roles)


def _header(path: str | Path, line: int, cells: list[str], name: str, role: str, columns: Columns | None) -> list[str]:
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise SourceError(f"{path}:{line}: column {twice[0]!r} stands there twice; rename one")
    wanted = [("name", name), ("role", role)]
    for key, given in (columns or {}).items():
        wanted += [(key, column) for column in ([given] if isinstance(given, str) else given)]
    for key, column in wanted:
        if column not in cells:
            raise SourceError(f"{path}:{line}: no column {column!r} (for {key}); {suggestion(column, cells)}")
    return cells


def _data(row: Mapping[str, str], name: str, role: str, columns: Columns | None) -> dict[str, Any]:
    chosen: Columns = columns or {key: key for key in row if key not in (name, role) and key}
    data: dict[str, Any] = {}
    for key, given in chosen.items():
        if isinstance(given, str):
            if not row[given]:
                continue
            data[key] = listed(row[given]) if key in LISTS else row[given]
        else:
            with_rails(data, [row[column] for column in given], key)
    return data
