"""Nodes of a node set, ``gpu[01-32]``, with data that follows their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rackproof.core.rack import expand
from rackproof.inventories.records import Record, SourceError, grouped

_FIELD = re.compile(r"\{(n|i|name)(?::(\d{0,2}d))?(?:([+-])(\d{1,9}))?\}")


def nodes(
    nodeset: str, *, address: str | None = None, fabric: Sequence[str] = (), **data: Any
) -> list[tuple[str, dict[str, Any]]]:
    """One group of nodes.

    ``address`` is ``ssh_hostname``, ``fabric`` the addresses rail by rail; other keywords are data. Strings, also in
    lists and mappings, are templates: ``{n}`` is the last number in the node's name, ``{i}`` its position in the set
    from 1, ``{name}`` its name; ``{n+100}`` adds, ``{n:03d}`` formats. Raises SourceError.
    """
    try:
        names = expand(nodeset)
    except ValueError as error:
        raise SourceError(f"nodes({nodeset!r}): not a node set: {error}") from None
    if not names:
        raise SourceError(f"nodes({nodeset!r}): the node set is empty")
    nodes = []
    for position, name in enumerate(names, 1):
        own_data = {key: _filled(nodeset, value, name, position) for key, value in data.items()}
        if address is not None:
            own_data["ssh_hostname"] = _filled(nodeset, address, name, position)
        if fabric:
            own_data["fabric_addresses"] = [_filled(nodeset, rail, name, position) for rail in fabric]
        nodes.append((name, own_data))
    _check_addresses(nodeset, nodes)
    return nodes


def _filled(nodeset: str, value: Any, name: str, position: int) -> Any:
    if isinstance(value, list | tuple):
        return [_filled(nodeset, entry, name, position) for entry in value]
    if isinstance(value, Mapping):
        return {key: _filled(nodeset, entry, name, position) for key, entry in value.items()}
    if type(value) is not str or "{" not in value:  # a Secret is a str, but no template
        return value
    numbers = re.findall(r"\d+", name)

    def put(match: re.Match[str]) -> str:
        field, form, sign, offset = match.groups()
        if field == "name":
            return name
        if field == "n" and not numbers:
            raise SourceError(f"nodes({nodeset!r}): {name} has no number for {match[0]}; use {{i}}")
        number = position if field == "i" else int(numbers[-1])
        number += int(f"{sign or '+'}{offset or 0}")
        return format(number, form or "d")

    filled = _FIELD.sub(put, value)
    if "{" in filled or "}" in filled:
        raise SourceError(f"nodes({nodeset!r}): {value!r}: expected {{n}}, {{i}}, {{name}}, {{n+100}} or {{n:03d}}")
    return filled


def _check_addresses(nodeset: str, nodes: Sequence[tuple[str, dict[str, Any]]]) -> None:
    grouped([Record(f"nodes({nodeset!r})", name, "group", data) for name, data in nodes], nodeset)
