"""Ports of a node by purpose, from the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackproof.core.architecture.network import expand_names


def names_of(value: object) -> tuple[str, ...]:
    """Names of ports as the inventory gives them: ``mlx5_[0-7]``, or a list. Raises ValueError."""
    names = expand_names(value)
    if not isinstance(names, tuple):
        raise ValueError(f"names of ports are text or a list of text, not {type(value).__name__}")
    return names


def names_by_purpose(data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Purpose: names of its ports, from ``nic_ports``, otherwise from ``nic``.

    ``data`` is the node's inventory data. Raises ValueError, one line that names the key.
    """
    declared = data.get("nic_ports") or {}
    if not isinstance(declared, Mapping):
        raise ValueError("nic_ports: expected a mapping of purposes to names")
    by_purpose = _of_stack(data.get("nic"))
    for purpose, value in declared.items():
        try:
            names = names_of(value)
        except ValueError as error:
            raise ValueError(f"nic_ports.{purpose}: {error}") from None
        if names:
            by_purpose[str(purpose)] = names
    return by_purpose


def _of_stack(stack: object) -> dict[str, tuple[str, ...]]:
    """Values that are no mapping are skipped; the configuration reports them."""
    ports = stack.get("ports") if isinstance(stack, Mapping) else None
    names: dict[str, tuple[str, ...]] = {}
    for name, port in ports.items() if isinstance(ports, Mapping) else ():
        purpose = port.get("purpose") if isinstance(port, Mapping) else None
        if purpose is not None:
            names[str(purpose)] = (*names.get(str(purpose), ()), str(name))
    return names


def rail_alias(node: str, interface_prefix: str, rail: int) -> str:
    """Host name of a node on one rail."""
    return f"{node}-{interface_prefix}{rail}"
