"""All adapters of a node at once: what is started, what proves that all were busy together, and what is no number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.links import all_rails
from rackproof.bench.links.figures import (
    ALL_RAILS,
    BOTH_ALL_RAILS,
    GPU_ALL_RAILS,
    GPU_BOTH_ALL_RAILS,
    GPU_READ_LATENCY_ALL_RAILS,
    READ_LATENCY_ALL_RAILS,
)
from rackproof.bench.reread import disproven
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.programs import PERFTEST
from rackproof.core.rack import Rack
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from rackproof.remote.command import CommandResult
from tests.unit.bench import test_link_gpu
from tests.unit.bench.test_bench import LAB, lab_rack, measure
from tests.unit.fabric import CUDA, DMABUF, FabricNodes
from tests.unit.fakes import reply

pytestmark = pytest.mark.few(9)

RAILS = 3
SECONDS = 4
"""Twice what the profile gives one adapter."""
PCI = "".join(f"/sys/devices/pci0000:1{rail}/0000:1{rail}:01.0/0000:1{rail}:02.0\n0\n0-31\n" for rail in range(RAILS))
PCI += (
    "".join(f"/sys/devices/pci0000:1{rail}/0000:1{rail}:01.0/0000:1{rail}:03.0\n" for rail in range(RAILS))
    + "/usr/bin/numactl\nno built perftest\nend\n"
)
T0 = 1_700_000_000.0


@dataclass
class Nodes(FabricNodes):
    """Two nodes with three rails; every process has a beginning and an end on its node's clock."""

    begins: Callable[[str, int], float] = lambda node, rail: 0.1 * rail
    lasts: Callable[[str, int], float] = lambda node, rail: SECONDS + 0.5
    ended: Callable[[CommandResult, int], CommandResult] = lambda result, rail: result
    """Changes what a process of a rail returns."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, node: str, command: str) -> CommandResult | None:
        with self.lock:
            if not command.startswith("date +%s.%N >&2; "):
                return super().answer(node, command)
            rail = int(command.partition(f" -d {self.device}")[2][0])
            serves = "  # from " in command
            plain = command.partition("; ended=")[0].removeprefix("date +%s.%N >&2; ")
            made = super().answer(node, plain) or reply(node, command)
            assert made is not None
            begin = T0 + self.begins(node, rail) - (0.4 if serves else 0)
            end = T0 + self.begins(node, rail) + self.lasts(node, rail)
            stderr = f"{begin:.9f}\n{end:.9f}\n".encode() + made.stderr
            return self.ended(replace(made, command=command, stderr=stderr), rail)


def rack(rails: int = RAILS) -> Rack:
    made = lab_rack()
    for number, node in enumerate(made.group("gpu"), 1):
        node.data["fabric_addresses"] = [f"10.77.{rail}.2{number}/24" for rail in range(rails)]  # type: ignore[index]
    return made


def architecture(metric: str = ALL_RAILS, gpudirect: str | None = None) -> Architecture:
    made = test_link_gpu.architecture(gpudirect, metric=metric)
    assert made.fabric is not None
    return made.model_copy(update={"fabric": made.fabric.model_copy(update={"rails": RAILS})})


def measured(
    folder: Path, nodes: Nodes, metric: str = ALL_RAILS, gpudirect: str | None = None
) -> dict[str, Measurement]:
    nodes.addresses = {f"10.77.{rail}.2{k}": f"gpu-0{k}" for rail in range(RAILS) for k in (1, 2)}
    nodes.pci = PCI
    made = architecture(metric, gpudirect)
    planned = all_rails.plan(made, LAB.links, rack())  # type: ignore[arg-type]
    steps = [step for step in planned if step.expects[0].metric == metric]
    return {m.members[0]: m for m in measure(folder, steps, nodes.answer, rack=rack())}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_rails, "END_S", 0.0)


def test_every_adapter_has_a_number_while_all_of_its_node_send(tmp_path: Path) -> None:
    taken = measured(tmp_path, Nodes())
    assert sorted(taken) == [f"gpu-0{k}/nic{rail}" for k in (1, 2) for rail in range(RAILS)]
    for name, m in taken.items():
        assert m.scope is Scope.NIC
        assert m.samples, m.reason
        rail = name[-1]
        words = m.conditions["command"].split()
        assert words[3:6] == ["numactl", f"--cpunodebind=netdev:fabric{rail}", f"--membind=netdev:fabric{rail}"]
        assert words[words.index("-d") + 1] == f"rxe{rail}"
        assert words[words.index("-p") + 1] == f"1851{5 + int(rail)}"
        assert m.conditions["adapters"] == RAILS
        assert m.companions["overlap_s"] == pytest.approx((2 * SECONDS - (0.2 + SECONDS + 0.5),) * len(m.samples))
    assert len({m.conditions["server"] for m in taken.values()}) == 2


@pytest.mark.parametrize("built", [False, True])
def test_gpu_memory_takes_a_gpu_for_each_adapter_and_the_declared_path(tmp_path: Path, built: bool) -> None:
    taken = measured(tmp_path, Nodes(gpu_memory=CUDA + DMABUF, built=built), GPU_ALL_RAILS, "dmabuf")
    for name, m in taken.items():
        words = m.conditions["command"].split()
        assert m.samples, m.reason
        assert (f"{PERFTEST}/ib_write_bw" in words) == built
        assert words[words.index("--use_cuda_bus_id") + 1] == f"0000:1{name[-1]}:03.0"
        assert (m.conditions["memory"], m.conditions["server_memory"]) == ("DMA-BUF", "DMA-BUF")


def test_a_server_in_its_hosts_memory_takes_the_number_of_every_adapter(tmp_path: Path) -> None:
    for m in measured(tmp_path, Nodes(served_memory=""), GPU_ALL_RAILS).values():
        assert not m.samples
        assert "nic0 of gpu-0" in (m.reason or "")
        assert "actual host" in (m.reason or "")


@pytest.mark.parametrize("metric", [BOTH_ALL_RAILS, GPU_BOTH_ALL_RAILS])
def test_both_ways_on_all_adapters_is_the_rate_of_one_direction(tmp_path: Path, metric: str) -> None:
    taken = measured(tmp_path / "both", Nodes(), metric)
    one_way = measured(tmp_path / "one", Nodes(), GPU_ALL_RAILS if metric == GPU_BOTH_ALL_RAILS else ALL_RAILS)
    assert len(taken) == 2 * RAILS
    for name, m in taken.items():
        assert m.metric == metric
        assert m.samples == one_way[name].samples, m.reason
        assert "-b" in m.conditions["command"].split()
        assert m.conditions["bound"] == "numactl: processors and memory"
    for m in measured(tmp_path / "silent", Nodes(one_way=True), metric).values():
        assert not m.samples
        assert "sent" in (m.reason or ""), "the server sent nothing"


def test_reads_on_all_adapters_are_a_mean_latency_over_the_duration(tmp_path: Path) -> None:
    taken = measured(tmp_path / "reads", Nodes(), READ_LATENCY_ALL_RAILS)
    assert len(taken) == 2 * RAILS
    for m in taken.values():
        assert set(m.samples) == {1.63}, m.reason
        words = m.conditions["command"].split()
        assert "ib_read_lat" in words
        assert words[words.index("-D") + 1] == str(SECONDS)


def test_reads_between_gpus_on_all_adapters_are_measured_with_writes(tmp_path: Path) -> None:
    made = architecture(GPU_ALL_RAILS)
    planned = all_rails.plan(made, LAB.links, rack())  # type: ignore[arg-type]
    assert {step.expects[0].metric for step in planned} == {GPU_ALL_RAILS, GPU_READ_LATENCY_ALL_RAILS}
    taken = measured(tmp_path / "reads", Nodes(built=True), GPU_READ_LATENCY_ALL_RAILS)
    assert len(taken) == 2 * RAILS
    for name, m in taken.items():
        assert set(m.samples) == {1.63}, m.reason
        assert m.conditions["memory"] == "peer memory"
        words = m.conditions["command"].split()
        assert f"{PERFTEST}/ib_read_lat" in words
        assert words[words.index("--use_cuda_bus_id") + 1] == f"0000:1{name[-1]}:03.0"
    for m in measured(tmp_path / "host", Nodes(gpu_memory=""), GPU_READ_LATENCY_ALL_RAILS).values():
        assert not m.samples
        assert "expected memory peer memory, actual host" in (m.reason or "")


READS: list[tuple[str, dict[str, Any], str]] = [
    ("too few reads", {"edit": lambda program, text: text.replace("1224068", "612034")}, "take 0.998 s"),
    ("writes", {"edit": lambda program, text: text.replace("RDMA_Read", "RDMA_Write")}, "expected test RDMA_Read"),
    ("another size", {"edit": lambda program, text: text.replace("\n 2  ", "\n 64 ")}, "expected message size in B 2"),
    ("one after another", {"begins": lambda node, rail: (SECONDS + 1.0) * rail}, "all adapters together were busy for"),
    ("no traffic", {"way": lambda port: "fabric9"}, "another path"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "changes", "reason"), READS, ids=[case[0] for case in READS])
def test_what_is_no_latency_of_any_adapter(tmp_path: Path, what: str, changes: dict[str, Any], reason: str) -> None:
    for m in measured(tmp_path, Nodes(**changes), READ_LATENCY_ALL_RAILS).values():
        assert not m.samples, what
        assert reason in (m.reason or ""), what


def test_an_end_that_is_not_bound_is_no_number(tmp_path: Path) -> None:
    """The node's answer about its adapters and the commands of both ends must agree."""
    measured(tmp_path, Nodes())
    for role in ("  # from ", "  # to "):
        records = []
        for record in read_records(tmp_path):
            command = str(record.body.get("command", ""))
            if role in command:
                cut = command.replace("numactl --cpunodebind=netdev:fabric1 --membind=netdev:fabric1 ", "")
                record = record.model_copy(update={"body": record.body | {"command": cut}})
            records.append(record)
        faults = disproven(records, partial(read_raw, tmp_path), architecture(), "lab", node_infos(rack()))
        assert any("expected numactl" in fault for fault in faults.values())


