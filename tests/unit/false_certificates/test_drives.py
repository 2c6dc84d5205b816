"""Single drives and OSDs: a slow one fails by its name, and no number stands for a drive that was not read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench.drives.osd_reader import WRITE, bench_command
from rackproof.bench.drives.reader import READ
from rackproof.bench.gaps import plan_gaps
from rackproof.core.evidence import CheckOutcome, Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.programs import judge_program
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_records
from rackproof.parse.measuring_programs import parse_programs_found
from tests.unit.benchmarked import Bench, commands
from tests.unit.drive_nodes import READS, WRITES, DriveNodes, bench
from tests.unit.judging import info_of_nodes

pytestmark = pytest.mark.few(8)

SCRATCH = tuple(f"gpu-0{node}/scratch-{number}" for node in (1, 2, 3) for number in (0, 1))
EVERY = {*SCRATCH, *(f"gpu-0{node}/local-0" for node in (1, 2, 3)), "storage-01/nfs-0", "storage-01/ceph-0"}


def measure(folder: Path, nodes: DriveNodes, made: Bench | None = None) -> dict[tuple[str, str, str], Measurement]:
    taken = (made or bench()).measure(folder, nodes.answer)
    return {(m.metric, m.labels["use"], m.subject): m for m in taken}


def verdicts(taken: Mapping[Any, Measurement]) -> dict[tuple[str, str], Verdict]:
    made = bench()
    info = info_of_nodes(node_infos(made.rack), profile="depth")
    return {
        (v.id, v.subject): v
        for v in judge(made.architecture, info, taken.values(), ()).verdicts
        if v.kind == "criterion"
    }


def read_of(taken: Mapping[tuple[str, str, str], Measurement], name: str) -> Measurement:
    return taken[READ, name.partition("/")[2].rpartition("-")[0], name]


def test_healthy_drives_pass_each_by_its_name(tmp_path: Path) -> None:
    nodes = DriveNodes()
    taken = measure(tmp_path, nodes)
    reads = {m.subject: m for m in taken.values() if m.metric == READ and m.scope is Scope.DRIVE}
    assert set(reads) == EVERY
    first = reads["gpu-02/scratch-1"]
    assert first.samples == pytest.approx((902.0, 902.0), rel=1e-3), first.reason
    assert first.conditions["drive"] == "QEMU NVMe Ctrl, serial number gpu-02-rpscratch1, PCI address 0000:00:1a.0"
    assert first.companions["counter_bytes"] == first.companions["application_bytes"]
    slowest = taken[READ, "scratch", "gpu-02"]
    assert slowest.samples == reads["gpu-02/scratch-0"].samples
    assert slowest.conditions["drive"].startswith("gpu-02/scratch-0: QEMU NVMe Ctrl, serial number gpu-02-rpscratch0")
    osd = taken[WRITE, "ceph", "storage-01/ceph-0"]
    assert osd.samples == pytest.approx((40.0, 40.0), rel=1e-2), osd.reason
    assert osd.conditions["osds"] == ["osd.0"]
    given = verdicts(taken)
    assert {verdict.status for verdict in given.values()} == {Status.PASS}, given
    assert {subject for id_, subject in given if id_ == "drives.outliers"} == set(SCRATCH)
    assert "serial number gpu-02-rpscratch1" in given["depth.drives-scratch", "gpu-02/scratch-1"].message
    assert bench().faults(tmp_path) == {}


def test_a_slow_drive_and_its_node_fail_by_name_and_no_other(tmp_path: Path) -> None:
    nodes = DriveNodes()
    nodes.drive("gpu-02", "rpscratch1").rate = 100e6
    failed = {key: v for key, v in verdicts(measure(tmp_path, nodes)).items() if v.status is not Status.PASS}
    assert {key: v.status for key, v in failed.items()} == {
        ("depth.drives-scratch", "gpu-02/scratch-1"): Status.FAIL,
        ("drives.outliers", "gpu-02/scratch-1"): Status.FAIL,
        ("depth.node-drives", "rack"): Status.FAIL,
    }
    for key in (("depth.drives-scratch", "gpu-02/scratch-1"), ("drives.outliers", "gpu-02/scratch-1")):
        assert "serial number gpu-02-rpscratch1, PCI address 0000:00:1a.0" in failed[key].message
    assert "gpu-02" in failed["depth.node-drives", "rack"].message


def test_nothing_is_written(tmp_path: Path) -> None:
    """fio opens devices read-only and creates no file; the only program that writes is an OSD, into its own store."""
    nodes = DriveNodes()
    measure(tmp_path, nodes)
    lines = [line for line in nodes.asked if line.startswith("fio ")]
    assert len(lines) == len(EVERY) * READS.runs
    for line in lines:
        assert "--readonly" in line.split()
        assert "--allow_file_create=0" in line.split()
        assert re.findall(r"--(?:rw|readwrite)=(\S+)", line) == ["read"]
        assert re.fullmatch(r"/dev/nvme\d+n1", re.findall(r"--filename=(\S+)", line)[0])
    for command in commands(tmp_path):
        rest = command.replace("2>/dev/null", "").replace("2>&1", "")
        if "end of devices" in command or "fio --readonly" in command:
            assert not re.search(r">\s*/|\b(?:dd|mkfs\S*|wipefs|blkdiscard|nvme format|tee)\b", rest), command
    assert {line for line in nodes.asked if not line.startswith("fio ")} == {
        "$(command -v ceph >/dev/null || echo cephadm shell --) ceph"
        f" --connect-timeout 240 tell osd.0 bench {WRITES.bytes} {WRITES.block_bytes} -f json"
    }


NO_NUMBER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # fields of all nodes, fields of the drive, reason
    "fio absent": ({"fio_status": 127}, {}, "fio"),
    "fio fails": ({"fio_status": 1}, {}, "exit status 1"),
    "an error after the document": ({"fio_after": "fio: io_u error on file /dev/nvme2n1: Input/output error\n"}, {},
                                    "Input/output error"),
    "a hang": ({"hangs": "gpu-02-rpscratch1"}, {}, "not finished within 65 s"),
    "from memory": ({}, {"seen": 0.5}, "the drive counted"),
    "another drive": ({}, {"other": "X1"}, "expected serial number gpu-02-rpscratch1, actual X1"),
    "gone": ({}, {"gone": True}, "nvme2n1 is gone (serial number gpu-02-rpscratch1)"),
    "busy": ({}, {"foreign": 1 << 30}, "(gpu-02-rpscratch1) is busy: others moved"),
    "dead": ({}, {"state": "dead"}, "expected state live, actual dead"),
    "no serial number": ({}, {"serial": ""}, "no serial number"),
    "serial number of another": ({}, {"serial": "gpu-02-rplocal"}, "no serial number of its own"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_NUMBER)
def test_a_drive_without_proof_has_no_number(tmp_path: Path, case: str) -> None:
    fields, of_drive, why = NO_NUMBER[case]
    nodes = DriveNodes(**fields)
    drives = nodes.of("gpu-02")
    drives[2] = replace(drives[2], **of_drive)
    taken = measure(tmp_path, nodes)
    measurement = read_of(taken, "gpu-02/scratch-1")
    if case.startswith(("no serial", "serial")):  # ordered before its peer
        measurement = next(m for n in (0, 1) if not (m := read_of(taken, f"gpu-02/scratch-{n}")).samples)
    assert not measurement.samples
    assert why in (measurement.reason or "")
    if not fields or "hangs" in fields:
        assert read_of(taken, "gpu-01/scratch-1").samples
    assert not taken[READ, "scratch", "gpu-02"].samples
    unmeasured = {subject for (id_, subject), v in verdicts(taken).items() if v.status is Status.UNMEASURED}
    assert measurement.subject in unmeasured


def test_a_damaged_document_is_no_number(tmp_path: Path) -> None:
    edits: dict[str, Any] = {
        "an error of the job": lambda job: job.update(error=5),
        "another block size": lambda job: job["job options"].update(bs="4096"),
        "another file": lambda job: job["job options"].update(filename="/dev/nvme9n1"),
        "through the cache": lambda job: job["job options"].update(direct="0"),
        "too short": lambda job: job["read"].update(runtime=1000),
        "a false rate": lambda job: job["read"].update(bw_bytes=5e9),
        "writes too": lambda job: job["write"].update(io_bytes=4096, total_ios=1),
    }
    for number, (name, edit) in enumerate(edits.items()):
        nodes = DriveNodes(edit=lambda serial, document, edit=edit: edit(document["jobs"][0]))  # type: ignore[misc]
        taken = measure(tmp_path / str(number), nodes, bench(1, osds=None))
        assert not any(m.samples for m in taken.values()), name


def test_a_missing_drive_is_unmeasured_by_name(tmp_path: Path) -> None:
    nodes = DriveNodes()
    del nodes.of("gpu-03")[1]
    taken = measure(tmp_path, nodes)
    assert read_of(taken, "gpu-03/scratch-0").samples
    why = "gpu-03/scratch-1 is missing: expected 2, actual 1: gpu-03-rpscratch1"
    assert why in (read_of(taken, "gpu-03/scratch-1").reason or "")
    given = verdicts(taken)
    assert given["drives.outliers", "gpu-03/scratch-1"].status is Status.UNMEASURED
    assert given["depth.drives-scratch", "gpu-01/scratch-0"].status is Status.UNMEASURED, "the median may be another"


def test_more_drives_than_declared_are_unmeasured(tmp_path: Path) -> None:
    nodes = DriveNodes()
    nodes.of("gpu-03").append(replace(nodes.drive("gpu-03", "rpscratch1"), serial="gpu-03-spare", slot="0000:00:1b.0"))
    taken = measure(tmp_path, nodes)
    assert "expected 2 scratch drives, actual 3" in (read_of(taken, "gpu-03/scratch-0").reason or "")
    assert read_of(taken, "gpu-03/local-0").samples


def test_a_dead_node_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    nodes = DriveNodes()
    taken = bench().measure(tmp_path, nodes.answer, dead=["gpu-01"])
    reasons = {m.subject: m.reason for m in taken if not m.samples}
    assert {subject.partition("/")[0] for subject in reasons} == {"gpu-01"}
    assert set(reasons.values()) == {"gpu-01 does not answer"}


UNKNOWN = dict.fromkeys(("hostname", "devices", "bluestore_bdev_devices"))
OSDS: dict[str, tuple[dict[str, Any], str]] = {
    "no answer": ({"bench_status": 1}, "osd.0 on storage-01/ceph-0 (storage-01-rpceph)"),
    "damaged": ({"bench_after": "{"}, "osd bench also printed"),
    "an error after the document": ({"bench_after": "Error EINVAL: no\n"}, "osd bench also printed: 'Error EINVAL"),
    "a false rate": ({"bench": lambda osd, d: d.update(bytes_per_sec=1e9)}, "contradicts 67108864 B"),
    "fewer bytes": ({"bench": lambda osd, d: d.update(bytes_written=4096, bytes_per_sec=4096 / d["elapsed_sec"])},
                    "expected 67108864 B in blocks of 4194304 B, actual 4096 B"),
    "no rate": ({"bench": lambda osd, d: d.pop("elapsed_sec")}, "elapsed_sec is missing"),
    "into memory": ({"osd_seen": 0.1}, "the drive counted"),
    "busy": ({"osd_seen": 5.0}, "the drive is busy"),
    "down": ({"up": {0: 0}}, "osd.0 on storage-01/ceph-0 (storage-01-rpceph) is down"),
    "none": ({"osds": {}}, "osd dump lists no OSD"),
    "one more elsewhere": ({"osds": {0: {}, 1: {"hostname": "storage-09"}}},
                           "osd.1 is on nvme1n1 of storage-09, which is no listed ceph drive"),
    "one more without metadata": ({"osds": {0: {}, 1: UNKNOWN}},
                                   "osd.1 is on an unknown device of an unknown host"),
    "on another drive": ({"osds": {0: {"bluestore_bdev_devices": "nvme0n1"}}}, "osd.0 is on nvme0n1 of storage-01"),
}  # fmt: skip


@pytest.mark.parametrize("case", OSDS)
def test_an_osd_without_proof_has_no_number(tmp_path: Path, case: str) -> None:
    fields, why = OSDS[case]
    taken = measure(tmp_path, DriveNodes(**fields), bench(1, drives=None))
    measurement = taken[WRITE, "ceph", "storage-01/ceph-0"]
    assert not measurement.samples
    assert why in (measurement.reason or "")
    assert not taken[WRITE, "ceph", "storage-01"].samples


def test_the_slowest_of_several_osds_is_the_drives_figure(tmp_path: Path) -> None:
    def slower(osd: int, document: dict[str, Any]) -> None:
        if osd == 1:
            document["elapsed_sec"] *= 4
            document["bytes_per_sec"] /= 4

    made = bench(1, drives=None)
    taken = measure(tmp_path, DriveNodes(osds={0: {}, 1: {}}, bench=slower), made)
    measurement = taken[WRITE, "ceph", "storage-01/ceph-0"]
    assert measurement.samples == pytest.approx((10.0, 10.0), rel=1e-2), measurement.reason
    assert measurement.conditions["osds"] == ["osd.0", "osd.1"]
    assert made.faults(tmp_path) == {}


def test_one_of_two_osds_that_is_not_asked_leaves_no_number(tmp_path: Path) -> None:
    made = bench(1, drives=None)
    measure(tmp_path, DriveNodes(osds={0: {}, 1: {}}), made)
    records = [r for r in read_records(tmp_path) if "tell osd.1 " not in str(r.body.get("command", ""))]
    assert any(
        "osd.1 on storage-01/ceph-0 (storage-01-rpceph) was not measured" in w
        for w in made.faults(tmp_path, records).values()
    )


def with_servers(made: Bench, count: int, **fields: Any) -> tuple[Bench, DriveNodes]:
    """So many storage servers with one OSD on each."""
    names = [f"storage-{number:02}" for number in range(1, count + 1)]
    more = [
        Node(name, ("storage",), {"fabric_addresses": [f"10.77.0.{number}/24"], "virtual": True})
        for number, name in enumerate(names[1:], start=12)
    ]
    osds = {number: {"hostname": f"{name}.rack"} for number, name in enumerate(names)}
    nodes = DriveNodes(osds=osds | fields.pop("further", {}), **fields)
    return replace(made, rack=Rack(made.rack.source, (*made.rack.nodes, *more))), nodes


def two_servers(**fields: Any) -> tuple[Bench, DriveNodes]:
    return with_servers(bench(1, drives=None), 2, **fields)


SERVERS = """
apiVersion: refarch/v1
extends: virtual-rack-storage
metadata: {id: four-servers, version: 1.0.0, title: Four storage servers}
criteria:
  - &server
    id: servers.osds
    title: Slowest OSD of each storage server, as a share of the median of all servers
    metric: drive.osd_write_bandwidth
    where: {use: ceph}
    members: storage
    scope: node
    pass:
      op: ge
      value: 80
      unit: percent
      of: {metric: drive.osd_write_bandwidth, where: {use: ceph}, scope: node, reduce: median}
    measure: osd-bench
    source: design
    reason: A stripe over all servers is as fast as the slowest of them.
    hint: Compare its drives with those of another server.
  - <<: *server
    id: servers.reads
    title: Slowest drive of each storage server, as a share of the median of all servers
    metric: drive.read_bandwidth
    where: {use: nfs}
    pass:
      op: ge
      value: 80
      unit: percent
      of: {metric: drive.read_bandwidth, where: {use: nfs}, scope: node, reduce: median}
    measure: fio-drive
