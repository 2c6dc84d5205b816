"""Storage with fewer clients: the curve, the slow client by name, and numbers that claim another number of clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.relay import socket_of
from rackproof.bench.storage.checkpoint_reader import CHECKPOINT
from rackproof.bench.storage.fio_launch import DAMAGE, RUN, SYNCED
from rackproof.bench.storage.fio_launch import SHARED as SHARED_FILE
from rackproof.bench.storage.reader import read_storage
from rackproof.bench.storage.small_files_reader import OF_FILES
from rackproof.bench.storage.steps import scale_points
from rackproof.core.architecture import CheckpointProfile, FilesProfile, FioJob, Profile, StorageProfile, WholeFile
from rackproof.core.evidence import Kind, Measurement, Scope
from rackproof.core.judging.select import Answer, Index, NoNumber
from rackproof.evidence.store import read_records
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands, measurements, of_storage
from tests.unit.fakes import Answer as Replies
from tests.unit.fakes import lab_rack, reply
from tests.unit.false_certificates.edited import chained
from tests.unit.file_nodes import FileNodes
from tests.unit.refusals import refuses
from tests.unit.storage_nodes import JOB, Document, StorageNodes

CLIENTS = [f"gpu-{k:02d}" for k in range(1, 6)]
LARGE = FioJob(rw="randread", block_bytes=131072, iodepth=4, file_bytes=33554432, runtime_s=5)


def with_random_reads(large: FioJob) -> Bench:
    return of_storage(5, jobs={"read": JOB}, random_reads=(large,), scale_out=("read",))


BENCH = with_random_reads(LARGE)
ARCHITECTURE = BENCH.architecture


def slow(document: Document) -> None:
    """gpu-01 has half of the others' rate."""
    for entry in document["client_stats"]:
        if entry["hostname"] == socket_of("gpu-01"):
            read = entry["read"]
            for key in ("bw_bytes", "iops", "io_bytes", "total_ios"):
                read[key] = read[key] // 2


def of_rack(measurements: list[Measurement], metric: str = "storage.read_bandwidth") -> dict[int, Measurement]:
    return {len(m.members): m for m in measurements if m.metric == metric and m.scope is Scope.RACK}


@pytest.mark.parametrize(("clients", "points"), [(1, ()), (2, (1,)), (4, (1, 2)), (5, (1, 2, 4)), (8, (1, 2, 4))])
def test_the_points_are_powers_of_two_below_the_number_of_clients(clients: int, points: tuple[int, ...]) -> None:
    assert scale_points(clients) == points


def test_every_point_has_its_sum_and_names_the_slowest_client(tmp_path: Path) -> None:
    measurements = BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE, change=slow).answer)
    sums = of_rack(measurements)
    assert sorted(sums) == [1, 2, 4, 5]
    for count, measurement in sums.items():
        assert measurement.labels["clients"] == str(count)
        assert measurement.members == tuple(CLIENTS[:count])
        assert measurement.conditions["clients"] == count
        assert measurement.conditions["fairness"]["slowest"] == "gpu-01"
    assert sums[5].conditions["fairness"]["slowest_over_mean"] == pytest.approx(0.5 / 0.9, rel=0.01)
    assert sums[4].samples[0] == pytest.approx(sums[1].samples[0] * 7, rel=0.02)
    nodes = [m for m in measurements if m.metric == "storage.read_bandwidth" and m.scope is Scope.NODE]
    assert [m.members for m in nodes] == [(name,) for name in CLIENTS]
    assert not any("clients" in m.labels for m in nodes)
    assert BENCH.faults(tmp_path) == {}


