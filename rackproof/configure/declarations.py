"""What files of a deploy declare: paths, sysctl keys, module options, interfaces. Nothing is declared in two ways.

A later operation would silently replace what an earlier one has written, and every run would change the node twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rackproof.configure.files import Entry, RemoteFile
from rackproof.errors import DeclarationError

_OPTIONS = re.compile(r"^options\s+(\S+)\s+(.*)$", re.MULTILINE)
_SYSCTL = re.compile(r"^([A-Za-z0-9_./*-]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE)
_LINK_NAME = re.compile(r"^Name=(\S+)$", re.MULTILINE)


def declarations(entry: Entry) -> Iterator[tuple[str, str]]:
    """Things that a file declares, and their values. Blocks of shared files declare nothing alone."""
    if not isinstance(entry, RemoteFile) or entry.block:
        return
    yield entry.path, entry.content
    if entry.path.startswith("/etc/modprobe.d/"):
        for module, options in _OPTIONS.findall(entry.content):
            for option in options.split():
                key, _, value = option.partition("=")
                yield f"option {key} of module {module}", value
    elif entry.path.startswith("/etc/sysctl.d/"):
        yield from ((f"sysctl {key}", value.strip()) for key, value in _SYSCTL.findall(entry.content))
    elif entry.path.endswith(".link"):
        yield from ((f"interface {name}", entry.content) for name in _LINK_NAME.findall(entry.content))


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations of one node's deploys so far: value and operation."""

    by_thing: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], operation: str) -> None:
        """Raises DeclarationError, one line with both operations, where something is declared in another way."""
        for entry in entries:
            for thing, value in declarations(entry):
                before, by = self.by_thing.setdefault(thing, (value, operation))
                if before != value:
                    raise DeclarationError(
                        f"{thing} is declared twice, in two ways: by '{by}' and by '{operation}'; nothing was changed."
                        " Correct the inventory or the architecture, so that one of them declares it"
                    )