"""


@pytest.mark.parametrize(
    ("slow", "failed"),
    [
        ({}, set()),
        ({"osd": 2}, {("servers.osds", "storage-03")}),
        ({"reads": "storage-02"}, {("servers.reads", "storage-02")}),
        ({"osd": 3, "reads": "storage-04"}, {("servers.osds", "storage-04"), ("servers.reads", "storage-04")}),
    ],
    ids=["none", "OSD", "drive", "both"],
)
def test_of_four_servers_the_slow_one_fails_by_name(
    tmp_path: Path, slow: dict[str, Any], failed: set[tuple[str, str]]
) -> None:
    def slower(osd: int, document: dict[str, Any]) -> None:
        if osd == slow.get("osd"):
            document["elapsed_sec"] *= 2
            document["bytes_per_sec"] /= 2

    (tmp_path / "servers.yaml").write_text(SERVERS)
    entries = [one for one in load(tmp_path / "servers.yaml").model.criteria if one.id.startswith("servers.")]
    made, nodes = with_servers(bench(1), 4, bench=slower)
    own = {"criteria": tuple(entries), "outliers": ()}
    made = replace(made, architecture=made.architecture.model_copy(update=own))
    if name := slow.get("reads"):
        nodes.drive(name, "rpnfs").rate /= 2
    taken = made.measure(tmp_path / "run", nodes.answer)
    info = info_of_nodes(node_infos(made.rack), profile="depth")
    given = {(v.id, v.subject): v for v in judge(made.architecture, info, taken, ()).verdicts if v.kind == "criterion"}
    assert set(given) == {(entry.id, f"storage-0{number}") for entry in entries for number in (1, 2, 3, 4)}
    assert {v.status for key, v in given.items() if key not in failed} == {Status.PASS}, given
    assert {key for key, v in given.items() if v.status is Status.FAIL} == failed
    assert all("actual 50" in given[key].message for key in failed)


@pytest.mark.parametrize(
    ("dead", "alive", "number"), [("storage-02", "storage-01", 1), ("storage-01", "storage-02", 0)]
)
def test_osds_of_a_dead_server_have_no_number_by_name_and_the_others_have(
    tmp_path: Path, dead: str, alive: str, number: int
) -> None:
    made, nodes = two_servers(up={number: 0})
    taken = {m.subject: m for m in made.measure(tmp_path, nodes.answer, dead=[dead])}
    assert taken[f"{alive}/ceph-0"].samples == pytest.approx((40.0, 40.0), rel=1e-2), taken[f"{alive}/ceph-0"].reason
    assert taken[alive].samples
    assert {taken[name].reason for name in (dead, f"{dead}/ceph-0")} == {f"{dead} does not answer: osd.{number}"}
    assert made.faults(tmp_path) == {}


def test_an_osd_of_no_server_of_the_rack_leaves_no_number_beside_a_dead_one(tmp_path: Path) -> None:
    made, nodes = two_servers(up={1: 0}, further={2: {"hostname": "storage-09"}})
    taken = {m.subject: m for m in made.measure(tmp_path, nodes.answer, dead=["storage-02"])}
    assert not any(m.samples for m in taken.values())
    assert "which is no listed ceph drive" in (taken["storage-01/ceph-0"].reason or "")


def test_a_cluster_of_cephadm_is_asked_where_its_key_is(tmp_path: Path) -> None:
    made, nodes = two_servers(without_key=("storage-01",))
    taken = {m.subject: m for m in made.measure(tmp_path, nodes.answer)}
    assert {m.reason for m in taken.values()} == {None}
    assert made.faults(tmp_path) == {}
    made, nodes = two_servers(without_key=("storage-01", "storage-02"))
    taken = {m.subject: m for m in made.measure(tmp_path / "none", nodes.answer)}
    assert all("unable to find a keyring (exit status 1)" in (m.reason or "") for m in taken.values())


@pytest.mark.parametrize(
    ("programs", "expected", "actual"),
    [
        ("ceph", "ceph --connect-timeout 1 tell osd.0 bench 8 4 -f json", "ceph"),
        ("cephadm", "shell -- ceph --connect-timeout 1 tell osd.0 bench 8 4 -f json", "cephadm"),
    ],
)
def test_ceph_runs_on_the_host_or_in_a_container(tmp_path: Path, programs: str, expected: str, actual: str) -> None:
    program = tmp_path / programs
    program.write_text(f'#!/bin/sh\necho {actual} "$@"\n')
    program.chmod(0o755)
    command = bench_command(0, 8, 4, 1.0)
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    words = expected if actual == "cephadm" else expected.removeprefix("ceph ")
    assert done.stdout == f"{actual} {words}\n"


@pytest.mark.parametrize(
    ("images", "outcome", "words"),
    [
        ((), CheckOutcome.UNMEASURED, "ceph-osd is not installed"),
        (("quay.io/ceph/ceph@sha256:12ab",), CheckOutcome.PASSED, "in container image quay.io/ceph/ceph@sha256:12ab"),
        (("quay.io/ceph/ceph:v18",), CheckOutcome.UNMEASURED, "ceph:v18, which may be any"),
        (("a/b@sha256:12", "quay.io/ceph/ceph:v18"), CheckOutcome.UNMEASURED, "ceph:v18, which may be any"),
    ],
)
def test_osds_of_containers_are_known_by_their_images(
    images: tuple[str, ...], outcome: CheckOutcome, words: str
) -> None:
    lines = ["rackproof programs 1", "program ceph-osd", *(f"image ceph-osd {image}" for image in images)]
    text = "\n".join([*lines, "--", "--", "--", "--", "end of programs", ""])
    judged, message, required = judge_program("ceph-osd", parse_programs_found(text))
    assert (judged, required) == (outcome, True)
    assert words in message


def test_numbers_of_another_profile_are_disproven(tmp_path: Path) -> None:
    measure(tmp_path, DriveNodes())
    longer = bench(drives=READS.model_copy(update={"runtime_s": 30}), osds=WRITES.model_copy(update={"bytes": 1 << 30}))
    assert set(longer.faults(tmp_path).values()) == {
        "runtime_s: the profile asks for 30, the run had 5",
        "bytes: the profile asks for 1073741824, the run had 67108864",
    }


def test_sizes_that_osds_refuse_are_refused() -> None:
    for sizes in ({"bytes": (100 << 20) * 30 + (4 << 20)}, {"bytes": 4096 * 3001, "block_bytes": 4096},
                  {"block_bytes": 128 << 20, "bytes": 128 << 20}, {"bytes": 4194305}):  # fmt: skip
        with pytest.raises(ValueError, match="bytes"):
            WRITES.model_validate(sizes)


def test_the_plan_says_how_long_and_what(tmp_path: Path) -> None:
    made = bench(2)
    steps = {step.id: step for step in made.steps()}
    assert set(steps) == {f"drives/{use}/read" for use in ("local", "scratch", "nfs", "ceph")} | {"osds/ceph/write"}
    assert steps["drives/scratch/read"].estimate_s == 2 * 2 * 2 * 8.0, "virtual nodes one after another"
    assert steps["drives/scratch/read"].title.startswith("scratch drives: reads of 1048576 B, 4 drives of 2 nodes")
    assert "67108864 B each" in steps["osds/ceph/write"].title
    made.measure(tmp_path, DriveNodes().answer)
    sent = "\n".join(commands(tmp_path))
    shown = {command.replace("DEVICE", "nvme0n1") for step in steps.values() for command in step.commands}
    assert all(command in sent for command in shown)


def test_a_rack_without_declared_drives_has_a_gap() -> None:
    made = bench()
    roles = {
        name: role.model_copy(update={"expect": role.expect.model_copy(update={"drives": ()})})
        for name, role in made.architecture.roles.items()
    }
    bare = Bench(made.architecture.model_copy(update={"roles": roles}), made.rack)
    assert bare.steps() == []
    gaps = plan_gaps(bare.architecture, "depth", bare.rack, [])
    assert any("drives gives no step and will be UNMEASURED" in gap for gap in gaps)
