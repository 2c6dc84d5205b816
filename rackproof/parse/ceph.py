"""``ceph -s`` and ``ceph osd dump``, as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import Json, find_object


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
