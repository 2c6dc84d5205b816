"""Version sets on disk: which file a node's inventory data name, and what it says."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rackproof.core.rack import Node
from rackproof.core.versions import VersionSet
from rackproof.core.versions.document import read_versions, require_locked
from rackproof.errors import InventoryError, VersionSetError
from rackproof.read_file import read_input

LOCK_KEY = "versions_lock"
"""Host data: path of the ``versions.lock.yaml`` that a node follows."""


def lock_path(node: Node, inventory: str = "") -> Path | None:
    """The file that the inventory names for a node; None where it names none.

    A relative path is looked for where the command runs, then beside the inventory. Raises InventoryError.
    """
    named = node.data.get(LOCK_KEY)
    if named is None:
        return None
    if not isinstance(named, str) or not named:
        raise InventoryError(f"{node.name}: {LOCK_KEY}: expected the path of a versions.lock.yaml, actual {named!r}")
    path = Path(named)
    beside = Path(inventory) if Path(inventory).is_dir() else Path(inventory).parent
    return next((candidate for candidate in (path, beside / path) if candidate.is_file()), path)


def load_versions(path: Path, locked: bool = True) -> VersionSet:
    """Read a set; a draft is refused where ``locked``. Raises VersionSetError, one line."""
    versions = _parsed(read_input(path, VersionSetError), str(path))
    if locked:
        require_locked(versions, str(path))
    return versions


@lru_cache(maxsize=16)
def _parsed(text: str, name: str) -> VersionSet:
    return read_versions(text, name)


def versions_of(node: Node, inventory: str = "") -> VersionSet | None:
    """The locked set that a node follows; None without one. Raises InventoryError, VersionSetError."""
    path = lock_path(node, inventory)
    return load_versions(path) if path else None
