"""Cache of the commands that the last run read from nodes, so that the next run reads them in one round trip.

One JSON file for each subject (validators, architecture and version of the kit), in the user's cache folder::

    {"schema": "rackproof.commands/v1", "kinds": {"gpu": ["uname -r", …]}, "nodes": {"gpu-07": ["ls /sys/…", …]},
     "breaks": {"gpu": ["cat /etc/…", …]}}

``kinds`` has the commands of most nodes with the same groups, ``nodes`` those of single nodes, e.g. with the name of a
disk, ``breaks`` those before which a plan changes a node of the kind. An outdated list only costs time: superfluous
commands are run for nothing, missing ones when they are needed. The files can be deleted at any time.

The commands are run on nodes, so a file that other users may write to is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rackproof
from rackproof.atomic_write import replace_file
from rackproof.core.rack import Node

SCHEMA = "rackproof.commands/v1"
KEPT = 50
"""Maximum number of files; older ones are deleted."""
_FOREIGN = 0o022


def folder() -> Path:
    """``$XDG_CACHE_HOME/rackproof/commands`` or ``~/.cache/rackproof/commands``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rackproof" / "commands"


def kind_of(node: Node) -> str:
    """Kind of a node; nodes of one kind get mostly the same commands."""
    return ",".join(node.groups)


def subject_of(questions: Iterable[tuple[str, Callable[..., Any]]], *context: str) -> str:
    """Digest of everything that the commands depend on: ids of checks, their files, the kit, ``context``."""
    ids: set[str] = set()
    files: set[str] = set()
    for id_, function in questions:
        ids.add(id_)
        files.add(inspect.getsourcefile(inspect.unwrap(function)) or "")
    digest = hashlib.sha256(f"{SCHEMA}\n{rackproof.__version__}\n".encode())
    for part in (*context, *sorted(ids)):
        digest.update(part.encode() + b"\0")
    for file in sorted(files):
        with contextlib.suppress(OSError):
            digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()


@dataclass
class CommandCache:
    """Commands by kind of node, and by node. ``note``: why an existing file is not used, in one line."""

    path: Path
    kinds: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    breaks: dict[str, list[str]] = field(default_factory=dict)
    note: str = ""

    def commands(self, node: Node) -> tuple[str, ...]:
        """Commands of a node; empty when its kind is unknown."""
        common = self.kinds.get(kind_of(node))
        return () if common is None else tuple(dict.fromkeys((*common, *self.nodes.get(node.name, ()))))

    def breaks_of(self, node: Node) -> set[str]:
        """Commands before which the last plan changes a node of this kind; empty after a run."""
        return set(self.breaks.get(kind_of(node), ()))

    def remember(
        self, nodes: Iterable[Node], used: Mapping[str, Sequence[str]], breaks: Mapping[str, Iterable[str]] = {}
    ) -> None:
        """Store the commands that nodes used, and those before which a plan has changes; others keep their lists."""
        alike: dict[str, list[str]] = {}
        for node in nodes:
            if used.get(node.name):
                alike.setdefault(kind_of(node), []).append(node.name)
        for kind, names in alike.items():
            uses = Counter(command for name in names for command in dict.fromkeys(used[name]))
            common = [command for command, times in uses.items() if 2 * times > len(names)]
            self.kinds[kind] = common
            self.breaks[kind] = sorted({command for name in names for command in breaks.get(name, ())})
            for name in names:
                own = [command for command in dict.fromkeys(used[name]) if 2 * uses[command] <= len(names)]
                self.nodes.pop(name, None)
                if own:
                    self.nodes[name] = own

    def save(self) -> None:
        """Write the file atomically. A failure is not an error; ``note`` has the reason."""
        document = {"schema": SCHEMA, "kinds": self.kinds, "nodes": self.nodes, "breaks": self.breaks}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(document, indent=1, ensure_ascii=False), mode=0o600)
            _prune(self.path.parent)
        except (OSError, UnicodeEncodeError) as error:
            self.note = f"the cache of commands cannot be written: {error}"


def load(subject: str) -> CommandCache:
    """The cache of a subject; empty, with a note, when its file cannot be used."""
    cache = CommandCache(folder() / f"{subject[:40]}.json")
    try:
        with cache.path.open(encoding="utf-8") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or facts.st_mode & _FOREIGN:
                cache.note = f"{cache.path}: not used, others may write to it"
                return cache
            document = json.load(file)
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']}")
        kinds, nodes, breaks = (_lists(document[key]) for key in ("kinds", "nodes", "breaks"))
    except FileNotFoundError:
        return cache
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        cache.note = f"{cache.path}: not used, it is damaged ({type(error).__name__})"
        return cache
    cache.kinds, cache.nodes, cache.breaks = kinds, nodes, breaks
    return cache


def _lists(plain: Any) -> dict[str, list[str]]:
    lists = {}
    for name, commands in plain.items():
        if not isinstance(commands, list) or not all(isinstance(c, str) and c and "\0" not in c for c in commands):
            raise TypeError("not a list of commands")
        lists[str(name)] = commands
    return lists


def _prune(where: Path) -> None:
    files = sorted(where.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[KEPT:]:
        path.unlink(missing_ok=True)
