"""Whether the nodes have the space that a profile's files need, asked before its first step.

The answers are not recorded: nothing is measured. A node that does not answer, or has no such mount, is no reason to
refuse: the steps find that out and say so. Two storages on one server are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from rackproof.bench.containers.steps import folder_of
from rackproof.bench.forecast import Space
from rackproof.bench.storage.commands import folders_of
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.statfs import parse_statfs
from rackproof.remote.command import CommandResult
from rackproof.shell import script

_LIMIT_S: Final = 90.0
"""Time limit of the question, in seconds; each of its parts has 20 s."""


class Room(NamedTuple):
    """What a client sees of a storage, in bytes."""

    free: int
    """Free for the account that runs the benchmarks."""
    own: int
    """Used by files of earlier benchmarks, which this run removes or overwrites."""


def refuse_without_space(session: Session, spaces: Iterable[Space]) -> None:
    """Raises RunError with a line for each storage that lacks the space of its files."""
    lines: list[str] = []
    for space in spaces:
        storage = session.architecture.storage[space.storage]
        commands = {name: space_command(storage, session.rack.node(name)) for name in space.clients}
        answers = session.fleet.run(commands, _LIMIT_S)
        rooms = {name: room for name, answer in answers.items() if (room := room_in(answer)) is not None}
        lines += lacking(space, storage.mountpoints[0], rooms)
    if lines:
        raise RunError("; ".join([*lines, "make room, or lower file_bytes of the profile"]))


def space_command(storage: Storage, node: Node) -> str:
    """Command that prints what ``room_in`` reads. Several mounts of a client show the same file system."""
    folders = [folders_of(storage, node.name)[0], folder_of(storage, node)]
    return script(__name__, "space", *folders, mountpoint=storage.mountpoints[0], stem=TEST_FILE)


def room_in(answer: CommandResult) -> Room | None:
    """Parse the answer to ``space_command``; None if the command failed or its output is unreadable."""
    sizes, _, own = answer.text.strip().partition("\n")
    try:
        free = parse_statfs(f"{sizes}\n").free_bytes
    except ParseError:
        return None
    return Room(free, int(own)) if answer.ok and own.isdecimal() else None


def lacking(space: Space, mountpoint: str, rooms: Mapping[str, Room]) -> Iterator[str]:
    """A line for each client whose own drives lack the space, or one for a storage that all clients share.

    A shared storage is judged only if all its clients answer: files that a silent client has left there would be
    unknown, and they may be what fills it.
    """
    if not space.shared:
        for node, room in rooms.items():
            if room.free + room.own < space.needed:
                yield _line(node, mountpoint, space.needed, room.free, room.own)
        return
    own = sum(room.own for room in rooms.values())
    if rooms.keys() == set(space.clients):
        node = min(rooms, key=lambda name: rooms[name].free)
        if rooms[node].free + own < space.needed:
            yield _line(node, mountpoint, space.needed, rooms[node].free, own)


def _line(node: str, mountpoint: str, needed: int, free: int, own: int) -> str:
    there = f", {own:,} B are its earlier files" if own else ""
    return f"{node}: {mountpoint} needs {needed:,} B for the benchmarks' files, {free:,} B are free{there}"
