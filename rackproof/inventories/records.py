"""One node as a source describes it, and what all sources must get right."""

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
from rackproof.errors import InventoryError

Groups = dict[str, list[tuple[str, dict[str, Any]]]]
"""Group: nodes with their data, in the source's order."""
Roles = Mapping[str, str | None]
"""Role as the source calls it: the inventory's group; None leaves its nodes out."""

LISTS = ("fabric_addresses", "fabric_macs", "fabric_paths")
"""Data with one entry a rail."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]{2}(:[0-9a-f]{2}){19}")
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class SourceError(InventoryError, PyinfraError):
    """A source cannot be used; one line. pyinfra shows it without a traceback."""


@dataclass(frozen=True, slots=True)
class Record:
    where: str
    """File and line, or what else leads to it."""
    name: str
    role: str
    data: Mapping[str, Any] = field(default_factory=dict)


def read_text(path: str | Path) -> str:
    """Raises SourceError."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def read_json(path: str | Path) -> Any:
    """Raises SourceError."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None


def grouped(records: Iterable[Record], source: str | Path, roles: Roles | None = None) -> Groups:
    """Groups of all records.

    Raises SourceError: no record, a name twice or none, a role that ``roles`` does not know, a bad address.
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
                f"{record.where}: node {record.name} again, it is in {seen[record.name]} already; remove one of them"
            )
        seen[record.name] = record.where
        groups.setdefault(group, []).append((record.name, dict(record.data)))
    if not groups:
        raise SourceError(f"{source}: no node in it{' that roles= wants' if roles else ''}")
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
            f" (roles={{{record.role!r}: None}} leaves its nodes out)"
        )
    if group is not None and not _GROUP.fullmatch(group):
        raise SourceError(
            f"{record.where}: {record.name}: role {group!r} cannot be a group of an inventory;"
            f" give roles={{{group!r}: 'gpu'}}"
        )
    return group


def _check(record: Record) -> None:
    where = record.where
    if not _NAME.fullmatch(record.name):
        raise SourceError(f"{where}: expected a node's name, actual {record.name!r}")
    reached = record.data.get("ssh_hostname")
    if reached is not None and not _HOST.fullmatch(str(reached)):
        raise SourceError(f"{where}: {record.name}: ssh_hostname: expected a name or an address, actual {reached!r}")
    port = record.data.get("ssh_port")
    if port is not None and not (str(port).isdigit() and 0 < int(port) < 65536):
        raise SourceError(f"{where}: {record.name}: ssh_port: expected 1 to 65535, actual {port!r}")
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


def listed(value: Any) -> list[str]:
    """``10.0.0.1/24; 10.0.1.1/24`` as entries; a list as it is."""
    if isinstance(value, str):
        return [part for part in re.split(r"[;,\s]+", value) if part]
    return [str(part) for part in value] if isinstance(value, list | tuple) else [str(value)]


def with_rails(data: dict[str, Any], rails: Sequence[Any], key: str) -> None:
    """Put the entries of all rails under one key; nothing where none has any."""
    entries = [str(entry).strip() for entry in rails if entry not in (None, "")]
    if entries:
        data[key] = entries
