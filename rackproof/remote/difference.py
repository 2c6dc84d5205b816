"""Differences between two recordings: of one node at two times, or of two nodes that should be equal. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from rackproof.parse import ParseError
from rackproof.parse.netdev import parse_ip
from rackproof.remote.command import CommandResult
from rackproof.remote.noise import anonymous, quiet
from rackproof.remote.recording import Recording

SELF, PEER = "‹this node›", "‹a peer›"
CONTEXT = 2
_DOCUMENT = re.compile(r"(?s)\s*([\[{].*[\]}])(\s*(?:status \d+\s*)?)")
_NAMES = ("ifname", "name", "id", "dev", "field")


@dataclass(frozen=True, slots=True)
class Difference:
    """A command with different answers."""

    command: str
    lines: tuple[str, ...]
    """Unified diff without its two lines of file names."""


def differences(
    before: Recording, after: Recording, *, peers: Iterable[Recording] = (), everything: bool = False
) -> list[Difference]:
    """Commands that ``before`` and ``after`` answer differently, in recorded order.

    For two nodes, their own names and addresses count as equal, as do those of ``peers``; hardware addresses, serial
    numbers and UUIDs are ignored. ``everything`` compares the unchanged text.
    """
    two = before.node.name != after.node.name
    nodes = {side.node.name: side for side in (*peers, before, after)} if two and not everything else {}
    shared = before.results.keys() & after.results.keys()
    left, right = (
        _answers(side, _Names(side, nodes.values()) if nodes else None, shared, everything) for side in (before, after)
    )
    differences = []
    for key, (command, texts) in left.items():
        counterpart = right.get(key)
        if counterpart is None:
            differences.append(Difference(command, ("- recorded here only",)))
        elif not _same(before, after, command) and texts != counterpart[1]:
            differences.append(Difference(command, _diff(texts, counterpart[1])))
    differences += [
        Difference(command, ("+ recorded here only",)) for key, (command, _) in right.items() if key not in left
    ]
    return differences


def _same(before: Recording, after: Recording, command: str) -> bool:
    """Whether the results of an identical command are identical."""
    a, b = before.results.get(command), after.results.get(command)
    return (
        a is not None and b is not None and (a.rc, a.error, a.stdout, a.stderr) == (b.rc, b.error, b.stdout, b.stderr)
    )


class _Names:
    """Replaces a node's own names and addresses by ``SELF`` and its peers' by ``PEER``."""

    def __init__(self, own: Recording, others: Iterable[Recording]) -> None:
        self._words = {word: PEER for side in others if side.node.name != own.node.name for word in _words(side)}
        self._words |= dict.fromkeys(_words(own), SELF)
        longest_first = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?!\w|\.\d)")

    def __call__(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._words[match[0]], text)


def _words(recording: Recording) -> list[str]:
    """A node's name and addresses; IPv4 addresses also in the notation of a port's GID."""
    node = recording.node
    words = [node.name]
    planned = [str(address).partition("/")[0] for address in node.data.get("fabric_addresses") or ()]
    for address in dict.fromkeys([*planned, *_own_addresses(recording)]):
        words.append(address)
        parts = address.split(".")
        if len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts):
            a, b, c, d = map(int, parts)
            words.append(f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}")
    return words


def _own_addresses(recording: Recording) -> list[str]:
    """Recorded addresses of the node, without loopback and link-local ones."""
    addresses = []
    for command, result in recording.results.items():
        if command.startswith("ip -j addr"):
            with suppress(ParseError):
                addresses += [own.address for device in parse_ip(result.stdout) for own in device.addresses or ()]
    return [address for address in addresses if not address.startswith(("127.", "::1", "fe80:"))]


def _answers(
    recording: Recording, names: _Names | None, shared: Set[str], everything: bool
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By comparable command: the first recorded command, and the comparable answers of all commands equal to it.

    A ``shared`` command is compared unchanged. ``names`` makes pings of each other's addresses comparable.
    """
    answers: dict[str, tuple[str, set[str]]] = {}
    for command, result in recording.results.items():
        key = names(command) if names and command not in shared else command
        text = _text(result)
        if not everything:
            text = quiet(command, text)
        if names is not None:
            text = names(anonymous(text))
        answers.setdefault(key, (command, set()))[1].add(_readable(text))
    return {key: (command, tuple(sorted(texts))) for key, (command, texts) in answers.items()}


def _text(result: CommandResult) -> str:
    """A result as lines, without its duration."""
    ended = result.error if result.rc is None else f"exit status {result.rc}" if result.rc else ""
    stderr = result.stderr.decode("utf-8", "replace")
    head = [*([f"! {ended}\n"] if ended else []), *(f"! {line}\n" for line in stderr.splitlines())]
    return "".join(head) + result.text


def _readable(text: str) -> str:
    """Indent a JSON document, so that a difference is a line."""
    if match := _DOCUMENT.fullmatch(text):
        try:
            return json.dumps(_ordered(json.loads(match[1])), indent=1, ensure_ascii=False, sort_keys=True) + match[2]
        except (ValueError, RecursionError):
            return re.sub(r"(?<=[,{\[])(?=[\"{\[])", "\n", text) if text.count("\n") < 2 else text
    return text


def _ordered(value: Any) -> Any:
    """Sort lists of named objects by name: their order is arbitrary."""
    if isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    entries = [_ordered(inner) for inner in value]
    for name in _NAMES:
        if entries and all(isinstance(entry, dict) and isinstance(entry.get(name), str) for entry in entries):
            return sorted(entries, key=lambda entry: str(entry[name]))
    return entries


def _diff(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    left, right = ([line for text in texts for line in text.splitlines()] for texts in (before, after))
    lines = list(unified_diff(left, right, lineterm="", n=CONTEXT))[2:]
    return tuple(lines) or ("the same lines with different line ends",)
