"""Group testing in a run: every fault by name, no healthy node named, no node cleared by a silent answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.bench.collectives.group_reader import OVER_GLOO
from rackproof.bench.collectives.groups import places_of
from rackproof.bench.collectives.launch import Launch
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.cli import proof, runs
from rackproof.core import gpu_clocks
from rackproof.core.architecture import Alternative, Architecture, Criterion, LinkProfile, Outlier, Profile
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.models import Link
from rackproof.core.evidence import Kind, Measurement, Record, Scope
from rackproof.core.group_testing import METRIC, stands_for
from rackproof.core.judging.judge import judge
from rackproof.core.metrics import METRICS
from rackproof.core.rack import Rack
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.errors import NodeUnreachable
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_records
from rackproof.parse.gpu_load import SAMPLER
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from tests.unit.benchmarked import Bench, measurements
from tests.unit.fakes import reply, scripted, virtual_rack
from tests.unit.false_certificates import racks
from tests.unit.false_certificates.edited import chained
from tests.unit.false_certificates.racks import World
from tests.unit.gpu_nodes import GpuNodes
from tests.unit.group_racks import HANG, Fault, GroupNodes, nodes_of, rack_of, slow, wrong
from tests.unit.judging import bar, criterion, document, info_of_nodes

pytestmark = pytest.mark.few(3)

COUNT = 24
NAMES = [f"gpu-{k:02d}" for k in range(1, COUNT + 1)]
GROUPS = {
    "engine": "mpi", "bytes": 1 << 20, "iterations": 3, "warmup": 1, "ranks_per_node": 1, "least_gb_per_s": 0.2,
}  # fmt: skip
LINKS = {"rdma_duration_s": 2, "latency_iterations": 200, "tcp_duration_s": 3, "groups": GROUPS}
PAIR = "link.tcp_bandwidth"
"""Metric of the transport that jobs of ``mpi`` use."""
RDMA = "link.rdma_write_bandwidth"


@cache
def architecture(engine: str = "mpi", groups: bool = True) -> Architecture:
    rack = virtual_rack()
    assert rack.fabric is not None
    links = LINKS | {"groups": GROUPS | {"engine": engine} if groups else None}
    pair = {"scope": "pair", "pass": {"op": "ge", "value": 0.01, "unit": "Gb/s"}, "where": {"rail": ["0", "1"]}}
    none = {"scope": "node", "pass": {"op": "le", "value": 0, "unit": "1"}, "where": {"engine": engine}}
    criteria = (
        criterion(id="pairs", metric=PAIR if engine == "mpi" else RDMA, members="gpu", **pair),
        criterion(id="groups", metric=METRIC, members="gpu", **none),
    )
    return rack.model_copy(
        update={
            "fabric": rack.fabric.model_copy(update={"rails": 2}),
            "gpu": rack.gpu if engine == "torch" else None,
            "profiles": {"lab": Profile(links=LinkProfile.model_validate(links))},
            "criteria": tuple(Criterion.model_validate(one) for one in criteria),
        }
    )


def bench(engine: str = "mpi") -> Bench:
    return Bench(architecture(engine), rack_of(COUNT), "lab")


def measure(
    folder: Path,
    nodes: GroupNodes,
    rack: Rack,
    only: str = "links/groups",
    engine: str = "mpi",
    dead: set[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Measurement]:
    """Numbers of group testing by node; ``dead`` nodes do not answer, and more of them may die on the way."""
    planned = Bench(architecture(engine), rack, "lab")
    with scripted(folder, nodes.answer, rack, planned.architecture) as session:
        if dead is not None:
            session.fleet.dead = dead  # type: ignore[attr-defined]
        session.store.append(Kind.STAGE, {"stage": "bench", "event": "begin"})
        run_steps(session, planned.steps(only), set(), say)
    return {m.members[0]: m for m in measurements(folder) if m.metric == METRIC}


def faults(folder: Path, records: Sequence[Record] | None = None, engine: str = "mpi") -> list[str]:
    return list(bench(engine).faults(folder, records).values())


def named(made: dict[str, Measurement]) -> dict[str, str]:
    """Named faults, by node with a number above zero."""
    return {node: one.conditions["faults"] for node, one in made.items() if any(one.samples)}


def unknown(made: dict[str, Measurement]) -> set[str]:
    return {node for node, one in made.items() if not one.samples}


@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
def test_a_healthy_rack_is_cleared_in_three_rounds(tmp_path: Path, engine: str) -> None:
    nodes = nodes_of(rack_of(COUNT))
    made = measure(tmp_path, nodes, rack_of(COUNT), engine=engine)
    assert set(made) == set(NAMES)
    for one in made.values():
        assert one.reason is None, one.reason
        assert one.samples == (0.0,)
        assert one.conditions["rounds"] == 3
        assert one.conditions["method"] == "group testing"
        assert one.companions["least_rate_gb_per_s"][0] >= 0.2
    assert faults(tmp_path, engine=engine) == []


@pytest.mark.parametrize(("engine", "launcher"), [("mpi", None), ("nccl-tests", "srun"), ("torch", "ssh")])
def test_a_dry_run_shows_the_first_job(tmp_path: Path, engine: str, launcher: str | None) -> None:
    rack = rack_of(8, launcher=launcher)
    measure(tmp_path, nodes_of(rack), rack, engine=engine)
    (step,) = Bench(architecture(engine), rack, "lab").steps("links/groups")
    ran = [str(r.body["command"]) for r in read_records(tmp_path) if r.kind is Kind.COMMAND]
    jobs = [command for command in ran if "  # sets of nodes" in command]
    *first, further = step.commands
    assert first == jobs[: 2 if engine == "mpi" else 1], "on each of two rails by itself, or at once"
    assert further.startswith("# further jobs ")


def torch_rack(count: int = COUNT, launcher: str = "ssh") -> Rack:
    """``ssh``: a site without nccl-tests and without MPI, where the kit starts a process on each node itself."""
    return rack_of(count, launcher=launcher)


@pytest.mark.parametrize("launcher", ["ssh", "srun", "mpirun"])
def test_torch_runs_the_jobs_where_there_are_no_nccl_tests(tmp_path: Path, launcher: str) -> None:
    rack = torch_rack(8, launcher)
    made = measure(tmp_path, nodes_of(rack), rack, engine="torch")
    assert {one.samples for one in made.values()} == {(0.0,)}, [one.reason for one in made.values()][:1]
    for one in made.values():
        assert one.conditions["transport"] == "RDMA"
        assert one.conditions["backend"] == "nccl"
        assert one.conditions["network"] == "NET/IB"
    assert list(Bench(architecture("torch"), rack, "lab").faults(tmp_path).values()) == []


@pytest.mark.parametrize(
    ("engine", "reasons", "outcome", "words"),
    [
        ("torch", "0x0000000000000040", "failed", "hardware thermal slowdown"),
        ("torch", "0x0000000000000004", "passed", "2 GPUs without a slowdown"),
        ("mpi", "0x0000000000000040", None, ""),
    ],
)
def test_a_gpu_that_slows_down_in_the_jobs_fails_by_its_name(
    tmp_path: Path, engine: str, reasons: str, outcome: str | None, words: str
) -> None:
    """Its node is cleared: the links are well. Jobs of MPI load no GPU."""
    nodes, rack = nodes_of(torch_rack(4)), torch_rack(4) if engine == "torch" else rack_of(4)
    healthy = GpuNodes().samples

    def answer(node: str, command: str) -> CommandResult | None:
        if command == SAMPLER:
            text = healthy.replace("0x0000000000000004", reasons) if node == "gpu-02" else healthy
            return reply(node, command, text, rc=143)
        return GroupNodes.answer(nodes, node, command)

    planned = Bench(architecture(engine), rack, "lab")
    gpu = virtual_rack().gpu
    assert gpu is not None
    made = replace(planned, architecture=planned.architecture.model_copy(
        update={"gpu": gpu.model_copy(update={"count": 2, "pcie_generation": 5, "pcie_width": 16})}
    ))  # fmt: skip
    made.measure(tmp_path, answer, made.steps("links/groups"))
    results = [r.body for r in read_records(tmp_path) if r.kind is Kind.CHECK and r.body["check"] == gpu_clocks.CHECK]
    by_node = {result["node"]: result for result in results}
    if outcome is None:
        assert not results
        return
    assert set(by_node) == set(NAMES[:4])
    assert by_node["gpu-02"]["outcome"] == outcome
    assert words in by_node["gpu-02"]["message"]
    assert {result["outcome"] for node, result in by_node.items() if node != "gpu-02"} == {"passed"}
    assert {by_node[node]["item"] for node in by_node} == {f"links/groups/{engine}/alltoall"}
    assert made.faults(tmp_path) == {}


def test_torch_names_a_faulty_link_and_a_rail(tmp_path: Path) -> None:
    faults_ = [Fault(frozenset({"gpu-03", "gpu-20"}), link=True), Fault(frozenset({"gpu-11"}), rail=1)]
    made = measure(tmp_path, nodes_of(torch_rack(), faults_), torch_rack(), engine="torch")
    assert named(made) == {
        "gpu-03": "between gpu-03 and gpu-20", "gpu-20": "between gpu-03 and gpu-20", "gpu-11": "rail 1 of gpu-11",
    }  # fmt: skip


def silent(lines: list[str]) -> list[str]:
    return [line for line in lines if "via NET/IB" not in line]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"followed": lambda answer: reply(answer.node, answer.command, rc=1)}, "exit status 1"),
        ({"followed": lambda answer: reply(answer.node, answer.command, rc=None, error=HANG)}, HANG),
        ({"edit": lambda program, text: text.replace('"nccl"', '"gloo"')}, "expected backend nccl, actual gloo"),
        ({"edit": lambda program, text: text.replace("alltoall", "all_gather")}, "expected operation alltoall"),
        ({"edit": lambda program, text: 2 * text}, "more than one JSON document"),
        ({"edit": lambda program, text: ""}, "no output"),
        ({"spoken": lambda node, lines: silent(lines)}, "NCCL"),
        ({"way": lambda port: "fabric9"}, "its counters say"),
    ],
)
def test_a_job_of_torch_that_proves_nothing_clears_nothing(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    nodes = nodes_of(torch_rack(4))
    for name, change in changes.items():
        setattr(nodes, name, change)
    made = measure(tmp_path, nodes, torch_rack(4), engine="torch")
    assert unknown(made) == set(NAMES[:4])
    assert any(reason in (one.reason or "") for one in made.values()), {one.reason for one in made.values()}


def test_torch_without_real_gpus_is_refused_with_one_line(tmp_path: Path) -> None:
    """gloo carries TCP: its jobs would clear criteria of RDMA."""
    rack = torch_rack(4)
    for node in rack.group("gpu"):
        node.data["simulated_gpus"] = True  # type: ignore[index]
    made = measure(tmp_path, nodes_of(rack), rack, engine="torch")
    assert {one.reason for one in made.values()} == {f"{OVER_GLOO}"}


NODE, OTHER = frozenset({"gpu-05"}), frozenset({"gpu-05", "gpu-18"})
UNIT = frozenset(f"gpu-{k:02d}" for k in range(9, 17))


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(NODE), "gpu-05"),
        (Fault(NODE, rail=1), "rail 1 of gpu-05"),
        (Fault(OTHER, link=True), "between gpu-05 and gpu-18"),
        (Fault(UNIT, rail=0), "leaf switch of rail 0 (gpu-09 … gpu-16)"),
        (Fault(NODE, passes=4), "gpu-05"),
        (Fault(NODE, shows=wrong), "gpu-05"),
    ],
)
def test_every_fault_has_its_name_and_no_healthy_node_has_one(
    tmp_path: Path, fault: Fault, words: str, engine: str
) -> None:
    if engine != "mpi" and fault.shows is not slow:
        pytest.skip("the changes are of the kit's own engine")
    fault.seen = 0
    if engine == "nccl-tests":
        fault = Fault(fault.nodes, fault.rail, fault.link, slow_table, fault.passes)
    nodes = nodes_of(rack_of(COUNT), [fault])
    made = measure(tmp_path, nodes, rack_of(COUNT), engine=engine)
    assert {n: w.removesuffix(", intermittent") for n, w in named(made).items()} == dict.fromkeys(fault.nodes, words)
    assert not unknown(made)
    assert faults(tmp_path, engine=engine) == []


def slow_table(text: str) -> str:
    """A table of nccl-tests with a tenth of the rate."""
    lines = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0].isdecimal():
            for at, factor in ((5, 10), (6, 0.1), (7, 0.1), (9, 10), (10, 0.1), (11, 0.1)):
                words[at] = f"{float(words[at]) * factor:.4f}"
        lines.append(" ".join(words) if words and words[0].isdecimal() else line)
    return "".join(f"{line}\n" for line in lines)


def cut(text: str) -> str:
    return text[: len(text) // 2]


def empty(text: str) -> str:
    return ""


def of_another_operation(text: str) -> str:
    return text.replace('"alltoall"', '"all_reduce"')


def unchecked(text: str) -> str:
    return text.replace('"wrong": 0', '"wrong": null')


@pytest.mark.few(1)
@pytest.mark.parametrize("shows", [HANG, "connection lost", cut, empty, of_another_operation, unchecked])
def test_a_node_whose_jobs_give_no_figure_is_neither_cleared_nor_failed(
    tmp_path: Path, shows: Callable[[str], str] | str
) -> None:
    made = measure(tmp_path, nodes_of(rack_of(COUNT), [Fault(NODE, shows=shows)]), rack_of(COUNT))
    assert unknown(made) == NODE
    assert "names gpu-05, and no proven figure shows it" in (made["gpu-05"].reason or "")
    assert named(made) == {}
    assert faults(tmp_path) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("shows", [HANG, cut, empty, of_another_operation, unchecked])
def test_where_no_job_gives_a_figure_no_node_is_cleared(tmp_path: Path, shows: Callable[[str], str] | str) -> None:
    every = Fault(frozenset(NAMES), shows=shows)
    made = measure(tmp_path, nodes_of(rack_of(COUNT), [every]), rack_of(COUNT))
    assert unknown(made) == set(NAMES)


def test_traffic_on_another_port_clears_no_node(tmp_path: Path) -> None:
    nodes = nodes_of(rack_of(COUNT))
    nodes.way = lambda port: "fabric0"
    made = measure(tmp_path, nodes, rack_of(COUNT))
    assert unknown(made) == set(NAMES)


def test_a_silent_node_is_left_out_and_the_others_are_searched(tmp_path: Path) -> None:
    nodes = nodes_of(rack_of(COUNT))
    made = measure(tmp_path, nodes, rack_of(COUNT), dead={"gpu-07"})
    assert unknown(made) == {"gpu-07"}
    assert not any("gpu-07" in job for job in nodes.jobs)
    assert faults(tmp_path) == []


def test_a_node_that_is_lost_in_the_search_is_not_cleared(tmp_path: Path) -> None:
    nodes, dead = nodes_of(rack_of(COUNT)), set[str]()

    def lose(number: int) -> None:
        if number == 1:
            dead.add("gpu-07")
            nodes.faults.append(Fault(frozenset({"gpu-07"}), shows=HANG))

    nodes.before_job = lose
    made = measure(tmp_path, nodes, rack_of(COUNT), dead=dead)
    assert unknown(made) == {"gpu-07"}
    assert named(made) == {}


def test_a_job_that_does_not_begin_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*arguments: object) -> None:
        raise NodeUnreachable("gpu-02", "connection lost")

    monkeypatch.setattr(Launch, "among", lost)
    lines: list[str] = []
    made = measure(tmp_path, nodes_of(rack_of(2)), rack_of(2), say=lines.append)
    assert unknown(made) == {"gpu-01", "gpu-02"}
    assert "group testing, round 1: 1 of 1 job failed" in lines


def test_a_node_that_stops_answering_does_not_fail_for_the_jobs_of_a_slow_one(tmp_path: Path) -> None:
    nodes = nodes_of(rack_of(COUNT), [Fault(NODE)])

    def silence(number: int) -> None:
        if number == 1:
            nodes.faults.append(Fault(frozenset({"gpu-17"}), shows=HANG))

    nodes.before_job = silence
    made = measure(tmp_path, nodes, rack_of(COUNT))
    assert {name: text.removesuffix(", intermittent") for name, text in named(made).items()} == {"gpu-05": "gpu-05"}
    assert unknown(made) == {"gpu-17"}
    assert "no proven figure shows it" in (made["gpu-17"].reason or "")
    assert faults(tmp_path) == []


def test_two_slow_nodes_are_both_named(tmp_path: Path) -> None:
    made = measure(tmp_path, nodes_of(rack_of(COUNT), [Fault(NODE), Fault(frozenset({"gpu-17"}))]), rack_of(COUNT))
    assert set(named(made)) == {"gpu-05", "gpu-17"}


# the judge


def verdicts(measurements: Sequence[Measurement], rack: Rack, made: Architecture | None = None) -> list[Verdict]:
    run = info_of_nodes(node_infos(rack), profile="lab")
    judged = judge(made or architecture(), run, measurements, [])
    return [verdict for verdict in judged.verdicts if verdict.id.partition("[")[0] in ("pairs", "groups")]


def with_links(folder: Path, *faulty: Fault) -> tuple[Measurement, ...]:
    measure(folder, nodes_of(rack_of(COUNT), faulty), rack_of(COUNT), only="links/")
    return tuple(measurements(folder))


@pytest.fixture(scope="module")
def healthy_links(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measurement, ...]:
    """Numbers of all links and of group testing in a healthy rack."""
    return with_links(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def slow_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a rack with one slow node; it is read, never written."""
    folder = tmp_path_factory.mktemp("slow")
    measure(folder, nodes_of(rack_of(COUNT), [Fault(NODE)]), rack_of(COUNT))
    return folder