def test_without_a_criterion_or_a_partner_nothing_is_planned() -> None:
    assert all_rails.plan(test_link_gpu.virtual_rack(), LAB.links, rack()) == []  # type: ignore[arg-type]
    assert all_rails.plan(architecture(), LAB.links, lab_rack(1)) == []  # type: ignore[arg-type]


def test_an_adapter_that_is_slow_only_beside_the_others_is_the_one_with_a_low_number(tmp_path: Path) -> None:
    """Its own test alone does not show it; the number of each adapter is of the time when all send."""
    nodes = Nodes()
    slow = {"on": True}

    def edit(result: CommandResult, rail: int) -> CommandResult:
        if rail != 1 or not slow["on"] or not result.stdout:
            return result
        text = result.text.replace("1300 ", "650 ").replace("16.25", " 8.12").replace("0.000260", "0.000130")
        return replace(result, stdout=text.encode())

    nodes.ended = edit
    taken = measured(tmp_path, nodes)
    rates = {name: m.samples[0] for name, m in taken.items()}
    for node in ("gpu-01", "gpu-02"):
        assert rates[f"{node}/nic1"] < 0.6 * rates[f"{node}/nic0"] == pytest.approx(0.6 * rates[f"{node}/nic2"])


@pytest.mark.parametrize(
    ("late", "enough"),
    [(0.0, True), (0.5, True), (0.65, True), (0.75, False), (1.0, False)],
)
def test_the_time_that_counts_is_beside_all_others(tmp_path: Path, late: float, enough: bool) -> None:
    """perftest counts 2 of 4 s, in the middle; the process takes half a second more."""
    taken = measured(tmp_path, Nodes(begins=lambda node, rail: late * (rail == 2)))
    assert {bool(m.samples) for m in taken.values()} == {enough}


