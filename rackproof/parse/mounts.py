"""Mounts as the kernel sees them: /proc/self/mountinfo, /proc/mounts and, for NFS, /proc/self/mountstats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.text import excerpt, integer, whole_lines


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    """Device, ``server:/export``, or a name chosen by the file system; may be empty."""
    mountpoint: str
    fstype: str
    options: tuple[str, ...]
    """Mount options; /proc/mounts merges the file system's options into them."""
    super_options: tuple[str, ...] = ()
    """Options of the file system, shared by all its mounts; only in mountinfo."""
    device: str | None = None
    """``major:minor``; only in mountinfo."""
    root: str = "/"
    """Directory of the file system that is mounted; other than / for a bind mount. Only in mountinfo."""
    hidden_by: str = ""
    """Mount point above it, mounted later: no path leads to this mount. Only in mountinfo."""

    def option(self, name: str) -> str | None:
        """Value of ``name=value`` in force, ``""`` for a bare ``name``, None when it is not set."""
        for option in (*self.super_options, *self.options):
            key, _, value = option.partition("=")
            if key == name:
                return value
        return None

    @property
    def read_only(self) -> bool:
        """The mount or its file system refuses writes."""
        return "ro" in self.options or "ro" in self.super_options


@dataclass(frozen=True, slots=True)
class Transport:
    """One connection of an NFS mount."""

    protocol: str
    """tcp, rdma, udp or local."""
    counters: tuple[int, ...]
    """As the kernel prints them; their meaning depends on the protocol."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Counters of one RPC operation since the mount."""

    calls: int
    transmissions: int
    """Exceeds ``calls`` when requests were retransmitted."""
    timeouts: int
    """Calls that reached a major timeout."""


@dataclass(frozen=True, slots=True)
class NfsMount:
    source: str
    mountpoint: str
    fstype: str
    """nfs (version 3) or nfs4."""
    options: tuple[str, ...]
    """Seconds since the mount."""
    transports: tuple[Transport, ...]
    """Established connections; ``nconnect`` in the options does not prove them."""
    operations: Mapping[str, Operation] = field(default_factory=dict)
    """By the protocol's name: READ, WRITE, GETATTR …"""
    server_read_bytes: int | None = None
    """Payload that came from the server since the mount; None where the kernel does not count it."""
    server_written_bytes: int | None = None
    local_pages: tuple[int, int] | None = None
    """Pages that FS-Cache had, and those that it did not have; None where the kernel does not count them here."""

    @property
    def connections(self) -> int:
        return len(self.transports)

    @property
    def protocol(self) -> str | None:
        """Protocol of all connections; None when they differ."""
        protocols = {transport.protocol for transport in self.transports}
        return protocols.pop() if len(protocols) == 1 else None

    def option(self, name: str) -> str | None:
        """As ``Mount.option``."""
        return Mount(self.source, self.mountpoint, self.fstype, self.options).option(name)


def find_mount(mounts: Iterable[Mount], mountpoint: str) -> Mount | None:
    """The visible mount at a mount point: the last one, where several are stacked."""
    stacked = (mount for mount in reversed(tuple(mounts)) if mount.mountpoint == mountpoint)
    return next((mount for mount in stacked if not mount.hidden_by), None)


def visible_mounts(mounts: Iterable[Mount]) -> dict[str, Mount]:
    """Mounts by mount point; the last one where several are stacked."""
    return {mount.mountpoint: mount for mount in mounts}


_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@remembered(16)  # several checks read the same output
def parse_mountinfo(output: str | bytes) -> tuple[Mount, ...]:
    """Read /proc/self/mountinfo (proc(5)), in the kernel's order."""
    tool = "mountinfo"
    mounts, places = [], []
    for line in whole_lines(tool, output):
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(tail) != 3 or not re.fullmatch(r"\d+:\d+", fields[2]):
            raise ParseError(tool, f"expected a mount, got {excerpt(line)}")
        point = _absolute(tool, fields[4], line)
        places.append(_Place(integer(tool, "mount id", fields[0]), integer(tool, "parent id", fields[1]), point))
        mounts.append(
            Mount(
                source=_decode(tail[1]),
                mountpoint=point,
                fstype=_fstype(tool, tail[0], line),
                options=_options(tool, fields[5], line),
                super_options=_options(tool, tail[2], line),
                device=fields[2],
                root=_decode(fields[3]),
            )
        )
        for options in (mounts[-1].options, mounts[-1].super_options):
            _expect_access(tool, options, line)
    hidden = _hidden(places)
    return tuple(
        replace(mount, hidden_by=hidden[place.id]) if place.id in hidden else mount
        for mount, place in zip(mounts, places, strict=True)
    )