def statuses(made: Sequence[Verdict], id_: str) -> dict[str, Status]:
    worst: dict[str, Status] = {}
    for verdict in made:
        if verdict.id.startswith(id_):
            worst[verdict.subject] = max(worst.get(verdict.subject, Status.PASS), verdict.status, key=lambda s: s.rank)
    return worst


def test_pairs_that_were_not_scheduled_are_no_gap_where_group_testing_cleared_both_ends(
    healthy_links: tuple[Measurement, ...],
) -> None:
    pairs = [m for m in healthy_links if m.metric == PAIR]
    assert len(pairs) == COUNT // 2 * 2  # each node once, on two rails
    made = verdicts(healthy_links, rack_of(COUNT))
    assert statuses(made, "pairs") == dict.fromkeys(NAMES, Status.PASS)
    assert statuses(made, "groups") == dict.fromkeys(NAMES, Status.PASS)
    text = next(verdict.message for verdict in made if verdict.id.startswith("pairs"))
    assert "264 other pairs of the rack were not scheduled: group testing cleared both of their nodes" in text


def test_members_are_compared_where_only_some_pairs_were_scheduled(healthy_links: tuple[Measurement, ...]) -> None:
    odd = Outlier.model_validate(
        {
            "id": "pairs", "title": "No slow pair", "metric": PAIR, "where": {"rail": ["0", "1"]}, "scope": "pair",
            "rel_pct": 50, "source": "design", "reason": "A slow port slows all.", "hint": "Look at the node.",
        }
    )  # fmt: skip
    made = architecture()
    made = made.model_copy(update={"criteria": made.criteria[1:], "outliers": (odd,)})
    given = verdicts(healthy_links, rack_of(COUNT), made)
    assert statuses(given, "pairs") == dict.fromkeys(NAMES, Status.PASS)
    text = next(verdict.message for verdict in given if verdict.id.startswith("pairs"))
    assert "264 other pairs of the rack were not scheduled: group testing cleared both of their nodes" in text
    slow = [
        m.model_copy(update={"samples": tuple(sample / 10 for sample in m.samples)})
        if m.metric == PAIR and "gpu-05" in m.members
        else m
        for m in healthy_links
    ]
    assert Status.FAIL in statuses(verdicts(slow, rack_of(COUNT), made), "pairs").values()
    pairs_only = [m for m in healthy_links if m.metric != METRIC]
    assert set(statuses(verdicts(pairs_only, rack_of(COUNT), made), "pairs").values()) == {Status.UNMEASURED}