def test_a_node_in_two_groups_of_clients_is_one_client(tmp_path: Path) -> None:
    """Its bytes would count twice in the rack's sum."""
    rack = lab_rack()
    both = replace(rack.nodes[1], groups=("gpu", "login"))
    storage = ARCHITECTURE.storage["nfs-tcp"].model_copy(update={"client_roles": ("gpu", "login")})
    profiles = {**ARCHITECTURE.profiles, "depth": Profile(storage=StorageProfile(jobs={"read": JOB}))}
    architecture = ARCHITECTURE.model_copy(update={"storage": {"nfs-tcp": storage}, "profiles": profiles})
    bench = Bench(architecture, replace(rack, nodes=(rack.nodes[0], both, rack.nodes[2])))
    measured = bench.measure(tmp_path, StorageNodes(architecture).answer)
    assert [m.members for m in measured] == [("gpu-01",), ("gpu-02",), ("gpu-01", "gpu-02")]
    one, other, whole = (m.samples[0] for m in measured)
    assert whole == pytest.approx(one + other)


def test_random_reads_of_larger_blocks_have_a_bandwidth(tmp_path: Path) -> None:
    sums = of_rack(BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE).answer), "storage.random_read_bandwidth")
    assert sums[5].labels == {"storage": "nfs-tcp", "block_bytes": "131072"}
    assert sums[5].samples[0] == pytest.approx(5 * 4.0, rel=0.05)
    other = with_random_reads(LARGE.model_copy(update={"iodepth": 8}))
    assert set(other.faults(tmp_path).values()) == {"iodepth: the profile asks for 8, the run had 4"}


def test_a_sum_over_fewer_clients_does_not_stand_for_more(tmp_path: Path) -> None:
    sums = of_rack(BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE).answer))
    index = Index(sums.values())
    every = index.find("storage.read_bandwidth", Scope.RACK, CLIENTS, frozenset({("storage", "nfs-tcp")}))
    assert isinstance(every, Answer)
    assert every.members == frozenset(CLIENTS)
    missing = index.find("storage.read_bandwidth", Scope.RACK, CLIENTS, frozenset({("clients", "4")}))
    assert isinstance(missing, NoNumber)
    assert "gpu-05 missing" in missing.why
    point = index.find_part("storage.read_bandwidth", CLIENTS, frozenset({("clients", "4")}))
    assert isinstance(point, Answer)
    assert len(point.members) == 4


def test_a_point_that_fails_leaves_the_others(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE)
    alone = f'{RUN}"$d/gpu-01.fio"'

    def answer(node: str, command: str) -> CommandResult | None:
        if alone in command and "-layout]" not in command:
            return reply(node, command, "Killed\n", rc=137, err="Killed")
        return nodes.answer(node, command)

    sums = of_rack(BENCH.measure(tmp_path, answer))
    assert not sums[1].samples
    assert "killed" in (sums[1].reason or "")
    every = Index(sums.values()).find("storage.read_bandwidth", Scope.RACK, CLIENTS, frozenset())
    assert isinstance(every, Answer)
    assert every.reason is None


def test_a_sum_that_claims_another_number_of_clients_is_disproven(tmp_path: Path) -> None:
    BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE).answer)
    records = read_records(tmp_path)
    (at,) = [
        number
        for number, record in enumerate(records)
        if record.kind is Kind.MEASUREMENT and record.body["labels"].get("clients") == "4"
    ]
    body = {**records[at].body, "labels": {**records[at].body["labels"], "clients": "5"}}
    bodies = [(record.kind, record.body) for record in records]
    edited = chained([*bodies[:at], (bodies[at][0], body), *bodies[at + 1 :]])
    assert list(BENCH.faults(tmp_path, edited).values()) == [
        "its outputs do not give it: fio: expected 5 clients, actual 4"
    ]


WRITE = JOB.model_copy(update={"rw": "write"})
RANKS = CheckpointProfile(model="small", ranks=2, block_bytes=1048576, file_bytes=16777216)
OF_FIO = {
    "jobs": {"read": JOB, "write": WRITE}, "scale_out": ("read",), "random_reads": (LARGE,), "shared_file": JOB,
    "synced_writes": WRITE, "checkpoint": RANKS, "integrity": WholeFile(block_bytes=1048576, file_bytes=16777216),
}  # fmt: skip
SMALL_FILES = dict.fromkeys(("small_files", "metadata"), FilesProfile(file_bytes=4096, files=20))


