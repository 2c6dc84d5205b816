"""State of a storage client around a run: memory, page cache, mounts, counters of bytes, files of the benchmark.

Sections that begin with a line ``-- NAME``; what a node cannot tell is an empty section or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from rackproof.parse.answer import Answer, parse_answer
from rackproof.parse.block import moved_bytes
from rackproof.parse.errors import ParseError
from rackproof.parse.mounts import Mount, NfsMount, parse_mountinfo, parse_mountstats
from rackproof.parse.parallel_fs import Dfuse, parse_dfuse
from rackproof.parse.sections import named_sections
from rackproof.parse.text import excerpt, integer

_TOOL: Final = "client state"
_NUMBER: Final = re.compile(r"(ram|page_cache|cached)_bytes (\d+)(?: (\d+))?")


@dataclass(frozen=True, slots=True)
class TestFile:
    path: str
    size: int
    allocated: int
    """Bytes that the file system has allocated for it."""


@dataclass(frozen=True, slots=True)
class Tree:
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ClientState:
    ram_bytes: int | None
    page_cache_bytes: int | None
    """Page cache of the whole node."""
    cached_bytes: int | None
    """Bytes of the benchmark's files in the page cache; None where the node cannot tell."""
    mounts: tuple[Mount, ...]
    nfs: tuple[NfsMount, ...]
    device: str | None
    """Device that carries the label of a local storage."""
    device_read_bytes: int | None
    device_written_bytes: int | None
    daemons: tuple[Dfuse, ...]
    files: tuple[TestFile, ...]
    transport: Answer | None = None
    """State of a parallel file system's client; None where it was not asked. The next two likewise."""
    counters: Answer | None = None
    ports: Answer | None = None
    tree: Tree | None = None
    """Instead of ``files``, where they were counted."""
    cache_stats: Answer | None = None
    """/proc/fs/fscache/stats, of a storage with a local cache; None where it was not asked."""
    cache_drive_read_bytes: int | None = None
    """Bytes read from the drive of the local cache."""


def parse_client_state(output: str | bytes) -> ClientState:
    """Raises ParseError for a state that is cut off or unreadable."""
    sections = named_sections(_TOOL, output)
    texts = {name: "\n".join(body) + "\n" if body else "" for name, body in sections.items()}
    numbers, counted = _numbers(sections[""])
    files = tuple(_file(line) for line in sections.get("files", ()))
    tree = _tree(texts["tree"]) if "tree" in texts else None
    read, written = _block(texts.get("block", ""))
    stats = texts.get("mountstats", "")
    return ClientState(
        ram_bytes=numbers.get("ram"),
        page_cache_bytes=numbers.get("page_cache"),
        cached_bytes=numbers.get("cached") if counted == (tree.files if tree else len(files)) else None,
        mounts=parse_mountinfo(texts.get("mountinfo", "")),
        nfs=parse_mountstats(stats) if stats else (),
        device=sections["device"][0] if sections.get("device") else None,
        device_read_bytes=read,
        device_written_bytes=written,
        daemons=parse_dfuse(texts["dfuse"]) if texts.get("dfuse") else (),
        files=files,
        transport=_answer(texts, "transport"),
        counters=_answer(texts, "counters"),
        ports=_answer(texts, "ports"),
        tree=tree,
        cache_stats=_answer(texts, "fscache"),
        cache_drive_read_bytes=_block(texts.get("cachedrive", ""))[0],
    )


def with_counters(state: ClientState, output: str | bytes) -> ClientState:
    """The state with the counters of bytes of another reading, which has no more than them. Raises ParseError for one
    that lacks a counter that the state has."""
    texts = {name: "\n".join(body) + "\n" for name, body in named_sections(_TOOL, output).items() if body}
    read, written = _block(texts.get("block", ""))
    new = replace(
        state,
        nfs=parse_mountstats(texts["mountstats"]) if "mountstats" in texts else (),
        device_read_bytes=read,
        device_written_bytes=written,
        counters=_answer(texts, "counters"),
        ports=_answer(texts, "ports"),
    )
    for name in ("device_read_bytes", "counters", "ports"):
        if getattr(state, name) is not None and getattr(new, name) is None:
            raise ParseError(_TOOL, f"a reading lacks {name}")
    return new


def _answer(texts: dict[str, str], name: str) -> Answer | None:
    return parse_answer(_TOOL, texts[name]) if name in texts else None


def _numbers(lines: list[str]) -> tuple[dict[str, int], int | None]:
    """Numbers of bytes by name, and how many files ``cached_bytes`` counts."""
    values, counted = {}, None
    for line in lines:
        if match := _NUMBER.fullmatch(line.strip()):
            values[match[1]] = int(match[2])
            counted = int(match[3]) if match[3] else counted
    return values, counted


def _file(line: str) -> TestFile:
    words = line.split(" ", 3)
    if len(words) != 4 or not words[3].startswith("/"):
        raise ParseError(_TOOL, f"expected a file, got {excerpt(line)}")
    size, blocks, unit = (integer(_TOOL, "size of a file", word) for word in words[:3])
    return TestFile(words[3], size, blocks * unit)


def _tree(text: str) -> Tree:
    words = text.split()
    if len(words) != 2:
        raise ParseError(_TOOL, f"expected numbers of files and bytes, got {excerpt(text)}")
    return Tree(integer(_TOOL, "number of files", words[0]), integer(_TOOL, "bytes of files", words[1]))


def _block(text: str) -> tuple[int | None, int | None]:
    """Bytes read and written; None without counters."""
    words = text.split()
    if len(words) < 7:
        return None, None
    return moved_bytes(_TOOL, words)