def test_a_pair_that_fails_is_blamed_on_the_node_that_group_testing_names(
    healthy_links: tuple[Measurement, ...],
) -> None:
    """Each node has one pair, so no other pair shows which of the two it is."""
    slow = [
        m.model_copy(update={"samples": (1.0,)}) if m.metric == METRIC and m.members == ("gpu-05",)
        else m.model_copy(update={"samples": (1e-6,)}) if m.metric == PAIR and "gpu-05" in m.members
        else m
        for m in healthy_links
    ]  # fmt: skip
    partners = {name for m in healthy_links if m.metric == PAIR and "gpu-05" in m.members for name in m.members}
    given = statuses(verdicts(slow, rack_of(COUNT), architecture()), "pairs")
    assert {name for name, status in given.items() if status is Status.FAIL} == {"gpu-05"}
    assert {name for name, status in given.items() if status is Status.UNMEASURED} >= partners - {"gpu-05"}


def test_nodes_that_were_measured_with_strangers_only_have_no_pair(healthy_links: tuple[Measurement, ...]) -> None:
    """Group testing clears all of them, and no pair of the group has a number: that meets no criterion."""
    strangers = [
        m.model_copy(update={"members": (node, "storage-01")})
        for m in healthy_links
        for node in (m.members if m.metric == PAIR else ())
    ]
    taken = [*(m for m in healthy_links if m.metric != PAIR), *strangers]
    made = architecture()
    assert statuses(verdicts(taken, rack_of(COUNT), made), "pairs") == {"rack": Status.UNMEASURED}
    way = Alternative.model_validate({"metric": PAIR, "where": {"rail": "0"}, "scope": "pair", "pass": GOOD[PAIR]})
    own = made.criteria[1].model_copy(update={"any_of": (way,)})
    either = made.model_copy(update={"criteria": (own,)})
    assert set(statuses(verdicts(taken, rack_of(COUNT), either), "groups").values()) == {Status.PASS}


