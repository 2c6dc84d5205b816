"""GID table of every RDMA port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from rackproof.parse.answer import parse_answer
from rackproof.parse.errors import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.sysfs import files_in, sysfs_command
from rackproof.parse.text import excerpt

_TABLE: Final = tuple(
    f"*/ports/*/{name}/{index}"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs")
    for index in ("[0-9]", "1[0-9]")
)
GIDS: Final = sysfs_command("/sys/class/infiniband", *_TABLE)


@dataclass(frozen=True, slots=True)
class Gid:
    address: IPv6Address
    kind: str | None
    """``RoCE v2``, ``IB/RoCE v1``; None for an empty entry."""
    interface: str | None

    @property
    def routable(self) -> bool:
        """A configured address: not empty, and not derived from the port's MAC address."""
        return int(self.address) != 0 and not self.address.is_link_local

    def __str__(self) -> str:
        if int(self.address) == 0 or self.kind is None:
            return "no GID"
        return f"{self.kind} {self.address.ipv4_mapped or self.address} of {self.interface or 'no interface'}"


GidTable = dict[tuple[str, int, int], Gid]
"""By RDMA device, port and index."""


@remembered(8)
def parse_gids(output: str) -> GidTable:
    """Output of ``GIDS``. Cached: callers must not modify the table."""
    files = files_in(parse_answer("grep", output))
    table: GidTable = {}
    for path, lines in files.items():
        match = re.fullmatch(r"([^/]+)/ports/(\d+)/gids/(\d+)", path)
        if match is None:
            continue
        attributes = f"{match[1]}/ports/{match[2]}/gid_attrs"
        try:
            address = IPv6Address(lines[0])
        except AddressValueError:
            raise ParseError("grep", f"expected a GID, got {excerpt(lines[0])}") from None
        kind, interface = (files.get(f"{attributes}/{name}/{match[3]}", ("",))[0] for name in ("types", "ndevs"))
        table[match[1], int(match[2]), int(match[3])] = Gid(address, kind or None, interface or None)
    return table
