from __future__ import annotations

import pytest

from rackproof.configure.ceph.cluster import (
    CephPlan,
    CephState,
    bootstrap_command,
    check_drive,
    cluster_fsid,
    is_set_up,
    own_fsid,
    parse_state,
)
from rackproof.configure.drives import DriveState
from rackproof.errors import Refused
from tests.unit.configure.rack import site

BLANK = DriveState(("/dev/nvme1n1",), "/dev/disk/by-id/nvme-x_rpceph", "disk", zero=True)
BLUESTORE = DriveState(("/dev/nvme1n1",), "/dev/disk/by-id/nvme-x_rpceph", "disk", "ceph_bluestore")


def plan() -> CephPlan:
    return site("storage-01").ceph_plan()


def test_identifiers_are_stable_and_belong_to_one_server() -> None:
    cluster = plan().cluster
    assert plan().fsid == cluster_fsid(cluster, "storage-01", "10.77.0.11")
    assert plan().fsid != cluster_fsid(cluster, "storage-02", "10.77.0.11")
    client = site("gpu-01")
    of_storage = {
        name: own_fsid(client.architecture, client.rack, one) for name, one in client.client_storage().items()
    }
    assert {name: fsid for name, fsid in of_storage.items() if fsid} == {"cephfs": plan().fsid}


def test_clients_know_the_cluster_without_asking_it() -> None:
    (mount,) = [candidate for candidate in site("gpu-01").client_mounts() if candidate.fstype == "ceph"]
    assert plan().fsid in mount.what


def test_a_blank_drive_is_bootstrapped_and_a_finished_cluster_is_not() -> None:
    check_drive(plan(), CephState(None, None), BLANK)
    assert is_set_up(plan(), CephState(None, None)) is False
    assert is_set_up(plan(), CephState(plan().fingerprint, plan().osd_uuid)) is True


def test_the_osd_knows_its_drive_by_a_name_that_survives_a_reboot() -> None:
    assert bootstrap_command(plan().drive, BLANK).endswith(" /dev/disk/by-id/nvme-x_rpceph")


def test_an_interrupted_bootstrap_is_completed() -> None:
    interrupted = CephState(None, plan().osd_uuid)
    assert is_set_up(plan(), interrupted) is False
    check_drive(plan(), interrupted, BLUESTORE)


@pytest.mark.parametrize("osd", [None, "1b671a64-40d5-491e-99b0-da01ff1f3341"])
def test_the_drive_of_another_cluster_is_not_touched(osd: str | None) -> None:
    with pytest.raises(Refused, match="actual ceph_bluestore"):
        check_drive(plan(), CephState(None, osd), BLUESTORE)


def test_a_cluster_with_other_parameters_is_not_touched() -> None:
    with pytest.raises(Refused, match="size=3"):
        is_set_up(plan(), CephState(plan().fingerprint.replace("size=1", "size=3"), None))


def test_the_answer_is_read() -> None:
    assert parse_state(["done=fsid fs size=1", "osd=uuid"]) == CephState("fsid fs size=1", "uuid")
    assert parse_state([]) == CephState(None, None)
    with pytest.raises(ValueError, match="Ceph: unexpected line"):
        parse_state(["sed: broken"])
