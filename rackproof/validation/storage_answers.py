"""What nodes answer to the small commands of the storage validators. Pure; ParseError rather than a guess."""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Sequence
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.text import excerpt, integer, whole_lines

ROUNDS: Final = 7
_END: Final = "end of rounds"


def latency_command(mountpoint: str, timeout_s: float) -> str:
    """Times statfs of a mount in turn with that of /proc, which costs the starting of programs only."""
    stat = f"timeout -k 2 {timeout_s:g} stat -f -c %b --"
    rounds = " ".join(str(number + 1) for number in range(ROUNDS))
    return (
        f"for i in {rounds}; do a=$(date +%s%N); {stat} /proc >/dev/null 2>&1; b=$(date +%s%N);"
        f" {stat} {shlex.quote(mountpoint)} >/dev/null 2>&1; s=$?; c=$(date +%s%N);"
        f' echo "$a $b $c $s"; [ $s = 0 ] || break; done; echo {_END}'
    )


def latency_ms_of(output: str) -> float | None:
    """Answer to ``latency_command``: median, less the least that starting the program took; None: no answer once."""
    *lines, last = whole_lines("stat", output)
    if last != _END:
        raise ParseError("stat", "the answer is cut off")
    starts, takes = [], []
    for line in lines:
        words = line.split(" ")
        if len(words) != 4:
            raise ParseError("stat", f"no times: {excerpt(line)}")
        before, between, after, status = (integer("stat", "time", word) for word in words)
        if not before < between < after:
            raise ParseError("stat", f"the clock ran backwards: {excerpt(line)}")
        if status != 0:
            return None
        starts.append(between - before)
        takes.append(after - between)
    if len(takes) != ROUNDS:
        raise ParseError("stat", f"{len(takes)} rounds of {ROUNDS}")
    return max(0.0, statistics.median(takes) - min(starts)) / 1e6


def inodes_of(body: str) -> tuple[int, int]:
    """``stat -f -c '%c %d'``: inodes, and those that are free."""
    lines = whole_lines("stat", body)
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) != 2:
        raise ParseError("stat", f"no inodes: {excerpt(body)}")
    total, free = (integer("stat", "inodes", word) for word in words)
    return total, free


def read_ahead_command(device: str) -> str:
    """Read-ahead of a mounted device (``major:minor``): of a network file system, a drive, or a partition's drive."""
    if not re.fullmatch(r"\d+:\d+", device):
        raise ParseError("mountinfo", f"no device: {excerpt(device)}")
    block = f"/sys/dev/block/{device}"
    folders = f"/sys/class/bdi/{device} {block}/bdi {block}/../bdi"
    return (
        f'r="no read-ahead"; for d in {folders}; do f="$d/read_ahead_kb";'
        ' if [ -e "$f" ]; then r=$(cat "$f"); break; fi; done; echo "$r"'
    )


def read_ahead_of(output: str) -> int | None:
    """Answer to ``read_ahead_command`` in KiB; None where the kernel has no such setting."""
    lines = whole_lines("bdi", output)
    if lines == ["no read-ahead"]:
        return None
    if len(lines) != 1:
        raise ParseError("bdi", f"no read-ahead: {excerpt(output)}")
    return integer("bdi", "read-ahead", lines[0])


def at_boot_command(mountpoints: Sequence[str]) -> str:
    """Names of the mounts' units, their state, and what rackproof-mounts starts when it is enabled."""
    points = " ".join(map(shlex.quote, mountpoints))
    return (
        f"u=$(systemd-escape --path --suffix=mount -- {points}); echo $u;"
        ' for x in rackproof-mounts.service $u; do systemctl is-enabled -- "$x" 2>/dev/null || echo no; done;'
        f" cat /usr/local/sbin/rackproof-mounts 2>/dev/null; echo {_BOOT_END}"
    )


_BOOT_END: Final = "end of units"


def at_boot_of(output: str, mountpoints: Sequence[str]) -> tuple[str, ...]:
    """Answer to ``at_boot_command``: the mount points that nothing mounts when the node starts.

    systemctl says its word and fails for a disabled unit, so that ``no`` may follow it.
    """
    *lines, last = whole_lines("systemctl", output)
    if last != _BOOT_END or not lines:
        raise ParseError("systemctl", "the answer is cut off")
    units = lines[0].split()
    if len(units) != len(mountpoints) or not all(unit.endswith(".mount") for unit in units):
        raise ParseError("systemctl", f"no units: {excerpt(lines[0])}")
    words: list[str] = []
    rest = lines[1:]
    for _ in range(len(units) + 1):
        if not rest or not re.fullmatch(r"[a-z-]+", rest[0]):
            raise ParseError("systemctl", f"no state of a unit: {excerpt(rest[0] if rest else '')}")
        words.append(rest.pop(0))
        if words[-1] != "no" and rest[:1] == ["no"]:
            rest.pop(0)
            words[-1] = "no"
    started = "\n".join(rest) if words[0] == "enabled" else ""
    found = []
    for point, unit, word in zip(mountpoints, units, words[1:], strict=True):
        names = (f"'{unit}'", f"-{unit.removesuffix('.mount')}.service'")
        if word not in ("enabled", "generated") and not any(name in started for name in names):
            found.append(point)
    return tuple(found)


FSCACHE: Final = "cat /proc/fs/fscache/caches"
_STATES: Final = {"-": "absent", "P": "preparing", "A": "active", "E": "broken", "W": "withdrawn"}


def fscache_of(output: str) -> tuple[str, ...]:
    """/proc/fs/fscache/caches: the state of every cache; empty without one."""
    lines = whole_lines("fscache", output)
    if lines[0].split()[:1] != ["CACHE"] or len(lines) < 2 or not lines[1].startswith("==="):
        raise ParseError("fscache", f"no table of caches: {excerpt(lines[0])}")
    states = []
    for line in lines[2:]:
        words = line.split()
        if len(words) < 6 or words[5] not in _STATES or not re.fullmatch(r"[0-9a-f]+", words[0]):
            raise ParseError("fscache", f"no cache: {excerpt(line)}")
        states.append(_STATES[words[5]])
    return tuple(states)
