"""Declarations of a deploy's files: paths and sysctl keys. Nothing is declared in two ways.

A later operation would silently replace what an earlier one has written, and every run would change the node twice.
A module's options and an interface's name are in one file each, so that its path stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rackproof.configure.files import Entry, RemoteFile
from rackproof.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations of one node's deploys so far: value and operation."""

    by_thing: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], operation: str) -> None:
        """Raises DeclarationError, one line with both operations, where something is declared in another way. Blocks of
        shared files declare nothing."""
        for entry in entries:
            if not isinstance(entry, RemoteFile) or entry.block:
                continue
            for thing, value in ((entry.path, entry.content), *((f"sysctl {k}", v) for k, v in entry.sysctl.items())):
                before, by = self.by_thing.setdefault(thing, (value, operation))
                if before != value:
                    raise DeclarationError(
                        f"{thing} is declared twice, in two ways: by '{by}' and by '{operation}'; nothing was changed."
                        " Correct the inventory or the architecture, so that one of them declares it"
                    )
