"""What nodes answer to the validators' own small commands. Pure; each parser raises ParseError rather than guess.

A command whose failure is itself the answer ends with ``; echo status $?``, so that "it failed" and "it could not be
asked" stay two different things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.jsondoc import Json, find_json
from rackproof.parse.text import excerpt, integer, whole_lines

STATUS: Final = "; echo status $?"
_TIMED_OUT: Final = (124, 137)
_NOT_RUN: Final = (126, 127)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and its exit status."""

    body: str
    status: int

    @property
    def timed_out(self) -> bool:
        return self.status in _TIMED_OUT

    @property
    def not_run(self) -> bool:
        """There is no such program, or it cannot be started."""
        return self.status in _NOT_RUN


def answer_of(tool: str, output: str) -> Answer:
    """Output of a command that ends with ``STATUS``."""
    *body, last = whole_lines(tool, output)
    match = re.fullmatch(r"(.*?)status (\d{1,3})", last)  # a body without a last newline stands before it
    if match is None:
        raise ParseError(tool, f"the answer is cut off after {excerpt(last)}")
    return Answer("".join(f"{line}\n" for line in [*body, *([match[1]] if match[1] else [])]), int(match[2]))


def properties(output: str) -> tuple[dict[str, str], ...]:
    """``systemctl show``: one mapping a unit, in the order they were asked for."""
    blocks: list[dict[str, str]] = [{}]
    for line in whole_lines("systemctl", output):
        key, equals, value = line.partition("=")
        if not line:
            blocks.append({})
        elif not equals or not re.fullmatch(r"[A-Z]\w*", key):
            raise ParseError("systemctl", f"no property: {excerpt(line)}")
        else:
            blocks[-1][key] = value
    return tuple(block for block in blocks if block)


def sysctl_values(output: str) -> dict[str, str]:
    """``sysctl KEY…``; numbers of one key are separated by one blank."""
    values = {}
    for line in whole_lines("sysctl", output):
        match = re.fullmatch(r"([\w./*-]+) =(?: (.*))?", line)
        if match is None:
            raise ParseError("sysctl", f"no value: {excerpt(line)}")
        values[match[1]] = " ".join((match[2] or "").split())
    return values


@lru_cache(maxsize=16)  # several checks read the same output
def installed_packages(output: str) -> frozenset[str]:
    """``dpkg-query -W -f='${db:Status-Status} ${Package}\\n'``: names that are completely installed."""
    names = set()
    for line in whole_lines("dpkg-query", output):
        match = re.fullmatch(r"([a-z-]+) ([a-z0-9][a-z0-9+.-]*)", line)
        if match is None:
            raise ParseError("dpkg-query", f"no package: {excerpt(line)}")
        if match[1] == "installed":
            names.add(match[2])
    return frozenset(names)


def apt_settings(output: str) -> dict[str, str]:
    """``apt-config dump``."""
    values = {}
    for line in whole_lines("apt-config", output):
        match = re.fullmatch(r'(\S+) "(.*)";', line)
        if match is None:
            raise ParseError("apt-config", f"no setting: {excerpt(line)}")
        values[match[1]] = match[2]
    return values


def chosen(output: str) -> str:
    """The word in brackets: ``always [madvise] never``."""
    words = re.findall(r"\[(\w+)\]", "\n".join(whole_lines("sysfs", output)))
    if len(words) != 1:
        raise ParseError("sysfs", f"no choice in {excerpt(output)}")
    return str(words[0])


@dataclass(frozen=True, slots=True)
class Ping:
    sent: int
    received: int


def ping_of(output: str) -> Ping:
    """Statistics of ``ping -q``."""
    match = re.search(r"(?m)^(\d+) packets transmitted, (\d+) received", output)
    if match is None:
        raise ParseError("ping", f"no statistics: {excerpt(output)}")
    return Ping(int(match[1]), int(match[2]))


NFSD = (
    "if [ -e /proc/fs/nfsd/threads ]; then cd /proc/fs/nfsd && echo threads $(cat threads) && sed 's/^/port /' portlist"
    " && echo versions $(cat versions); else echo no nfsd; fi"
)


@dataclass(frozen=True, slots=True)
class Nfsd:
    """The kernel's NFS server."""

    threads: int
    ports: frozenset[str]
    """``tcp 2049``, ``rdma 20049``."""
    versions: frozenset[str]
    """Those that it speaks: ``4.2``."""


