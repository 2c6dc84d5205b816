"""One Ceph cluster on one node: names, identifiers, and whether it is set up."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from rackproof.configure.drives import DriveState, describe, is_blank, usable_device
from rackproof.configure.files import PENDING
from rackproof.core.architecture import Architecture, Ceph, Storage
from rackproof.core.rack import Rack
from rackproof.errors import Refused
from rackproof.parse.sections import keyed_lines

_NAMESPACE = UUID("3a2bd0a6-9d0b-5c62-8f0a-6a2f3d1c7e55")

BOOTSTRAP = "/usr/local/sbin/rackproof-ceph-bootstrap"
DONE = "/var/lib/ceph/rackproof-bootstrap"
OSD_DIRECTORY = "/var/lib/ceph/osd/ceph-0"
NO_MODULES = "/usr/local/lib/rackproof/ceph-mgr-modules"
"""An empty folder: the manager loads no modules."""
CLIENT_KEYRING = "/etc/ceph/ceph.client.rackproof.keyring"


@dataclass(frozen=True, slots=True)
class CephPlan:
    """Parts of one cluster. All identifiers follow from the server, so clients need not ask for them."""

    node: str
    address: str
    """Address of the monitor on rail 0, without prefix length."""
    network: str
    drive: str
    cluster: Ceph
    fsid: str

    @property
    def osd_uuid(self) -> str:
        return str(uuid5(_NAMESPACE, f"{self.fsid}/osd.0"))

    @property
    def fingerprint(self) -> str:
        """Content of the file that a completed bootstrap writes; other parameters mean another cluster."""
        return f"{self.fsid} {self.cluster.filesystem} size={self.cluster.pool_size}"

    @property
    def services(self) -> tuple[str, ...]:
        """Units, in the order in which they are started."""
        return (f"ceph-mon@{self.node}", f"ceph-mgr@{self.node}", "ceph-osd@0", f"ceph-mds@{self.node}")


def cluster_fsid(cluster: Ceph, server: str, address: str) -> str:
    """An identifier: the same on every run and in every process, different for every server."""
    return str(uuid5(_NAMESPACE, f"{cluster.filesystem}@{server}/{address}"))


def own_fsid(architecture: Architecture, rack: Rack, storage: Storage) -> str | None:
    """FSID of the cluster that the kit sets up for a storage; None without one."""
    server = next(iter(storage.server_nodes(rack)), None)
    address = server.fabric_address() if server else None
    if storage.fstype != "ceph" or architecture.ceph is None or server is None or address is None:
        return None
    return cluster_fsid(architecture.ceph, server.name, address)


@dataclass(frozen=True, slots=True)
class CephState:
    fingerprint: str | None
    """Content of the file that a completed bootstrap leaves; None when there is none."""
    osd_uuid: str | None
    """UUID of the OSD whose data directory is on this node."""


def state_command() -> str:
    return (
        f"[ ! -f {DONE} ] || sed 's/^/done=/' -- {DONE}; "
        f"[ ! -f {OSD_DIRECTORY}/fsid ] || sed 's/^/osd=/' -- {OSD_DIRECTORY}/fsid; "
    )


def parse_state(lines: Sequence[str]) -> CephState:
    """Raises ValueError on a line that is not an answer of ``state_command``."""
    values = keyed_lines("Ceph", (line.strip() for line in lines), ("done", "osd"), "=")
    return CephState(values.get("done", [None])[-1], values.get("osd", [None])[-1])


def is_set_up(plan: CephPlan, state: CephState) -> bool:
    """Whether the bootstrap of this cluster is complete.

    Raises Refused when the node has another one.
    """
    if state.fingerprint not in (plan.fingerprint, None):
        raise Refused(
            f"{plan.node}: expected the Ceph cluster {plan.fingerprint!r}, actual {state.fingerprint!r};"
            f" remove the old one by hand, then {DONE}"
        )
    return state.fingerprint is not None


def check_drive(plan: CephPlan, state: CephState, drive: DriveState) -> None:
    """Raises Refused unless the drive is blank or already the OSD of this cluster."""
    device = usable_device(plan.drive, drive)
    ours = drive.type == "ceph_bluestore" and state.osd_uuid == plan.osd_uuid
    if not ours and not is_blank(drive):
        raise Refused(
            f"{device}: expected a blank drive, actual {describe(drive)}; nothing was done."
            f" If nothing on it is needed: blkdiscard {device}"
        )


def bootstrap_command(pattern: str, drive: DriveState) -> str:
    """The daemons start here for the first time, so restart marks of their new configuration are cleared.

    The drive is given by its persistent name, by which the OSD finds it after every reboot.
    """
    return (
        f"rm -f -- {PENDING}/restart:ceph-* && {BOOTSTRAP} {shlex.quote(drive.name or usable_device(pattern, drive))}"
    )
