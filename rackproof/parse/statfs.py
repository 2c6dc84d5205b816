"""``stat -f``: sizes, inodes and response time of mounted file systems."""

from __future__ import annotations

import re
import shlex
import statistics
from dataclasses import dataclass
from typing import Final

from rackproof.parse.answer import Answer
from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, integer, whole_lines


@dataclass(frozen=True, slots=True)
class FileSystemSize:
    free_bytes: int
    """For users other than root."""
    total_bytes: int


def parse_statfs(body: str) -> FileSystemSize:
    """``stat -f -c '%S %b %a'``: block size, blocks, free blocks."""
    lines = whole_lines("stat", body)
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) != 3:
        raise ParseError("stat", f"expected sizes, got {excerpt(body)}")
    block, blocks, free = (integer("stat", "size", word) for word in words)
    return FileSystemSize(block * free, block * blocks)


def parse_room(output: str, sets: int) -> tuple[int, int, tuple[int, ...]]:
    """Answer of ``rackproof/bench/space.sh`` about so many data sets: bytes that are free, bytes of earlier files, and
    the number of complete shards of each set."""
    sizes, *counts = whole_lines("stat", output)
    if len(counts) != 1 + sets or not all(count.isdecimal() for count in counts):
        raise ParseError("stat", f"expected sizes and {1 + sets} numbers, got {excerpt(output)}")
    own, *complete = map(int, counts)
    return parse_statfs(f"{sizes}\n").free_bytes, own, tuple(complete)


def parse_inodes(body: str) -> tuple[int, int]:
    """``stat -f -c '%c %d'``: inodes, and free inodes."""
    lines = whole_lines("stat", body)
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) != 2:
        raise ParseError("stat", f"expected numbers of inodes, got {excerpt(body)}")
    total, free = (integer("stat", "inodes", word) for word in words)
    return total, free


ROUNDS: Final = 7
_END: Final = "end of rounds"


def latency_command(mountpoint: str, timeout_s: float) -> str:
    """Command that alternates statfs of a mount with statfs of /proc, whose time is process start-up only."""
    stat = f"timeout -k 2 {timeout_s:g} stat -f -c %b --"
    rounds = " ".join(str(number + 1) for number in range(ROUNDS))
    return (
        f"for i in {rounds}; do a=$(date +%s%N); {stat} /proc >/dev/null 2>&1; b=$(date +%s%N);"
        f" {stat} {shlex.quote(mountpoint)} >/dev/null 2>&1; s=$?; c=$(date +%s%N);"
        f' echo "$a $b $c $s"; [ $s = 0 ] || break; done; echo {_END}'
    )


def parse_latency_ms(output: str) -> float | None:
    """Output of ``latency_command``: median minus the shortest process start-up, in ms; None when a call failed."""
    starts, takes = [], []
    for line in ended_lines("stat", output, _END):
        words = line.split(" ")
        if len(words) != 4:
            raise ParseError("stat", f"expected times, got {excerpt(line)}")
        before, between, after, status = (integer("stat", "time", word) for word in words)
        if not before < between < after:
            raise ParseError("stat", f"the clock ran backwards: {excerpt(line)}")
        if status != 0:
            return None
        starts.append(between - before)
        takes.append(after - between)
    if len(takes) != ROUNDS:
        raise ParseError("stat", f"expected {ROUNDS} rounds, got {len(takes)}")
    return max(0.0, statistics.median(takes) - min(starts)) / 1e6


END_OF_MOUNTS = "end of mounts"


def parse_statfs_answers(output: str, points: tuple[str, ...]) -> dict[str, Answer]:
    answers = {}
    for line in ended_lines("stat", output, END_OF_MOUNTS):
        match = re.fullmatch(r"(/.*?) status (\d{1,3}) ?(.*)", line)
        if match is None or match[1] not in points:
            raise ParseError("stat", f"unexpected line {excerpt(line)}")
        answers[match[1]] = Answer(f"{match[3]}\n" if match[3] else "", int(match[2]), "stat")
    missing = [point for point in points if point not in answers]
    if missing:
        raise ParseError("stat", f"no output for {', '.join(missing)}")
    return answers