def of_rail(rail: int, **changes: Any) -> Callable[[CommandResult, int], CommandResult]:
    return lambda result, number: replace(result, **changes) if number == rail else result


def of_client(rail: int, change: Callable[[CommandResult], CommandResult]) -> Callable[..., CommandResult]:
    return lambda result, number: change(result) if number == rail and "  # to " in result.command else result


def replaced(old: str, new: str) -> Callable[[CommandResult], CommandResult]:
    return lambda result: replace(result, stdout=result.text.replace(old, new).encode())


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("one hangs", {"ended": of_rail(1, rc=None, error="no answer within 47 s")}, "nic1 of gpu-0"),
    ("a bad status after a good table", {"ended": of_client(2, lambda r: replace(r, rc=1))}, "nic2 of gpu-0"),
    ("a server that failed", {"ended": lambda r, rail: replace(r, rc=1) if "# from" in r.command else r}, "nic0 of"),
    ("the wrong device", {"ended": of_client(0, replaced("rxe0", "rxe9"))}, "expected device rxe0, actual rxe9"),
    ("another size", {"ended": of_client(0, replaced(" 65536 ", " 32768 "))}, "32768 B messages contradicts"),
    ("another test", {"ended": of_client(0, replaced("RDMA_Write BW", "RDMA_Read BW"))}, "expected test RDMA_Write BW"),
    ("two runs", {"ended": of_client(1, lambda r: replace(r, stdout=2 * r.stdout))}, "nic1 of gpu-0"),
    ("no table", {"ended": of_client(1, lambda r: replace(r, stdout=b""))}, "nic1 of gpu-0"),
    ("no times", {"ended": of_rail(0, stderr=b"")}, "nic0 of gpu-0"),
    ("one ends early", {"lasts": lambda node, rail: 0.7 if rail == 1 else SECONDS + 0.5}, "it ended after 0.7 of 4 s"),
    ("one after another", {"begins": lambda node, rail: (SECONDS + 1.0) * rail}, "all adapters together were busy for"),
    (
        "one much later",
        {"begins": lambda node, rail: 1.0 * (rail == 2)},
        "for 1.5 of the 2 s that count: nic2 ended last",
    ),
    ("one took another rail", {"way": lambda port: port.replace("1", "0")}, "expected fabric1 of gpu-0"),
]


