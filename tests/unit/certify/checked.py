"""Answers of a written rack to the validators: those of ``data/written``, as another server gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.remote.command import CommandResult
from rackproof.remote.written import Answers, read_answers
from tests.unit.certify.words import Words, exchanged

DATA = Path(__file__).parents[2] / "data"
LIKE = DATA / "written/hgx-h200-roce/gpu-01"
"""Its answers stand where a rack has no own ones."""


_NAMES = re.compile(r"(?:getent ahostsv4|for n in)((?: gpu-\d\d-rail\d)+);")


def _resolved(names: Sequence[str], loop: bool) -> bytes:
    """Addresses of the rails' names, as ``getent`` finds them: for all at once, or one line each."""
    lines = []
    for name in names:
        _, node, rail = name.split("-")
        address = f"10.60.{rail[-1]}.{int(node)}"
        line = f"{address}       STREAM {name}"
        lines += [f"{name} {line}"] if loop else [line, f"{address}       DGRAM  ", f"{address}       RAW    "]
    return "".join(f"{line}\n" for line in (*lines, *([] if loop else ["status 0"]))).encode()


@dataclass(frozen=True)
class Alike:
    """Answers of all nodes. ``own`` answers come first; in the others ``words`` are exchanged."""

    own: Answers
    like: Answers
    words: Words
    known: dict[str, CommandResult] = field(default_factory=dict)
    """Answers by command."""

    def answer(self, command: str) -> CommandResult:
        if command not in self.known:
            result = self.own.run(command, 1.0)
            if result.rc == 127 and not result.stdout:
                result = self.like.run(command, 1.0)
                text = exchanged(result.stdout.decode(), self.words)
                result = CommandResult(result.node, command, result.rc, text.encode(), result.stderr)
            self.known[command] = result
        return self.known[command]


@dataclass(frozen=True)
class CheckedNode:
    """One node of several."""

    name: str
    number: int
    """From 1 on."""
    alike: Alike

    def answer(self, command: str) -> CommandResult:
        if names := _NAMES.match(command):
            return CommandResult(self.name, command, 0, _resolved(names[1].split(), loop="for n in" in command))
        result = self.alike.answer(command.replace(self.name, "gpu-01"))
        text = result.stdout.decode()
        if self.number > 1:
            text = re.sub(r"\b10\.60\.(\d)\.1\b", rf"10.60.\1.{self.number}", text.replace("gpu-01", self.name))
        return CommandResult(self.name, command, result.rc, text.encode(), result.stderr)


def checked_nodes(names: Sequence[str], folders: Sequence[str], words: Words) -> Mapping[str, CheckedNode]:
    """Nodes by name; their own answers are in these folders of ``data/certified``, those of the first one first."""
    own = tuple(answer for folder in folders for answer in read_answers(DATA / "certified" / folder))
    alike = Alike(Answers("gpu-01", own), Answers("gpu-01", read_answers(LIKE)), words)
    return {name: CheckedNode(name, number, alike) for number, name in enumerate(names, 1)}
