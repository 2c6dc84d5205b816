"""Storage beside collectives: a loss only of reads and calls that ran at once, on all clients, and were right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.collectives import launch
from rackproof.bench.collectives.command import launcher_of, leads, requested_by
from rackproof.bench.forecast import spaces
from rackproof.bench.plan import plan_steps
from rackproof.bench.storage import beside
from rackproof.bench.storage.fio_launch import is_launch
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.core.architecture import BesideProfile, Profile, StorageProfile
from rackproof.core.collective import busbw_factor, least_received
from rackproof.core.evidence import Kind, Measurement, Record
from rackproof.core.programs import programs_of
from rackproof.core.status import Status
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, of_storage
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply
from tests.unit.judging import architecture, criterion, judged, verdicts
from tests.unit.storage_nodes import StorageNodes, mountinfo

pytestmark = pytest.mark.few(10)

WRONG = "mixed.collectives_wrong_values"
STORAGE_LOSS, COLLECTIVES_LOSS = "mixed.storage_beside_collectives_loss", "mixed.collectives_beside_storage_loss"
SIZES = BesideProfile(
    block_bytes=1048576, iodepth=4, file_bytes=33554432, runtime_s=20, runs=2, engine="mpi", message_bytes=1048576
)
BENCH = of_storage(beside_collectives=SIZES)
SETUP_S = 2.0
"""Seconds of fio before it starts its clients and after their end."""


@dataclass
class Both(StorageNodes):
    """Nodes that read at 60 MB/s alone and at 45 beside the collective, whose calls take 50 ms, and 100 beside reads.

    The clock stands still but for what the programs take.
    """

    now: float = 1_795_314_000.0
    start_s: float = 4.0
    """Start of the ranks, seconds."""
    late_s: float = 0.0
    """More time to start beside reads."""
    stops_s: float = 0.0
    """How much earlier than asked the collective ends beside reads."""
    call_s: tuple[float, float] = (0.050, 0.100)
    """Alone and beside reads."""
    pause_s: float = 0.001
    """Between two calls."""
    wrong: int = 0
    mpi_rc: int = 0
    edit: Callable[[dict[str, Any]], object] = lambda document: None
    """Changes what the ranks print."""
    own: Callable[[str], str] = lambda command: command
    """The command of which the ranks print the figures."""
    moved_by_mpi: float = 1.0
    """Share of the bytes that ports count."""
    fabric: FabricNodes = field(default_factory=FabricNodes)
    running: bool = False
    """Whether the last collective was beside reads."""
    fio_starts: float = 0.0

    def answer(self, node: str, command: str) -> CommandResult | None:
        if launcher_of(command):
            return self._ranks(node, command)
        answer = super().answer(node, command)
        if answer is not None and is_launch(command) and "-layout]" not in command:
            seconds = SIZES.runtime_s + 2 * SETUP_S
            self.now += 0 if "-beside-collectives]" in command else seconds
            return replace(answer, elapsed_s=seconds + 3.19e-5)  # as clocks tell it
        return answer or self.fabric.answer(node, command)

    def _fio(self, clients: Any, jobs: Any) -> str:
        beside_it = any(job["name"].endswith("-beside-collectives") for job in jobs.values())
        self.rates = {"write": 50e6, "read": 45e6 if beside_it else 60e6}
        document = json.loads(super()._fio(clients, jobs))
        if "timestamp" in document:
            document["timestamp"] = int(self.fio_starts if beside_it else self.now + SETUP_S)
        return json.dumps(document)

    def _ranks(self, node: str, command: str) -> CommandResult:
        asked = requested_by(self.own(command))
        if not leads(command):
            return reply(node, command)
        self.running = asked.seconds > SIZES.runtime_s
        begin = self.now + self.start_s + (self.late_s if self.running else 0.0)
        took = self.call_s[self.running]
        seconds = asked.seconds - (self.stops_s if self.running else 0.0)
        count = int(seconds / (took + self.pause_s)) + 1
        began = [begin + number * (took + self.pause_s) for number in range(count)]
        alg = asked.sizes[0] / took / 1e9
        row = {
            "bytes": asked.sizes[0], "time_us": took * 1e6, "algbw_GBps": alg,
            "busbw_GBps": alg * busbw_factor(asked.op, asked.ranks), "wrong": self.wrong,
            "samples_us": [took * 1e6] * count, "began_s": began,
        }  # fmt: skip
        hosts = [host for host in asked.hosts for _ in range(asked.ranks_per_node)]
        document = {
            "rackproof_collectives": 1, "engine": asked.engine, "op": asked.op, "ranks": len(hosts), "hosts": hosts,
            "dtype": "float32", "warmup": asked.warmup, "mpi": "Open MPI v5.0.7", "results": [row],
        }  # fmt: skip
        self.edit(document)
        for host in asked.hosts:
            received = count * least_received(asked.op, asked.sizes[0], len(asked.hosts), asked.ranks_per_node)
            self.fabric.counts[host, "fabric0"]["rx_bytes"] += int(received * self.moved_by_mpi)
        elapsed = began[-1] + took + 0.5 - self.now
        if self.running:
            self.fio_starts = self.now + 2 * (self.start_s + 0.5) + 2 * SETUP_S
        self.now += elapsed
        return replace(reply(node, command, json.dumps(document), rc=self.mpi_rc), elapsed_s=elapsed)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collective answers at once, before fio is started."""

    class Now:
        def __init__(self, max_workers: int) -> None:
            pass

        def __enter__(self) -> Now:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def submit(self, function: Callable[..., Any], *arguments: Any) -> Now:
            self.result = lambda: answers
            answers = function(*arguments)
            return self

    monkeypatch.setattr(beside, "ThreadPoolExecutor", Now)
    monkeypatch.setattr(beside.STOPPING, "wait", lambda seconds: False)


