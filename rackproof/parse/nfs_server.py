"""The kernel's NFS server: /proc/fs/nfsd and ``exportfs``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, integer, matched, whole_lines

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
    """Enabled protocol versions: ``4.2``."""


def parse_nfsd(output: str) -> Nfsd:
    """Output of ``NFSD``."""
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
    """A path exported to one client or network."""

    path: str
    client: str
    options: tuple[str, ...]

    def admits(self, address: str) -> bool:
        """Whether this IPv4 address may mount the export; names and wildcards other than ``*`` are not resolved."""
        if self.client in ("*", "<world>"):
            return True
        try:
            return IPv4Address(address) in IPv4Network(self.client, strict=False)
        except (AddressValueError, ValueError):
            return False


def parse_exports(output: str) -> tuple[Export, ...]:
    """Output of ``EXPORTS``."""
    exports = []
    for line in ended_lines("exportfs", output, "end of exports"):
        match = matched("exportfs", r"(/\S*)\s+(\S+?)\(([^()\s]+)\)", line, "an export")
        exports.append(Export(match[1], match[2], tuple(match[3].split(","))))
    return tuple(exports)