def asking(metric: str, engine: str = "mpi", **bar: Any) -> Architecture:
    """Every pair must have a number of the metric."""
    made = architecture(engine)
    asks = made.criteria[0].model_dump(mode="json", by_alias=True) | {"id": "pairs", "metric": metric, "pass": bar}
    return made.model_copy(update={"criteria": (Criterion.model_validate(asks), made.criteria[1])})


GOOD: dict[str, dict[str, Any]] = {
    "link.tcp_bandwidth": {"op": "ge", "value": 0.01, "unit": "Gb/s"},
    "link.tcp_retransmitted": {"op": "le", "value": 50, "unit": "percent"},
    "link.rdma_write_bandwidth": {"op": "ge", "value": 0.01, "unit": "Gb/s"},
    "link.rdma_write_latency": {"op": "le", "value": 1, "unit": "s"},
    "link.rdma_retries": {"op": "le", "value": 1000000, "unit": "1"},
}


@pytest.mark.parametrize("metric", GOOD)
def test_jobs_stand_for_pairs_of_their_own_transport_only(healthy_links: tuple[Measurement, ...], metric: str) -> None:
    over_tcp = metric.startswith("link.tcp_")
    made = verdicts(healthy_links, rack_of(COUNT), asking(metric, **GOOD[metric]))
    expected = Status.PASS if over_tcp else Status.UNMEASURED
    assert statuses(made, "pairs") == dict.fromkeys(NAMES, expected)
    refused = [p.message for p in problems(asking(metric, **GOOD[metric])) if "groups" in p.path]
    why = f"jobs of mpi run over TCP and stand for no {metric}, which criterion pairs requires of every pair"
    assert refused == ([] if over_tcp else [why])


