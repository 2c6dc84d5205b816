"""Benchmarks: a number that the tool gave, or the reason why there is none. Never both, never neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from rackproof.bench.collectives import steps as collectives
from rackproof.bench.collectives.command import launcher_of, sizes
from rackproof.bench.collectives.reader import ENGINES, nccl_wrong
from rackproof.bench.links import steps as links
from rackproof.bench.plan import plan_steps
from rackproof.bench.relay import socket_of
from rackproof.bench.runner import ATTEMPTS, run_steps
from rackproof.bench.step import Step
from rackproof.bench.storage import steps as storage
from rackproof.bench.storage.fio_clients import STATES
from rackproof.bench.storage.reader import _sum
from rackproof.bench.storage.result import Proven
from rackproof.core.architecture import Gate
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.judging.gates import fault_of
from rackproof.core.rack import Rack
from rackproof.errors import ArchitectureError
from rackproof.evidence.store import read_records
from rackproof.parse import ParseError
from rackproof.parse.nccl_tests import parse_nccl_tests
from rackproof.remote.command import CommandResult
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import Answer, lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import FILE_BYTES, Document, StorageNodes, with_long_runs

pytestmark = pytest.mark.few(14)

DATA = Path(__file__).parents[2] / "data" / "tools"
RACK = with_long_runs(virtual_rack())
LAB = RACK.profiles["lab"]
HOSTS = {"gpu-01": "10.77.0.21", "gpu-02": "10.77.0.22"}
CLIENTS = StorageNodes(RACK)


def fio(node: str, command: str) -> CommandResult | None:
    return CLIENTS.answer(node, command)


def measured_run(command: str) -> bool:
    """Whether a command runs fio to measure, and not to write the files."""
    return "fio --eta" in command and "-layout]" not in command


def measure(
    folder: Path,
    steps: Sequence[Step],
    answer: Answer,
    dead: set[str] = frozenset(),  # type: ignore[assignment]
    done: set[str] = frozenset(),  # type: ignore[assignment]
    rack: Rack | None = None,
) -> list[Measurement]:
    with scripted(folder, answer, rack) as session:
        session.fleet.dead |= dead  # type: ignore[attr-defined]
        run_steps(session, steps, set(done), lambda text: None)
    return [Measurement.model_validate(r.body) for r in read_records(folder) if r.kind is Kind.MEASUREMENT]


def step(kind: str) -> Step:
    (planned,) = [s for s in plan_steps(RACK, "lab", lab_rack()) if s.id == kind]
    return planned


def by_subject(measurements: Sequence[Measurement]) -> dict[str, Measurement]:
    return {f"{m.metric.split('.')[1]} {m.subject}": m for m in measurements}


def test_the_plan_covers_every_storage_link_and_operation() -> None:
    ids = {s.id for s in plan_steps(virtual_rack(), "lab", lab_rack())}
    storages = virtual_rack().profiles["lab"].storage.storages
    assert {f"storage/{s}/{w}" for s in storages for w in ("read", "write", "randread")} <= ids
    assert {f"links/rail0/round1/{t}" for t in ("rdma-bandwidth", "rdma-latency", "tcp-bandwidth")} <= ids
    assert {f"collectives/mpi/{op}" for op in ("all_reduce", "all_gather", "alltoall")} <= ids


def test_an_unknown_profile_is_named_with_those_that_exist() -> None:
    with pytest.raises(ArchitectureError, match="no profile 'huge'; it has lab, full"):
        plan_steps(virtual_rack(), "huge", lab_rack())


def test_fio_numbers_are_fios_to_the_last_digit(tmp_path: Path) -> None:
    def odd(document: Document) -> None:
        for number, entry in enumerate(document["client_stats"]):
            entry["read"]["bw_bytes"] += 12345 + number

    nodes = StorageNodes(RACK, change=odd)
    measured = by_subject(measure(tmp_path, [step("storage/nfs-tcp/read")], nodes.answer))
    printed = 286 * 1048576 // 5
    assert measured["read_bandwidth gpu-01"].samples == ((printed + 12345) / 1e6,)
    assert measured["read_bandwidth gpu-02"].samples == ((printed + 12346) / 1e6,)
    assert measured["read_bandwidth rack"].samples == ((printed + 12345) / 1e6 + (printed + 12346) / 1e6,)
    assert measured["read_bandwidth gpu-01"].conditions["clients"] == 2
    assert measured["read_bandwidth gpu-01"].raw


def test_missing_numbers_are_told_with_their_reasons(tmp_path: Path) -> None:
    lines: list[str] = []
    with scripted(tmp_path, fio) as session:
        session.fleet.dead.add("gpu-02")  # type: ignore[attr-defined]
        run_steps(session, [step("storage/nfs-tcp/read")], set(), lines.append)
    reasons = {m.reason for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT
               if (m := Measurement.model_validate(r.body)).reason}  # fmt: skip
    (line,) = [line for line in lines if "numbers missing" in line]
    assert "2 of 3 numbers missing (" in line
    assert reasons
    assert all(reason in line for reason in reasons)


def test_a_storage_number_brings_what_its_gates_need(tmp_path: Path) -> None:
    measured = by_subject(measure(tmp_path, [step("storage/nfs-tcp/read")], fio))
    own, rack = measured["read_bandwidth gpu-01"].companions, measured["read_bandwidth rack"].companions
    assert own["client_ram_bytes"] == (1026392064.0,)
    assert own["cached_bytes_start"] == (4096.0,)
    assert own["dataset_bytes"] == (float(FILE_BYTES),)
    assert own["outstanding"] == (4.0,)
    assert set(own) >= {"iops", "latency_s", "application_bytes"}
    assert rack["dataset_bytes"] == (2.0 * FILE_BYTES,)
    assert rack["client_ram_bytes"] == (2 * 1026392064.0,)
    assert rack["latency_s"] == pytest.approx(own["latency_s"])


@pytest.mark.parametrize("kind", ["read", "randread"])
def test_every_gate_can_be_checked_of_a_client_and_of_all_together(tmp_path: Path, kind: str) -> None:
    for measurement in measure(tmp_path, [step(f"storage/nfs-tcp/{kind}")], fio):
        for gate in Gate:
            fault = fault_of([gate], measurement.companions, len(measurement.samples))
            assert "cannot be checked" not in (fault or ""), measurement.subject


def test_the_mean_latency_of_all_clients_keeps_littles_law() -> None:
    """300 requests a second of 10 ms and 100 of 30 ms have three requests each in flight."""
    clients = [
        Proven(cast("Any", None), cast("Any", None), {"iops": iops, "latency_s": latency_s, "outstanding": 3.0})
        for iops, latency_s in ((300.0, 0.010), (100.0, 0.030))
    ]
    assert _sum(clients, single=False) == {"iops": 400.0, "latency_s": pytest.approx(0.015), "outstanding": 6.0}


def test_a_client_that_cannot_tell_its_cache_does_not_claim_a_cold_one(tmp_path: Path) -> None:
    nodes = StorageNodes(RACK, cached=None)
    measured = by_subject(measure(tmp_path, [step("storage/nfs-tcp/read")], nodes.answer))
    own, rack = measured["read_bandwidth gpu-01"], measured["read_bandwidth rack"]
    assert own.samples
    assert "cached_bytes_start" not in {**own.companions, **rack.companions}
    assert own.conditions["cache"] == "unknown on clients"
    assert own.conditions["client_cache"] == "dropped before, not observed at the start, bypassed"


@pytest.mark.parametrize("text", ["", "ram_bytes\n", "ram_bytes much\n", "cached_bytes -1\nx 3\n"])
def test_an_unreadable_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    def odd(node: str, command: str) -> CommandResult | None:
        answer = fio(node, command)
        if answer is None or "drop_caches" not in command:
            return answer
        return reply(node, command, text + answer.text[answer.text.index("-- mountinfo") :])

    companions = by_subject(measure(tmp_path, [step("storage/nfs-tcp/read")], odd))["read_bandwidth gpu-01"].companions
    assert companions
    assert not {"client_ram_bytes", "cached_bytes_start"} & set(companions)


def test_caches_are_dropped_on_clients_and_server_before_fio_starts(tmp_path: Path) -> None:
    with scripted(tmp_path, fio) as session:
        run_steps(session, [step("storage/nfs-tcp/read")], set(), lambda text: None)
        asked = session.fleet.asked  # type: ignore[attr-defined]
    drops = [k for k, (_, command) in enumerate(asked) if "drop_caches" in command]
    (launch,) = [k for k, (_, command) in enumerate(asked) if measured_run(command)]
    written = next(k for k, (_, command) in enumerate(asked) if "-layout]" in command)
    assert written < min(drops)
    assert {asked[k][0] for k in drops} == {"gpu-01", "gpu-02", "storage-01"}
    assert max(drops) < launch


def test_job_files_hold_plain_integers_and_a_folder_of_each_client(tmp_path: Path) -> None:
    with scripted(tmp_path, fio) as session:
        run_steps(session, [step("storage/cephfs/write")], set(), lambda text: None)
        (command,) = [c for _, c in session.fleet.asked if measured_run(c)]  # type: ignore[attr-defined]
    assert "bs=1048576" in command
    assert "end_fsync=1" in command
    assert "/mnt/cephfs/rackproof-bench/gpu-01" in command
    assert "/mnt/cephfs/rackproof-bench/gpu-02" in command


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda n, c: reply(n, c, rc=127, err="sh: 1: fio: not found"), "is not installed"),
        (lambda n, c: reply(n, c, "Killed\n", rc=137, err="Killed"), "in time or was killed (exit status 137)"),
        (lambda n, c: reply(n, c, "rubbish\n"), "unreadable output"),
        (lambda n, c: reply(n, c, ""), "unreadable output"),
        (lambda n, c: reply(n, c, fio(n, c).stdout[:900]), "unreadable output"),  # type: ignore[union-attr]
        (lambda n, c: reply(n, c, rc=None, error="not finished within 70 s"), "not finished within 70 s"),
    ],
)
def test_a_fio_that_fails_gives_unmeasured_with_the_reason(
    tmp_path: Path, result: Callable[[str, str], CommandResult], reason: str
) -> None:
    measurements = measure(
        tmp_path, [step("storage/local/read")], lambda n, c: result(n, c) if measured_run(c) else fio(n, c)
    )
    assert len(measurements) == 3
    for m in measurements:
        assert m.samples == ()
        assert reason in (m.reason or "")


def test_a_client_that_fio_reports_an_error_for_has_no_number_and_the_other_has(tmp_path: Path) -> None:
    def failing(document: Document) -> None:
        for entry in document["client_stats"]:
            entry["error"] = 5 if entry["hostname"] == socket_of("gpu-02") else 0

    nodes = StorageNodes(RACK, change=failing)
    measured = by_subject(measure(tmp_path, [step("storage/local/read")], nodes.answer))
    assert measured["read_bandwidth gpu-01"].samples
    assert measured["read_bandwidth gpu-02"].reason == "gpu-02: fio error 5"
    assert not measured["read_bandwidth rack"].samples


def test_an_unmounted_client_is_named_and_the_rest_is_measured(tmp_path: Path) -> None:
    def answer(node: str, command: str) -> CommandResult | None:
        if "mountpoint" in command and node == "gpu-02":
            return reply(node, command, rc=1, err="/mnt/local is not mounted")
        return fio(node, command)

    measured = by_subject(measure(tmp_path, [step("storage/local/read")], answer))
    assert measured["read_bandwidth gpu-01"].samples
    assert measured["read_bandwidth gpu-01"].conditions["clients"] == 1
    assert "not mounted" in (measured["read_bandwidth gpu-02"].reason or "")
    assert not measured["read_bandwidth rack"].samples


@pytest.mark.parametrize("victim", ["gpu-01", "gpu-02"])
def test_a_node_that_dies_in_the_middle_leaves_the_others_measured(tmp_path: Path, victim: str) -> None:
    survivor = ({"gpu-01", "gpu-02"} - {victim}).pop()

    with scripted(tmp_path, fio) as session:
        fleet = session.fleet

        def answer(node: str, command: str) -> CommandResult | None:
            if measured_run(command) and victim not in fleet.dead:  # type: ignore[attr-defined]
                fleet.dead.add(victim)  # type: ignore[attr-defined]
                return reply(node, command, rc=None, error="connection lost")
            return fio(node, command)

        fleet.answer = answer  # type: ignore[attr-defined]
        run_steps(session, [step("storage/local/read")], set(), lambda text: None)
    measured = by_subject(
        [Measurement.model_validate(r.body) for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT]
    )
    assert measured[f"read_bandwidth {survivor}"].samples
    assert "lost during the measurement" in (measured[f"read_bandwidth {victim}"].reason or "")
    assert not measured["read_bandwidth rack"].samples


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ("S sh\nT fio\nT fio\n", "gpu-02: its fio is stopped by a signal; no answer within 125 s"),
        ("S fio\nD fio\n", "gpu-02: its fio waits for a request that the kernel has not ended; no answer within"),
        ("S fio\nT python3\n", "fio on gpu-01: no answer within 125 s"),
        ("", "fio on gpu-01: no answer within 125 s"),
    ],
)
def test_a_client_whose_fio_stands_still_is_named_and_the_rest_is_measured(
    tmp_path: Path, states: str, reason: str
) -> None:
    def answer(node: str, command: str) -> CommandResult | None:
        if command == STATES:
            return reply(node, command, states if node == "gpu-02" else "S fio\n", rc=0 if states else 1)
        if measured_run(command) and "gpu-02" in command:
            return reply(node, command, rc=None, error="no answer within 125 s")
        return fio(node, command)

    measured = by_subject(measure(tmp_path, [step("storage/local/read")], answer))
    assert reason in (measured["read_bandwidth gpu-02"].reason or "")
    assert bool(measured["read_bandwidth gpu-01"].samples) is ("its fio" in reason)
    assert not measured["read_bandwidth rack"].samples


def test_a_node_that_was_off_before_is_named(tmp_path: Path) -> None:
    measured = by_subject(measure(tmp_path, [step("storage/local/read")], fio, dead={"gpu-02"}))
    assert measured["read_bandwidth gpu-01"].samples
    assert "connection lost" in (measured["read_bandwidth gpu-02"].reason or "")


def test_links_are_measured_between_the_nodes_of_a_pair(tmp_path: Path) -> None:
    steps = links.plan(virtual_rack(), LAB.links, lab_rack())  # type: ignore[arg-type]
    measured = by_subject(measure(tmp_path, steps, FabricNodes().answer))
    bandwidth = measured["rdma_write_bandwidth gpu-01|gpu-02"]
    assert bandwidth.samples == pytest.approx([16.25 * 2**20 * 8 / 1e9] * 2)
    assert bandwidth.conditions["server"] == "gpu-01"
    assert measured["rdma_write_latency gpu-01|gpu-02"].samples[0] > 0
    assert measured["tcp_bandwidth gpu-01|gpu-02"].samples[0] > 0


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda n, c: reply(n, c, rc=127, err="sh: 1: ib_write_bw: not found"), "is not installed"),
        (lambda n, c: reply(n, c, rc=1, err="Couldn't connect to 10.77.0.21:18515"), "Couldn't connect"),
        (lambda n, c: reply(n, c, "0 0 0\n"), "perftest: no result table"),
        (lambda n, c: reply(n, c, rc=None, error="connection lost"), "connection lost"),
    ],
)
def test_a_link_tool_that_fails_gives_unmeasured_with_the_reason(
    tmp_path: Path, result: Callable[[str, str], CommandResult], reason: str
) -> None:
    steps = links.plan(virtual_rack(), LAB.links, lab_rack())  # type: ignore[arg-type]
    nodes = FabricNodes()

    def answer(node: str, command: str) -> CommandResult | None:
        broken = "ib_write_bw -d" in command and "10.77.0.21" in command
        return result(node, command) if broken else nodes.answer(node, command)

    measurements = measure(tmp_path, [s for s in steps if s.id.endswith("rdma-bandwidth")], answer)
    assert [m.metric for m in measurements] == ["link.rdma_write_bandwidth", "link.rdma_retries"]
    for m in measurements:
        assert m.samples == ()
        assert reason in (m.reason or "")


def test_every_pair_of_four_nodes_is_measured_in_three_rounds() -> None:
    steps = links.plan(virtual_rack(), LAB.links, lab_rack(4))  # type: ignore[arg-type]
    pairs = [m.members for s in steps for m in s.expects if m.metric == "link.tcp_bandwidth"]
    assert len(pairs) == len({frozenset(p) for p in pairs}) == 6
    assert len({s.id.split("/")[2] for s in steps if s.id.startswith("links/")}) == 3


def test_loss_and_delay_are_measured_between_all_nodes_with_an_address() -> None:
    """Storage servers too: a mount suffers from their links."""
    (loss,) = [s for s in links.plan(virtual_rack(), LAB.links, lab_rack(4)) if s.id == "loss/rail0"]  # type: ignore[arg-type]
    assert len({frozenset(m.members) for m in loss.expects}) == 10


def test_collectives_give_bandwidths_and_wrong_values_for_every_size(tmp_path: Path) -> None:
    measurements = measure(tmp_path, [step("collectives/mpi/all_reduce")], FabricNodes().answer)
    profile = LAB.collectives
    assert profile is not None
    every = list(sizes(profile.min_bytes, profile.max_bytes, profile.factor))
    assert {(m.metric, m.labels["bytes"]) for m in measurements} == {
        (metric, str(size)) for size in every for metric in collectives.METRICS
    }
    assert all(m.samples for m in measurements)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (
            lambda n, c: reply(n, c, rc=213, err="ORTE was unable to reliably start one or more daemons."),
            "unable to reliably start",
        ),
        (lambda n, c: reply(n, c, "no json here\n"), "gpu-01: mpi collectives: "),
    ],
)
def test_a_collective_that_fails_gives_unmeasured(
    tmp_path: Path, result: Callable[[str, str], CommandResult], reason: str
) -> None:
    measurements = measure(
        tmp_path,
        [step("collectives/mpi/all_reduce")],
        lambda n, c: result(n, c) if launcher_of(c) else FabricNodes().answer(n, c),
    )
    assert measurements
    assert all(m.samples == () and reason in (m.reason or "") for m in measurements)


def test_an_engine_that_left_sizes_out_is_not_accepted(tmp_path: Path) -> None:
    def short(program: str, text: str) -> str:
        document = json.loads(text)
        document["results"] = document["results"][:2]
        return json.dumps(document) + "\n"

    nodes = FabricNodes(edit=lambda program, text: short(program, text) if program == "mpirun" else text)
    measurements = measure(tmp_path, [step("collectives/mpi/all_reduce")], nodes.answer)
    assert measurements
    assert all(not m.samples for m in measurements)
    assert all("expected number of sizes 6, actual 2" in (m.reason or "") for m in measurements)


def test_nccl_rows_that_were_not_checked_have_no_count_of_wrong_values() -> None:
    counts = nccl_wrong(parse_nccl_tests((DATA / "nccl-unchecked.txt").read_text(), "all_reduce"))
    assert counts
    assert set(counts) == {None}


def test_an_nccl_run_without_its_footer_gives_no_number() -> None:
    with pytest.raises(ParseError, match="ended before its last size"):
        ENGINES["nccl-tests"]((DATA / "nccl-labelled-no-footer.txt").read_text(), "all_reduce")


@pytest.mark.parametrize(("rc", "started"), [(0, 1), (139, 3)])
def test_servers_of_fio_stay_for_the_next_step_unless_a_step_lacks_a_number(
    tmp_path: Path, rc: int, started: int
) -> None:
    """A job that hangs on a client must not be in the way of later steps: its server ends with its own."""
    rack = virtual_rack()
    steps = [step for step in plan_steps(rack, "lab", lab_rack(2)) if step.id.startswith("storage/local/")]
    with scripted(tmp_path, StorageNodes(rack, rc=rc).answer, lab_rack(2)) as session:
        run_steps(session, steps, set(), str)
    servers = [
        str(record.body["node"])
        for record in read_records(tmp_path)
        if record.kind is Kind.COMMAND and "exec fio --server" in str(record.body["command"])
    ]
    assert sorted(servers) == sorted(["gpu-01", "gpu-02"] * started)


def test_a_finished_step_is_not_repeated_and_an_unfinished_one_is(tmp_path: Path) -> None:
    steps = [step("storage/local/read"), step("storage/local/write")]
    broken = lambda n, c: reply(n, c, rc=1, err="no") if measured_run(c) and "rw=write" in c else fio(n, c)  # noqa: E731
    measure(tmp_path, steps, broken)
    done = {r.body["step"] for r in read_records(tmp_path) if r.kind is Kind.STEP and r.body["status"] == "done"}
    assert done == {"storage/local/read"}
    with scripted(tmp_path, fio) as session:
        run_steps(session, steps, done, lambda text: None)
        launched = [c for _, c in session.fleet.asked if measured_run(c)]  # type: ignore[attr-defined]
    assert len(launched) == 1
    assert "rw=write" in launched[0]


@pytest.mark.parametrize(("dead", "attempts"), [(set(), ATTEMPTS), ({"gpu-01"}, ATTEMPTS), ({"gpu-01", "gpu-02"}, 1)])
@pytest.mark.parametrize("devices", [False, True])
def test_a_step_is_repeated_for_nodes_that_answer_only(
    devices: bool, dead: set[str], attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[list[str]] = []
    monkeypatch.setattr("rackproof.bench.runner.wait_for_processors", lambda s, nodes, say: waited.append(nodes))
    local = step("storage/local/read")
    if devices:
        local = replace(local, expects=tuple(p.model_copy(update={"members": tuple(f"{m}/nic0" for m in p.members)})
                                             for p in local.expects))  # fmt: skip
    with scripted(tmp_path, fio) as session:
        session.fleet.dead |= dead  # type: ignore[attr-defined]
        run_steps(session, [local], set(), str, starved=lambda: {local.id: "the controller was starved"})
    assert sum(r.kind is Kind.STEP for r in read_records(tmp_path)) == attempts
    # a silent node would be asked for 10 s before each pause
    assert waited == [[name for name in ("storage-01", "gpu-01", "gpu-02") if name not in dead]] * (attempts - 1)


def test_storage_steps_write_before_they_read() -> None:
    ids = [s.id for s in storage.plan(virtual_rack(), LAB.storage, lab_rack())]  # type: ignore[arg-type]
    assert ids[:3] == ["storage/local/write", "storage/local/read", "storage/local/randread"]