class _Place(NamedTuple):
    """A mount in the tree of mounts."""

    id: int
    parent: int
    point: str


def _hidden(places: Iterable[_Place]) -> dict[int, str]:
    """Ids of mounts that no path reaches, and the mount point that hides each.

    A mount on a folder above, in the same parent, is younger: had it been there before, it would be the parent. What is
    mounted in a hidden mount is hidden, too.
    """
    by_id = {place.id: place for place in places}
    points: dict[int, set[str]] = {}
    for place in by_id.values():
        points.setdefault(place.parent, set()).add(place.point)
    hidden = {}
    for start in by_id:
        at, passed = start, set[int]()
        while at in by_id and at not in passed:
            passed.add(at)
            _, parent, point = by_id[at]
            if above := next((folder for folder in folders_above(point) if folder in points[parent]), None):
                hidden[start] = above
                break
            at = parent
    return hidden


def folders_above(point: str) -> tuple[str, ...]:
    """``/`` and ``/mnt`` for ``/mnt/nfs``."""
    parts = point.split("/")[1:-1] if point != "/" else []
    return tuple("/" + "/".join(parts[:count]) for count in range(len(parts) + 1)) if point != "/" else ()


def _expect_access(tool: str, options: tuple[str, ...], line: str) -> None:
    """The kernel prints rw or ro first."""
    if options[:1] not in (("rw",), ("ro",)):
        raise ParseError(tool, f"expected rw or ro first in the options of {excerpt(line)}")


@remembered(16)
def parse_proc_mounts(output: str | bytes) -> tuple[Mount, ...]:
    """Read /proc/mounts, in the kernel's order."""
    tool = "proc mounts"
    mounts = []
    for line in whole_lines(tool, output, closing=r".* 0 0"):
        fields = line.split(" ")
        if len(fields) != 6 or not all(re.fullmatch(r"\d{1,3}", field) for field in fields[4:]):
            raise ParseError(tool, f"expected a mount, got {excerpt(line)}")
        _expect_access(tool, _options(tool, fields[3], line), line)
        mounts.append(
            Mount(
                source=_decode(fields[0]),
                mountpoint=_absolute(tool, fields[1], line),
                fstype=_fstype(tool, fields[2], line),
                options=_options(tool, fields[3], line),
            )
        )
    return tuple(mounts)


