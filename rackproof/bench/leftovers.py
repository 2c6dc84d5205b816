"""Removes the files of the storage benchmarks after a stage that has ended with all of its steps.

Nothing needs them then: every stage writes its files anew before it reads them. An interrupted run keeps them, and they
count as room of the run that goes on. Data sets stay, which later runs find complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rackproof.bench.containers.steps import user_of
from rackproof.bench.forecast import CONTAINER, Space
from rackproof.bench.space import FOLDERS
from rackproof.bench.user import USER
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.rack import Node
from rackproof.evidence.session import Session
from rackproof.shell import script

_LIMIT_S: Final = 300.0
"""Time limit of the removal on one storage, in seconds; each of its parts has one of its own."""


def remove_files(session: Session, spaces: Iterable[Space], say: Callable[[str], None]) -> None:
    """Remove them on all clients that answer, and on a shared storage those of lost clients, too; a line for each
    client that keeps some. Nothing of it is recorded."""
    for space in spaces:
        answering = [name for name in space.clients if name in session.answering]
        _remove(session, space, dict(zip(answering, answering, strict=True)), say)
        for lost in (name for name in space.clients if name not in answering):
            if space.shared and answering:
                _remove(session, space, {answering[0]: lost}, say)


def _remove(session: Session, space: Space, owners: Mapping[str, str], say: Callable[[str], None]) -> None:
    """``owners``: whose files a node removes."""
    storage = session.architecture.storage[space.storage]
    of_owners = (removals(space, storage, session.rack.node(owner)) for owner in owners.values())
    for commands in zip(*of_owners, strict=True):
        for name, answer in session.fleet.run(dict(zip(owners, commands, strict=True)), _LIMIT_S).items():
            if not answer.ok:
                whose = "files" if owners[name] == name else f"{owners[name]}'s files"
                say(f"{name}: {whose} of the benchmarks stay below {storage.mountpoints[0]}: {answer.why}")


def removals(space: Space, storage: Storage, node: Node) -> Iterator[str]:
    """A command for each user who has files: the account that measures, and the one of containers, whose folder above
    the deploy declares."""
    for user, declared in ((USER, False), (user_of(node), True)):
        kinds = {kind for kind in space.kinds if (kind == CONTAINER) is declared}
        folders = [folder for kind in sorted(kinds) for folder in FOLDERS[kind](space.storage, storage, node)]
        if folders:
            point = storage.mountpoints[0]
            texts = {"user": user, "stem": TEST_FILE, "mountpoint": point, "declared": "yes" if declared else "no"}
            yield script(__name__, "leftovers", *folders, **texts)
