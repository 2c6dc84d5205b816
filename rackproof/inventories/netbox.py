"""Nodes from NetBox: files with answers of its REST API, or plain lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackproof.core.texts import expression
from rackproof.inventories.records import Groups, Record, Roles, SourceError, grouped, read_json


def from_netbox(
    devices: str | Path,
    *,
    roles: Roles | None = None,
    interfaces: str | Path | None = None,
    addresses: str | Path | None = None,
    rails: str | None = None,
    status: Sequence[str] = ("active",),
    fields: Mapping[str, str] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Groups:
    """Groups of nodes from ``/api/dcim/devices/``.

    ``roles`` maps a role's slug to a group. ``ssh_hostname`` is the primary IPv4 address. ``rails`` is a regular
    expression for the names of fabric interfaces; its first group, or the name's last number, orders them. It is
    required by ``interfaces`` (``/api/dcim/interfaces/``: ``fabric_macs``) and ``addresses``
    (``/api/ipam/ip-addresses/``: ``fabric_addresses``). ``status`` selects devices; empty selects all. ``fields`` maps
    a key of the node's data to a custom field. ``data`` is added to every node. Raises SourceError.
    """
    if (interfaces or addresses) and rails is None:
        raise SourceError(f"{devices}: rails= is missing; name the fabric's interfaces: rails=r'rail(\\d+)'")
    pattern = _pattern(devices, rails)
    macs = _macs(interfaces, pattern) if interfaces else {}
    ips = _addresses(addresses, pattern) if addresses else {}
    records = []
    for where, device in _objects(devices):
        if status and _word(device.get("status"), "value") not in status:
            continue
        name = device.get("name")
        if not name:
            raise SourceError(f"{where}: the device has no name; enter one in NetBox, or exclude it by its status")
        node_data: dict[str, Any] = dict(data or {})
        primary = device.get("primary_ip4") or device.get("primary_ip")
        if isinstance(primary, dict) and primary.get("address"):
            node_data["ssh_hostname"] = str(primary["address"]).split("/")[0]
        for key, values in (("fabric_macs", macs.get(name)), ("fabric_addresses", ips.get(name))):
            if values:
                node_data[key] = [values[rail] for rail in sorted(values)]
        custom = device.get("custom_fields") or {}
        for key, named in (fields or {}).items():
            if named not in custom:
                raise SourceError(f"{where}: {name}: no custom field {named!r} (for {key})")
            if custom[named] is not None:
                node_data[key] = custom[named]
        # device_role before NetBox 3.6
        role = _word(device.get("role") or device.get("device_role"), "slug")
        records.append(Record(where, str(name), role, node_data))
    return grouped(records, devices, roles)


def _objects(path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    document = read_json(path)
    if isinstance(document, dict) and isinstance(document.get("results"), list):
        results, count = document["results"], document.get("count")
        if document.get("next") or (isinstance(count, int) and count > len(results)):
            raise SourceError(
                f"{path}: a page with {len(results)} of {count} objects; request all (?limit=0), or join the pages"
            )
    elif isinstance(document, list):
        results = document
    else:
        raise SourceError(f"{path}: expected a list of objects, or a page of NetBox's API with results")
    objects = []
    for index, result in enumerate(results, 1):
        if not isinstance(result, dict):
            raise SourceError(f"{path}: object {index}: expected a mapping, actual {type(result).__name__}")
        objects.append((f"{path}: object {index} (id {result.get('id', 'unknown')})", result))
    return objects


LONGEST = 100
"""Characters of an interface's name; NetBox allows 64."""


def _pattern(path: str | Path, rails: str | None) -> re.Pattern[str] | None:
    try:
        return expression(rails) if rails is not None else None
    except ValueError as error:
        raise SourceError(f"{path}: rails={rails!r}: {error}") from None


def _rail(pattern: re.Pattern[str] | None, interface: str, where: str) -> int | None:
    match = pattern.fullmatch(interface[:LONGEST]) if pattern is not None else None
    if match is None:
        return None
    number = next((group for group in match.groups() if group), None) or (re.findall(r"\d+", interface) or [""])[-1]
    if not re.fullmatch(r"[0-9]{1,4}", number):
        raise SourceError(f"{where}: {interface}: no number of a rail; put the number into a group of rails=")
    return int(number)


def _macs(path: str | Path, pattern: re.Pattern[str] | None) -> dict[str, dict[int, str]]:
    macs: dict[str, dict[int, str]] = {}
    for where, interface in _objects(path):
        name, device = str(interface.get("name") or ""), _word(interface.get("device"), "name")
        rail = _rail(pattern, name, where)
        if rail is None:
            continue
        # A separate object since NetBox 4.2.
        mac = _word(interface.get("primary_mac_address"), "mac_address") or interface.get("mac_address")
        if not mac:
            raise SourceError(f"{where}: {device} {name}: no MAC address; enter it in NetBox, or use fabric_paths")
        _put(macs, device, rail, str(mac).lower(), f"{where}: {device} {name}")
    return macs


def _addresses(path: str | Path, pattern: re.Pattern[str] | None) -> dict[str, dict[int, str]]:
    addresses: dict[str, dict[int, str]] = {}
    for where, entry in _objects(path):
        assigned = entry.get("assigned_object")
        if not isinstance(assigned, dict) or entry.get("assigned_object_type", "dcim.interface") != "dcim.interface":
            continue
        name, device = str(assigned.get("name") or ""), _word(assigned.get("device"), "name")
        rail = _rail(pattern, name, where)
        if rail is None or _word(entry.get("family"), "value") == "6" or ":" in str(entry.get("address")):
            continue
        _put(addresses, device, rail, str(entry.get("address") or ""), f"{where}: {device} {name}")
    return addresses


def _put(devices: dict[str, dict[int, str]], device: str, rail: int, value: str, where: str) -> None:
    rails = devices.setdefault(device, {})
    if rail in rails:
        raise SourceError(f"{where}: rail {rail} has {rails[rail]} and {value}; remove one")
    rails[rail] = value


def _word(value: Any, key: str) -> str:
    """Name, slug or value of a nested object; older versions and exports have the plain word."""
    word = value.get(key) if isinstance(value, dict) else value
    return "" if word is None else str(word)