def measure(folder: Path, nodes: Both, bench: Bench = BENCH) -> dict[str, Measurement]:
    return {m.metric: m for m in bench.measure(folder, nodes.answer)}


def nodes(**changes: Any) -> Both:
    return Both(BENCH.architecture, **changes)


def test_each_loses_what_it_has_less_beside_the_other(tmp_path: Path) -> None:
    made = measure(tmp_path, nodes())
    assert {m.reason for m in made.values()} == {None}
    (step,) = plan_steps(BENCH.architecture, "depth", lab_rack(2))
    asked = {str(record.body["command"]) for record in read_records(tmp_path) if record.kind is Kind.COMMAND}
    assert len(step.commands) == 2
    assert step.commands[1] in asked
    assert made[STORAGE_LOSS].samples == pytest.approx((25.0, 25.0), rel=0.02)
    assert made[COLLECTIVES_LOSS].samples == pytest.approx((50.0, 50.0), rel=0.02)
    assert made.pop(WRONG).samples == (0.0, 0.0)
    for loss in made.values():
        assert loss.companions["storage_alone_mb_per_s"] == pytest.approx((120.0, 120.0), rel=0.02)
        assert loss.companions["storage_beside_mb_per_s"] == pytest.approx((90.0, 90.0), rel=0.02)
        assert loss.companions["collectives_alone_gb_per_s"] == pytest.approx((0.021, 0.021), rel=0.01)
        assert loss.companions["overlap_s"] == pytest.approx((15.0, 15.0), abs=0.1)
        assert loss.conditions["engine"] == "mpi"
        assert loss.conditions["ranks"] == loss.conditions["clients"] == 2
    assert BENCH.faults(tmp_path) == {}


def test_a_gain_is_no_loss(tmp_path: Path) -> None:
    made = measure(tmp_path, nodes(call_s=(0.050, 0.045)))
    assert made[COLLECTIVES_LOSS].samples == (0.0, 0.0)