def nfsd_of(output: str) -> Nfsd:
    """Answer to ``NFSD``."""
    lines = whole_lines("nfsd", output)
    if lines == ["no nfsd"]:
        return Nfsd(0, frozenset(), frozenset())
    ports, threads, versions = set(), None, None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "threads":
            threads = integer("nfsd", "threads", value)
        elif key == "port" and re.fullmatch(r"[a-z]+ \d+", value):
            ports.add(value)
        elif key == "versions" and (threads == 0 or re.fullmatch(r"([+-][\d.]+ ?)+", value)):
            versions = frozenset(word[1:] for word in value.split() if word.startswith("+"))
        else:
            raise ParseError("nfsd", f"unexpected line {excerpt(line)}")
    if threads is None or versions is None:
        raise ParseError("nfsd", "the answer is cut off")
    return Nfsd(threads, frozenset(ports), versions)


EXPORTS = "exportfs -s && echo end of exports"


@dataclass(frozen=True, slots=True)
class Export:
    """A path that is offered to one client or network."""

    path: str
    client: str
    options: tuple[str, ...]

    def admits(self, address: str) -> bool:
        """Whether the export is meant for this IPv4 address; names and wildcards other than ``*`` are not resolved."""
        if self.client in ("*", "<world>"):
            return True
        try:
            return IPv4Address(address) in IPv4Network(self.client, strict=False)
        except (AddressValueError, ValueError):
            return False


def exports_of(output: str) -> tuple[Export, ...]:
    """Answer to ``EXPORTS``."""
    *lines, last = whole_lines("exportfs", output)
    if last != "end of exports":
        raise ParseError("exportfs", "the answer is cut off")
    exports = []
    for line in lines:
        match = re.fullmatch(r"(/\S*)\s+(\S+?)\(([^()\s]+)\)", line)
        if match is None:
            raise ParseError("exportfs", f"no export: {excerpt(line)}")
        exports.append(Export(match[1], match[2], tuple(match[3].split(","))))
    return tuple(exports)


@dataclass(frozen=True, slots=True)
class FileSystemSize:
    free_bytes: int
    """For users other than root."""
    total_bytes: int


def statfs_of(body: str) -> FileSystemSize:
    """``stat -f -c '%S %b %a'``: block size, blocks, free blocks."""
    lines = whole_lines("stat", body)
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) != 3:
        raise ParseError("stat", f"no sizes: {excerpt(body)}")
    block, blocks, free = (integer("stat", "size", word) for word in words)
    return FileSystemSize(block * free, block * blocks)


@dataclass(frozen=True, slots=True)
class CephStatus:
    health: str
    """HEALTH_OK, HEALTH_WARN or HEALTH_ERR."""
    checks: dict[str, str]
    """Everything that it complains about, muted or not: code and summary."""
    muted: frozenset[str]
    """Codes of complaints that somebody silenced: they no longer make the health worse, and are still so."""
    osds: int
    osds_up: int
    osds_in: int
    placement_groups: dict[str, int]
    """How many are in which state."""
    active_mds: tuple[str, ...]


def ceph_status_of(body: str) -> CephStatus:
    """``ceph -s -f json``."""
    found = find_json("ceph", body, lambda value: isinstance(value, dict) and "health" in value)
    status = Json("ceph", "", found.value)
    health, osds = status.child("health"), status.child("osdmap")
    listed = health.child("checks") if health.has("checks") else Json("ceph", "", {})
    checks = {code: listed.child(code) for code in listed.values}
    return CephStatus(
        health=health.string("status"),
        checks={code: check.child("summary").string("message") for code, check in checks.items()},
        muted=frozenset(code for code, check in checks.items() if check.values.get("muted") is True),
        osds=osds.integer("num_osds"),
        osds_up=osds.integer("num_up_osds"),
        osds_in=osds.integer("num_in_osds"),
        placement_groups={
            state.string("state_name"): state.integer("count")
            for state in status.child("pgmap").children("pgs_by_state")
        },
        active_mds=tuple(
            rank.string("name")
            for rank in status.child("fsmap").children("by_rank")
            if rank.string("status") == "up:active"
        ),
    )


def ceph_pool_sizes_of(output: str) -> dict[str, int]:
    """``ceph osd dump -f json``: copies that each pool keeps."""
    found = find_json("ceph", output, lambda value: isinstance(value, dict) and "pools" in value)
    pools = Json("ceph", "", found.value).children("pools")
    return {pool.string("pool_name"): pool.integer("size") for pool in pools}


def programs_of(output: str, programs: tuple[str, ...]) -> dict[str, str | None]:
    """One line ``name path`` for each program, the path missing where there is none."""
    found: dict[str, str | None] = {}
    for line in whole_lines("command -v", output):
        name, _, path = line.partition(" ")
        if name not in programs or (path and not path.startswith("/")):
            raise ParseError("command -v", f"unexpected line {excerpt(line)}")
        found[name] = path or None
    missing = [name for name in programs if name not in found]
    if missing:
        raise ParseError("command -v", f"no answer about {', '.join(missing)}")
    return found
