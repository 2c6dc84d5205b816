"""Reads that the servers' memory answers: the clients do not see it, the servers' drives and ports tell it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.storage.commands import AFTER, BEFORE, server_state
from rackproof.core.architecture import FioJob
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands, of_storage
from tests.unit.fakes import lab_rack
from tests.unit.false_certificates.edited import chained
from tests.unit.judging import architecture, bar, criterion, document, judged, verdicts
from tests.unit.storage_nodes import JOB, StorageNodes

BENCH = of_storage(jobs={"read": JOB})
SERVED = ("clients_read_bytes", "server_drives_bytes")
READ = 2 * 286 * 1048576
"""Bytes that two clients read."""


def measure(folder: Path, job: FioJob = JOB, **nodes: Any) -> list[Measurement]:
    bench = of_storage(jobs={job.rw: job})
    measured = bench.measure(folder, StorageNodes(bench.architecture, **nodes).answer)
    assert all(m.samples for m in measured)
    assert bench.faults(folder) == {}
    return measured


def of_servers(measurement: Measurement) -> dict[str, Any]:
    return {
        key: value for key, value in measurement.conditions.items() if key.startswith("server_") and "cache" not in key
    }


@pytest.mark.parametrize(
    ("drives", "words"),
    [
        (0.6, "40 % of 600 MB that the clients read: the drives read 360 MB"),
        (0.0, "100 % of 600 MB that the clients read: the drives read 0 MB"),
        (1.0, "none: the drives read 600 MB, the clients read 600 MB"),
        (1.3, "none: the drives read 780 MB, the clients read 600 MB"),
    ],
)
def test_what_the_servers_drives_did_not_read_is_told(tmp_path: Path, drives: float, words: str) -> None:
    for measurement in measure(tmp_path, drives=drives):
        own = of_servers(measurement)
        assert own["server_memory"] == words
        assert own["server_drives_read_bytes"] == [pytest.approx(READ * drives, abs=1024)]
        assert own["server_ports_sent_bytes"] == [READ]
    order = [c for c in commands(tmp_path) if c in (server_state(BEFORE), server_state(AFTER)) or "[nfs-tcp-read]" in c]
    assert [order[0], order[2]] == [server_state(BEFORE), server_state(AFTER)]
    assert len(order) == 3


def test_each_run_has_its_bytes_and_the_largest_share_is_told(tmp_path: Path) -> None:
    (first, *_) = measure(tmp_path, JOB.model_copy(update={"runs": 2}), drives=0.5)
    own = of_servers(first)
    assert len(own["server_drives_read_bytes"]) == len(own["server_ports_sent_bytes"]) == 2
    assert own["server_memory"].startswith("50 % of 600 MB")


def test_of_many_runs_the_largest_share_alone_is_told(tmp_path: Path) -> None:
    (first, *_) = measure(tmp_path, JOB.model_copy(update={"runs": 21}), drives=0.5)
    assert of_servers(first) == {"server_memory": "50 % of 600 MB that the clients read: the drives read 300 MB"}


def test_a_ramp_whose_end_no_server_tells_is_compared_with_the_ports(tmp_path: Path) -> None:
    (first, *_) = measure(tmp_path, JOB.model_copy(update={"ramp_s": 1}), drives=0.5, readings_ms=(-5000, 400))
    assert of_servers(first)["server_memory"] == "50 % of 620 MB that the ports sent: the drives read 310 MB"


def of_drives(measured: Sequence[Measurement]) -> Verdict:
    """Verdict on a read that must come from the servers' drives."""
    entry = criterion(
        where={"storage": "nfs-tcp", "block_bytes": JOB.block_bytes},
        scope="rack",
        gates=["server_drives"],
        bar=bar("ge", 1, "MB/s"),
    )
    storage = document()["storage"]
    made = architecture(entry, storage=storage | {"nfs-tcp": storage["nfs"] | {"mountpoint": "/mnt/nfs-tcp"}})
    return verdicts(judged(made, *measured))["rack"]


def test_an_entry_that_asks_for_the_servers_drives_refuses_what_their_memory_answered(tmp_path: Path) -> None:
    memory = of_drives(measure(tmp_path / "memory", drives=0.6))
    assert memory.status is Status.INVALID
    assert memory.message == (
        "server_drives: expected ≥ 97 % of what the clients read from the servers' drives, actual 60 %: the servers'"
        " memory answered the rest"
    )
    assert of_drives(measure(tmp_path / "drives", drives=0.98)).status is Status.PASS