def _decode(field: str) -> str:
    """Decode octal escapes of blanks, backslashes and #: ``\\040``."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _absolute(tool: str, field: str, line: str) -> str:
    if not field.startswith("/"):
        raise ParseError(tool, f"expected a mount point in {excerpt(line)}")
    return _decode(field)


def _fstype(tool: str, field: str, line: str) -> str:
    if not field:
        raise ParseError(tool, f"expected a file system type in {excerpt(line)}")
    return _decode(field)


def _options(tool: str, field: str, line: str) -> tuple[str, ...]:
    if not field:
        raise ParseError(tool, f"expected options in {excerpt(line)}")
    return tuple(_decode(option) for option in field.split(",") if option)


_DEVICE: Final = re.compile(r"(?:device (.*)|no device) mounted on (\S+) with fstype (\S+)(?: statvers=(\S+))?\s*")
_MOUNTSTATS: Final = "mountstats"


@remembered(16)  # several checks read the same output
def parse_mountstats(output: str | bytes) -> tuple[NfsMount, ...]:
    """NFS mounts of /proc/self/mountstats; empty on a node without NFS mounts."""
    blocks: list[tuple[re.Match[str], list[str]]] = []
    for line in whole_lines(_MOUNTSTATS, output):
        if device := _DEVICE.fullmatch(line):
            blocks.append((device, []))
        elif blocks:
            blocks[-1][1].append(line.strip())
        elif line.strip():
            raise ParseError(_MOUNTSTATS, f"unexpected first line {excerpt(line)}")
    for device, body in blocks:
        if device[4] is None and any(body):
            raise ParseError(_MOUNTSTATS, f"unexpected line {excerpt(next(filter(None, body)))}")
    return tuple(_nfs(device, body) for device, body in blocks if device[4] is not None)


def parse_transports(output: str | bytes) -> dict[str, frozenset[str]]:
    """Protocols of the connections of every NFS mount, by mount point.

    Input: the lines ``device …`` and ``xprt: …`` of /proc/self/mountstats. Where several mounts are stacked, the last
    one counts. Raises ParseError.
    """
    protocols: dict[str, set[str]] = {}
    mountpoint = None
    for line in whole_lines(_MOUNTSTATS, output) if output.strip() else ():
        if device := _DEVICE.fullmatch(line):
            mountpoint = _decode(device[2])
            protocols[mountpoint] = set()
        elif mountpoint is not None and line.strip().startswith("xprt:"):
            protocols[mountpoint].add(_transport(line.strip(), mountpoint).protocol)
        else:
            raise ParseError(_MOUNTSTATS, f"expected a mount or one of its connections, got {excerpt(line)}")
    return {mountpoint: frozenset(names) for mountpoint, names in protocols.items() if names}


def _nfs(device: re.Match[str], body: list[str]) -> NfsMount:
    mountpoint = _decode(device[2])
    if "per-op statistics" not in body:
        raise ParseError(_MOUNTSTATS, f"statistics of {mountpoint} are cut off")
    at = body.index("per-op statistics")
    head, operations = body[:at], dict(_operation(line, mountpoint) for line in body[at + 1 :] if line)
    transports = tuple(_transport(line, mountpoint) for line in head if line.startswith("xprt:"))
    options = _value(head, "opts:", mountpoint)
    if not transports:
        raise ParseError(_MOUNTSTATS, f"{mountpoint} has no transport")
    read, written = _payload(head)
    return NfsMount(
        source=_decode(device[1] or ""),
        mountpoint=mountpoint,
        fstype=device[3],
        options=tuple(option.strip() for option in options.split(",") if option.strip()),
        transports=transports,
        operations=operations,
        server_read_bytes=read,
        server_written_bytes=written,
        local_pages=_local_pages(head),
    )


def _payload(head: list[str]) -> tuple[int | None, int | None]:
    """``bytes:`` counts normal, direct and server reads and writes in turn, then pages (nfs_show_stats in fs/nfs)."""
    words = next((line.removeprefix("bytes:").split() for line in head if line.startswith("bytes:")), [])
    if len(words) < 6:
        return None, None
    counters = [integer(_MOUNTSTATS, "bytes", word) for word in words]
    return counters[4], counters[5]


def _local_pages(head: list[str]) -> tuple[int, int] | None:
    """``fsc:`` counts pages read, not read, written, not written and dropped (nfs_show_stats, up to Linux 6.3)."""
    words = next((line.removeprefix("fsc:").split() for line in head if line.startswith("fsc:")), None)
    if words is None:
        return None
    if len(words) != 5:
        raise ParseError(_MOUNTSTATS, f"expected 5 counters of pages, got {excerpt(' '.join(words))}")
    counters = [integer(_MOUNTSTATS, "pages", word) for word in words]
    return counters[0], counters[1]


_OPERATION: Final = re.compile(r"([A-Z0-9_]+):\s*(\d{1,20})\s+(\d{1,20})\s+(\d{1,20})(?:\s+\d{1,20}){5,}", re.ASCII)


def _operation(line: str, mountpoint: str) -> tuple[str, Operation]:
    match = _OPERATION.fullmatch(line)
    if match is None:
        raise ParseError(_MOUNTSTATS, f"{mountpoint}: expected statistics of an operation, got {excerpt(line)}")
    return match[1], Operation(int(match[2]), int(match[3]), int(match[4]))


def _value(head: list[str], key: str, mountpoint: str) -> str:
    values = [line.removeprefix(key).strip() for line in head if line.startswith(key)]
    if len(values) != 1 or not values[0]:
        raise ParseError(_MOUNTSTATS, f"{mountpoint} has no {key.rstrip(':')}")
    return values[0]


def _transport(line: str, mountpoint: str) -> Transport:
    words = line.removeprefix("xprt:").split()
    if len(words) < 9 or not re.fullmatch(r"[a-z]\w*", words[0]):
        raise ParseError(_MOUNTSTATS, f"unknown transport of {mountpoint}: {excerpt(line)}")
    counters = tuple(integer(_MOUNTSTATS, "counter of a transport", word, minimum=None) for word in words[1:])
    return Transport(protocol=words[0], counters=counters)
