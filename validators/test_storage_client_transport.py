"""Transports in use, and connections of parallel file system clients to their servers."""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Storage
from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.mounted import port_faults, transport_faults
from rackproof.parse.parallel_fs import (
    Import,
    parse_beegfs_nodes,
    parse_beegfs_targets,
    parse_daos_providers,
    parse_gpfs_verbs,
    parse_lustre_imports,
    parse_mmgetstate,
    parse_weka_interface,
    parse_weka_networks,
)
from rackproof.validation import Unmeasured, announce, check, expect, expect_all, read
from rackproof.validation.mounts import MOUNTINFO, mounts_of, nfs_of

LNET = {"o2ib": "rdma", "kfi": "rdma", "tcp": "tcp"}
WORKING = {"osc": ("FULL", "IDLE"), "mdc": ("FULL",)}
"""Good states of Lustre imports; unused connections to data targets become IDLE."""

BEEGFS_NODES = f"cat /proc/fs/beegfs/*/meta_nodes /proc/fs/beegfs/*/storage_nodes 2>&1{STATUS}"
BEEGFS_TARGETS = f"timeout -k 2 15 beegfs-ctl --listtargets --state --nodetype=storage 2>&1{STATUS}"
GPFS_STATE = f"timeout -k 2 15 /usr/lpp/mmfs/bin/mmgetstate -Y 2>&1{STATUS}"
GPFS_VERBS = f"timeout -k 2 15 /usr/lpp/mmfs/bin/mmfsadm test verbs status 2>&1{STATUS}"
WEKA = f"cat /proc/wekafs/interface 2>&1{STATUS}"
WEKA_NETWORKS = (
    'timeout -k 2 15 weka cluster processes --filter "hostname=$(uname -n),role=FRONTEND" --output network'
    f" --no-header 2>&1{STATUS}"
)
DAOS_PROVIDERS = f"timeout -k 2 15 daos_agent dump-attachinfo 2>&1{STATUS}"
DAOS_RDMA = ("verbs", "dc_x", "dc_mlx5", "rc_x", "rc_mlx5", "ud_x", "cxi")


def client_output(host: Host, tool: str, storage: Storage, command: str) -> str:
    """Output of a client's tool. Raises Unmeasured if the storage is not mounted or the tool fails."""
    announce(host, MOUNTINFO, command)
    mounts_of(host, storage)
    answer = parse_answer(tool, read(host, command))
    if answer.status != 0:
        raise Unmeasured(f"{tool}: {answer.failure}")
    return answer.body


def imports(host: Host, storage: Storage) -> tuple[Import, ...]:
    """Imports of this file system; a client may have several."""
    name = shlex.quote(storage.source)
    patterns = " ".join(f"{kind}.{name}-'*'.import" for kind in ("osc", "mdc"))
    return parse_lustre_imports(
        client_output(host, "lctl", storage, f"timeout -k 2 15 lctl get_param {patterns} 2>&1{STATUS}")
    )


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
        expect_all([*transport_faults(storage, mounts), *port_faults(storage, mounts_of(host, storage))])
    elif (used := _transports(host, storage)) != {storage.transport}:
        raise AssertionError(f"transport in use: expected {storage.transport}, actual {', '.join(sorted(used))}")


def _transports(host: Host, storage: Storage) -> set[str]:
    if storage.fstype == "lustre":
        used = {LNET.get(i.network, i.network) for i in imports(host, storage) if i.network}
    elif storage.fstype == "beegfs":
        nodes = parse_beegfs_nodes(client_output(host, "beegfs", storage, BEEGFS_NODES))
        used = {name.lower() for node in nodes for name, count in node.connections.items() if count}
    elif storage.fstype == "gpfs":
        used = {"rdma" if parse_gpfs_verbs(client_output(host, "mmfsadm", storage, GPFS_VERBS)) else "tcp"}
    elif storage.fstype == "wekafs":
        networks = parse_weka_networks(client_output(host, "weka", storage, WEKA_NETWORKS))
        used = {"rdma" if name.endswith("RDMA") else name.lower() for name in networks}
    elif storage.fstype == "fuse.daos":
        providers = parse_daos_providers(client_output(host, "daos_agent", storage, DAOS_PROVIDERS))
        used = {"rdma" if any(word in name for word in DAOS_RDMA) else "tcp" for name in providers}
    else:
        raise Unmeasured(f"the transport of {storage.fstype} cannot be determined")
    if not used:
        raise Unmeasured(f"{storage.mountpoint} has no active connection to a server")
    return used


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
