"""What differs between two recordings: of one node at two dates, or of two nodes that should be alike. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from rackproof.remote.command import CommandResult
from rackproof.remote.noise import anonymous, quiet
from rackproof.remote.recording import Recording

SELF, PEER = "‹this node›", "‹a peer›"
CONTEXT = 2
_DOCUMENT = re.compile(r"(?s)\s*([\[{].*[\]}])(\s*(?:status \d+\s*)?)")
_NAMES = ("ifname", "name", "id", "dev", "field")


@dataclass(frozen=True, slots=True)
class Difference:
    """One command that was answered differently."""

    command: str
    lines: tuple[str, ...]
    """Unified, without the two lines of file names."""


def differences(
    before: Recording, after: Recording, *, peers: Iterable[Recording] = (), everything: bool = False
) -> list[Difference]:
    """What ``after`` answers otherwise than ``before``, in the order in which it was asked.

    Between two nodes each one's own name and addresses count as the same, and so do those of ``peers``; what machines
    are born with is left out. ``everything`` compares the text as it is.
    """
    two = before.node.name != after.node.name
    known = {side.node.name: side for side in (*peers, before, after)} if two and not everything else {}
    shared = before.results.keys() & after.results.keys()
    left, right = (_answers(side, _speaker(side, known.values()), shared, everything) for side in (before, after))
    differences = []
    for key, (command, texts) in left.items():
        other = right.get(key)
        if other is None:
            differences.append(Difference(command, ("- asked here only",)))
        elif not _same(before, after, command) and texts != other[1]:
            differences.append(Difference(command, _diff(texts, other[1])))
    differences += [
        Difference(command, ("+ asked here only",)) for key, (command, _) in right.items() if key not in left
    ]
    return differences


def _same(before: Recording, after: Recording, command: str) -> bool:
    """Whether the very same command got the very same answer, names and all."""
    a, b = before.results.get(command), after.results.get(command)
    return (
        a is not None and b is not None and (a.rc, a.error, a.stdout, a.stderr) == (b.rc, b.error, b.stdout, b.stderr)
    )


class _Names:
    """Replaces names and addresses of nodes by what they are to the one that speaks."""

    def __init__(self, own: Recording, others: Iterable[Recording]) -> None:
        self._words = {word: PEER for side in others if side.node.name != own.node.name for word in _words(side)}
        self._words |= dict.fromkeys(_words(own), SELF)
        longest_first = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?!\w|\.\d)")

    def __call__(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._words[match[0]], text)


def _words(recording: Recording) -> list[str]:
    """A node's name, its addresses, and these as a port's GID spells them."""
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
    """What the node itself was recorded to have, loopback and link-local addresses aside."""
    addresses = []
    for command, result in recording.results.items():
        if command.startswith("ip -j addr"):
            addresses += re.findall(r'"local": ?"([^"]+)"', result.text)
    return [address for address in addresses if not address.startswith(("127.", "::1", "fe80:"))]


def _speaker(own: Recording, known: Iterable[Recording]) -> _Names | None:
    listed = list(known)
    return _Names(own, listed) if listed else None


def _answers(
    recording: Recording, names: _Names | None, shared: Set[str], everything: bool
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By comparable command: the command as it was asked, and the comparable answers to all that look like it.

    A command that both were asked in the same words is comparable as it is; pings of each other are not.
    """
    found: dict[str, tuple[str, set[str]]] = {}
    for command, result in recording.results.items():
        key = names(command) if names and command not in shared else command
        text = _text(result)
        if not everything:
            text = quiet(command, text)
        if names is not None:
            text = names(anonymous(text))
        found.setdefault(key, (command, set()))[1].add(_readable(text))
    return {key: (command, tuple(sorted(texts))) for key, (command, texts) in found.items()}


def _text(result: CommandResult) -> str:
    """An answer as lines, without the time that it took."""
    ended = result.error if result.rc is None else f"exit status {result.rc}" if result.rc else ""
    complaint = result.stderr.decode("utf-8", "replace")
    head = [*([f"! {ended}\n"] if ended else []), *(f"! {line}\n" for line in complaint.splitlines())]
    return "".join(head) + result.text


def _readable(text: str) -> str:
    """A document on one line becomes one of many, so that a difference is a line."""
    if match := _DOCUMENT.fullmatch(text):
        try:
            return json.dumps(_ordered(json.loads(match[1])), indent=1, ensure_ascii=False, sort_keys=True) + match[2]
        except (ValueError, RecursionError):
            return _broken_up(text)
    return text


def _ordered(value: Any) -> Any:
    """Lists of things with a name are sorted by it: their order is chance."""
    if isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    entries = [_ordered(inner) for inner in value]
    for name in _NAMES:
        if entries and all(isinstance(entry, dict) and isinstance(entry.get(name), str) for entry in entries):
            return sorted(entries, key=lambda entry: str(entry[name]))
    return entries


def _broken_up(text: str) -> str:
    return re.sub(r"(?<=[,{\[])(?=[\"{\[])", "\n", text) if text.count("\n") < 2 else text


def _diff(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    left, right = ([line for text in texts for line in text.splitlines()] for texts in (before, after))
    lines = list(unified_diff(left, right, lineterm="", n=CONTEXT))[2:]
    return tuple(lines) or ("the same lines, ended differently",)