def test_every_metric_of_pairs_has_a_transport_that_stands_for_it() -> None:
    of_pairs = {m.name for m in METRICS.values() if Scope.PAIR in m.scopes and m.benchmark == "links"}
    standing = [stands_for(engine) for engine in ("mpi", "nccl-tests")]
    assert stands_for("torch") == stands_for("nccl-tests")
    assert of_pairs == frozenset().union(*standing)
    assert standing[0] & standing[1] == {"link.loss", "link.round_trip"}
    assert not stands_for("gloo")


def test_numbers_of_another_engine_clear_no_node(healthy_links: tuple[Measurement, ...]) -> None:
    relabelled = [
        m.model_copy(update={"labels": m.labels | {"engine": "nccl-tests"}}) if m.metric == METRIC else m
        for m in healthy_links
    ]
    made = verdicts(relabelled, rack_of(COUNT))
    assert set(statuses(made, "pairs").values()) == {Status.UNMEASURED}


@pytest.mark.parametrize(
    ("bar", "refused"),
    [
        ({"op": "ge", "value": 3.2, "unit": "Gb/s"}, False),  # 0.4 GB/s, half of it is 0.2
        ({"op": "ge", "value": 3.3, "unit": "Gb/s"}, True),
        ({"op": "ge", "levels": {"lab": 0.1, "rack": 90.0}, "unit": "Gb/s"}, True),
        ({"op": "ge", "value": 90, "unit": "percent", "of": {"link": "port"}}, True),
        ({"op": "ge", "value": 5, "unit": "percent", "of": {"link": "port"}}, False),
    ],
)
def test_a_rate_far_below_the_bar_of_a_pair_is_refused(bar: dict[str, Any], refused: bool) -> None:
    port = Link.model_validate(
        {"title": "one port", "each": {"value": 50, "unit": "Gb/s", "source": "design"}, "count": 1}
    )
    made = asking(PAIR, **bar).model_copy(update={"links": {"port": port}})
    texts = [p.message for p in problems(made) if p.path[-1] == "least_gb_per_s"]
    assert [text.partition(":")[0] for text in texts] == (
        ["0.2 would clear pairs far below criterion pairs"] if refused else []
    )


