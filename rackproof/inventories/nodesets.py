"""Nodes that are called one after the other: ``gpu[01-32]``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from rackproof.inventories.records import Record, SourceError, grouped

_FIELD = re.compile(r"\{(n|i|name)(?::(\d*d))?(?:([+-])(\d+))?\}")


def nodes(
    nodeset: str, *, address: str | None = None, fabric: Sequence[str] = (), **data: Any
) -> list[tuple[str, dict[str, Any]]]:
    """One group of nodes.

    ``address`` is what each is reached at, ``fabric`` its addresses rail by rail; other keywords are data. Texts, those
    in lists and mappings too, may hold ``{n}``, the last number of the node's name, ``{i}``, its place in the set from
    1, ``{name}``, and a number to be added: ``10.0.0.{n+100}``, ``{n:03d}``. Raises SourceError.
    """
    try:
        names = list(NodeSet(nodeset, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as error:
        raise SourceError(f"nodes({nodeset!r}): no set of nodes: {error}") from None
    if not names:
        raise SourceError(f"nodes({nodeset!r}): no node in it")
    nodes = []
    for place, name in enumerate(names, 1):
        own_data = {key: _filled(nodeset, value, name, place) for key, value in data.items()}
        if address is not None:
            own_data["ssh_hostname"] = _filled(nodeset, address, name, place)
        if fabric:
            own_data["fabric_addresses"] = [_filled(nodeset, rail, name, place) for rail in fabric]
        nodes.append((name, own_data))
    _check_addresses(nodeset, nodes)
    return nodes


def _filled(nodeset: str, value: Any, name: str, place: int) -> Any:
    if isinstance(value, list | tuple):
        return [_filled(nodeset, entry, name, place) for entry in value]
    if isinstance(value, Mapping):
        return {key: _filled(nodeset, entry, name, place) for key, entry in value.items()}
    if type(value) is not str or "{" not in value:  # a secret is no text to be filled in
        return value
    numbers = re.findall(r"\d+", name)

    def put(match: re.Match[str]) -> str:
        field, form, sign, offset = match.groups()
        if field == "name":
            return name
        if field == "n" and not numbers:
            raise SourceError(f"nodes({nodeset!r}): {name} has no number for {match[0]}; use {{i}}")
        number = place if field == "i" else int(numbers[-1])
        number += int(f"{sign or '+'}{offset or 0}")
        return format(number, form or "d")

    filled = _FIELD.sub(put, value)
    if "{" in filled or "}" in filled:
        raise SourceError(f"nodes({nodeset!r}): {value!r}: known are {{n}}, {{i}}, {{name}}, {{n+100}}, {{n:03d}}")
    return filled


def _check_addresses(nodeset: str, nodes: Sequence[tuple[str, dict[str, Any]]]) -> None:
    grouped([Record(f"nodes({nodeset!r})", name, "group", data) for name, data in nodes], nodeset)