@pytest.mark.parametrize("edit", ["", "-- end -> "])
def test_such_an_entry_refuses_what_a_server_does_not_tell(tmp_path: Path, edit: str) -> None:
    verdict = of_drives(measure(tmp_path, server=once(edit)))
    assert verdict.status is Status.INVALID
    assert verdict.message.startswith("server_drives cannot be checked: ")


def test_such_an_entry_refuses_a_ramp_whose_end_no_server_tells(tmp_path: Path) -> None:
    verdict = of_drives(measure(tmp_path, JOB.model_copy(update={"ramp_s": 1}), readings_ms=(-5000, 400)))
    assert verdict.status is Status.INVALID
    assert "cannot be checked" in verdict.message
    ramp = JOB.model_copy(update={"ramp_s": 1, "runtime_s": 60})
    assert of_drives(measure(tmp_path / "told", ramp)).status is Status.PASS
    memory = of_drives(measure(tmp_path / "memory", ramp, drives=0.9))
    assert memory.status is Status.INVALID
    assert "actual 90" in memory.message


def test_of_several_servers_the_slowest_is_named(tmp_path: Path) -> None:
    lab = lab_rack()
    second = Node("storage-02", ("storage",), {"fabric_addresses": ["10.77.0.12/24"], "virtual": True})
    bench = Bench(BENCH.architecture, Rack(lab.source, (*lab.nodes, second)))
    nodes = StorageNodes(bench.architecture)

    def answer(node: str, command: str) -> CommandResult | None:
        """The second server sends a third of what the first one sends."""
        result = nodes.answer(node, command)
        if result is None or node != second.name or "storage-server" not in command:
            return result
        sent = re.sub(r"tx_bytes:(\d+)", lambda match: f"tx_bytes:{int(match[1]) // 3}", result.text)
        return replace(result, stdout=sent.encode())

    for measurement in bench.measure(tmp_path, answer):
        own = of_servers(measurement)
        assert own["server_fairness"] == {"slowest": "storage-02", "slowest_over_mean": 0.5}
        assert own["server_ports_sent_bytes"] == [READ + READ // 3]
    assert bench.faults(tmp_path) == {}


def test_writes_tell_nothing_of_reads(tmp_path: Path) -> None:
    for measurement in measure(tmp_path, JOB.model_copy(update={"rw": "write"})):
        assert of_servers(measurement) == {}


def once(edit: str) -> Any:
    """The second answer of the server is another one."""
    answers = []

    def server(text: str) -> str | None:
        answers.append(text)
        if len(answers) == 1 or edit == "":
            return text if edit else None
        old, new = edit.split(" -> ")
        return re.sub(old, new, text)

    return server


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("", "unknown: server state: storage-01: no answer"),
        ("-- end -> ", "unknown: server state: the answer is cut off"),
        ("vdb -> vdc", "unknown: server state: storage-01 had other drives after the run"),
        (r"vda 9 0 \d+ -> vda 9 0 1", "unknown: server state: storage-01: its counters began again during the run"),
        (
            "status 0 -> /sys/class/net/vf9/statistics/tx_bytes:9\nstatus 0",
            "unknown: port counters: /sys/class/net/vf9/statistics/tx_bytes was not there before the run",
        ),
        (r"tx_bytes:\d+ -> tx_bytes:-1", "unknown: port counters: the node shows no port of hardware"),
    ],
)
def test_what_a_server_does_not_tell_is_unknown_and_the_number_counts(tmp_path: Path, edit: str, words: str) -> None:
    for measurement in measure(tmp_path, server=once(edit)):
        assert of_servers(measurement) == {"server_memory": words}


