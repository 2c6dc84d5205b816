"""Nodes from a CSV file with a header line."""

from __future__ import annotations

import csv
from collections import Counter
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

COLUMNS = 1000
Columns = Mapping[str, str | Sequence[str]]
"""Column by key of the node's data, or columns in the order of the rails."""


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

    ``columns`` names the columns that become data; default: all others, under their own names. Empty cells are left
    out. ``fabric_addresses``, ``fabric_macs`` and ``fabric_paths`` have one entry per rail: in several columns, or in
    one, separated by blanks, commas or semicolons. ``data`` is added to every node. Default of ``delimiter``: the most
    frequent of ``,`` ``;`` and tab in the header. Raises SourceError.
    """
    text = read_text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise SourceError(f"{path}: the file is empty; expected a header line")
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
                if len(cells) > COLUMNS:
                    raise SourceError(f"{path}:{reader.line_num}: {len(cells)} columns; expected at most {COLUMNS}")
                header = _header(path, reader.line_num, cells, name, role, columns)
                continue
            where = f"{path}:{reader.line_num}"
            if len(cells) != len(header):
                raise SourceError(f"{where}: expected {len(header)} cells, actual {len(cells)}; is a quote missing?")
            cell_by_column = dict(zip(header, cells, strict=True))
            node_data = {**(data or {}), **_data(cell_by_column, name, role, columns)}
            records.append(Record(where, cell_by_column[name], cell_by_column[role], node_data))
    except csv.Error as error:
        raise SourceError(f"{path}:{reader.line_num}: {error}") from None
    return grouped(records, path, roles)


def _header(path: str | Path, line: int, cells: list[str], name: str, role: str, columns: Columns | None) -> list[str]:
    duplicates = sorted(cell for cell, count in Counter(cells).items() if count > 1)
    if duplicates:
        raise SourceError(f"{path}:{line}: two columns {duplicates[0]!r}; rename one")
    required = [("name", name), ("role", role)]
    for key, selected in (columns or {}).items():
        required += [(key, column) for column in ([selected] if isinstance(selected, str) else selected)]
    for key, column in required:
        if column not in cells:
            raise SourceError(f"{path}:{line}: no column {column!r} (for {key}); {suggestion(column, cells)}")
    return cells


def _data(row: Mapping[str, str], name: str, role: str, columns: Columns | None) -> dict[str, Any]:
    chosen: Columns = columns or {key: key for key in row if key not in (name, role) and key}
    data: dict[str, Any] = {}
    for key, selected in chosen.items():
        if isinstance(selected, str):
            if not row[selected]:
                continue
            data[key] = listed(row[selected]) if key in LISTS else row[selected]
        else:
            with_rails(data, [row[column] for column in selected], key)
    return data