@pytest.mark.parametrize(
    ("sizes", "kind", "metrics"),
    [(OF_FIO, StorageNodes, {*CHECKPOINT, DAMAGE, SHARED_FILE, SYNCED}), (SMALL_FILES, FileNodes, {*OF_FILES})],
    ids=["fio", "files"],
)
def test_every_number_says_how_many_clients_there_were(
    tmp_path: Path, sizes: dict[str, Any], kind: type[StorageNodes], metrics: set[str]
) -> None:
    """As a label where there are several numbers of them, as a condition everywhere."""
    bench = of_storage(2, **sizes)
    measured = bench.measure(tmp_path, kind(bench.architecture).answer)
    assert {m.metric for m in measured} >= metrics
    for measurement in measured:
        assert measurement.samples, measurement.reason
        clients = 2 if measurement.scope is Scope.NODE else len(measurement.members)
        assert measurement.conditions["clients"] == clients
        assert measurement.labels.get("clients", str(clients)) == str(clients)


test_a_profile_that_contradicts_itself_is_refused = refuses(
    lambda update: StorageProfile.model_validate({"jobs": {"read": JOB}, **update}),
    ({"scale_out": ("write",)}, "scale_out names write, which is not among jobs"),
    ({"random_reads": (JOB,)}, "must be randread"),
    ({"random_reads": (LARGE, LARGE)}, "one job for each block_bytes"),
    error=ValueError,
)


SHARED = of_storage(5, storages=("local", "nfs-tcp"), shared_file=JOB)
OF_ONE = SHARED.architecture


def shared(folder: Path, answer: Replies) -> dict[str, Measurement]:
    return {m.subject: m for m in SHARED.measure(folder, answer)}


def test_all_clients_read_the_file_of_the_first(tmp_path: Path) -> None:
    measured = shared(tmp_path, StorageNodes(OF_ONE).answer)
    assert set(measured) == {*CLIENTS, "rack"}  # a local drive has no shared file
    rack = measured["rack"]
    assert rack.metric == "storage.shared_file_read_bandwidth"
    assert rack.samples[0] == pytest.approx(5 * 60.0, rel=0.01)
    assert rack.companions["dataset_bytes"] == (JOB.file_bytes,)
    (launch,) = [command for command in commands(tmp_path) if "[nfs-tcp-shared]" in command]
    assert launch.count("/mnt/nfs-tcp/rackproof-bench/gpu-01") == 5
    assert "/mnt/nfs-tcp/rackproof-bench/gpu-02" not in launch
    assert SHARED.faults(tmp_path) == {}


def test_clients_that_read_their_own_files_did_not_share_one(tmp_path: Path) -> None:
    nodes = StorageNodes(OF_ONE)
    shared(tmp_path, nodes.answer)
    answers = []
    for record in read_records(tmp_path):
        if record.kind is Kind.COMMAND and "rackproof-bench" in record.body["command"]:
            node, command = record.body["node"], record.body["command"]
            for name in CLIENTS[1:] if "[nfs-tcp-shared]" in command else ():
                before, mark, after = command.rpartition(f'{name}.fio" &&')
                command = before.replace("rackproof-bench/gpu-01", f"rackproof-bench/{name}") + mark + after
            answers.append(nodes.answer(node, command) or reply(node, command))
    read = read_storage(answers, OF_ONE)
    place = next(m for m in measurements(tmp_path) if m.scope is Scope.RACK)
    with pytest.raises(ParseError, match="expected one file for all clients, actual several"):
        read(place)


def test_a_shared_file_that_was_not_written_completely_is_no_number(tmp_path: Path) -> None:
    measured = shared(tmp_path, StorageNodes(OF_ONE, allocated=0.5).answer)
    assert not any(m.samples for m in measured.values())
    assert "allocated" in (measured["rack"].reason or "")
