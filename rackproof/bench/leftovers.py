"""Removes the files of the storage benchmarks after a stage that has ended with all of its steps.

Nothing needs them then: every stage writes its files again before it reads them. An interrupted run keeps them, and
they count as space of the resumed run; ``rackproof bench --clean`` removes them without a run. Data sets stay, which
later runs find complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from rackproof.bench.containers.steps import user_of
from rackproof.bench.forecast import CONTAINER, Space
from rackproof.bench.in_turn import run_in_turn
from rackproof.bench.space import FOLDERS
from rackproof.bench.user import USER
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.rack import Node
from rackproof.evidence.session import Session
from rackproof.shell import script

_LIMIT_S: Final = 300.0
"""Time limit of one command, in seconds; each of its parts has one of its own."""


def remove_files(session: Session, spaces: Iterable[Space], say: Callable[[str], None]) -> None:
    """Remove them on all clients that answer, and on a shared storage those of lost clients, too, in one round trip; a
    line for each client that keeps some. The evidence does not record this."""
    tasks: dict[str, list[_Removal]] = {}
    for space in spaces:
        storage = session.architecture.storage[space.storage]
        answering = [name for name in space.clients if name in session.answering]
        lost = [name for name in space.clients if name not in answering]
        for owner in [*answering, *lost] if space.shared and answering else answering:
            node = owner if owner in answering else answering[0]
            own = removals(space, storage, session.rack.node(owner))
            tasks.setdefault(node, []).extend(_Removal(owner, storage, command) for command in own)
    commands = {node: [task.command for task in several] for node, several in tasks.items()}
    for node, parts in run_in_turn(session.fleet, commands, _LIMIT_S).items():
        for task, part in zip(tasks[node], parts, strict=True):
            if not part.ok:
                whose = "files" if task.owner == node else f"{task.owner}'s files"
                say(f"{node}: {whose} of the benchmarks stay below {task.storage.mountpoints[0]}: {part.why}")


class _Removal(NamedTuple):
    owner: str
    """Node whose files these are."""
    storage: Storage
    command: str


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