def test_without_group_testing_every_pair_that_was_not_scheduled_is_a_gap(
    healthy_links: tuple[Measurement, ...],
) -> None:
    pairs_only = [m for m in healthy_links if m.metric != METRIC]
    assert set(statuses(verdicts(pairs_only, rack_of(COUNT)), "pairs").values()) == {Status.UNMEASURED}
    elsewhere = verdicts(healthy_links, rack_of(COUNT), architecture(groups=False))
    assert set(statuses(elsewhere, "pairs").values()) == {Status.UNMEASURED}


def test_the_node_that_is_not_cleared_has_the_gap_alone(tmp_path: Path) -> None:
    measured = with_links(tmp_path, Fault(NODE))
    made = verdicts(measured, rack_of(COUNT))
    assert statuses(made, "groups") == dict.fromkeys(NAMES, Status.PASS) | {"gpu-05": Status.FAIL}
    assert statuses(made, "pairs") == dict.fromkeys(NAMES, Status.PASS) | {"gpu-05": Status.UNMEASURED}
    failed = next(verdict for verdict in made if verdict.status is Status.FAIL)
    assert "gpu-05" in failed.message


def test_a_node_that_was_measured_with_no_other_is_a_gap(healthy_links: tuple[Measurement, ...]) -> None:
    measured = [m for m in healthy_links if not (m.metric == PAIR and "gpu-03" in m.members)]
    gaps = {node for node, status in statuses(verdicts(measured, rack_of(COUNT)), "pairs").items()
            if status is Status.UNMEASURED}  # fmt: skip
    assert "gpu-03" in gaps
    everyone = [m for m in measured if m.metric != PAIR]
    assert set(statuses(verdicts(everyone, rack_of(COUNT)), "pairs").values()) == {Status.UNMEASURED}


# racks that are too small for it


def from_nodes(count: int) -> Architecture:
    made = architecture()
    groups = GROUPS | {"from_nodes": count}
    lab = Profile(links=LinkProfile.model_validate(LINKS | {"groups": groups}))
    return made.model_copy(update={"profiles": {"lab": lab}})