@pytest.mark.parametrize(
    ("seconds", "sent", "words"),
    [
        (60, 0.93, None),
        (60, 0.92, "8 % of 7.2 GB that the clients read came from their memory: the servers' ports sent 6.62 GB"),
        (5, 0.39, None),
        (5, 0.38, "62 % of 600 MB that the clients read came from their memory: the servers' ports sent 228 MB"),
    ],
)
def test_what_no_server_sent_is_invalid(tmp_path: Path, seconds: int, sent: float, words: str | None) -> None:
    """Bytes that an adapter counts up to three seconds late are no fault."""
    bench = of_storage(jobs={"read": JOB.model_copy(update={"runtime_s": seconds})})
    read = 2 * (60_000_000 * seconds // 1048576) * 1048576
    edit = once(rf"tx_bytes:\d+ -> tx_bytes:{int(read * sent) + 1}")
    measured = bench.measure(tmp_path, StorageNodes(bench.architecture, server=edit).answer)
    assert bench.faults(tmp_path) == {}
    for measurement in measured:
        assert (bool(measurement.samples), measurement.invalid) == (words is None, words is not None)
        assert not words or (measurement.reason or "").endswith(f"fio: {words}")


def test_what_no_server_sent_is_invalid_with_a_ramp_as_well(tmp_path: Path) -> None:
    """fio does not count the bytes that the servers sent in it."""
    bench = of_storage(jobs={"read": JOB.model_copy(update={"ramp_s": 1})})
    edit = once(rf"tx_bytes:\d+ -> tx_bytes:{READ // 2}")
    for measurement in bench.measure(tmp_path, StorageNodes(bench.architecture, server=edit).answer):
        assert measurement.invalid
        assert "came from their memory: the servers' ports sent 0 MB" in (measurement.reason or "")


@pytest.mark.parametrize(("counters", "invalid"), [(False, False), (True, True)], ids=["none", "quarter"])
def test_rdma_that_no_adapter_of_the_server_counts_is_no_fault(tmp_path: Path, counters: bool, invalid: bool) -> None:
    """The interfaces do not see it, so that nothing is known of it."""
    device = "/sys/class/infiniband/mlx5_0/ports/1/counters"
    rows = f"{device}/port_xmit_data:{READ // 16}\n{device}/port_rcv_data:9\n"

    def server(text: str) -> str:
        read = int(re.findall(r"tx_bytes:(\d+)", text)[0])
        own = rows if read else re.sub(r":\d+", ":0", rows)
        return re.sub(r"tx_bytes:\d+\n", f"tx_bytes:7\n{own if counters else ''}", text)

    bench = of_storage(storages=("nfs-rdma",), jobs={"read": JOB})
    for measurement in bench.measure(tmp_path, StorageNodes(bench.architecture, server=server).answer):
        assert measurement.invalid == (not measurement.samples) == invalid, measurement.reason


@pytest.mark.parametrize("name", ["nfs-tcp", "cephfs"])
def test_a_node_that_serves_and_reads_is_not_asked_either(tmp_path: Path, name: str) -> None:
    """Groups of the inventory overlap. The other servers alone have not sent all, and what a node reads from itself has
    not passed its ports."""
    lab, architecture = lab_rack(), of_storage(jobs={"read": JOB}, storages=(name,)).architecture
    second = Node("storage-02", ("storage", "gpu"), {"fabric_addresses": ["10.77.0.12/24"], "virtual": True})
    bench = Bench(architecture, Rack(lab.source, (*lab.nodes, second)))
    ports = {"kernel": 0.3} if name == "cephfs" else {"kernel": 1.0}
    measured = bench.measure(tmp_path, StorageNodes(architecture, name=name, ports=ports).answer)
    assert bench.faults(tmp_path) == {}
    for measurement in measured:
        assert measurement.samples, measurement.reason
        assert of_servers(measurement) == {}
    assert server_state(BEFORE) not in commands(tmp_path)


def test_a_server_that_is_a_client_is_not_asked(tmp_path: Path) -> None:
    """Its drives and ports serve its own programs as well."""
    storage = BENCH.architecture.storage["nfs-tcp"]
    both = storage.model_copy(update={"client_roles": (*storage.client_roles, storage.server_role)})
    architecture = BENCH.architecture.model_copy(update={"storage": {"nfs-tcp": both}})
    Bench(architecture, lab_rack()).measure(tmp_path, StorageNodes(architecture).answer)
    assert server_state(BEFORE) not in commands(tmp_path)


def test_evidence_without_answers_of_servers_is_read_as_before(tmp_path: Path) -> None:
    """That of earlier versions."""
    measure(tmp_path)
    bodies = []
    for record in read_records(tmp_path):
        body = record.body
        if record.kind is Kind.COMMAND and "storage-server" in body["command"]:
            continue
        if record.kind is Kind.MEASUREMENT:
            kept = {k: v for k, v in body["conditions"].items() if not k.startswith("server_") or "cache" in k}
            body = body | {
                "conditions": kept,
                "companions": {k: v for k, v in body["companions"].items() if k not in SERVED},
            }
        bodies.append((record.kind, body))
    assert BENCH.faults(tmp_path, chained(bodies)) == {}


def test_a_share_that_was_edited_is_found(tmp_path: Path) -> None:
    measure(tmp_path, drives=0.5)
    bodies = []
    for record in read_records(tmp_path):
        body = record.body
        if record.kind is Kind.MEASUREMENT:
            body = body | {"conditions": body["conditions"] | {"server_memory": "none"}}
        bodies.append((record.kind, body))
    faults = BENCH.faults(tmp_path, chained(bodies))
    assert all(fault.startswith("condition server_memory: recorded none") for fault in faults.values())
    assert faults
