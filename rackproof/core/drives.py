"""Drives that the architecture declares for a node, and their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rackproof.core.architecture import Architecture, Drives
from rackproof.core.architecture.expectations import role_with


def declared_drives(architecture: Architecture, groups: Collection[str]) -> Mapping[str, Drives]:
    """Drives of the node's role, by use."""
    role = role_with(architecture, groups, "drives")
    return {drives.use: drives for drives in architecture.roles[role].expect.drives} if role else {}


def drive_names(node: str, use: str, count: int | None) -> tuple[str, ...]:
    """``gpu-01/scratch-0``, ``gpu-01/scratch-1`` …, numbered in the order of their places; none for an unpublished
    count."""
    return tuple(f"{node}/{use}-{number}" for number in range(count or 0))
