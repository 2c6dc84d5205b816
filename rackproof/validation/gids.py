"""The table of GIDs of every RDMA port: the addresses that RDMA knows it by. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import excerpt
from rackproof.validation.answers import answer_of
from rackproof.validation.nic_ports import GREP_DONE, Port, sysfs

ROCE_V2: Final = "RoCE v2"
_TABLE: Final = tuple(
    f"*/ports/*/{name}/{index}"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs")
    for index in ("[0-9]", "1[0-9]")
)
GIDS: Final = sysfs("/sys/class/infiniband", *_TABLE)


@dataclass(frozen=True, slots=True)
class Gid:
    address: IPv6Address
    kind: str | None
    """``RoCE v2``, ``IB/RoCE v1``; None for an empty entry."""
    interface: str | None

    @property
    def routable(self) -> bool:
        """An address that somebody has given: not empty, and not made from the port's MAC address."""
        return int(self.address) != 0 and not self.address.is_link_local

    def __str__(self) -> str:
        if int(self.address) == 0 or self.kind is None:
            return "no GID"
        return f"{self.kind} {self.address.ipv4_mapped or self.address} of {self.interface or 'no interface'}"


Table = dict[tuple[str, int, int], Gid]
"""By RDMA device, port and index."""


@lru_cache(maxsize=8)
def gids_of(output: str) -> Table:
    """Answer to ``GIDS``. Of the same answer the same table: leave it as it is."""
    answer = answer_of("grep", output)
    if answer.status not in GREP_DONE:
        raise ParseError("grep", f"/sys/class/infiniband: exit status {answer.status}")
    files = files_of(answer.body) if answer.body else {}
    table: Table = {}
    for path, lines in files.items():
        match = re.fullmatch(r"([^/]+)/ports/(\d+)/gids/(\d+)", path)
        if match is None:
            continue
        attributes = f"{match[1]}/ports/{match[2]}/gid_attrs"
        try:
            address = IPv6Address(lines[0])
        except AddressValueError:
            raise ParseError("grep", f"no GID: {excerpt(lines[0])}") from None
        kind, interface = (files.get(f"{attributes}/{name}/{match[3]}", ("",))[0] for name in ("types", "ndevs"))
        table[match[1], int(match[2]), int(match[3])] = Gid(address, kind or None, interface or None)
    return table


def wrong_gid(port: Port, table: Table, index: int) -> str | None:
    """What stands at the index instead of a RoCE v2 GID with the port's address; empty when that does, None when the
    port has no table, or the entry does not say whose it is."""
    mine = {place[2]: gid for place, gid in table.items() if place[:2] == (port.device, port.number)}
    found = mine.get(index)
    if not mine or (found is not None and found.routable and found.interface is None):
        return None
    good = [place for place, gid in mine.items() if gid.kind == ROCE_V2 and gid.routable]
    if found is not None and index in good and found.interface == port.interface:
        return ""
    elsewhere = f" (such a GID is at {', '.join(map(str, good))})" if good and index not in good else ""
    return f"{found or 'no GID'}{elsewhere}"
