"""Several mounts against one: each of another address with a connection of its own, or there is no ratio."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage.fio_launch import is_launch
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import MountsProfile
from rackproof.core.evidence import Kind
from rackproof.core.rack import Rack
from rackproof.evidence.store import read_records
from tests.unit.benchmarked import of_storage
from tests.unit.fakes import lab_rack
from tests.unit.false_certificates.test_connections import NODES, ConnectionNodes, faults, measure, shared

SIZES = MountsProfile(block_bytes=1048576, iodepth=8, numjobs=2, file_bytes=33554432, runtime_s=5, runs=2, count=2)
SECOND = "10.77.0.12"


def rack_with(*second: str) -> Rack:
    rack = lab_rack(2)
    rack.node("storage-01").data["fabric_second_addresses"] = [f"{address}/24" for address in second]
    return rack


RACK = rack_with(SECOND)


ARCHITECTURE = of_storage(mounts=SIZES).architecture


class MountNodes(ConnectionNodes):
    """Each of the step's mounts has a superblock of its own, and moves its part of the bytes."""

    def _state(self, node: str, command: str, when: str, addresses: tuple[str, ...]) -> str:
        text, own = super()._state(node, command, when, addresses), self.own
        if own is None or OWN_MOUNT not in command or len(own.mountpoints) == 1:
            return text
        for number, (point, address) in enumerate(zip(own.mountpoints, self.asked, strict=True)):
            place = rf"0:47 (/\w*) {point} rw - {own.fstype} 10.77.0.11:"
            text = re.sub(place, rf"0:6{number} \1 {point} rw - {own.fstype} {address}:", text)
        read, written = self.moved.get((node, own.mountpoints[0]), [0, 0])
        parts = f"{read // len(own.mountpoints)} {written // len(own.mountpoints)}"
        return text.replace(f"bytes:\t0 0 {read} {written} {read} {written}", f"bytes:\t0 0 {parts} {parts}")


def test_the_ratio_is_of_mounts_of_different_addresses(tmp_path: Path) -> None:
    nodes = MountNodes(ARCHITECTURE)
    measured = measure(tmp_path, nodes, rack=RACK)
    assert {node: m.reason or m.samples for node, m in measured.items()} == dict.fromkeys(
        NODES, pytest.approx((2.0, 2.0), rel=0.02)
    )
    first = measured["gpu-01"]
    assert (first.conditions["mounts"], first.conditions["connections"]) == (2, 1)
    parts = first.conditions["mounts_read_bytes"]
    assert parts.keys() == {f"{OWN_MOUNT}1", f"{OWN_MOUNT}2"}
    assert all(len(read) == 2 and min(read) > 100e6 for read in parts.values())
    assert (
        f"10.77.0.11:/srv/nfs on {OWN_MOUNT}1, nfs, tcp, 1 connections; {SECOND}:/srv/nfs on {OWN_MOUNT}2, nfs"
        in (first.conditions["mount"])
    )
    sources = [re.findall(r"[\d.]+:/srv/nfs", pipe) for pipe in nodes.pipes]
    assert sources == [["10.77.0.11:/srv/nfs"], ["10.77.0.11:/srv/nfs", f"{SECOND}:/srv/nfs"]] * 4
    assert all("vers=3,proto=tcp,nconnect=1," in pipe and "nosharecache" in pipe for pipe in nodes.pipes)
    assert faults(tmp_path, ARCHITECTURE, rack=RACK) == set()
    deeper = of_storage(mounts=SIZES.model_copy(update={"iodepth": 16})).architecture
    assert faults(tmp_path, deeper, rack=RACK) == {"iodepth: the profile asks for 16, the run had 8"}


def test_the_declared_mount_is_read_only_by_its_state(tmp_path: Path) -> None:
    measure(tmp_path, MountNodes(ARCHITECTURE), rack=RACK)
    asked = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    assert not [command for command in asked if "/mnt/nfs-tcp" in command]
    folders = [match[1] for command in asked if is_launch(command) and (match := re.search("directory=(.*)", command))]
    assert {folder.count(":") for folder in folders} == {0, 1}
    assert all(part.startswith(OWN_MOUNT) for folder in folders for part in folder.split(":"))


def several(edit: Callable[[str], str]) -> Callable[[str], str]:
    """An edit of the statistics of several mounts; those of one stay."""
    return lambda text: edit(text) if f"{OWN_MOUNT}2" in text else text


def one_connection(text: str) -> str:
    """Linux has given both mounts the same connection."""
    lines = [line for line in text.splitlines() if "xprt:" in line]
    return text.replace(lines[1], lines[0])


