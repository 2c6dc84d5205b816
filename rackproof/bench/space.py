"""Whether the nodes have the space that a profile's files need, asked before its first step.

The answers are not recorded: nothing is measured. A node that does not answer, or has no such mount, is no reason to
refuse: the steps find that out and say so. Two storages on one server are judged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from rackproof.bench.containers.steps import folder_of as container_folder_of
from rackproof.bench.forecast import CONNECTIONS, CONTAINER, FIO, GDS, SMALL, FileSet, Space
from rackproof.bench.in_turn import run_in_turn
from rackproof.bench.storage.commands import folders_of
from rackproof.bench.storage.connections import connection_folders
from rackproof.bench.storage.gds_reader import folder_of as gds_folder_of
from rackproof.bench.storage.small_files_reader import folders_of_small_files
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.statfs import parse_room
from rackproof.remote.command import CommandResult
from rackproof.shell import script

FOLDERS: Final[Mapping[str, Callable[[str, Storage, Node], tuple[str, ...]]]] = {
    FIO: lambda name, storage, node: folders_of(storage, node.name),
    CONNECTIONS: lambda name, storage, node: connection_folders(storage, name, node.name),
    GDS: lambda name, storage, node: (gds_folder_of(storage, node.name),),
    SMALL: lambda name, storage, node: folders_of_small_files(storage, node.name),
    CONTAINER: lambda name, storage, node: (container_folder_of(storage, node),),
}
"""Folders with the files of each kind, on each mount of a node; of a storage by its name."""
_LIMIT_S: Final = 90.0
"""Time limit of the question about one storage, in seconds; each of its parts has 20 s."""


class Room(NamedTuple):
    """Space of a storage as a node sees it, in bytes."""

    free: int
    """Free for the account that runs the benchmarks."""
    own: int
    """Used by files of earlier benchmarks, which this run removes or overwrites."""
    complete: tuple[int, ...] = ()
    """Number of complete shards of each data set that the node was asked about, in the order of the space."""


def refuse_without_space(session: Session, spaces: Iterable[Space]) -> None:
    """Raises RunError with a line for each storage that lacks the space of its files. All are asked about in one
    round trip."""
    spaces = list(spaces)
    asked: dict[str, list[tuple[Space, str]]] = {}
    for space in spaces:
        storage = session.architecture.storage[space.storage]
        for name in space.nodes:
            asked.setdefault(name, []).append((space, space_command(space, storage, session.rack.node(name))))
    commands = {name: [command for _, command in own] for name, own in asked.items()}
    rooms: dict[str, dict[str, Room]] = {space.storage: {} for space in spaces}
    for name, parts in run_in_turn(session.fleet, commands, _LIMIT_S).items():
        for (space, _), part in zip(asked[name], parts, strict=True):
            if (room := room_in(part, len(_indexed(space, name)))) is not None:
                rooms[space.storage][name] = room
    lines = [
        line
        for space in spaces
        for line in lacking(space, session.architecture.storage[space.storage].mountpoints[0], rooms[space.storage])
    ]
    if lines:
        raise RunError("; ".join([*lines, "make room, or lower the sizes of files in the profile"]))


def space_command(space: Space, storage: Storage, node: Node) -> str:
    """Command that prints what ``room_in`` reads. Several mounts of a client show the same file system."""
    folders = [folders(space.storage, storage, node)[0] for kind, folders in FOLDERS.items() if kind in space.kinds]
    folders += [files.folder for files in space.sets if files.folder and files.bytes and node.name in files.nodes]
    indexes = [files.entries for files in _indexed(space, node.name)]
    return script(__name__, "space", *folders, "--", *indexes, mountpoint=storage.mountpoints[0], stem=TEST_FILE)


def _indexed(space: Space, node: str) -> list[FileSet]:
    """Data sets that a node is asked about."""
    return [files for files in space.sets if files.entries and node in files.nodes]


def room_in(answer: CommandResult, sets: int = 0) -> Room | None:
    """Answer to ``space_command`` about so many data sets; None if the command failed or its output is unreadable."""
    try:
        return Room(*parse_room(answer.text, sets)) if answer.ok else None
    except ParseError:
        return None


def lacking(space: Space, mountpoint: str, rooms: Mapping[str, Room]) -> Iterator[str]:
    """A line for each node whose own drives lack the space, or one for a storage that all clients share.

    A shared storage is judged only if all its nodes answer: files that a silent one has left there would be unknown,
    and they may be what fills it.
    """
    if space.shared and rooms.keys() != set(space.nodes):
        return
    own = sum(room.own for room in rooms.values())
    names = [min(rooms, key=lambda name: rooms[name].free)] if space.shared else list(rooms)
    complete = {
        name: dict(zip((files.name for files in _indexed(space, name)), room.complete, strict=True))
        for name, room in rooms.items()
    }
    together = {files: count for counts in complete.values() for files, count in counts.items()}
    for name in names:
        needed = space.needed_of(name, together if space.shared else complete[name])
        there = own if space.shared else rooms[name].own
        if rooms[name].free + there < needed:
            yield _line(space, name, mountpoint, needed, rooms[name].free, there)


def _line(space: Space, node: str, mountpoint: str, needed: int, free: int, own: int) -> str:
    there = f", {own:,} B are its earlier files" if own else ""
    names = "".join(f", {files.name}" for files in space.sets if files.bytes)
    return f"{node}: {mountpoint} needs {needed:,} B for the benchmarks' files{names}, {free:,} B are free{there}"
