"""Collectives in all parts: no bandwidth without proof of path, algorithm, ranks and rail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench.collectives import launch as collective_launch
from rackproof.bench.collectives.command import Requested, launcher_of, leads, requested_by
from rackproof.bench.collectives.engines import split_by_rails
from rackproof.bench.collectives.nccl_used import READING, check_used
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.bench.step import Step
from rackproof.bench.user import SETUP
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.architecture.coverage import measured_values
from rackproof.core.evidence import Kind, Measurement, Record
from rackproof.core.nvlink_domain import SERVICE
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.evidence.store import read_records
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.nccl_log import parse_nccl_log
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import at_once, lab_rack, reply, virtual_rack
from tests.unit.judging import architecture as one_architecture
from tests.unit.judging import bar, criterion, judged, verdicts

pytestmark = pytest.mark.few(23)

GIB = 1 << 30
SWEEP = {"min_bytes": 65536, "max_bytes": GIB, "factor": 128, "iterations": 3, "warmup": 1, "ranks_per_node": 1}
PARTS = {
    "ops": ["all_reduce"], "runs": 2,
    "node": {"algorithms": ["NVLS", "Ring"], "min_bytes": GIB, "max_bytes": GIB},
    "rails": {"min_bytes": GIB, "max_bytes": GIB},
}  # fmt: skip


@cache
def architecture(engine: str = "nccl-tests") -> Architecture:
    rack = virtual_rack()
    parts = PARTS if engine == "nccl-tests" else {"ops": ["all_reduce"], "runs": 2}
    profile = CollectiveProfile.model_validate({"engine": engine, **SWEEP, **parts})
    lab = rack.profiles["lab"].model_copy(update={"collectives": profile})
    return rack.model_copy(update={"profiles": {"lab": lab}})


def step(id_: str, engine: str = "nccl-tests") -> Step:
    steps = {s.id: s for s in bench(engine).steps()}
    return steps[id_]


def bench(engine: str) -> Bench:
    return Bench(architecture(engine), lab_rack(), "lab")


def measured(folder: Path, id_: str, nodes: FabricNodes, engine: str = "nccl-tests") -> dict[str, Measurement]:
    """By metric, size and node."""
    made = bench(engine).measure(folder, nodes.answer, [step(id_, engine)])
    return {f"{m.metric.partition('.')[2]} {m.labels['bytes']} {m.subject}": m for m in made}


TORCH = "collectives/torch/all_reduce"
RACK, RAIL = "collectives/nccl-tests/all_reduce", "collectives/nccl-tests/all_reduce/rail0"
NVLS, RING = "collectives/nccl-tests/node/all_reduce/NVLS", "collectives/nccl-tests/node/all_reduce/Ring"


@pytest.mark.parametrize(("id_", "numbers"), [(RACK, 3 * 4), (RAIL, 2), (NVLS, 2 * 4), (RING, 2 * 4)])
def test_every_launch_gives_a_sample_and_what_nccl_used_is_kept(tmp_path: Path, id_: str, numbers: int) -> None:
    made = measured(tmp_path, id_, FabricNodes())
    assert len(made) == numbers
    for measurement in made.values():
        assert measurement.reason is None, measurement.reason
        assert len(measurement.samples) == 2
        conditions = measurement.conditions
        assert conditions["nccl"] == "2.26.2"
        assert conditions["channels"] == 16
        assert "busbw_in_place" in conditions
    bandwidth = next(m for m in made.values() if m.metric.endswith("busbw"))
    if id_ in (RACK, RAIL):
        assert (bandwidth.conditions["network"], bandwidth.conditions["gpudirect"]) == ("NET/IB", True)
        assert bandwidth.conditions["adapters"] == "rxe0"
    if id_ == RAIL:
        assert bandwidth.labels["rail"] == "0"
        assert bandwidth.conditions["path"] == "GDRDMA"
        assert bandwidth.conditions["NCCL_MNNVL_ENABLE"] == "0"
    if id_ in (NVLS, RING):
        assert bandwidth.labels["algorithm"] == bandwidth.conditions["NCCL_ALGO"]
        assert bandwidth.conditions["ranks"] == 1


@pytest.mark.parametrize(
    ("id_", "launcher"),
    [(RACK, "mpirun"), (RACK, "srun"), (RAIL, "mpirun"), (NVLS, "mpirun"), (RING, "ssh"), (TORCH, "ssh")],
)
def test_every_number_is_read_again_from_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_: str, launcher: str
) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher=launcher))  # type: ignore[arg-type]
    engine = id_.split("/")[1]
    made = measured(tmp_path, id_, FabricNodes(), engine)
    assert all(measurement.samples for measurement in made.values())
    records = read_records(tmp_path)
    samples = {r.seq for r in records if r.kind is Kind.MEASUREMENT}
    assert len(samples) == len(made)

    def faults(kept: Sequence[Record]) -> dict[int, str]:
        return {seq: why for seq, why in bench(engine).faults(tmp_path, kept).items() if seq in samples}

    assert not faults(records)
    doubled = [
        r.model_copy(update={"body": {**r.body, "samples": [2 * s + 1 for s in r.body["samples"]]}})
        if r.seq in samples else r
        for r in records
    ]  # fmt: skip
    assert faults(doubled).keys() == samples


Said = Callable[[str, list[str]], list[str]]


def replaced(old: str, new: str) -> Said:
    return lambda node, lines: [line.replace(old, new) for line in lines]


def added(*more: str) -> Said:
    return lambda node, lines: [*lines, *(f"1 [0] {text}" for text in more)] if lines else lines


def of_node(name: str, change: Said) -> Said:
    return lambda node, lines: change(node, lines) if node == name else lines


@pytest.mark.parametrize(
    ("id_", "spoken", "reason"),
    [
        (RACK, replaced("NET/IB/0/GDRDMA", "NET/Socket/0"), "expected RDMA, actual NET/Socket on 32 connections"),
        (RACK, replaced("Using network IB", "Using network Socket"), "expected RDMA"),
        (RACK, replaced("via NET/IB/0/GDRDMA/Shared", "via SHM"), "names no connection to another node"),
        (RACK, lambda node, lines: [], "NCCL wrote no log"),
        (RACK, replaced("rank 1 nranks", "rank 0 nranks"), "expected complete ranks 0 to 1, actual 1 of them"),
        (RACK, added("WARN NET/IB : Got completion from peer with status=12"), "an adapter reported a failed transfer"),
        (RACK, added("WARN Cuda failure 719 'unspecified launch failure'"), "a call of CUDA failed: Cuda failure 719"),
        (RACK, replaced("]rxe0:1", "]rxe7:1"), "expected connections on all 1 rails, actual none on rxe0"),
        (RACK, replaced("]rxe0:1", "]rxe0"), "NCCL does not name the adapter 0 of its connections"),
        (
            RACK,
            added("INFO Channel [send] via NET/IB/1", "INFO NET/IB : Using [1]mlx5_9:1/IB"),
            "expected connections on the 1 rails alone, actual also on mlx5_9",
        ),
        (
            RACK,
            of_node("gpu-02", replaced("16 coll", "8 coll")),
            "expected one number of channels, actual 8 of gpu-02 (GPU 0), 16 of gpu-01 (GPU 0)",
        ),
        (RAIL, of_node("gpu-02", replaced("16 coll", "8 coll")), "expected one number of channels, actual 8 of gpu-02"),
        (
            RACK,
            added("INFO NCCL_TOPO_FILE set by environment to /etc/topo.xml"),
            "expected the topology file /etc/topo.xml loaded by 1 ranks, actual none",
        ),
        (
            RACK,
            added("INFO NCCL_TOPO_FILE set by environment to /a.xml", "INFO Loading topology file /b.xml"),
            "expected the topology file /a.xml loaded by 1 ranks, actual /b.xml by 1",
        ),
        (RAIL, replaced("]rxe0:1", "]rxe7:1"), "expected GPU 0 on rxe0, actual rxe7"),
        (RAIL, replaced("]rxe0:1", "]rxe0"), "NCCL does not name the adapter 0 of its connections"),
        (RAIL, replaced("NET/IB/0/GDRDMA", "NET/FastSocket/0"), "expected RDMA, actual NET/FastSocket"),
        (NVLS, replaced("is available", "is not available"), "expected NVLS, actual no multicast in the NVSwitches"),
        (NVLS, added("INFO AllReduce: 1024 Bytes -> Algo RING proto SIMPLE"), "algorithm NVLS, actual Ring"),
        (RING, added("INFO 1024 Bytes -> Algo 4 proto 2"), "expected the algorithm Ring, actual NVLS"),
        (RING, replaced("NCCL_ALGO set", "NCCL_ALGO_X set"), "NCCL does not say that it obeys"),
    ],
)
def test_another_path_or_algorithm_is_no_bandwidth(tmp_path: Path, id_: str, spoken: Said, reason: str) -> None:
    made = measured(tmp_path, id_, FabricNodes(spoken=spoken))
    assert made
    for measurement in made.values():
        assert not measurement.samples
        assert reason in (measurement.reason or ""), measurement.reason


@pytest.mark.parametrize(
    ("warning", "shown"),
    [
        ("Failed to open libibverbs.so[.1]", False),
        ("NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.", False),
        ("NUMA auto balancing enabled which can lead to variability in the NCCL performance! Disable it", False),
        ("a complaint that nothing here knows", True),
    ],
)
def test_other_warnings_cost_nothing_and_unknown_ones_are_shown(tmp_path: Path, warning: str, shown: bool) -> None:
    made = measured(tmp_path, RACK, FabricNodes(spoken=added(f"WARN {warning}")))
    for measurement in made.values():
        assert measurement.samples
        assert (warning in measurement.conditions.get("nccl_warnings", [])) is shown


# Rails, channels and topology files of nodes with several GPUs and rails.

RAILS = 4


def used(
    change: Said = lambda node, lines: lines,
    nccl: dict[str, str] | None = None,
    op: str = "all_reduce",
    rail: int | None = None,
    environment: dict[str, str] | None = None,
    files: tuple[str, ...] = (),
    rails: int = RAILS,
    services: tuple[str, ...] = (),
) -> str:
    """Why two nodes with four GPUs, each on a rail, did not do what was asked for; empty if they did."""
    made = virtual_rack()
    role = made.roles["gpu"]
    role = role.model_copy(update={"expect": role.expect.model_copy(update={"services": services})})
    assert made.fabric is not None
    assert made.gpu is not None
    made = made.model_copy(
        update={
            "fabric": made.fabric.model_copy(update={"rails": rails}),
            "gpu": made.gpu.model_copy(update={"nccl": nccl}),
            "roles": {**made.roles, "gpu": role},
        }
    )
    variables = {"NCCL_DEBUG": "INFO"} | (environment or {}) | (split_by_rails(rail, RAILS) if rail is not None else {})
    requested = Requested(
        2 * RAILS, ("gpu-01", "gpu-02"), RAILS, op, (8,), 1, 1, None, "nccl-tests", variables, topology_files=files
    )
    nodes = FabricNodes(spoken=change, adapters=RAILS)
    nodes._uses(requested, requested.hosts)
    logs = {node: parse_nccl_log(nodes._log(node)) for node in requested.hosts}
    try:
        check_used(logs, requested.asked(2), made)
    except Mismatch as mismatch:
        return mismatch.reason
    return ""


def over_nvlink(node: str, lines: list[str]) -> list[str]:
    return [re.sub(r"via NET/.*", "via P2P/MNNVL", line) for line in lines]


@pytest.mark.parametrize(
    ("services", "environment", "reason"),
    [
        ((SERVICE,), {}, ""),
        ((SERVICE,), {"NCCL_MNNVL_ENABLE": "0"}, "NCCL names no connection to another node"),
        ((), {}, "NCCL names no connection to another node"),
    ],
)
def test_nvlink_between_nodes_is_no_path_where_it_is_switched_off(
    services: tuple[str, ...], environment: dict[str, str], reason: str
) -> None:
    actual = used(over_nvlink, services=services, environment=environment)
    assert reason in actual
    assert bool(actual) == bool(reason)


def test_group_testing_uses_its_rails_also_where_nvlink_joins_the_nodes() -> None:
    off = {"NCCL_MNNVL_ENABLE": "0", "NCCL_IB_HCA": "=rxe0,rxe1"}
    assert not used(services=(SERVICE,), environment=off)
    other = replaced("[1]rxe1:1", "[1]rxe3:1")
    assert "on the 2 rails alone, actual also on rxe3" in used(other, services=(SERVICE,), environment=off)


LOADED = added(*["INFO Loading topology file /etc/topo.xml"] * RAILS)


@pytest.mark.parametrize("rail", [None, 0, 3])
def test_every_gpu_on_its_rail_is_what_was_asked_for(rail: int | None) -> None:
    assert not used(rail=rail)
    assert not used(LOADED, {"NCCL_TOPO_FILE": "/etc/topo.xml", "NCCL_MIN_NCHANNELS": "16"}, rail=rail)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"change": replaced("NET/IB/2", "NET/IB/1")}, "expected connections on all 4 rails, actual none on rxe2"),
        ({"change": of_node("gpu-02", replaced("NET/IB/3", "NET/IB/0"))}, "gpu-02: expected connections on all 4"),
        ({"rails": 2}, "expected connections on the 2 rails alone, actual also on rxe2, rxe3"),
        ({"change": replaced("NET/IB/2", "NET/IB/1"), "op": "sendrecv"}, ""),
        ({"change": replaced("[2]rxe2:1", "[2]mlx5_9:1"), "op": "sendrecv"}, "actual also on mlx5_9"),
        ({"change": replaced("NET/IB/2", "NET/IB/1"), "rail": 0}, "expected GPU 2 on rxe2, actual rxe1"),
        ({"change": replaced("NET/IB/2", "NET/IB/1"), "rail": 1}, "expected GPU 2 on rxe2, actual rxe1"),
        ({"change": added("INFO Channel [send] via NET/IB/1"), "rail": 0}, "expected GPU 0 on rxe0, actual rxe0, rxe1"),
        ({"environment": {"NCCL_IB_HCA": "=rxe0,rxe1"}}, ""),
        ({"environment": {"NCCL_IB_HCA": "=rxe0,rxe1"}, "change": replaced("[1]rxe1:1", "[1]rxe3:1")},
         "on the 2 rails alone, actual also on rxe3"),
        ({"change": replaced("1 [2] INFO 16 coll", "1 [2] INFO 8 coll")},
         "expected one number of channels, actual 8 of gpu-01 (GPU 2), 16 of gpu-01 (GPU 0)"),
        ({"change": replaced("1 [2] INFO 16 coll", "1 [2] INFO 8 coll"), "rail": 0}, ""),
        ({"nccl": {"NCCL_MIN_NCHANNELS": "32"}}, "gpu-01: expected 32 channels or more, actual 16"),
        ({"nccl": {"NCCL_MIN_CTAS": "17"}}, "expected 17 channels or more, actual 16"),
        ({"environment": {"NCCL_MIN_NCHANNELS": "32"}}, "expected 32 channels or more, actual 16"),
        ({"nccl": {"NCCL_MIN_NCHANNELS": "4"}, "change": replaced("coll channels", "c. channels")},
         "expected 4 channels or more, actual none reported"),
        ({"nccl": {"NCCL_TOPO_FILE": "/etc/topo.xml"}}, "/etc/topo.xml loaded by 4 ranks, actual none"),
        ({"nccl": {"NCCL_TOPO_FILE": "/x.xml"}, "change": LOADED}, "expected the topology file /x.xml"),
        ({"change": added("INFO Loading topology file /etc/topo.xml"), "files": ("/etc/topo.xml",)},
         "loaded by 4 ranks, actual /etc/topo.xml by 1"),
        ({"change": LOADED, "files": ("/etc/topo.xml", "/x.xml")}, ""),
        ({"files": ("/x.xml",), "rail": 2}, "expected the topology file /x.xml loaded by 4 ranks, actual none"),
    ],
)  # fmt: skip
def test_a_run_without_a_rail_its_channels_or_its_topology_file_does_not_count(
    asked: dict[str, Any], reason: str
) -> None:
    assert reason in used(**asked)
    assert bool(used(**asked)) == bool(reason)


def test_the_topology_file_of_the_inventory_must_be_loaded(tmp_path: Path) -> None:
    rack = lab_rack()
    for node in rack.group("gpu"):
        node.data["gpu"] = {"nccl_conf": {"NCCL_TOPO_FILE": "/etc/topo.xml"}}  # type: ignore[index]
    for folder, spoken, counts in (("a", added("INFO Loading topology file /etc/topo.xml"), True), ("b", None, False)):
        nodes = FabricNodes(spoken=spoken) if spoken else FabricNodes()
        made = Bench(architecture(), rack, "lab")
        (planned,) = [one for one in made.steps() if one.id == RACK]
        for measurement in made.measure(tmp_path / folder, nodes.answer, [planned]):
            assert bool(measurement.samples) == counts, measurement.reason
            assert counts or "expected the topology file /etc/topo.xml" in (measurement.reason or "")
            assert not counts or measurement.conditions["topology_file"] == "/etc/topo.xml"


def slower_in_place(program: str, text: str) -> str:
    """Half the bandwidth in place at 65536 B."""
    halved = "65536 16384 float sum -1 1000.0 0.0655 0.0655 0 2000.0 0.0328 0.0328 0"
    return re.sub("(?m)^65536 .*$", halved, text)


def without_in_place(program: str, text: str) -> str:
    return re.sub("(?m)^65536 .*$", "65536 16384 float sum -1 1000.0 0.0655 0.0655 0 N/A N/A N/A N/A", text)


def test_a_bandwidth_in_place_is_a_figure_of_its_own(tmp_path: Path) -> None:
    made = measured(tmp_path / "slow", RACK, FabricNodes(edit=slower_in_place))
    assert made["busbw 65536 rack"].samples == pytest.approx((0.0655, 0.0655))
    assert made["busbw_in_place 65536 rack"].samples == pytest.approx((0.0328, 0.0328))
    made = measured(tmp_path / "none", RACK, FabricNodes(edit=without_in_place))
    assert made["busbw 65536 rack"].samples
    assert "did not measure the operation in place" in (made["busbw_in_place 65536 rack"].reason or "")
    assert made[f"busbw_in_place {GIB} rack"].samples


@pytest.mark.parametrize(("value", "status"), [(0.03, Status.PASS), (0.05, Status.FAIL)])
def test_a_criterion_in_place_judges_that_half_alone(tmp_path: Path, value: float, status: Status) -> None:
    made = measured(tmp_path, RACK, FabricNodes(edit=slower_in_place))
    where = {"op": "all_reduce", "bytes": 65536, "engine": "nccl-tests"}
    entries = [
        criterion(id=name, metric=f"collective.{name}", scope="rack", where=where, bar=bar("ge", value, "GB/s"))
        for name in ("busbw", "busbw_in_place")
    ]
    judgement = judged(one_architecture(*entries), *made.values())
    statuses = {entry["id"]: verdicts(judgement, entry["id"])["rack"].status for entry in entries}
    assert statuses == {"busbw": Status.PASS, "busbw_in_place": status}


@pytest.mark.parametrize(("op", "engine", "planned"), [
    ("all_reduce", "nccl-tests", True), ("reduce_scatter", "nccl-tests", True), ("alltoall", "nccl-tests", False),
    ("all_reduce", "torch", False), ("all_reduce", "mpi", False),
])  # fmt: skip
def test_only_what_can_be_done_and_measured_in_place_is_planned(op: str, engine: str, planned: bool) -> None:
    made = architecture(engine)
    sizes = CollectiveProfile.model_validate({"engine": engine, **SWEEP, "ops": [op]})
    made = made.model_copy(update={"profiles": {"lab": made.profiles["lab"].model_copy(update={"collectives": sizes})}})
    metrics = {place.metric for one in Bench(made, lab_rack(), "lab").steps("collectives/") for place in one.expects}
    assert ("collective.busbw_in_place" in metrics) is planned
    assert (("collective.busbw_in_place", "op") in measured_values(made)) is planned


def wrong(program: str, text: str) -> str:
    """777 wrong elements in place at 65536 B."""
    lines = [f"{line[:-1]}777" if line.startswith("65536 ") else line for line in text.splitlines()]
    return "\n".join(lines).replace("values : 0 OK", "values : 1 FAILED") + "\n"


def wrong_everywhere(program: str, text: str) -> str:
    """777 wrong elements in place at every size."""
    return re.sub(r"(?m)^(\d+ \d+ float .*) 0$", r"\1 777", text).replace("values : 0 OK", "values : 1 FAILED")


def test_wrong_values_are_counted_even_where_the_bandwidth_does_not_count(tmp_path: Path) -> None:
    nodes = FabricNodes(spoken=replaced("NET/IB/0/GDRDMA", "NET/Socket/0"), edit=wrong, status={"mpirun": 1})
    made = measured(tmp_path, RACK, nodes)
    assert made["wrong_values 65536 rack"].samples == (777.0, 777.0)
    assert not made["busbw 65536 rack"].samples
    assert not made[f"wrong_values {8 << 20} rack"].samples, "none is wrong, over another path"


def test_wrong_values_are_counted_even_where_the_ports_did_not_carry_them(tmp_path: Path) -> None:
    nodes = FabricNodes(way=lambda port: "eth0", edit=wrong, status={"mpirun": 1})
    made = measured(tmp_path, RACK, nodes)
    assert made["wrong_values 65536 rack"].samples == (777.0, 777.0)
    assert not made["busbw 65536 rack"].samples
    assert "another path" in (made[f"wrong_values {8 << 20} rack"].reason or "")


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        (RAIL, f"rail_wrong_values {GIB} rack"),
        (NVLS, f"wrong_values {GIB} gpu-01"),
        (RING, f"wrong_values {GIB} gpu-02"),
    ],
)
@pytest.mark.parametrize("half", ["out of place", "in place"])
def test_wrong_values_of_rails_and_single_nodes_are_counted_and_fail(
    tmp_path: Path, id_: str, name: str, half: str
) -> None:
    def edit(program: str, text: str) -> str:
        """5 wrong elements in one half of the row."""
        columns = (r" 0( \S+ \S+ \S+ 0)$", r" 5\1") if half == "out of place" else (r" 0$", " 5")
        return re.sub(rf"(?m)^{GIB} .*$", lambda row: re.sub(*columns, row[0]), text)

    made = measured(tmp_path, id_, FabricNodes(edit=edit, status=dict.fromkeys(("mpirun", "all_reduce_perf"), 1)))
    assert made[name].samples == (5.0, 5.0), made[name].reason
    assert not any(m.samples for m in made.values() if "busbw" in m.metric), "its bandwidth says nothing"
    samples = {r.seq for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT}
    assert not samples & bench("nccl-tests").faults(tmp_path).keys()
    judgement = judged(one_architecture(criterion()), *made.values())
    verdict = verdicts(judgement, f"content[{made[name].metric}]")[made[name].subject]
    assert (verdict.status, verdict.required, verdict.value) == (Status.FAIL, True, 5.0)
    assert judgement.outcome is Outcome.NOT_CERTIFIED


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("id_", "name"),
    [(RACK, "wrong_values 65536 rack"), (RAIL, f"rail_wrong_values {GIB} rack"), (RING, f"wrong_values {GIB} gpu-01")],
)
def test_wrong_values_of_one_run_count_even_if_another_one_crashed(
    tmp_path: Path, id_: str, name: str, first: bool
) -> None:
    runs = dict.fromkeys(("gpu-01", "gpu-02"), 0)
    plain = FabricNodes(edit=wrong_everywhere, status=dict.fromkeys(("mpirun", "all_reduce_perf"), 1))

    def answer(node: str, command: str) -> CommandResult | None:
        made = plain.answer(node, command)
        if made is None or not launcher_of(command) or not leads(command):
            return made
        runs[node] += 1
        crashed = first if runs[node] == 1 else not first
        return reply(node, command, "gpu-02:17: Segmentation fault\n", rc=139) if crashed else made

    steps = [step(id_)]
    made = bench("nccl-tests").measure(tmp_path, answer, steps)
    by_name = {f"{m.metric.partition('.')[2]} {m.labels['bytes']} {m.subject}": m for m in made}
    assert set(runs.values()) <= {0, 2}
    assert by_name[name].samples == (777.0,), by_name[name].reason
    assert not any(m.samples for m in made if "busbw" in m.metric)
    samples = {r.seq for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT}
    assert not samples & bench("nccl-tests").faults(tmp_path).keys()


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    ("crash", "reason"),
    [
        (lambda text: text.partition("# Out of bounds")[0], "ended before its last size"),
        (
            lambda text: f"{text.partition(f'{8 << 20} ')[0]}gpu-01: Test NCCL failure common.cu:1\n",
            "Test NCCL failure",
        ),
    ],
)
def test_wrong_values_before_a_crash_count(
    tmp_path: Path, crash: Callable[[str], str], reason: str, status: int
) -> None:
    nodes = FabricNodes(edit=lambda program, text: crash(wrong(program, text)), status={"mpirun": status})
    made = measured(tmp_path, RACK, nodes)
    assert made["wrong_values 65536 rack"].samples == (777.0, 777.0)
    others = [m for name, m in made.items() if name != "wrong_values 65536 rack"]
    assert others
    assert not any(m.samples for m in others)
    assert all(reason in (m.reason or "") or "exit status 1" in (m.reason or "") for m in others), others[0].reason


def half_checked(program: str, text: str) -> str:
    """Results in place were not compared."""
    lines = [f"{line[:-1]}N/A" if line.startswith("65536 ") else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def test_results_of_one_half_alone_are_not_right(tmp_path: Path) -> None:
    made = measured(tmp_path, RACK, FabricNodes(edit=half_checked))
    assert "did not check the result" in (made["wrong_values 65536 rack"].reason or "")
    assert made[f"wrong_values {8 << 20} rack"].samples == (0.0, 0.0)
    assert made["busbw 65536 rack"].samples


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda program, text: text.replace("Rank  1", "Rank  0"), "busbw 0.0655 GB/s of 65536 B contradicts"),
        (lambda program, text: text.replace("on gpu-02", "on gpu-01"), "actual 2 on gpu-01"),
        (lambda program, text: text * 2, "more than one table"),
        (lambda program, text: text.partition("# Out of bounds")[0], "ended before its last size"),
        (lambda program, text: "# Collective test starting: all_gather_perf\n" + text, "expected all_reduce"),
        (lambda program, text: text + "gpu-01: Test NCCL failure common.cu:1 'remote error'\n", "Test NCCL failure"),
    ],
)
def test_a_table_of_something_else_is_no_number(tmp_path: Path, edit: Callable[[str, str], str], reason: str) -> None:
    made = measured(tmp_path, RACK, FabricNodes(edit=edit))
    assert all(not m.samples and reason in (m.reason or "") for m in made.values()), made.popitem()[1].reason


@pytest.mark.parametrize(("status", "word"), [(1, "exit status 1"), (124, "exit status 124")])
def test_a_good_table_of_a_run_that_failed_or_hung_is_no_number(tmp_path: Path, status: int, word: str) -> None:
    made = measured(tmp_path, RACK, FabricNodes(status={"mpirun": status}))
    assert all(not m.samples for m in made.values())
    assert all("mpirun" in (m.reason or "") for m in made.values())


def test_one_node_that_fails_leaves_the_others_their_numbers(tmp_path: Path) -> None:
    nodes = FabricNodes()
    plain = nodes.answer

    def answer(node: str, command: str) -> CommandResult | None:
        result = plain(node, command)
        if node == "gpu-02" and launcher_of(command) and result is not None:
            return CommandResult(node, command, 3, result.stdout, b"no CUDA-capable device is detected")
        return result

    nodes.answer = answer  # type: ignore[method-assign]
    made = measured(tmp_path, RING, nodes)
    assert made[f"busbw {GIB} gpu-01"].samples
    assert "no CUDA-capable device" in (made[f"busbw {GIB} gpu-02"].reason or "")


@pytest.mark.parametrize("launcher", ["ssh", "mpirun", "srun"])
def test_torch_runs_under_every_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher=launcher))  # type: ignore[arg-type]
    made = measured(tmp_path, TORCH, FabricNodes(), "torch")
    assert made
    for measurement in made.values():
        assert measurement.reason is None, measurement.reason
        assert len(measurement.samples) == 2
        assert measurement.conditions["backend"] == "gloo"
        assert launcher_of(measurement.conditions["command"]) == launcher


@pytest.mark.parametrize(("id_", "engine"), [(TORCH, "torch"), (RING, "nccl-tests")])
def test_ranks_start_on_all_nodes_of_a_large_rack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_: str, engine: str
) -> None:
    """Ranks of torch wait for each other: with those of 64 nodes alone a run of more nodes never begins."""
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="ssh"))
    purposes = at_once(monkeypatch)
    assert all(m.samples for m in measured(tmp_path, id_, FabricNodes(), engine).values())
    assert purposes == [engine] * 2


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
def test_mpi_uses_the_interface_of_the_fabric_under_every_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, engine: str
) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher=launcher))  # type: ignore[arg-type]
    made = measured(tmp_path, f"collectives/{engine}/all_reduce", FabricNodes(), engine)
    assert made
    for measurement in made.values():
        assert measurement.reason is None, measurement.reason
        assert len(measurement.samples) == 2
        assert launcher_of(measurement.conditions["command"]) == launcher
    (launch, *_) = [command for command in commands(tmp_path) if launcher_of(command) == launcher]
    assert "btl_tcp_if_include fabric0" in launch.replace("=", " ")


@pytest.mark.parametrize("status", [1, 14, 124])
def test_a_failed_job_of_slurm_has_the_name_of_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="srun"))
    made = measured(tmp_path, "collectives/mpi/all_reduce", FabricNodes(status={"srun": status}), "mpi")
    for measurement in made.values():
        assert re.fullmatch(rf"gpu-01: srun [\w ]+ \(exit status {status}\)", measurement.reason or "")


@pytest.mark.parametrize(("uid", "reason"), [(999, ""), (998, "make the account with one number on all nodes")])
def test_slurms_controller_knows_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, reason: str
) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="srun"))
    nodes, asked = FabricNodes(), []
    plain = nodes.answer

    def answer(node: str, command: str) -> CommandResult | None:
        if command == SETUP:
            asked.append(node)
            return CommandResult(node, command, 0, b"uid %d gid 991\n" % (uid if node == "storage-01" else 999), b"")
        return plain(node, command)

    nodes.answer = answer  # type: ignore[method-assign]
    made = measured(tmp_path, "collectives/mpi/all_reduce", nodes, "mpi")
    assert "storage-01" in asked
    assert all(bool(m.samples) != bool(reason) and reason in (m.reason or "") for m in made.values())


def of_torch(**fields: Any) -> Callable[[str, str], str]:
    return lambda program, text: json.dumps(json.loads(text) | fields) + "\n" if text else text


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda program, text: text * 2, "more than one JSON document"),
        (lambda program, text: text[: len(text) // 2], "cut off"),
        (of_torch(op="broadcast"), "actual broadcast"),
        (of_torch(hosts=["gpu-01", "gpu-01"]), "actual 2 on gpu-01"),
        (of_torch(hosts=["gpu-01"]), "hosts of 1"),
        (of_torch(backend="nccl"), "expected backend gloo, actual nccl"),
        (of_torch(results=[]), "results"),
    ],
)
def test_output_of_torch_about_something_else_is_no_number(
    tmp_path: Path, edit: Callable[[str, str], str], reason: str
) -> None:
    made = measured(tmp_path, TORCH, FabricNodes(edit=edit), "torch")
    assert all(not m.samples and reason in (m.reason or "") for m in made.values()), made.popitem()[1].reason


def test_wrong_values_of_torch_are_counted(tmp_path: Path) -> None:
    def edit(program: str, text: str) -> str:
        document = json.loads(text)
        for row in document["results"]:
            row["wrong"] = 777
        return json.dumps(document) + "\n"

    made = measured(tmp_path, TORCH, FabricNodes(edit=edit), "torch")
    assert {m.samples for name, m in made.items() if name.startswith("wrong_values")} == {(777.0, 777.0)}
    bandwidths = [m for name, m in made.items() if not name.startswith("wrong_values")]
    assert bandwidths
    assert all(not m.samples and "777 wrong values" in (m.reason or "") for m in bandwidths)


@pytest.mark.parametrize("status", [1, 124, 139])
def test_a_good_output_of_torch_that_failed_or_hung_is_no_number(tmp_path: Path, status: int) -> None:
    made = measured(tmp_path, TORCH, FabricNodes(status={"mpirun": status}), "torch")
    assert all(not m.samples and f"exit status {status}" in (m.reason or "") for m in made.values())


@pytest.mark.parametrize("python", ["/opt/conda/bin/python", "/usr/bin/python3.12", "/opt/torch/bin/python3"])
def test_torch_over_ssh_is_read_whatever_the_name_of_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    inputs = CollectiveInputs(launcher="ssh", python=python)
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: inputs)
    made = measured(tmp_path, TORCH, FabricNodes(), "torch")
    assert made
    assert all(m.samples for m in made.values()), {m.reason for m in made.values()}


def test_torch_over_ssh_needs_all_nodes_to_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="ssh"))
    nodes = FabricNodes()
    plain = nodes.answer

    def answer(node: str, command: str) -> CommandResult | None:
        result = plain(node, command)
        if node == "gpu-02" and launcher_of(command) and result is not None:
            return CommandResult(node, command, 1, b"", b"RuntimeError: connection closed by peer")
        return result

    nodes.answer = answer  # type: ignore[method-assign]
    made = measured(tmp_path, TORCH, nodes, "torch")
    assert all("connection closed by peer" in (m.reason or "") for m in made.values())


def test_nccl_tests_cannot_span_nodes_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="ssh"))
    made = measured(tmp_path, RACK, FabricNodes())
    assert all("nccl-tests needs mpirun or srun between nodes" in (m.reason or "") for m in made.values())


def test_a_missing_mpi_is_named(tmp_path: Path) -> None:
    nodes = FabricNodes(mpi="mpi4py ModuleNotFoundError: No module named 'mpi4py'\nsrun \n")
    made = measured(tmp_path, RACK, nodes)
    assert all("gpu-01 has no MPI" in (m.reason or "") for m in made.values())


# Command lines.


@pytest.mark.parametrize("ranks", [1, 4, 6, 8])
def test_every_rail_comes_first_once_and_the_ranks_are_split(ranks: int) -> None:
    firsts = []
    for rail in range(ranks):
        variables = split_by_rails(rail, ranks)
        gpus = [int(gpu) for gpu in variables["CUDA_VISIBLE_DEVICES"].split(",")]
        assert sorted(gpus) == list(range(ranks))
        firsts.append(gpus[0])
        if mask := variables.get("NCCL_TESTS_SPLIT_MASK"):
            assert all(rank & int(mask, 16) == rank % ranks for rank in range(64))
        else:
            assert variables["NCCL_TESTS_SPLIT"] == f"MOD {ranks}"
    assert firsts == list(range(ranks))


def test_other_commands_of_a_step_are_no_runs() -> None:
    assert launcher_of(READING) is None
    line = "env A=1 python3 -I /run/x/torch_collectives.py all_reduce 8 64 2 3 1 gloo 10.0.0.1:29500 a,b 2"
    assert [launcher_of(f"{line} {node}") for node in (0, 1)] == ["ssh", "ssh"]
    assert [leads(f"{line} {node}") for node in (0, 1)] == [True, False]
    assert requested_by(f"{line} 0").hosts == ("a", "b")
    with pytest.raises(ParseError, match="not one of the kit's"):
        requested_by("python3 -I /run/x/torch_collectives.py all_reduce 8")


# Plans of published architectures.

ALL = [
    "nvidia-dgx-a100", "nvidia-dgx-h100", "nvidia-dgx-h200", "nvidia-dgx-b200", "nvidia-gb200-nvl72", "hgx-h100-roce",
    "dell-isilon-f800-dgx1", "hitachi-v225g", "hpe-apollo6500-weka",
]  # fmt: skip


@pytest.mark.parametrize("id_", ALL)
def test_every_criterion_of_a_collective_has_a_step(id_: str) -> None:
    model = load(id_).model
    count = 18 if "gb200" in id_ else 4
    rack = Rack("x", tuple(Node(f"n{k}", (*model.roles,)) for k in range(count)))
    steps = plan_steps(model, "full", rack)
    missing = [line for line in plan_gaps(model, "full", rack, steps) if " collective." in line]
    assert not missing
    ranks = model.profiles["full"].collectives
    assert ranks is not None
    own = [s for s in steps if s.id.startswith("collectives/")]
    assert len({s.id for s in own}) == len(own)
