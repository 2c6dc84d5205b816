"""Links and collectives whose figures say nothing about the ports, the nodes or the work that is claimed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import reduce
from itertools import zip_longest
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rackproof.bench.collectives.command import requested_by
from rackproof.bench.links import figures as link_figures
from rackproof.bench.plan import plan_steps
from rackproof.bench.port_proof import LEAST_SHARE, by_interface, by_rdma, prove
from rackproof.cli import proof, runs
from rackproof.core.architecture import Fabric
from rackproof.core.collective import least_received
from rackproof.core.evidence import Kind
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.port_counters import PortCounters
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from tests.unit.fabric import FabricNodes
from tests.unit.false_certificates.edited import certificate, chained, without
from tests.unit.false_certificates.racks import World
from tests.unit.judging import GPU, NODES, criterion, document

pytestmark = pytest.mark.few(2)

LINKS = {"rdma_duration_s": 2, "latency_iterations": 200, "tcp_duration_s": 3, "runs": 2}
COLLECTIVES = {
    "engine": "mpi", "ops": ["all_reduce", "all_gather", "alltoall"], "min_bytes": 4096, "max_bytes": 65536,
    "factor": 4, "iterations": 3, "warmup": 1, "ranks_per_node": 2,
}  # fmt: skip
SIZES = [4096, 16384, 65536]
UNBOUND = re.compile(r"^numactl \S+ \S+ ")


def bar(op: str, value: float, unit: str, **fields: Any) -> dict[str, Any]:
    return {"scope": "pair", "pass": {"op": op, "value": value, "unit": unit}} | fields


ON_DEMAND = [
    criterion(id="both", metric="link.rdma_write_bandwidth_both", **bar("ge", 0.01, "Gb/s"), where={"rail": [0]}),
    criterion(id="read-latency", metric="link.rdma_read_latency", **bar("le", 100, "us"), where={"rail": [0]}),
]
"""Criteria of metrics that are measured only where a criterion asks."""


def text(rails: int, engine: str, *further: dict[str, Any]) -> str:
    rail = {"where": {"rail": list(range(rails))}}
    ops = {"op": COLLECTIVES["ops"], "bytes": SIZES}
    criteria = [
        criterion(id="tcp", metric="link.tcp_bandwidth", **bar("ge", 0.01, "Gb/s"), **rail),
        criterion(id="again", metric="link.tcp_retransmitted", **bar("le", 3, "percent"), **rail),
        criterion(id="rdma", metric="link.rdma_write_bandwidth", **bar("ge", 0.01, "Gb/s"), **rail),
        criterion(id="retries", metric="link.rdma_retries", **bar("le", 50, "1"), **rail),
        criterion(id="latency", metric="link.rdma_write_latency", **bar("le", 100, "us"), **rail),
        criterion(id="loss", metric="link.loss", members="all", **bar("le", 1, "percent"), **rail),
        criterion(id="delay", metric="link.round_trip", members="all", **bar("le", 15, "ms"), **rail),
        criterion(
            id="busbw", metric="collective.busbw", where=ops, **bar("ge", 0.0001, "GB/s") | {"scope": "rack"}
        ),
        criterion(
            id="wrong", metric="collective.wrong_values", where=ops, **bar("eq", 0, "1") | {"scope": "rack"}
        ),
    ]  # fmt: skip
    made = document(
        *criteria,
        *further,
        fabric={"kind": "soft-roce", "mtu": 9000, "rails": rails, "rdma_prefix": "rxe"},
        profiles={"full": {"links": LINKS, "collectives": COLLECTIVES | {"engine": engine}}},
    )
    return yaml.safe_dump(made, sort_keys=False)


class Fabricated:
    """A world whose benchmarks are the kit's own, over the ports of ``nodes``."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, rails: int, engine: str, subnet: str) -> None:
        self.world, self.rails, self.subnet = world, rails, subnet
        self.nodes = FabricNodes({self.address(k, rail): name for k, name in enumerate(NODES) for rail in range(rails)})
        (world.folder / "architectures/small.yaml").write_text(text(rails, engine))
        plain = world.answer
        world.answer = lambda node, command: plain(node, command) or self.nodes.answer(node, command)  # type: ignore[method-assign]
        for module in (stages, proof):
            monkeypatch.setattr(module, "plan_steps", plan_steps)
        monkeypatch.setattr(runs, "load_rack", self.rack)

    def address(self, node: int, rail: int) -> str:
        return self.subnet.format(rail=rail, host=21 + node + 10 * rail)

    def rack(self, inventory: str) -> Rack:
        made = []
        for k, node in enumerate(self.world.rack(inventory).nodes):
            addresses = [f"{self.address(k, rail)}/24" for rail in range(self.rails)]
            made.append(Node(node.name, node.groups, {**node.data, "fabric_addresses": addresses}))
        return Rack(inventory, tuple(made))

    def certify(self) -> tuple[int, str, str]:
        """Exit status, terminal and page."""
        result = self.world.certify()
        return result.exit_code, result.output, self.world.page()

    def reasons(self, metric: str) -> set[str]:
        return {
            str(record.body["reason"])
            for record in self.world.records
            if record.kind is Kind.MEASUREMENT and record.body["metric"] == metric and not record.body["samples"]
        }

    def commands(self, begin: str) -> list[str]:
        return [
            r.body["command"]
            for r in self.world.records
            if r.kind is Kind.COMMAND and UNBOUND.sub("", r.body["command"]).startswith(begin)
        ]


