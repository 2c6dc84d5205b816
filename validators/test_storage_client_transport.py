"""Transports in use, and connections of parallel file system clients to their servers."""

from __future__ import annotations

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.parse.answer import STATUS, Answer
from rackproof.parse.client_transfer import transport_command, transport_faults, transports_in
from rackproof.parse.mounted import port_faults
from rackproof.parse.mounted import transport_faults as nfs_transport_faults
from rackproof.parse.parallel_fs import (
    Import,
    parse_beegfs_targets,
    parse_lustre_imports,
    parse_mmgetstate,
    parse_weka_interface,
)
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all
from rackproof.validation.mounts import MOUNTINFO, mounts_of, nfs_of

WORKING = {"osc": ("FULL", "IDLE"), "mdc": ("FULL",)}
"""Good states of Lustre imports; unused connections to data targets become IDLE."""

BEEGFS_TARGETS = f"timeout -k 2 15 beegfs-ctl --listtargets --state --nodetype=storage 2>&1{STATUS}"
GPFS_STATE = f"timeout -k 2 15 /usr/lpp/mmfs/bin/mmgetstate -Y 2>&1{STATUS}"
WEKA = f"cat /proc/wekafs/interface 2>&1{STATUS}"


def client_answer(host: Host, tool: str, storage: Storage, command: str) -> Answer:
    """Answer of a client's tool. Raises Unmeasured if the storage is not mounted."""
    announce(host, MOUNTINFO, command)
    mounts_of(host, storage)
    return answered(host, command, tool, good=None)


def client_output(host: Host, tool: str, storage: Storage, command: str) -> str:
    """Output of a client's tool. Raises Unmeasured if the storage is not mounted or the tool fails."""
    reply = client_answer(host, tool, storage, command)
    if reply.status != 0:
        raise Unmeasured(reply.failure)
    return reply.body


def imports(host: Host, storage: Storage) -> tuple[Import, ...]:
    """Imports of this file system; a client may have several."""
    return parse_lustre_imports(client_output(host, "lctl", storage, transport_command(storage)))


@check(
    "mount.transport",
    reads="storage.*.transport",
    protects="An RDMA mount that runs over TCP looks the same and reads at a fraction of the speed.",
    hint="NFS: grep xprt /proc/self/mountstats, and unmount all mounts of the server first. Lustre: lnetctl net show.",
)
def test_transport(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    if storage.class_ == "nfs":
        mounts = nfs_of(host, storage)
        expect_all([*nfs_transport_faults(storage, mounts), *port_faults(storage, mounts_of(host, storage))])
        return
    if not storage.tells_transport:
        raise Unmeasured(f"the transport of {storage.fstype} cannot be determined")
    used = transports_in(storage, client_answer(host, storage.fstype, storage, transport_command(storage)))
    if not used:
        raise Unmeasured(f"{storage.mountpoint} has no active connection to a server")
    expect_all(transport_faults(storage, used))


@check(
    "mount.client",
    reads="storage.*.fstype",
    protects="A client that lost one target hangs on that target's files only.",
    hint="lfs check all, beegfs-ctl --listtargets --state, mmgetstate or weka local ps; then the server they name.",
)
def test_client(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    if storage.fstype == "lustre":
        expect_all(
            f"{i.target}: expected FULL, actual {i.state}"
            for i in imports(host, storage)
            if i.state not in WORKING[i.kind]
        )
    elif storage.fstype == "beegfs":
        expect_all(
            f"target {t.id}: expected Online, Good, actual {t.reachability}, {t.consistency}"
            for t in parse_beegfs_targets(client_output(host, "beegfs-ctl", storage, BEEGFS_TARGETS))
            if (t.reachability, t.consistency) != ("Online", "Good")
        )
    elif storage.fstype == "gpfs":
        expect(parse_mmgetstate(client_output(host, "mmgetstate", storage, GPFS_STATE)), "active", "GPFS daemon")
    elif storage.fstype == "wekafs":
        driver = parse_weka_interface(client_output(host, "wekafs", storage, WEKA))
        expect("connected" if driver.connected else "not connected", "connected", "frontend")
        if storage.source not in driver.mounted:
            raise AssertionError(f"expected {storage.source} mounted, actual {', '.join(driver.mounted) or 'none'}")
    else:
        raise Unmeasured(f"the client state of {storage.fstype} cannot be determined")


@check(
    "mount.targets",
    reads="storage.*.targets",
    protects="A target unknown to a client gets no data from it: the bandwidth of its drives is unused.",
    hint="lfs osts, or beegfs-ctl --listtargets; remount to use a target added since the mount.",
)
def test_targets(host: Host, arch: Architecture, item: str) -> None:
    storage = arch.storage[item]
    if storage.fstype == "lustre":
        known = {i.target for i in imports(host, storage) if i.kind == "osc"}
        active = {i.target for i in imports(host, storage) if i.kind == "osc" and i.state in WORKING["osc"]}
    else:
        targets = parse_beegfs_targets(client_output(host, "beegfs-ctl", storage, BEEGFS_TARGETS))
        known = {str(t.id) for t in targets}
        active = {str(t.id) for t in targets if t.reachability == "Online"}
    expect(len(active), storage.targets, f"targets in use (of {len(known)} known)")
