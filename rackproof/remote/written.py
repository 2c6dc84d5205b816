"""Written racks: hand-written answers of the tools of hardware that the project does not own.

A folder has ``rack.yaml``, the architecture it names, and one folder of answers a node. Each ``*.yaml`` in that is a
list; of all its entries (files in the order of their names) the first whose ``match`` is part of a command answers it::

    - match: nvidia-smi -q -x
      file: nvidia-smi-q.xml      # beside; or `stdout:`
      rc: 0                       # optional, as is `stderr:`
    - match: --property=Id,LoadState
      units: {"chrony.service": loaded active enabled}   # whatever units are asked for; see ``written_units``

A node that is ``like:`` another has the other's answers, with its own name in them, unless its own folder has one.
A command without an answer ends like a program that is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from rackproof.core.rack import Node
from rackproof.errors import SelfTestError
from rackproof.remote.command import CommandResult
from rackproof.remote.document import Strict, as_model, load_yaml
from rackproof.remote.written_units import UnitTable, unit_table

RACK = "rack.yaml"
_NOT_FOUND = 127


class WrittenNode(Strict):
    groups: tuple[str, ...]
    like: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class WrittenRack(Strict):
    architecture: str
    """A file beside."""
    nodes: dict[str, WrittenNode] = Field(min_length=1)


class Entry(Strict):
    """One answer as it stands in a file."""

    match: str = Field(min_length=1)
    file: str | None = None
    stdout: str | None = None
    stderr: str = ""
    rc: int = 0
    units: dict[str, str] | None = None
    """Name or pattern: LOAD ACTIVE [FILE]."""
    manager: dict[str, str] = Field(default_factory=dict)
    pending: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> Entry:
        if sum(source is not None for source in (self.file, self.stdout, self.units)) > 1:
            raise ValueError("give `file` or `stdout` or `units`, one of them")
        if self.units is None and (self.manager or self.pending):
            raise ValueError("`manager` and `pending` belong to `units`")
        self.table  # noqa: B018  (raises)
        return self

    @property
    def table(self) -> UnitTable | None:
        return None if self.units is None else unit_table(self.units, self.manager, self.pending)


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """What answers commands that contain ``match``; ``source`` is the file that says so."""

    match: str
    stdout: bytes
    stderr: bytes
    rc: int
    source: Path
    units: UnitTable | None = None
    """Answers instead of ``stdout``."""


class Answers:
    """Stands where an ssh connection would: answers commands of one node from what is written."""

    def __init__(self, node: str, answers: tuple[WrittenAnswer, ...], like: Answers | None = None) -> None:
        self.node = node
        self.answers = answers
        self.used: set[WrittenAnswer] = set()
        self._like = like

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        for answer in self.answers:
            if answer.match in command:
                self.used.add(answer)
                stdout = answer.units.answer(command).encode() if answer.units else answer.stdout
                return CommandResult(self.node, command, answer.rc, stdout, answer.stderr, timeout_s=timeout_s)
        if self._like is not None:
            return self._of_another(self._like, command, timeout_s)
        message = f"sh: 1: {command.split()[0] if command.split() else command}: not found\n"
        return CommandResult(self.node, command, _NOT_FOUND, b"", message.encode(), timeout_s=timeout_s)

    def _of_another(self, like: Answers, command: str, timeout_s: float) -> CommandResult:
        theirs = like.run(command.replace(self.node, like.node), timeout_s)
        old, new = like.node.encode(), self.node.encode()
        return CommandResult(
            self.node, command, theirs.rc,
            theirs.stdout.replace(old, new), theirs.stderr.replace(old, new), timeout_s=timeout_s,
        )  # fmt: skip


def read_answers(folder: Path) -> tuple[WrittenAnswer, ...]:
    """Answers of one node in the order in which they are tried; none where there is no folder."""
    answers = []
    for path in sorted(folder.glob("*.yaml")):
        plain = load_yaml(path)
        if not isinstance(plain, list):
            raise SelfTestError(f"{path}: expected a list of answers, actual {type(plain).__name__}")
        for index, item in enumerate(plain):
            name = item.get("match", f"entry {index + 1}") if isinstance(item, dict) else f"entry {index + 1}"
            entry = as_model(Entry, item, f"{path}: {name}")
            answers.append(
                WrittenAnswer(entry.match, _stdout(path, entry), entry.stderr.encode(), entry.rc, path, entry.table)
            )  # fmt: skip
    return tuple(answers)


def _stdout(path: Path, entry: Entry) -> bytes:
    if entry.file is None:
        return (entry.stdout or "").encode()
    try:
        return (path.parent / entry.file).read_bytes()
    except OSError as error:
        raise SelfTestError(f"{path}: {entry.match}: {entry.file}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Written:
    """A whole written rack: its architecture's file, and each node with what answers for it."""

    architecture: Path
    nodes: tuple[Node, ...]
    answers: dict[str, Answers]


def read_written(folder: Path) -> Written:
    """Raises SelfTestError, one line."""
    file = folder / RACK
    written = as_model(WrittenRack, load_yaml(file), str(file))
    answering: dict[str, Answers] = {}
    for name, node in written.nodes.items():
        like = answering.get(node.like) if node.like else None
        if node.like and like is None:
            raise SelfTestError(f"{file}: nodes.{name}.like: no node {node.like!r} above it")
        answering[name] = Answers(name, read_answers(folder / name), like)
    nodes = tuple(Node(name, node.groups, node.data) for name, node in written.nodes.items())
    return Written(folder / written.architecture, nodes, answering)