def test_all_pairs_of_a_small_rack_are_measured_and_demanded(healthy_links: tuple[Measurement, ...]) -> None:
    small, large = from_nodes(COUNT + 1), from_nodes(COUNT)
    steps = Bench(small, rack_of(COUNT), "lab").steps("links/")
    assert not [step for step in steps if METRIC in {place.metric for place in step.expects}]
    pairs = {place.members for step in steps for place in step.expects if place.metric == PAIR}
    assert len(pairs) == COUNT * (COUNT - 1) // 2
    made = verdicts(healthy_links, rack_of(COUNT), small)
    assert set(statuses(made, "pairs").values()) == {Status.UNMEASURED}, "group testing stands for no pair"
    assert not statuses(made, "groups")
    pair = next(m for m in healthy_links if m.metric == PAIR)
    both = [pair.model_copy(update={"members": members, "labels": pair.labels | {"rail": rail}})
            for members in sorted(pairs) for rail in ("0", "1")]  # fmt: skip
    assert statuses(verdicts(both, rack_of(COUNT), small), "pairs") == dict.fromkeys(NAMES, Status.PASS)
    assert Status.UNMEASURED in statuses(verdicts(both[1:], rack_of(COUNT), small), "pairs").values()
    assert set(statuses(verdicts(both, rack_of(COUNT), large), "groups").values()) == {Status.UNMEASURED}


@pytest.mark.parametrize(("count", "gap"), [(COUNT, False), (COUNT + 1, False)])
def test_a_rack_that_is_too_small_has_no_gap(count: int, gap: bool) -> None:
    made = from_nodes(count)
    lines = plan_gaps(made, "lab", rack_of(COUNT), plan_steps(made, "lab", rack_of(COUNT)))
    assert any(METRIC in line for line in lines) is gap


# the evidence


def edited_number(records: Sequence[Record], node: str, **fields: Any) -> list[Record]:
    def change(record: Record) -> dict[str, Any]:
        own = record.kind is Kind.MEASUREMENT and record.body["members"] == [node]
        return record.body | fields if own else record.body

    return chained((record.kind, change(record)) for record in records)


def test_a_cleared_node_that_was_named_is_disproven(slow_node: Path) -> None:
    records = read_records(slow_node)
    assert faults(slow_node, records) == []
    (why,) = faults(slow_node, edited_number(records, "gpu-05", samples=[0.0]))
    assert "recorded 0 1, its raw output gives 1" in why


def test_without_its_failed_jobs_a_search_clears_no_node(slow_node: Path) -> None:
    records = read_records(slow_node)
    launched = [r for r in records if r.kind is Kind.COMMAND and "sets of nodes" in r.body["command"]]
    for gone in launched[:6]:
        kept = chained((r.kind, r.body) for r in records if r is not gone)
        edited = edited_number(kept, "gpu-05", samples=[0.0])
        assert faults(slow_node, edited)


# resume


def interrupted(folder: Path, nodes: GroupNodes, at: int, lost: str = "") -> None:
    """A search that ends with an interrupt before launch ``at``."""

    def interrupt(number: int) -> None:
        if number == at:
            raise KeyboardInterrupt

    nodes.before_job = interrupt
    planned = bench()
    with scripted(folder, nodes.answer, planned.rack, planned.architecture) as session:
        session.store.append(Kind.STAGE, {"stage": "bench", "event": "begin"})
        with pytest.raises(KeyboardInterrupt):
            run_steps(session, planned.steps("links/groups"), set(), lambda text: None)
        if lost:
            session.lose(lost, "connection lost")
    nodes.before_job = lambda number: None


def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = nodes_of(rack_of(COUNT), [Fault(NODE, rail=1)])
    measure(tmp_path / "whole", whole, rack_of(COUNT))
    nodes = nodes_of(rack_of(COUNT), [Fault(NODE, rail=1)])
    interrupted(tmp_path / "run", nodes, 20)
    ran = len(nodes.jobs)
    again = measure(tmp_path / "run", nodes, rack_of(COUNT))
    assert named(again) == {"gpu-05": "rail 1 of gpu-05"}
    assert not unknown(again), again["gpu-01"].reason
    assert len(nodes.jobs) <= len(whole.jobs) + 8  # jobs of the round that was interrupted
    assert len(nodes.jobs) - ran < len(whole.jobs)
    assert faults(tmp_path / "run") == []


def test_a_lost_node_lets_the_search_begin_anew(tmp_path: Path) -> None:
    nodes = nodes_of(rack_of(COUNT))
    interrupted(tmp_path, nodes, 4, lost="gpu-03")
    nodes.jobs.clear()
    assert not unknown(measure(tmp_path, nodes, rack_of(COUNT)))
    assert len(nodes.jobs[0]) == COUNT
    assert faults(tmp_path) == []


# the plan


