"""Ceph cluster behind the parallel file system, as ``ceph`` reports it."""

from __future__ import annotations

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse.answer import STATUS, Answer
from rackproof.parse.ceph import CephStatus, parse_ceph_pool_sizes, parse_ceph_status
from rackproof.validation import Unmeasured, answered, check, expect, expect_all

START_S = 3
"""Seconds that the ceph command may take beside waiting for the monitors."""

# Accepted health checks; every other one fails, muted or not.
ACCEPTED_WITHOUT_COPIES = frozenset({"POOL_NO_REDUNDANCY"})
ACCEPTED_MUTED = frozenset({"MGR_MODULE_ERROR"})  # the deploy starts the manager without optional modules


WHOLE = frozenset({"active", "clean", "scrubbing", "deep", "snaptrim", "snaptrim_wait"})
"""States of a placement group with all its copies; any other state needs care."""


def has_cluster(arch: Architecture, node: Node, rack: Rack) -> bool:
    """The first node of the server role carries the cluster."""
    return arch.ceph is not None and any(
        storage.fstype == "ceph" and storage.server_nodes(rack)[:1] == (node,) for storage in arch.storage.values()
    )


def limit_s(arch: Architecture) -> float:
    if arch.ceph is None:
        raise Unmeasured("the architecture has no Ceph cluster")
    return arch.ceph.answer_timeout_s


def answer(host: Host, arch: Architecture, question: str) -> Answer:
    limit = limit_s(arch)
    command = f"timeout -k 1 {limit + START_S:g} ceph --connect-timeout {limit:g} {question} -f json{STATUS}"
    return answered(host, command, "ceph", good=None)


def status(host: Host, arch: Architecture) -> CephStatus:
    reply = answer(host, arch, "-s")
    if reply.status != 0:
        raise Unmeasured("the cluster does not answer; see ceph.answers")
    return parse_ceph_status(reply.body)


@check(
    "ceph.answers",
    reads="ceph",
    when=has_cluster,
    protects="Without a monitor quorum every client of the file system stops at its next metadata operation.",
    hint="systemctl status 'ceph-mon@*'; the fabric's address must be up before the monitor starts.",
)
def test_answers(host: Host, arch: Architecture) -> None:
    reply = answer(host, arch, "-s")
    if reply.timed_out or reply.status != 0:
        raise AssertionError(
            f"expected an answer of the monitors within {limit_s(arch):g} s, actual none: {reply.failure}"
        )
    parse_ceph_status(reply.body)


@check(
    "ceph.health",
    reads="ceph",
    when=has_cluster,
    protects="Ceph warnings left alone (full drives, lost copies, slow operations) end in stopped I/O.",
    hint="ceph health detail on the storage node; resolve each listed check.",
)
def test_health(host: Host, arch: Architecture) -> None:
    cluster = status(host, arch)
    accepted = ACCEPTED_MUTED & cluster.muted
    if arch.ceph and arch.ceph.pool_size == 1:
        accepted |= ACCEPTED_WITHOUT_COPIES
    reasons = [
        f"{code} ({text}{', muted' if code in cluster.muted else ''})"
        for code, text in cluster.checks.items()
        if code not in accepted
    ]
    known = cluster.health == "HEALTH_OK" or (cluster.health == "HEALTH_WARN" and cluster.checks)
    if reasons or not known:
        raise AssertionError(f"expected HEALTH_OK, actual {cluster.health}: {', '.join(reasons) or 'no reason given'}")


@check(
    "ceph.osds",
    reads="ceph",
    when=has_cluster,
    protects="Data on an OSD that is down is unreadable or has lost redundancy.",
    hint="ceph osd tree; systemctl status 'ceph-osd@*' and dmesg for the drive.",
)
def test_osds(host: Host, arch: Architecture) -> None:
    cluster = status(host, arch)
    if cluster.osds == 0:
        raise AssertionError("expected OSDs, actual none")
    expect(
        f"{cluster.osds_up} up, {cluster.osds_in} in", f"{cluster.osds} up, {cluster.osds} in", f"{cluster.osds} OSDs"
    )


@check(
    "ceph.placement_groups",
    reads="ceph",
    when=has_cluster,
    protects="An inactive placement group serves no I/O; an unclean one competes with clients for bandwidth.",
    hint="ceph pg dump_stuck; wait for recovery to end before measuring.",
)
def test_placement_groups(host: Host, arch: Architecture) -> None:
    states = status(host, arch).placement_groups
    if not states:
        raise AssertionError("expected placement groups, actual none")
    expect_all(
        f"expected active+clean, actual {count} {state}"
        for state, count in states.items()
        if not state.startswith("active+clean") or set(state.split("+")) - WHOLE
    )


@check(
    "ceph.metadata_server",
    reads="ceph.filesystem",
    when=has_cluster,
    protects="Without an active metadata server no file can be opened.",
    hint="ceph fs status; systemctl status 'ceph-mds@*'.",
)
def test_metadata_server(host: Host, arch: Architecture) -> None:
    if not status(host, arch).active_mds:
        raise AssertionError("expected an active metadata server, actual none")


@check(
    "ceph.pool_size",
    reads="ceph.pool_size",
    when=has_cluster,
    protects="Too few copies lose data with the first dead drive; too many cost write bandwidth.",
    hint="ceph osd pool ls detail; ceph osd pool set POOL size N.",
)
def test_pool_size(host: Host, arch: Architecture) -> None:
    cluster = status(host, arch)  # one after the other: each command occupies all processors of an emulated node
    reply = answer(host, arch, "osd dump")
    if reply.status != 0 or arch.ceph is None:
        raise Unmeasured("the cluster does not answer; see ceph.answers")
    prefix = f"{arch.ceph.filesystem}_"
    sizes = parse_ceph_pool_sizes(reply.body)
    if len(sizes) != cluster.pools:
        raise Unmeasured(f"ceph osd dump lists {len(sizes)} of {cluster.pools} pools")
    pools = {name: size for name, size in sizes.items() if name.startswith(prefix)}
    if not pools:
        raise AssertionError(f"expected pools {prefix}*, actual none")
    expect_all(
        f"{name}: expected {arch.ceph.pool_size}, actual {size}"
        for name, size in pools.items()
        if size != arch.ceph.pool_size
    )
