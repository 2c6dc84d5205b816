"""RDMA devices: ``rdma link`` (text and ``-j``) and ``ibv_devinfo``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import find_array
from rackproof.parse.text import excerpt, integer, last_words, text_of, whole_lines

_LINK: Final = "rdma link"
_DEVINFO: Final = "ibv_devinfo"


@dataclass(frozen=True, slots=True)
class RdmaLink:
    device: str
    port: int
    state: str
    """ACTIVE, DOWN, INIT …"""
    physical_state: str
    """LINK_UP, DISABLED, POLLING …"""
    netdev: str | None
    """None on InfiniBand without IPoIB, and in the JSON of links whose netdev is in another namespace."""

    @property
    def up(self) -> bool:
        return self.state == "ACTIVE" and self.physical_state == "LINK_UP"


@dataclass(frozen=True, slots=True)
class HcaPort:
    number: int
    state: str
    """PORT_ACTIVE, PORT_DOWN …"""
    active_mtu_bytes: int
    link_layer: str
    """Ethernet or InfiniBand."""


@dataclass(frozen=True, slots=True)
class Hca:
    name: str
    transport: str
    firmware: str
    ports: tuple[HcaPort, ...]


def parse_rdma_link(output: str | bytes) -> tuple[RdmaLink, ...]:
    """Read ``rdma link`` or ``rdma -j link``; ``[]`` is a node without RDMA links. Raises ParseError without output."""
    if text_of(_LINK, output).lstrip().startswith("["):
        return _links_of_json(output)
    links = []
    for line in whole_lines(_LINK, output):
        if not line.strip() or line.startswith((" ", "\t")):  # with -d, capabilities follow on indented lines
            continue
        match = re.fullmatch(r"(?:link |\d+/\d+: )(\S+?)/(\d{1,4}):? (.+?)\s*", line)
        words = match[3].split() if match else []
        if match is None or len(words) % 2:
            raise ParseError(_LINK, f"unexpected line {excerpt(line)}")
        values = dict(zip(words[::2], words[1::2], strict=True))
        if "state" not in values or "physical_state" not in values:
            raise ParseError(_LINK, f"expected a state in {excerpt(line)}")
        links.append(RdmaLink(match[1], int(match[2]), values["state"], values["physical_state"], values.get("netdev")))
    if not links:
        raise ParseError(_LINK, "no link listed")
    return tuple(links)


def _links_of_json(output: str | bytes) -> tuple[RdmaLink, ...]:
    links = []
    for entry in find_array(_LINK, output, "links"):
        name, _, port = entry.string("ifname").partition("/")
        links.append(
            RdmaLink(
                device=name,
                port=integer(_LINK, "port", port) if port else entry.integer("port"),
                state=entry.string("state"),
                physical_state=entry.string("physical_state"),
                netdev=entry.string("netdev") if entry.has("netdev") else None,
            )
        )
    return tuple(links)


_LAYER: Final = "(?:InfiniBand|Ethernet)"
_KEY: Final = re.compile(r"\s*([A-Za-z][\w ]*?):\s*(.*?)\s*")


def parse_ibv_devinfo(output: str | bytes) -> tuple[Hca, ...]:
    """Read ``ibv_devinfo``; each device must list the number of ports that it reports."""
    hcas: list[tuple[dict[str, str], list[dict[str, str]]]] = []
    lines = whole_lines(_DEVINFO, output, closing=rf"\s+link_layer:\s+{_LAYER}")
    for line in lines:
        match = _KEY.fullmatch(line)
        if match is None:
            continue
        key, value = match[1], match[2]
        if key == "hca_id":
            hcas.append(({"hca_id": value}, []))
        elif hcas and key == "port":
            hcas[-1][1].append({"port": value})
        elif hcas:
            device, ports = hcas[-1]
            (ports[-1] if ports else device).setdefault(key, value)
    if not hcas:
        raise ParseError(_DEVINFO, f"no device; the output ends with {last_words(chr(10).join(lines))}")
    return tuple(_hca(device, ports) for device, ports in hcas)


def _hca(device: dict[str, str], ports: list[dict[str, str]]) -> Hca:
    name = _take(_DEVINFO, device, "hca_id")
    counted = integer(_DEVINFO, "phys_port_cnt", _take(_DEVINFO, device, "phys_port_cnt"))
    if counted != len(ports):
        raise ParseError(_DEVINFO, f"{name} reports {counted} ports but lists {len(ports)}")
    return Hca(
        name=name,
        transport=_take(_DEVINFO, device, "transport").split(" (")[0],
        firmware=device.get("fw_ver", ""),
        ports=tuple(
            HcaPort(
                number=integer(_DEVINFO, "port", _take(_DEVINFO, port, "port"), minimum=1),
                state=_take(_DEVINFO, port, "state").split(" (")[0],
                active_mtu_bytes=_mtu(port, "active_mtu"),
                link_layer=_take(_DEVINFO, port, "link_layer"),
            )
            for port in ports
        ),
    )


def _mtu(port: dict[str, str], key: str) -> int:
    return integer(_DEVINFO, key, _take(_DEVINFO, port, key).split(" (")[0], minimum=1)


def _take(tool: str, values: dict[str, str], key: str) -> str:
    value = values.get(key)
    if not value:
        raise ParseError(tool, f"{next(iter(values.values()), 'device')} has no {key}")
    return value