def test_each_node_is_measured_with_one_other(tmp_path: Path) -> None:
    for count in (2, 3, 8, 9):
        steps = plan_steps(architecture(), "lab", rack_of(count))
        pairs = {m.members for step in steps for m in step.expects if m.metric == RDMA}
        assert {name for pair in pairs for name in pair} == set(NAMES[:count])
        assert len(pairs) == -(-count // 2)
        lossy = {m.members for step in steps for m in step.expects if m.metric == "link.loss"}
        assert sum("storage-01" in pair for pair in lossy) == count
        assert len(lossy) == count + len(pairs)


def test_the_inventory_names_racks_and_leaf_switches() -> None:
    known = places_of(rack_of(COUNT), NAMES, 2)
    assert [len(unit) for unit in known.units()] == [8, 8, 8]
    assert known.leaves["gpu-09"] == ("leaf-1-0", "leaf-1-1")
    assert len(places_of(rack_of(COUNT, known=False), NAMES, 2).units()) == 1


def test_an_architecture_with_group_testing_judges_what_it_names() -> None:
    made = architecture()
    without = made.model_copy(update={"criteria": made.criteria[:1]})
    texts = [p.message for p in problems(without) if "groups" in p.path]
    assert texts == ["what it names would fail nothing: no required criterion has the metric group.faults"]
    assert not [p for p in problems(made) if "groups" in p.path]
    assert made.criteria[1].scope is Scope.NODE


# the whole command


def certifying(world: World, monkeypatch: pytest.MonkeyPatch, nodes: GroupNodes) -> None:
    """``certify`` on a rack of 9 GPU nodes with two rails."""
    rack = rack_of(9, known=False)
    names = tuple(node.name for node in rack.nodes)
    rail = {"where": {"rail": ["0", "1"]}, "scope": "pair"}
    criteria = [
        criterion(id="tcp", metric=PAIR, members="gpu",
                  bar=bar("ge", 0.01, "Gb/s"), **rail),
        criterion(id="again", metric="link.tcp_retransmitted", **rail,
                  bar=bar("le", 3, "percent")),
        criterion(id="loss", metric="link.loss", members="all", **rail,
                  bar=bar("le", 1, "percent")),
        criterion(id="delay", metric="link.round_trip", members="all", **rail,
                  bar=bar("le", 15, "ms")),
        criterion(id="groups", metric=METRIC, where={}, members="gpu", scope="node",
                  bar=bar("le", 0, "1")),
    ]  # fmt: skip
    made = document(
        *criteria,
        fabric={"kind": "soft-roce", "mtu": 9000, "rails": 2, "rdma_prefix": "rxe"},
        profiles={"full": {"links": LINKS}},
    )
    (world.folder / "architectures/small.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    monkeypatch.setattr(racks, "NODES", names)
    monkeypatch.setattr(racks, "GPU", names[1:])
    world.machines = {name: number for number, name in enumerate(names)}
    world.boots = dict.fromkeys(names, 1)
    world.computers = {name: racks.Machine() for name in names}
    plain = world.answer
    world.answer = lambda node, command: plain(node, command) or nodes.answer(node, command)  # type: ignore[method-assign]
    for module in (stages, proof):
        monkeypatch.setattr(module, "plan_steps", plan_steps)
    monkeypatch.setattr(runs, "load_rack", lambda inventory: Rack(inventory, rack.nodes))


def test_certify_names_the_rail_and_the_method(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = nodes_of(rack_of(9, known=False), [Fault(frozenset({"gpu-04"}), rail=1)])
    certifying(world, monkeypatch, nodes)
    result = world.certify()
    assert result.exit_code == 1, result.output
    failed = {v["subject"]: v["message"] for v in world.certificate()["verdicts"] if v["status"] == "FAIL"}
    assert failed.keys() == {"gpu-04"}
    assert "rail 1 of gpu-04" in failed["gpu-04"]
    method = "Links by group testing: 5 of 36 pairs were measured"
    assert any(text.startswith(method) for text in world.certificate()["caveats"])
    assert method in result.output.replace("\n", " ")
    assert method in world.page()


def test_certify_of_a_healthy_rack_resumes_and_is_judged_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = nodes_of(rack_of(9, known=False))
    certifying(world, monkeypatch, nodes)

    def interrupt(number: int) -> None:
        if number == 6:
            raise KeyboardInterrupt

    nodes.before_job = interrupt
    assert world.run("certify", "a.py", "--quiet").exit_code == 130
    ran = len(nodes.jobs)
    nodes.before_job = lambda number: None
    result = world.certify("--resume", "latest")
    assert result.exit_code == 0, result.output
    assert world.certificate()["outcome"] == "CERTIFIED"
    assert len(nodes.jobs) - ran < 18  # all of them are 9 jobs on two rails
    assert "group testing continues after" in (world.runs[-1] / "run.log").read_text()
    again = world.run("judge", str(world.runs[-1]))
    assert again.exit_code == 0, again.output
