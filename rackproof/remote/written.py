"""Written racks: hand-written answers for hardware that the project does not own.

A folder has ``rack.yaml``, the architecture that it names, and one folder of answers per node. Each ``*.yaml`` there is
a list of entries; the first one (files sorted by name) whose ``match`` is part of a command answers the command::

    - match: nvidia-smi -q -x
      file: nvidia-smi-q.xml      # in the same folder, or a list of parts; or `stdout:`
      rc: 0                       # optional, as is `stderr:`
    - match: --property=Id,LoadState
      units: {"chrony.service": loaded active enabled}   # see ``written_units``
    - match: dpkg-query -W -f
      packages: {kmod: 30+20221128-1}                    # see ``written_packages``

A node that is ``like:`` another has the other's answers, with its own name, after those in its own folder. Other
commands end like a program that is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from rackproof.core.node_data import wrong, wrong_name
from rackproof.core.rack import Node
from rackproof.errors import SelfTestError
from rackproof.read_file import read_bytes
from rackproof.remote.command import CommandResult
from rackproof.remote.document import Strict, as_model, load_yaml
from rackproof.remote.written_packages import PackageTable, package_table
from rackproof.remote.written_units import UnitTable, unit_table

RACK = "rack.yaml"
_NOT_FOUND = 127


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    if problem := wrong(data):
        raise ValueError(problem)
    return data


class WrittenNode(Strict):
    groups: tuple[str, ...]
    like: str | None = None
    data: Annotated[dict[str, Any], AfterValidator(_checked)] = Field(default_factory=dict)


class WrittenRack(Strict):
    architecture: str
    """A file in the rack's folder."""
    nodes: dict[str, WrittenNode] = Field(min_length=1)

    @model_validator(mode="after")
    def _named(self) -> WrittenRack:
        for name, node in self.nodes.items():
            if problem := wrong_name(name, node.groups):
                raise ValueError(problem)
        return self


class Entry(Strict):
    """One entry of a file of answers."""

    match: str = Field(min_length=1)
    file: str | tuple[str, ...] | None = None
    stdout: str | None = None
    stderr: str = ""
    rc: int = 0
    units: dict[str, str] | None = None
    """LOAD ACTIVE [FILE] by name or pattern of units."""
    packages: dict[str, str] | None = None
    """Version by name of the packages that are installed."""
    manager: dict[str, str] = Field(default_factory=dict)
    pending: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> Entry:
        if sum(source is not None for source in (self.file, self.stdout, self.units, self.packages)) > 1:
            raise ValueError("give only one of `file`, `stdout`, `units` and `packages`")
        if self.units is None and (self.manager or self.pending):
            raise ValueError("`manager` and `pending` belong to `units`")
        self.table  # noqa: B018  (raises)
        return self

    @property
    def table(self) -> UnitTable | PackageTable | None:
        if self.packages is not None:
            return package_table(self.packages)
        return None if self.units is None else unit_table(self.units, self.manager, self.pending)


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """Answer to commands that contain ``match``; ``source`` is its file."""

    match: str
    stdout: bytes
    stderr: bytes
    rc: int
    source: Path
    table: UnitTable | PackageTable | None = None
    """Used instead of ``stdout``."""


class Answers:
    """Answers commands of one node from its written answers, with the interface of a connection."""

    def __init__(self, node: str, answers: tuple[WrittenAnswer, ...], like: Answers | None = None) -> None:
        self.node = node
        self.answers = answers
        self.used: set[WrittenAnswer] = set()
        self._like = like

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        for answer in self.answers:
            if answer.match in command:
                self.used.add(answer)
                stdout = answer.table.answer(command).encode() if answer.table else answer.stdout
                return CommandResult(self.node, command, answer.rc, stdout, answer.stderr, timeout_s=timeout_s)
        if self._like is not None:
            return self._of_another(self._like, command, timeout_s)
        message = f"sh: 1: {command.split()[0] if command.split() else command}: not found\n"
        return CommandResult(self.node, command, _NOT_FOUND, b"", message.encode(), timeout_s=timeout_s)

    def _of_another(self, like: Answers, command: str, timeout_s: float) -> CommandResult:
        answer = like.run(command.replace(self.node, like.node), timeout_s)
        old, new = like.node.encode(), self.node.encode()
        return CommandResult(
            self.node, command, answer.rc,
            answer.stdout.replace(old, new), answer.stderr.replace(old, new), timeout_s=timeout_s,
        )  # fmt: skip


def read_answers(folder: Path) -> tuple[WrittenAnswer, ...]:
    """Answers of one node in the order in which they are tried; empty without a folder."""
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
    parts = (entry.file,) if isinstance(entry.file, str) else entry.file
    try:
        return b"".join(read_bytes(path.parent / part) for part in parts)
    except OSError as error:
        raise SelfTestError(f"{path}: {entry.match}: {entry.file}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Written:
    """A written rack: its architecture's file, its nodes, and their answers."""

    architecture: Path
    nodes: tuple[Node, ...]
    answers: dict[str, Answers]


def read_written(folder: Path) -> Written:
    """Raises SelfTestError, one line."""
    file = folder / RACK
    written = as_model(WrittenRack, load_yaml(file), str(file))
    answers: dict[str, Answers] = {}
    for name, node in written.nodes.items():
        like = answers.get(node.like) if node.like else None
        if node.like and like is None:
            raise SelfTestError(f"{file}: nodes.{name}.like: no node {node.like!r} before it")
        answers[name] = Answers(name, read_answers(folder / name), like)
    nodes = tuple(Node(name, node.groups, node.data) for name, node in written.nodes.items())
    return Written(folder / written.architecture, nodes, answers)