Make = Callable[..., Fabricated]


@pytest.fixture
def make(world: World, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(rails: int = 1, engine: str = "mpi", subnet: str = "10.77.{rail}.{host}") -> Fabricated:
        return Fabricated(world, monkeypatch, rails, engine, subnet)

    return made


@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
def test_a_healthy_fabric_is_certified(make: Make, engine: str) -> None:
    fabric = make(engine=engine)
    status, output, _ = fabric.certify()
    assert status == 0, output
    assert fabric.world.certificate()["outcome"] == "CERTIFIED"


def test_both_ways_and_reads_are_measured_where_a_criterion_asks(make: Make) -> None:
    fabric = make()
    (fabric.world.folder / "architectures/small.yaml").write_text(text(1, "mpi", *ON_DEMAND))
    status, output, _ = fabric.certify()
    assert status == 0, output
    by_metric = {r.body["metric"]: r.body for r in fabric.world.records if r.kind is Kind.MEASUREMENT}
    both, one = by_metric["link.rdma_write_bandwidth_both"], by_metric["link.rdma_write_bandwidth"]
    assert both["samples"] == one["samples"], "of one direction, as the other runs"
    assert " ib_read_lat " in by_metric["link.rdma_read_latency"]["conditions"]["command"]
    assert by_metric["link.rdma_read_latency"]["conditions"]["bound"] == "numactl: processors and memory"
    assert len(fabric.commands("ib_write_bw ")) == 2 * len(fabric.commands("ib_read_lat ")) > 0


@pytest.mark.parametrize(
    ("metric", "program", "change", "words"),
    [
        ("link.rdma_write_bandwidth_both", "ib_write_bw", "one way", "sent"),
        ("link.rdma_write_bandwidth_both", "ib_write_bw", ("Bidirectional ", ""), "contradicts"),
        ("link.rdma_read_latency", "ib_read_lat", ("RDMA_Read", "RDMA_Write"), "expected test RDMA_Read Latency"),
        ("link.rdma_read_latency", "ib_read_lat", ("200           ", "100           "), "expected iterations 200"),
    ],
)
@pytest.mark.few(1)
def test_what_goes_one_way_is_no_figure_of_both(
    make: Make, metric: str, program: str, change: str | tuple[str, str], words: str
) -> None:
    fabric = make()
    (fabric.world.folder / "architectures/small.yaml").write_text(text(1, "mpi", *ON_DEMAND))
    if isinstance(change, tuple):
        before, after = change
        fabric.nodes.edit = lambda name, printed: printed.replace(before, after) if name == program else printed
    else:
        fabric.nodes.one_way = True
    status, output, _ = fabric.certify()
    assert status == 2, output
    assert all(words in reason for reason in fabric.reasons(metric)), fabric.reasons(metric)
    assert fabric.reasons(metric)


def test_the_traffic_of_a_rail_that_takes_another_one_is_no_number(make: Make) -> None:
    fabric = make(rails=2)
    fabric.nodes.way = lambda port: "fabric0"
    status, _output, page = fabric.certify()
    assert status == 2
    assert fabric.world.certificate()["outcome"] == "INCOMPLETE"
    (reason,) = fabric.reasons("link.tcp_bandwidth")
    assert reason == (
        "gpu-02: iperf3: expected fabric1 of gpu-02 to have sent at least 90000000 B, its counters say 0: another path"
    )
    assert reason.partition(": ")[2] in page.replace("&#39;", "'")
    assert fabric.reasons("link.rdma_write_bandwidth")
    assert fabric.reasons("link.rdma_write_latency")


def test_rails_in_one_subnet_are_bound_to_their_devices(make: Make) -> None:
    shared = make(rails=2, subnet="10.77.0.{host}")
    assert shared.certify()[0] == 0
    assert any("-B 10.77.0.32 --bind-dev fabric1" in command for command in shared.commands("iperf3 -c"))


def test_traffic_over_the_management_network_is_no_number(make: Make) -> None:
    fabric = make()
    fabric.nodes.way = lambda port: "eth0"
    assert fabric.certify()[0] == 2
    for metric in ("link.tcp_bandwidth", "link.rdma_write_bandwidth", "link.rdma_write_latency", "collective.busbw"):
        reasons = fabric.reasons(metric)
        assert reasons
        assert all("another path" in reason for reason in reasons)


def edited_json(change: Callable[[dict[str, Any]], object]) -> Callable[[str, str], str]:
    """Changes the documents of iperf3 or mpirun."""

    def edit(program: str, output: str) -> str:
        if not output.startswith("{"):
            return output
        document = json.loads(output)
        change(document)
        return json.dumps(document) + "\n"

    return edit


def of_iperf3(**fields: Any) -> Callable[[str, str], str]:
    return edited_json(lambda d: d["start"]["test_start"].update(fields) if "start" in d else None)


def replaced(old: str, new: str) -> Callable[[str, str], str]:
    return lambda program, output: output.replace(old, new)


def twice(tool: str) -> Callable[[str, str], str]:
    """Two runs in one output."""
    return lambda program, output: output * 2 if program == tool else output


Edit = tuple[Callable[[str, str], str], str]
"""An edit of a tool's outputs, and why they then give no number."""


def of_collective(change: Callable[[dict[str, Any]], object]) -> Callable[[str, str], str]:
    return edited_json(lambda d: change(d) if "results" in d else None)


FIGURES = {
    "iperf3": "link.tcp_bandwidth",
    "ib_write_bw": "link.rdma_write_bandwidth",
    "ib_write_lat": "link.rdma_write_latency",
    "mpirun": "collective.busbw",
    "ping": "link.loss",
}
SOMETHING_ELSE: dict[str, tuple[Edit, ...]] = {
    "iperf3": (
        (of_iperf3(num_streams=4), "expected streams 1, actual 4"),
        (of_iperf3(duration=1), "expected duration in s 3, actual 1"),
        (of_iperf3(protocol="UDP"), "expected protocol TCP, actual UDP"),
        (of_iperf3(reverse=1), "expected direction client sends, actual server sends"),
        (
            edited_json(lambda d: d["start"].update(connected=[]) if "start" in d else None),
            "expected server's address 10.77.0.21, actual not reported",
        ),
        (
            edited_json(
                lambda d: d["end"]["sum_received"].update(bytes=0, bits_per_second=0.0) if "start" in d else None
            ),
            "0 B received of 90000000 B sent",
        ),
        (twice("iperf3"), "more than one JSON document"),
    ),
    "ib_write_bw": (
        (replaced(" 65536  ", " 4096  "), "contradicts"),
        (replaced("RDMA_Write BW", "RDMA_Read BW"), "actual RDMA_Read BW"),
        (replaced(": RC", ": UD"), "expected connection RC, actual UD"),
        (replaced("4096[B]", "1024[B]"), "expected RDMA MTU in B 4096, actual 1024"),
        (twice("ib_write_bw"), "expected one message size, actual 2"),
    ),
    "ib_write_lat": (
        (replaced("Device         : rxe0", "Device         : rxe7"), "actual rxe7"),
        (replaced(": Ethernet\n", ": IB\n"), "expected link type Ethernet, actual IB"),
        (replaced(" 200           1.54", " 5             1.54"), "expected iterations 200, actual 5"),
        (twice("ib_write_lat"), "expected one message size, actual 2"),
    ),
    "mpirun": (
        (
            of_collective(lambda d: d.update(hosts=["gpu-01"] * 4)),
            "ranks by host 2 on gpu-01, 2 on gpu-02, actual 4 on gpu-01",
        ),
        (of_collective(lambda d: d.update(hosts=["gpu-01", "gpu-02"])), "4 ranks, and hosts of 2"),
        (of_collective(lambda d: d.update(hosts=["gpu-01", "elsewhere"] * 2)), "actual 2 on elsewhere, 2 on gpu-01"),
        (of_collective(lambda d: d.update(dtype="float64")), "expected element float32, actual float64"),
        (of_collective(lambda d: d.update(results=d["results"][:1])), "expected number of sizes 3, actual 1"),
        (
            of_collective(lambda d: [r.update(samples_us=[1000.0]) for r in d["results"]]),
            "expected iterations 3, actual 1",
        ),
        (of_collective(lambda d: d.update(warmup=0)), "expected warm-up 1, actual 0"),
        (of_collective(lambda d: d.pop("warmup")), "warmup is missing"),
        (
            of_collective(lambda d: [r.update(samples_us=[r["time_us"], 9e6, 9e6]) for r in d["results"]]),
            "but the mean of its samples is",
        ),
    ),
    "ping": (
        (replaced(" received, ", " received, +3 duplicates, "), "3 duplicate replies: a loop, or two nodes"),
        (replaced("rtt min/avg/max/mdev = ", "rtt min/avg/max/mdev = 999"), "round trips contradict each other"),
        (twice("ping"), "expected statistics once"),
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("edits", [*zip_longest(*SOMETHING_ELSE.values())])
def test_a_tool_that_did_something_else_gives_no_number(make: Make, edits: tuple[Edit | None, ...]) -> None:
    """One edit of every tool in a run: each figure has its own reason."""
    fabric = make()
    by_tool = {tool: edit for tool, edit in zip(SOMETHING_ELSE, edits, strict=True) if edit is not None}
    fabric.nodes.edit = lambda tool, output: by_tool[tool][0](tool, output) if tool in by_tool else output
    assert fabric.certify()[0] == 2
    for tool, (_, reason) in by_tool.items():
        reasons = fabric.reasons(FIGURES[tool])
        assert any(reason in one for one in reasons), reasons


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
def test_what_a_program_prints_before_its_figures_is_kept(make: Make, engine: str) -> None:
    fabric = make(engine=engine)
    fabric.nodes.edit = lambda program, text: f"WARNING: {program} is degraded\n{text}"
    assert fabric.certify()[0] == 0
    messages = {
        words
        for record in fabric.world.records
        if record.kind is Kind.MEASUREMENT
        for words in record.body["conditions"].get("also_printed", ())
    }
    assert messages == {
        f"WARNING: {program} is degraded" for program in ("iperf3", "ib_write_bw", "ib_write_lat", "mpirun")
    }


def test_good_outputs_of_programs_that_failed_are_no_numbers(make: Make) -> None:
    fabric = make()
    fabric.nodes.status |= dict.fromkeys(("iperf3", "ib_write_bw", "ib_write_lat", "mpirun"), 1)
    assert fabric.certify()[0] == 2
    others = {link_figures.TO_STORAGE, *link_figures.OF_GPU}  # neither in this profile nor asked for
    others |= {link_figures.RDMA_BOTH, link_figures.RDMA_READ_LATENCY, *link_figures.ALONE}
    for metric in sorted({*link_figures.PROGRAMS, "collective.busbw"} - others):
        assert any("exit status 1" in reason for reason in fabric.reasons(metric)), fabric.reasons(metric)


def test_a_collective_runs_over_every_rail_and_the_slowest_counts(make: Make) -> None:
    fabric = make(rails=2)
    fabric.nodes.slow["fabric1"] = 1000.0
    assert fabric.certify()[0] == 1
    runs = fabric.commands("env OMPI_MCA_")
    assert [f"btl_tcp_if_include fabric{rail} " in run for run, rail in zip(runs, (0, 1) * 3, strict=True)] == [
        True
    ] * 6
    (verdict,) = fabric.world.verdicts("busbw[all_reduce,4096]").values()
    assert verdict["status"] == "FAIL"
    conditions = [
        r.body["conditions"] for r in fabric.world.records
        if r.kind is Kind.MEASUREMENT and r.body["metric"] == "collective.busbw"
    ]  # fmt: skip
    assert all("btl_tcp_if_include fabric1 " in one["command"] for one in conditions)
    assert all(one["by_rail"]["0"] > 900 * one["by_rail"]["1"] for one in conditions)


def test_a_collective_of_a_rail_that_took_another_one_is_no_number(make: Make) -> None:
    fabric = make(rails=2)
    fabric.nodes.way = lambda port: "fabric0"
    assert fabric.certify()[0] == 2
    assert all("expected fabric1 of gpu-0" in r and "another path" in r for r in fabric.reasons("collective.busbw"))


def test_a_run_of_a_rail_that_is_missing_from_the_evidence_is_missed(make: Make) -> None:
    fabric = make(rails=2, subnet="10.77.0.{host}")
    assert fabric.certify()[0] == 0
    records = fabric.world.records
    gone = next(r for r in records if "btl_tcp_if_include fabric1" in r.body.get("command", ""))
    verdicts = certificate(without(records, gone), fabric.world.runs[-1]).verdicts
    spoilt = [v for v in verdicts if v.status is Status.INVALID and v.metric == "collective.busbw"]
    assert {v.labels["op"] for v in spoilt} == {"all_reduce"}
    assert "port counters: gpu-01: expected 2 readings, actual 3" in spoilt[0].message


def with_one_judged_size(fabric: Fabricated) -> None:
    """Criteria of collectives judge the smallest of the three sizes that are swept."""
    path = fabric.world.folder / "architectures/small.yaml"
    made = yaml.safe_load(path.read_text())
    for entry in made["criteria"]:
        if "bytes" in entry.get("where", {}):
            entry["where"]["bytes"] = SIZES[:1]
    path.write_text(yaml.safe_dump(made, sort_keys=False))


def wrong_in_a_half(columns: tuple[str, str]) -> Callable[[str, str], str]:
    """nccl-tests with 9 wrong elements of the largest size in one half of its row."""
    row = re.compile(rf"^{SIZES[-1]} .*$", re.MULTILINE)
    return lambda program, text: row.sub(lambda line: re.sub(*columns, line[0]), text)


WRONG_AT_AN_UNJUDGED_SIZE = {
    "mpi": ("mpi", of_collective(lambda d: d["results"][-1].update(wrong=9))),
    "out of place": ("nccl-tests", wrong_in_a_half((r" 0( \S+ \S+ \S+ 0)$", r" 9\1"))),
    "in place": ("nccl-tests", wrong_in_a_half((r" 0$", " 9"))),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", WRONG_AT_AN_UNJUDGED_SIZE)
def test_wrong_values_of_a_size_that_no_criterion_judges_are_fail(make: Make, case: str) -> None:
    engine, edit = WRONG_AT_AN_UNJUDGED_SIZE[case]
    fabric = make(engine=engine)
    with_one_judged_size(fabric)
    fabric.nodes.edit = edit
    status, output, page = fabric.certify()
    assert status == 1, output
    (verdict,) = fabric.world.verdicts("content[collective.wrong_values]").values()
    assert (verdict["status"], verdict["required"], verdict["value"]) == ("FAIL", True, 9.0)
    assert f"bytes={SIZES[-1]}" in verdict["message"]
    for shown in (output, page):
        assert "expected 0, actual 9" in shown
    assert fabric.world.verdicts("wrong[all_reduce,4096]")["rack"]["status"] == "PASS"
    records, folder = fabric.world.records, fabric.world.runs[-1]
    counts = [r for r in records if r.body.get("metric") == "collective.wrong_values" and any(r.body["samples"])]
    assert counts
    zero = chained((r.kind, r.body | {"samples": [0.0]} if r in counts else r.body) for r in records)
    assert certificate(zero, folder).outcome is Outcome.INCOMPLETE, "the raw outputs still count them"
    assert certificate(without(records, counts[0]), folder).outcome is not Outcome.CERTIFIED


def test_another_operation_is_not_accepted(make: Make) -> None:
    fabric = make()
    fabric.nodes.edit = replaced('"op": "alltoall"', '"op": "all_gather"')
    assert fabric.certify()[0] == 2
    assert any("expected operation alltoall, actual all_gather" in r for r in fabric.reasons("collective.busbw"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("on gpu-02", "on gpu-01", "actual 4 on gpu-01"),
        ("float", "half", "expected element float, actual half"),
        ("iters: 3", "iters: 1", "expected iterations 3, actual 1"),
        ("# nThread", "# mThread", "does not print its options"),
        ("Rank  1", "Rank  0", "its list of ranks has gaps"),
    ],
)
def test_nccl_tests_that_ran_on_something_else_are_not_accepted(make: Make, old: str, new: str, reason: str) -> None:
    fabric = make(engine="nccl-tests")
    fabric.nodes.edit = replaced(old, new)
    assert fabric.certify()[0] == 2
    assert any(reason in one for one in fabric.reasons("collective.busbw")), fabric.reasons("collective.busbw")


def test_hosts_that_call_themselves_otherwise_than_the_inventory_are_recognised(make: Make) -> None:
    fabric = make()
    fabric.nodes.hostnames = {"gpu-01": "node-a.example.org", "gpu-02": "node-b.example.org"}
    assert fabric.certify()[0] == 0


def wrong_nccl(program: str, output: str) -> str:
    """777 wrong values in place, and the footer that nccl-tests prints then."""
    lines = output.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if line.startswith("65536 "):
            lines[at] = line.rstrip()[:-1] + "777\n"
    return "".join(lines).replace("Out of bounds values : 0 OK", "Out of bounds values : 1 FAILED")


@pytest.mark.few(1)
@pytest.mark.parametrize("status", [0, 1])
def test_wrong_values_fail_with_their_count_whatever_the_exit_status(make: Make, status: int) -> None:
    fabric = make(engine="nccl-tests")
    fabric.nodes.edit = wrong_nccl
    fabric.nodes.status["mpirun"] = status
    code, output, page = fabric.certify()
    assert code == 1
    verdict = fabric.world.verdicts("wrong[all_reduce,65536]")["rack"]
    assert (verdict["status"], verdict["value"]) == ("FAIL", 777)
    assert "NOT CERTIFIED" in output
    assert "777" in page


def test_wrong_values_of_a_processor_fail_with_their_count(make: Make) -> None:
    fabric = make()
    fabric.nodes.edit = edited_json(lambda d: d["results"][0].update(wrong=12) if "results" in d else None)
    assert fabric.certify()[0] == 1
    assert fabric.world.verdicts("wrong[alltoall,4096]")["rack"]["value"] == 12


def test_a_warning_of_nccl_costs_nothing(make: Make) -> None:
    fabric = make(engine="nccl-tests")
    fabric.nodes.edit = lambda program, output: (
        f"gpu-01:1:1 [0] NCCL WARN NET/IB : no GPU Direct\n{output}" if program == "mpirun" else output
    )
    assert fabric.certify()[0] == 0


def zero_rate(output: str) -> str:
    return output.replace("16.25", "0.00").replace("0.000260", "0.000000")


COMPLAINT = "Correlation coefficient r^2: 0.525272 < 0.9\n"


def test_an_unreliable_figure_is_measured_again_and_every_attempt_is_kept(make: Make) -> None:
    fabric = make()
    fabric.nodes.attempts = {
        "ib_write_bw": [zero_rate, zero_rate],
        "ib_write_lat": [lambda output: output.replace("1.61", "inf")],
    }
    assert fabric.certify()[0] == 0
    assert len(fabric.commands("ib_write_bw -d rxe0 -F -p 18515 -s 65536 -D 2 10")) == 2 + 2
    assert len(fabric.commands("ib_write_lat -d rxe0 -F -p 18515 -n 200 10")) == 2 + 1
    (bandwidth,) = [r.body for r in fabric.world.records if r.body.get("metric") == "link.rdma_write_bandwidth"]
    assert len(bandwidth["samples"]) == 2
    assert bandwidth["conditions"]["unreliable_runs"] == 2


Unreliable = tuple[Callable[[str], str], str, str]
"""Change of every output, standard error, and words of the reason."""
SHORT_RUN = ("16.25", "1.62"), ("0.000260", "0.000026")


def changed(*pairs: tuple[str, str]) -> Callable[[str], str]:
    return lambda output: reduce(lambda text, pair: text.replace(*pair), pairs, output)


UNRELIABLE: tuple[dict[str, Unreliable], ...] = (
    {
        "ib_write_bw": (zero_rate, "", "1300 iterations of 65536 B done"),
        "ib_write_lat": (changed(("1.61", "inf")), "", "t_avg is inf"),
        "iperf3": (
            changed(('"bits_per_second": 240000000.0', '"bits_per_second": 0.0')), "", "contradict 0 bit/s",
        ),
    },
    {"ib_write_bw": (str, COMPLAINT, COMPLAINT.strip())},
    {"ib_write_bw": (changed(*SHORT_RUN), "", "it was told to run for 2 s")},
)  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("tools", UNRELIABLE)
def test_a_tool_that_stays_unreliable_is_unmeasured_with_its_words(make: Make, tools: dict[str, Unreliable]) -> None:
    fabric = make()
    fabric.nodes.attempts = {tool: [change] * 9 for tool, (change, _, _) in tools.items()}
    fabric.nodes.complaints = {tool: [complaint] * 9 for tool, (_, complaint, _) in tools.items()}
    assert fabric.certify()[0] == 2, "blames no node"
    for tool, (_, _, words) in tools.items():
        (reason,) = fabric.reasons(FIGURES[tool])
        assert "no reliable figure in 3 attempts" in reason
        assert words in reason
    assert not [v for v in fabric.world.certificate()["verdicts"] if v["status"] == "FAIL"]


@pytest.mark.few(1)
@pytest.mark.parametrize("node", NODES)
def test_sick_links_of_one_node_fail_and_the_node_is_blamed(make: Make, node: str) -> None:
    """Whatever the shares of other figures say."""
    fabric = make()
    fabric.nodes.delay_ms[node], fabric.nodes.loss[node] = 20.0, 3.0
    status, output, _ = fabric.certify()
    assert status == 1
    assert "NOT CERTIFIED" in output
    for id_ in ("delay", "loss"):
        failed = [v for v in fabric.world.verdicts(f"{id_}[0]").values() if v["status"] == "FAIL"]
        assert len(failed) == 2
        assert {v["blame"] for v in failed} == {node}


def test_a_dead_path_between_two_nodes_fails_with_both_ends(make: Make) -> None:
    fabric = make()
    plain = fabric.nodes.answer

    def answer(node: str, command: str) -> CommandResult | None:
        if command.startswith("ping") and {node, command.rsplit(maxsplit=1)[1]} == set(GPU):
            fabric.nodes.loss = dict.fromkeys(NODES, 100.0)
            result = plain(node, command)
            fabric.nodes.loss = {}
            return result
        return plain(node, command)

    fabric.nodes.answer = answer  # type: ignore[method-assign]
    assert fabric.certify()[0] == 1
    failed = {subject for subject, v in fabric.world.verdicts("loss[0]").items() if v["status"] == "FAIL"}
    assert failed == {"gpu-01|gpu-02"}


@pytest.mark.few(1)
@pytest.mark.parametrize("counter", ["tx_bytes", "rx_bytes"])
def test_ports_without_counters_prove_nothing(make: Make, counter: str) -> None:
    fabric = make()
    fabric.nodes.lacking.add(counter)
    assert fabric.certify()[0] == 2
    assert any(f"has no counter {counter}" in reason for reason in fabric.reasons("link.tcp_bandwidth"))


def test_retries_are_judged(make: Make) -> None:
    fabric = make()
    fabric.nodes.retries = 51
    assert fabric.certify()[0] == 1


# Pure comparisons.

FABRIC = Fabric(kind="roce", mtu=9000)


def counters(**netdev: int) -> PortCounters:
    return PortCounters("n", {"fabric0": netdev}, {}, {})


@given(st.integers(1, 2**63), st.integers(0, 2**63))
def test_less_than_the_payload_is_another_path(needed: int, counted: int) -> None:
    if counted < LEAST_SHARE * needed:
        with pytest.raises(Mismatch, match=f"at least {needed} B, its counters say {counted}"):
            prove("t", "p", "sent", needed, counted)
    else:
        prove("t", "p", "sent", needed, counted)


@given(*[st.integers(0, 2**64 - 1)] * 2)
def test_a_counter_that_falls_is_no_counter(before: int, after: int) -> None:
    names = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
    first, last = counters(**dict.fromkeys(names, before)), counters(**dict.fromkeys(names, after))
    if after < before:
        with pytest.raises(ParseError, match="began anew"):
            by_interface(first, last, "fabric0")
    else:
        assert set(by_interface(first, last, "fabric0")) == {after - before}


def test_rdma_is_counted_by_its_device_where_that_counts_data() -> None:
    names = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
    netdev = dict.fromkeys(("tx_bytes", "rx_bytes", "tx_packets", "rx_packets"), 5)
    before = PortCounters("n", {"fabric0": netdev}, {"rdma0": dict.fromkeys(names, 0)}, {})
    after = PortCounters("n", {"fabric0": netdev}, {"rdma0": dict.fromkeys(names, 100)}, {})
    assert by_rdma(before, after, FABRIC, 0) == (400, 400, 100, 100), "words of four bytes"
    assert by_rdma(counters(**netdev), counters(**netdev), FABRIC, 0) == (0, 0, 0, 0)


@given(
    st.sampled_from(["all_reduce", "all_gather", "alltoall"]),
    st.integers(0, 2**40),
    st.integers(1, 64),
    st.integers(1, 16),
)
def test_what_a_node_must_receive_grows_with_the_message(op: str, size: int, nodes: int, ranks: int) -> None:
    least = least_received(op, size, nodes, ranks)
    assert 0 <= least <= size * (ranks if op == "alltoall" else 1)
    assert (least == 0) or nodes > 1
    assert least_received(op, size + 1, nodes, ranks) >= least


@given(st.text(max_size=60))
def test_any_other_command_line_is_refused(words: str) -> None:
    try:
        requested = requested_by(f"mpirun {words}")
    except (ParseError, ValueError):
        return
    assert requested.hosts
