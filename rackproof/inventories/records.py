"""Records of nodes, and the validation that all sources share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from pyinfra.api.exceptions import PyinfraError

from rackproof.core.nearest import suggestion
from rackproof.core.node_data import wrong
from rackproof.errors import InventoryError
from rackproof.read_file import read_input, read_json_text

Groups = dict[str, list[tuple[str, dict[str, Any]]]]
"""Nodes with their data by group, in the source's order."""
Roles = Mapping[str, str | None]
"""Group by the source's role; None excludes the role's nodes."""

LISTS = ("fabric_addresses", "fabric_macs", "fabric_paths")
"""Keys with one entry per rail."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]{2}(:[0-9a-f]{2}){19}")
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class SourceError(InventoryError, PyinfraError):
    """A source is invalid. pyinfra prints PyinfraError without a traceback."""


@dataclass(frozen=True, slots=True)
class Record:
    where: str
    """File and line, or record."""
    name: str
    role: str
    data: Mapping[str, Any] = field(default_factory=dict)


def read_text(path: str | Path) -> str:
    """Raises SourceError."""
    return read_input(Path(path), SourceError).removeprefix("\ufeff")


def read_json(path: str | Path) -> Any:
    """Raises SourceError."""
    try:
        return json.loads(read_input(Path(path), SourceError, read_json_text).removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from None


def grouped(records: Iterable[Record], source: str | Path, roles: Roles | None = None) -> Groups:
    """Groups of the records.

    Raises SourceError: no record, a missing or duplicate name, an unknown role, an invalid address.
    """
    groups: Groups = {}
    seen: dict[str, str] = {}
    for record in records:
        group = _group(record, roles)
        if group is None:
            continue
        _check(record)
        if record.name in seen:
            raise SourceError(
                f"{record.where}: node {record.name} is already in {seen[record.name]}; remove one of them"
            )
        seen[record.name] = record.where
        groups.setdefault(group, []).append((record.name, dict(record.data)))
    if not groups:
        raise SourceError(f"{source}: no nodes{' of the roles in roles=' if roles else ''}")
    return groups


def _group(record: Record, roles: Roles | None) -> str | None:
    if not record.role:
        raise SourceError(f"{record.where}: {record.name or 'a node'} has no role; fill it in")
    if roles is None:
        group: str | None = record.role
    elif record.role in roles:
        group = roles[record.role]
    else:
        raise SourceError(
            f"{record.where}: {record.name}: unknown role {record.role!r}; {suggestion(record.role, roles)}"
            f" (roles={{{record.role!r}: None}} excludes its nodes)"
        )
    if group is not None and not _GROUP.fullmatch(group):
        raise SourceError(
            f"{record.where}: {record.name}: role {group!r} is not a valid name of a group;"
            f" map it: roles={{{group!r}: 'gpu'}}"
        )
    return group


def _check(record: Record) -> None:
    where = record.where
    if not _NAME.fullmatch(record.name):
        raise SourceError(f"{where}: expected a node's name, actual {record.name!r}")
    for address in record.data.get("fabric_addresses", ()):
        try:
            if "/" not in str(address):
                raise ValueError
            IPv4Interface(str(address))
        except ValueError:
            raise SourceError(
                f"{where}: {record.name}: fabric_addresses: expected an address with its prefix length"
                f" (10.0.0.1/24), actual {address!r}"
            ) from None
    for mac in record.data.get("fabric_macs", ()):
        if not _MAC.fullmatch(str(mac).lower()):
            raise SourceError(
                f"{where}: {record.name}: fabric_macs: expected six bytes (a0:88:c2:00:00:01), actual {mac!r}"
            )
    if problem := wrong(record.data):
        raise SourceError(f"{where}: {record.name}: {problem}")


def listed(value: Any) -> list[str]:
    """Split ``10.0.0.1/24; 10.0.1.1/24`` into entries; a list stays a list."""
    if isinstance(value, str):
        return [part for part in re.split(r"[;,\s]+", value) if part]
    return [str(part) for part in value] if isinstance(value, list | tuple) else [str(value)]


def with_rails(data: dict[str, Any], rails: Sequence[Any], key: str) -> None:
    """Set ``data[key]`` to the entries of all rails, if there are any."""
    entries = [str(entry).strip() for entry in rails if entry not in (None, "")]
    if entries:
        data[key] = entries