@pytest.mark.parametrize(("what", "changes", "reason"), BROKEN, ids=[case[0] for case in BROKEN])
def test_what_is_no_number_of_any_adapter(tmp_path: Path, what: str, changes: dict[str, Any], reason: str) -> None:
    """Where one of them did not send, the others did not send beside all."""
    taken = measured(tmp_path, Nodes(**changes))
    assert len(taken) == 2 * RAILS
    for m in taken.values():
        assert not m.samples, what
        assert reason in (m.reason or ""), what


def test_a_run_without_overlap_is_repeated(tmp_path: Path) -> None:
    late = {"left": 6}

    def begins(node: str, rail: int) -> float:
        late["left"] -= rail == 2
        return 1.4 * (rail == 2 and late["left"] >= 0)

    taken = measured(tmp_path, Nodes(begins=begins))
    assert all(m.samples for m in taken.values())
    assert any(m.conditions.get("unreliable_runs") for m in taken.values())


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [("-none-", ""), ("-d rxe1", "different numbers of runs"), ("  # from gpu-01", "expected one partner of gpu-01")],
)
def test_evidence_gives_the_same_numbers_and_misses_what_was_left_out(
    tmp_path: Path, left_out: str, reason: str
) -> None:
    measured(tmp_path, Nodes())
    records = [record for record in read_records(tmp_path) if left_out not in str(record.body.get("command", ""))]
    faults = disproven(records, partial(read_raw, tmp_path), architecture(), "lab", node_infos(rack()))
    assert all(reason in fault for fault in faults.values())
    assert bool(faults) == bool(reason)
