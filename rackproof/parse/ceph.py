"""``ceph -s``, ``ceph osd dump``, ``ceph osd metadata`` and ``ceph tell osd.N bench``, as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError, Unreliable
from rackproof.parse.jsondoc import Json, find_array, find_json, find_object
from rackproof.parse.text import excerpt, text_of

_AGREEMENT: Final = 0.02
"""Tolerance of a rate against bytes and time, relative."""
_PARTITION: Final = re.compile(r"^(nvme\d+n\d+(?=p)|sd[a-z]+)p?\d+$")


@dataclass(frozen=True, slots=True)
class CephStatus:
    health: str
    """HEALTH_OK, HEALTH_WARN or HEALTH_ERR."""
    checks: dict[str, str]
    """Code and summary of all raised health checks, muted ones included."""
    muted: frozenset[str]
    """Codes of muted health checks, which are still raised but do not lower the status."""
    osds: int
    osds_up: int
    osds_in: int
    placement_groups: dict[str, int]
    """Number of placement groups by state."""
    active_mds: tuple[str, ...]
    pools: int


def parse_ceph_status(body: str) -> CephStatus:
    """``ceph -s -f json``."""
    status = find_object("ceph", body, "health")
    health, osds = status.child("health"), status.child("osdmap")
    listed = health.child("checks") if health.has("checks") else Json("ceph", "", {})
    checks = {code: listed.child(code) for code in listed.values}
    groups = status.child("pgmap")
    states = {state.string("state_name"): state.integer("count") for state in groups.children("pgs_by_state")}
    if sum(states.values()) != groups.integer("num_pgs"):
        raise ParseError("ceph", f"states of {sum(states.values())} of {groups.integer('num_pgs')} placement groups")
    return CephStatus(
        health=health.string("status"),
        checks={code: check.child("summary").string("message") for code, check in checks.items()},
        muted=frozenset(code for code, check in checks.items() if check.values.get("muted") is True),
        osds=osds.integer("num_osds"),
        osds_up=osds.integer("num_up_osds"),
        osds_in=osds.integer("num_in_osds"),
        placement_groups=states,
        active_mds=tuple(
            rank.string("name")
            for rank in status.child("fsmap").children("by_rank")
            if rank.string("status") == "up:active"
        ),
        pools=groups.integer("num_pools"),
    )


def parse_ceph_pool_sizes(output: str) -> dict[str, int]:
    """``ceph osd dump -f json``: number of copies by pool."""
    pools = find_object("ceph", output, "pools").children("pools")
    return {pool.string("pool_name"): pool.integer("size") for pool in pools}


@dataclass(frozen=True, slots=True)
class Osd:
    number: int
    up: bool
    host: str
    """``uname -n`` of its node; empty where the cluster does not know it."""
    devices: tuple[str, ...]
    """Names of the drives with its data, below logical volumes and partitions; empty where unknown."""


def parse_osds(output: str | bytes) -> tuple[Osd, ...]:
    """``ceph osd dump -f json`` followed by ``ceph osd metadata -f json``. Raises ParseError without an OSD."""
    text = text_of("ceph", output)
    dump = find_object("ceph", text, "osds").children("osds")
    # an empty array of the dump begins no line
    known = {osd.integer("id"): osd for osd in find_array("ceph", text, "osd metadata")}
    numbers = {osd.integer("osd"): osd.integer("up") == 1 for osd in dump}
    if not numbers or len(numbers) != len(dump):
        raise ParseError("ceph", "osd dump lists no OSD, or one twice")
    if further := sorted(known.keys() - numbers.keys()):
        raise ParseError("ceph", f"osd metadata knows osd.{further[0]}, osd dump does not")
    return tuple(_osd(number, up, known.get(number)) for number, up in sorted(numbers.items()))


def _osd(number: int, up: bool, metadata: Json | None) -> Osd:
    host = metadata.string("hostname") if metadata is not None and metadata.has("hostname") else ""
    keys = [key for key in ("bluestore_bdev_devices", "devices") if metadata is not None and metadata.values.get(key)]
    devices = metadata.string(keys[0]).split(",") if metadata is not None and keys else []
    return Osd(number, up, host, tuple(_PARTITION.sub(r"\1", device) for device in devices))


@dataclass(frozen=True, slots=True)
class OsdBench:
    bytes: int
    block_bytes: int
    bytes_per_s: float


def parse_osd_bench(output: str | bytes) -> OsdBench:
    """``ceph tell osd.N bench``. Raises ParseError for figures that contradict each other, and for further text."""
    document = find_json("ceph", output, lambda value: isinstance(value, dict) and "bytes_per_sec" in value)
    if further := f"{document.before} {document.after}".strip():
        raise ParseError("ceph", f"osd bench also printed: {excerpt(further)}")
    bench = Json("ceph", "osd bench: ", document.value)
    size, seconds, rate = bench.integer("bytes_written"), bench.number("elapsed_sec"), bench.number("bytes_per_sec")
    if not seconds or not rate or abs(rate * seconds - size) > _AGREEMENT * size:
        raise Unreliable("ceph", f"osd bench: {exact(rate)} B/s contradicts {size} B in {seconds:g} s")
    return OsdBench(size, bench.integer("blocksize", minimum=1), rate)