def test_torch_needs_no_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node runs a command; the first one has the figures."""
    monkeypatch.setattr(launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="ssh"))
    sizes = SIZES.model_copy(update={"engine": "torch"})
    bench = of_storage(beside_collectives=sizes)

    def torch(document: dict[str, Any]) -> None:
        document |= {"engine": "torch", "backend": "gloo"}

    made = measure(tmp_path, Both(bench.architecture, edit=torch), bench)
    assert {m.reason for m in made.values()} == {None}
    assert bench.faults(tmp_path) == {}


def shift(document: dict[str, Any]) -> None:
    """The ranks' node has another time than fio's launcher."""
    (row,) = document["results"]
    row["began_s"] = [at + 600 for at in row["began_s"]]


def one_host(document: dict[str, Any]) -> None:
    document["hosts"] = ["gpu-01", "gpu-01"]


def other_first(document: dict[str, Any]) -> None:
    document["hosts"].reverse()


def fewer_ranks(document: dict[str, Any]) -> None:
    document |= {"ranks": 1, "hosts": ["gpu-01"]}
    (row,) = document["results"]
    row["busbw_GBps"] = 0.0


def without_times(document: dict[str, Any]) -> None:
    (row,) = document["results"]
    del row["began_s"]


def idle(document: dict[str, Any]) -> None:
    """Rank 0 calls only every tenth time."""
    (row,) = document["results"]
    for key in ("began_s", "samples_us"):
        row[key] = row[key][::10]


def other_op(command: str) -> str:
    return command.replace(" all_reduce ", " all_gather ")


def cut(document: dict[str, Any]) -> None:
    """It ended after an eighth of its calls."""
    (row,) = document["results"]
    for key in ("began_s", "samples_us"):
        row[key] = row[key][: len(row[key]) // 8]


def other_mount(text: str) -> str:
    return text.replace(" - nfs4 ", " - tmpfs ")


def bind_mount(text: str) -> str:
    return text.replace(" / /mnt/nfs-tcp ", " /x /mnt/nfs-tcp ")


def lost_client(document: dict[str, Any]) -> None:
    document["client_stats"].pop()


def short_beside(document: dict[str, Any]) -> None:
    for entry in document["client_stats"]:
        if entry["jobname"].endswith("-beside-collectives"):
            entry["read"]["runtime"] //= 2


def no_start(document: dict[str, Any]) -> None:
    del document["timestamp"]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"late_s": 30.0}, "after the first read and ended 0.0 s before"),
        ({"stops_s": 10.0}, "before the last, expected 0"),
        ({"edit": shift}, "after the first read and ended"),
        ({"edit": idle}, "of the reads' time in calls, expected 50%"),
        ({"pause_s": 3.0}, "calls while all clients read, expected 10"),
        ({"edit": without_times}, "expected one size with the time of each call"),
        ({"edit": one_host}, "expected ranks by host 1 on gpu-01, 1 on gpu-02, actual 2 on gpu-01"),
        ({"edit": other_first}, "rank 0 is on gpu-02, expected gpu-01"),
        ({"edit": fewer_ranks}, "expected ranks 2, actual 1"),
        ({"own": other_op}, "expected operation all_reduce, actual all_gather"),
        ({"edit": cut}, "actual fewer"),
        ({"mpi_rc": 134}, "exit status 134"),
        ({"moved_by_mpi": 0.0}, "another path"),
        ({"rc": 139}, "exit status 139"),
        ({"mountinfo": other_mount}, "tmpfs"),
        ({"mountinfo_after": bind_mount}, "a bind mount of /x"),
        ({"counted": 0.1}, "the mount counted"),
        ({"change": lost_client}, "gpu-02: fio returned no result for it"),
        ({"change": short_beside}, "expected a run of 20 s, actual 10 s"),
        ({"change": no_start}, "does not report when it started its clients"),
    ],
)
def test_a_run_without_proof_is_no_loss(tmp_path: Path, fault: dict[str, Any], why: str) -> None:
    made = measure(tmp_path, nodes(**fault))
    assert set(made) == {STORAGE_LOSS, COLLECTIVES_LOSS, WRONG}
    for loss in made.values():
        assert not loss.samples
        assert why in (loss.reason or ""), loss.reason


@pytest.mark.parametrize("fault", [{}, {"mpi_rc": 134}, {"moved_by_mpi": 0.0}, {"edit": idle}, {"late_s": 30.0}])
def test_wrong_values_are_counted_whatever_else_went_wrong(tmp_path: Path, fault: dict[str, Any]) -> None:
    made = measure(tmp_path, nodes(wrong=3, **fault))
    assert set(made[WRONG].samples) == {3.0}
    assert not made[STORAGE_LOSS].samples
    assert not made[COLLECTIVES_LOSS].samples
    assert BENCH.faults(tmp_path) == {}
    (verdict,) = verdicts(judged(architecture(criterion()), *made.values()), f"content[{WRONG}]").values()
    assert (verdict.status, verdict.value) == (Status.FAIL, 3)


def without(records: list[Record], text: str) -> list[Record]:
    return [record for record in records if text not in str(record.body.get("command", ""))]


def moved(records: list[Record], text: str, seconds: float) -> list[Record]:
    """The controller measured another time for a command."""
    return [
        record.model_copy(update={"body": {**record.body, "elapsed_s": record.body["elapsed_s"] + seconds}})
        if text in str(record.body.get("command", "")) else record
        for record in records
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (
            lambda records: without(records, "[nfs-tcp-beside-collectives]"),
            "expected nfs-tcp-beside-collectives, actual",
        ),
        (lambda records: without(records, " 20s 1"), "expected a reading of every node before and after each run"),
        (lambda records: without(records, "[nfs-tcp-layout]"), "nothing wrote its files before"),
        (lambda records: moved(records, "[nfs-tcp-beside-collectives]", 60.0), "before the last, expected 0"),
    ],
    ids=["half", "collective", "layout", "elapsed"],
)
def test_edited_evidence_is_disproven(tmp_path: Path, edit: Callable[[list[Record]], list[Record]], why: str) -> None:
    measure(tmp_path, nodes())
    assert all(why in text for text in BENCH.faults(tmp_path, edit(read_records(tmp_path))).values())
    assert len(BENCH.faults(tmp_path, edit(read_records(tmp_path)))) == 3


def test_a_loss_that_was_edited_is_disproven(tmp_path: Path) -> None:
    measure(tmp_path, nodes())
    records = [
        record.model_copy(update={"body": {**record.body, "samples": [1.0, 1.0]}})
        if record.kind is Kind.MEASUREMENT else record
        for record in read_records(tmp_path)
    ]  # fmt: skip
    assert len(BENCH.faults(tmp_path, records)) == 3


@pytest.mark.parametrize(
    "change", [{"runtime_s": 30}, {"message_bytes": 2097152}, {"op": "alltoall"}, {"ranks_per_node": 2}]
)
def test_a_run_with_other_sizes_than_the_profile_is_disproven(tmp_path: Path, change: dict[str, Any]) -> None:
    measure(tmp_path, nodes())
    other = of_storage(beside_collectives=SIZES.model_copy(update=change))
    faults = other.faults(tmp_path).values()
    assert len(faults) == 3
    assert all("the profile asks for" in why for why in faults)


def test_collectives_that_run_while_storage_is_read_alone_are_no_loss(tmp_path: Path) -> None:
    """The clock of the ranks is that of fio's launcher: what was to run alone has run beside."""

    def early(document: dict[str, Any]) -> None:
        (row,) = document["results"]
        if not both.running:
            row["began_s"] = [at - 26 for at in row["began_s"]]

    both = nodes(edit=early)
    made = measure(tmp_path, both)
    assert {m.reason for m in made.values()} == {
        "collectives: expected each to run alone first, actual both at once"
    }  # fmt: skip


def test_the_step_needs_two_clients_and_space_for_its_files() -> None:
    assert [step.id for step in plan_steps(BENCH.architecture, "depth", lab_rack(1))] == []
    (space,) = spaces(BENCH.architecture, "depth", lab_rack(2))
    assert space.bytes_each == SIZES.file_bytes
    assert programs_of(STORAGE_LOSS, {}, "srun") == ("fio", "srun", "python3")
    assert programs_of(COLLECTIVES_LOSS, {}, "ssh") == ("fio", "python3")
    with pytest.raises(ValueError, match="Input should be 'mpi' or 'torch'"):
        BesideProfile.model_validate(SIZES.model_dump() | {"engine": "nccl-tests"})
    assert mountinfo(BENCH.architecture.storage["nfs-tcp"], ("10.0.0.1",))
    assert Profile(storage=StorageProfile(jobs={}, beside_collectives=SIZES)).storage