def idle(text: str) -> str:
    """The second mount carries nothing."""
    last = [line for line in text.splitlines() if "xprt:" in line][1]
    return text.replace(last, "\txprt:\ttcp 0 0 1 0 0 31 31 0 31 0 2 3 4")


def more_connections(text: str) -> str:
    """A mount gets the connections of another mount, which has several."""
    last = [line for line in text.splitlines() if "xprt:" in line][1]
    return text.replace(last, f"{last}\n\txprt:\ttcp 0 0 1 0 0 77 77 0 77 0 2 3 4")


def busy(text: str) -> str:
    """A mount with the same connection sends requests in the run."""
    sends = re.findall(r"xprt:\t\w+ 0 0 1 0 0 (\d+)", text)[0]
    return text + text.replace(OWN_MOUNT, "/mnt/other").replace("NULL: 1 1", f"READ: {sends} {sends}")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"stats": several(one_connection)}, f"{OWN_MOUNT}2 has a connection of another mount of the step"),
        ({"stats": several(idle)}, "its connections carried"),
        ({"stats": several(more_connections)}, "connections in use: expected 1, actual 2"),
        ({"stats": busy}, "used its connections during the run, too"),
        ({"protocol": "rdma"}, "transport in use: expected tcp, actual rdma"),
        ({"mountinfo": lambda text: text.replace(f" / {OWN_MOUNT}2 ", f" /x {OWN_MOUNT}2 ")}, "a bind mount of /x"),
        ({"mountinfo": lambda text: text.replace(" / /mnt/nfs-tcp ", " /x /mnt/nfs-tcp ")}, "a bind mount of /x"),
    ],
    ids=["merged", "idle", "count", "busy", "transport", "bind", "declared"],
)  # fmt: skip
def test_a_run_without_proof_is_no_ratio(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    measurement = measure(tmp_path, MountNodes(ARCHITECTURE, **fault), rack=RACK)["gpu-01"]
    assert not measurement.samples
    assert why in (measurement.reason or "")


def test_an_idle_mount_may_have_the_same_connection(tmp_path: Path) -> None:
    """As the declared mounts in NFS 3 of the same addresses."""
    measurement = measure(tmp_path, MountNodes(ARCHITECTURE, stats=shared), rack=RACK)["gpu-01"]
    assert measurement.samples, measurement.reason


def test_a_server_with_too_few_addresses_is_the_reason(tmp_path: Path) -> None:
    nodes = MountNodes(ARCHITECTURE)
    measurement = measure(tmp_path, nodes, rack=rack_with())["gpu-01"]
    assert "has 1 address of its server, the profile asks for 2 mounts" in (measurement.reason or "")
    assert nodes.pipes == []


def test_half_a_pair_is_disproven(tmp_path: Path) -> None:
    measure(tmp_path, MountNodes(ARCHITECTURE), rack=RACK)
    (why,) = faults(tmp_path, leave_out="-mounts-2]", rack=RACK)
    assert "actual nfs-tcp-mounts-1, nfs-tcp-mounts-1" in why


def test_only_nfs_is_mounted_several_times() -> None:
    every = of_storage(storages=("local", "nfs-tcp", "nfs-rdma", "cephfs"), mounts=SIZES).architecture
    steps = plan_steps(every, "depth", RACK)
    assert [step.id for step in steps] == ["storage/nfs-tcp/mounts", "storage/nfs-rdma/mounts"]
    assert {space.storage: space.bytes_each for space in spaces(every, "depth", RACK)} == dict.fromkeys(
        ("nfs-tcp", "nfs-rdma"), 2 * 33554432
    )
    written, one, more, several = (command for command in steps[0].commands if command.startswith("fio "))
    assert all(" --name=nfs-tcp-layout " in command for command in (written, more))
    mounts = [command for command in steps[0].commands if command.startswith("mount ")]
    assert [command.rpartition(" ")[2] for command in mounts] == [OWN_MOUNT, f"{OWN_MOUNT}1", f"{OWN_MOUNT}2"]
    assert all("vers=3," in command for command in mounts)
    assert f"--directory={OWN_MOUNT}/rackproof-bench/gpu-01-connections-nfs-tcp " in one
    folders = [f"{OWN_MOUNT}{number}/rackproof-bench/gpu-01-connections-nfs-tcp" for number in (1, 2)]
    assert f"--directory={':'.join(folders)} " in several
    with pytest.raises(ValueError, match="numjobs must be a multiple of count"):
        MountsProfile.model_validate(SIZES.model_dump() | {"numjobs": 3})
