"""Bytes that a client's ports have not carried did not come over NFS; late or missing counters prove nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.core.architecture import FilesProfile
from rackproof.core.evidence import Measurement
from tests.unit.benchmarked import Bench, of_storage
from tests.unit.fakes import lab_rack
from tests.unit.file_nodes import FileNodes
from tests.unit.storage_nodes import JOB, StorageNodes

LONG = JOB.model_copy(update={"runtime_s": 60})
NOT_ALL = "by the mount"
ALL = "by the mount and the node's ports"
MEMORY = "came from the client's memory: the node's ports counted"
Edit = Callable[[str], str]


def measure(folder: Path, name: str = "nfs-tcp", job: Any = LONG, **nodes: Any) -> list[Measurement]:
    bench = of_storage(jobs={job.rw: job}, storages=(name,))
    measured = bench.measure(folder, StorageNodes(bench.architecture, name=name, **nodes).answer)
    assert bench.faults(folder) == {}
    return measured


@pytest.mark.parametrize("name", ["nfs-tcp", "nfs-rdma"])
@pytest.mark.parametrize(("share", "invalid"), [(0.5, True), (0.92, True), (0.93, False), (1.0, False), (5.0, False)])
def test_fewer_bytes_than_fio_read_are_invalid(tmp_path: Path, name: str, share: float, invalid: bool) -> None:
    for kind in ("kernel", "rdma"):
        ports = {"kernel": share} if kind == "kernel" else {"kernel": 9.0, "rdma": share}
        of_rdma = kind == "rdma" and name == "nfs-rdma"
        for measurement in measure(tmp_path / kind, name, ports=ports):
            expected = invalid and (kind == "kernel" or of_rdma)
            assert measurement.invalid == (not measurement.samples) == expected, measurement.reason
            assert (MEMORY in (measurement.reason or "")) == expected
            assert expected or measurement.conditions["bytes"] == ALL


def other_device(text: str) -> str:
    path = "/sys/class/infiniband/bnxt_re0/device/infiniband/bnxt_re0/ports/1/link_layer"
    return f"{text}{path}:Ethernet\n"


def changed(edit: Edit, answers: list[str]) -> Edit:
    """Edits the answers after the run: those of two clients, who answer before they write their files, too."""

    def ports(text: str) -> str:
        answers.append(text)
        return edit(text) if len(answers) > 4 else text

    return ports


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: "",
        lambda text: "".join(line for line in text.splitlines(keepends=True) if "/lo/" in line),
        lambda text: f"/sys/class/net/bonding_masters:bond0\n{text}",
        lambda text: re.sub(r"port_rcv_data:\d+", "port_rcv_data:N/A (no PMA)", text),
        lambda text: re.sub(r"/sys.*port_(rcv|xmit)_data:\d+\n", "", text),
        other_device,
        changed(lambda text: text.replace(":4711", ":5"), []),
        changed(lambda text: text.replace("eth0", "eth9"), []),
    ],
    ids=["silent", "container", "bond", "unknown", "uncounted", "another", "reset", "renamed"],
)
def test_counters_that_a_port_lacks_are_no_fault(tmp_path: Path, edit: Edit) -> None:
    """None of them has counted half of the bytes."""
    for measurement in measure(tmp_path, "nfs-rdma", ports={"kernel": 0.0, "rdma": 0.4}, nfs_ports=edit):
        assert measurement.samples, measurement.reason
        assert measurement.conditions.get("bytes") == NOT_ALL


def test_rdma_that_the_architecture_leaves_open_passes_devices_that_were_not_asked(tmp_path: Path) -> None:
    bench = of_storage(jobs={"read": LONG})
    storage = bench.architecture.storage["nfs-tcp"].model_copy(update={"transport": None, "options_required": ("rw",)})
    architecture = bench.architecture.model_copy(update={"storage": {"nfs-tcp": storage}})
    for protocol, text in (("rdma", NOT_ALL), ("tcp", None)):
        nodes = StorageNodes(
            architecture, ports={"kernel": 0.0}, mountstats=rewritten("xprt:\ttcp", f"xprt:\t{protocol}")
        )
        for measurement in Bench(architecture, bench.rack).measure(tmp_path / protocol, nodes.answer):
            assert measurement.invalid == (not measurement.samples) == (protocol == "tcp"), measurement.reason
            assert measurement.conditions.get("bytes") == text


def rewritten(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def test_a_run_that_is_too_short_for_late_counters_is_not_judged_by_them(tmp_path: Path) -> None:
    short = JOB.model_copy(update={"runtime_s": 3})
    for measurement in measure(tmp_path, job=short, ports={"kernel": 0.0}):
        assert measurement.samples
        assert measurement.conditions["bytes"] == ALL


def test_writes_are_not_judged_by_them(tmp_path: Path) -> None:
    """A write that a client holds back ends in a burst."""
    for measurement in measure(tmp_path, job=LONG.model_copy(update={"rw": "write"}), ports={"kernel": 0.5}):
        assert measurement.samples
        assert measurement.conditions["bytes"] == NOT_ALL


@pytest.mark.parametrize(("share", "invalid"), [(0.8, True), (1.0, False)])
def test_bytes_of_a_ramp_are_not_among_them(tmp_path: Path, share: float, invalid: bool) -> None:
    ramp = {"job": LONG.model_copy(update={"ramp_s": 10}), "ramp_s": 10, "ramp_bytes": 10 * 60_000_000}
    for measurement in measure(tmp_path, ports={"kernel": share}, **ramp):
        assert measurement.invalid == (not measurement.samples) == invalid, measurement.reason


@pytest.mark.parametrize(("share", "invalid"), [(0.5, True), (0.7, False), (1.0, False)])
def test_small_files_have_passed_the_ports(tmp_path: Path, share: float, invalid: bool) -> None:
    """For ten seconds, of which ports tell seven."""
    sizes = FilesProfile(file_bytes=4096, files=2000, processes=2)
    architecture = of_storage(small_files=sizes, metadata=sizes).architecture
    bench = Bench(architecture, lab_rack(2))
    of_tree: dict[str, Measurement] = {}
    for measurement in bench.measure(tmp_path, FileNodes(architecture, ports={"kernel": share}).answer):
        of_tree[measurement.labels.get("op", measurement.metric)] = measurement
    for name in ("storage.small_file_read_bandwidth", "read"):
        assert of_tree[name].invalid == (not of_tree[name].samples) == invalid, of_tree[name].reason
    assert all(of_tree[op].samples for op in ("create", "stat", "remove"))
    assert of_tree["storage.shard_read_bandwidth"].samples  # of 0.14 s
    assert bench.faults(tmp_path) == {}
