"""Traffic of RDMA tools and NCCL, and the priority with PFC: the adapter's counters by priority around each run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.bench.links import figures as link_figures
from rackproof.bench.links import steps as links
from rackproof.bench.links.placement import placement_command
from rackproof.bench.links.reader import read_links
from rackproof.bench.port_proof import OTHERS_LEAST, prove_priority, reading_command
from rackproof.bench.step import expected
from rackproof.core.architecture import Architecture, LinkProfile, Lossless
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.port_counters import PortCounters, counters_command, parse_port_counters
from tests.unit.bench import test_collectives as collectives
from tests.unit.benchmarked import Bench
from tests.unit.fabric import NO_NUMA, FabricNodes
from tests.unit.fakes import lab_rack
from tests.unit.judging import bar, criterion, document

LOSSLESS = {
    "pfc_priority": 3, "trust": "dscp", "dscp_priority": {26: 3, 48: 6}, "tos": 106, "traffic_class": 106,
}  # fmt: skip
PROFILE = LinkProfile(rdma_duration_s=2, latency_iterations=200, tcp_duration_s=3, runs=1)
PAYLOAD = 1300 * 65536
STATISTICS = """\
NIC statistics:
     rx_packets: 1000
     tx_queue_0_bytes: 17
     rx_prio0_bytes: 5
     rx_prio0_packets: 1
     tx_prio0_bytes: 6
     rx_prio3_bytes: 700
     tx_prio3_bytes: 18446744073709551615
     tx_prio3_pause: 9
"""


def rack(lossless: dict[str, Any] | None = LOSSLESS, *criteria: dict[str, Any]) -> Architecture:
    fabric = {"kind": "roce", "mtu": 9000, "rdma_prefix": "rxe"} | ({"lossless": lossless} if lossless else {})
    return Architecture.model_validate(document(*criteria, fabric=fabric))


def measured(nodes: FabricNodes, architecture: Architecture, metric: str = link_figures.RDMA_BANDWIDTH) -> Any:
    """The reading of one run between two nodes."""
    assert architecture.fabric is not None
    fabric = architecture.fabric
    nodes_of = [Node(f"gpu-0{k}", ("gpu",), {"fabric_addresses": [f"10.77.0.2{k}/24"]}) for k in (1, 2)]
    ends = [links.end_of(node, fabric, 0) for node in nodes_of]
    server, client = ends
    assert server is not None
    assert client is not None
    tool = next(tool for tool in links._tools(architecture, fabric, PROFILE, 0) if metric in tool.metrics)
    nodes.pci = NO_NUMA
    asked = [("gpu-02", placement_command(["fabric0"]))]
    asked += [("gpu-01", server.reading), ("gpu-02", client.reading), ("gpu-02", tool.client(server, client)),
              ("gpu-01", server.reading), ("gpu-02", client.reading)]  # fmt: skip
    answers = [answer for node, command in asked if (answer := nodes.answer(node, command)) is not None]
    place = expected(metric, Scope.PAIR, ("gpu-01", "gpu-02"), {"rail": "0"}, "x")
    return read_links(answers, architecture)(place)


def test_traffic_in_the_priority_with_pfc_is_a_number() -> None:
    reading = measured(FabricNodes(), rack())
    assert reading.companions["priority_bytes"] == (1300 * 65600.0,)


@pytest.mark.parametrize(
    ("lossless", "option"),
    [
        (LOSSLESS, "--tclass=106"),
        (LOSSLESS | {"traffic_class": None}, "--tclass=106"),
        ({"pfc_priority": 3}, "--sl=3"),
        ({"pfc_priority": 3, "trust": "pcp"}, "--sl=3"),
    ],
)
def test_the_tools_are_told_their_class(lossless: dict[str, Any], option: str) -> None:
    architecture = rack(lossless)
    assert architecture.fabric is not None
    end = links.End("gpu-01", "10.77.0.21", None, "")
    for tool in links._tools(architecture, architecture.fabric, PROFILE, 0)[:2]:
        assert option in tool.client(end, end).split()
        assert option in tool.server(end).split()
    measured(FabricNodes(), architecture)


def test_a_fabric_without_pfc_is_asked_and_told_what_it_always_was() -> None:
    for lossless in (None, {"ecn": True}):
        architecture = rack(lossless)
        assert architecture.fabric is not None
        assert "ethtool" not in reading_command(architecture.fabric, [0])
        end = links.end_of(Node("gpu-01", ("gpu",), {"fabric_addresses": ["10.77.0.21/24"]}), architecture.fabric, 0)
        assert end is not None
        assert "ethtool" not in end.reading
        (bandwidth, *_) = links._tools(architecture, architecture.fabric, PROFILE, 0)
        assert bandwidth.client(end, end) == "ib_write_bw -d rxe0 -F -p 18515 -s 65536 -D 2 10.77.0.21"
        assert "priority_bytes" not in measured(FabricNodes(), architecture).companions


def test_traffic_that_stays_in_priority_0_is_no_number() -> None:
    nodes = FabricNodes(priority=lambda options: 0)
    with pytest.raises(Mismatch, match=r"gpu-02 fabric0 .* sent 85196800 B in priority 3, .* say 0: 85280000: this"):
        measured(nodes, rack())


def test_in_both_directions_both_ends_send_in_the_priority_with_pfc() -> None:
    both = criterion(metric=link_figures.RDMA_BOTH, scope="pair", where={}, bar=bar("ge", 1, "Gb/s"))
    made = rack(LOSSLESS, both)
    reading = measured(FabricNodes(), made, link_figures.RDMA_BOTH)
    assert reading.companions["priority_bytes"] == (1300 * 65600.0,)
    with pytest.raises(Mismatch, match=r"gpu-01 fabric0 .* sent 85196800 B in priority 3, .* say 0: 85280000: this"):
        measured(FabricNodes(returned=0), made, link_figures.RDMA_BOTH)


@pytest.mark.parametrize(("more", "passes"), [(OTHERS_LEAST, True), (OTHERS_LEAST + 1, False)])
def test_the_background_of_a_port(more: int, passes: bool) -> None:
    """Others may count as much as a port's own protocols do, and not a share of the payload."""
    nodes = FabricNodes()
    plain = nodes.pass_

    def pass_(*arguments: Any) -> None:
        plain(*arguments)
        nodes.counts["gpu-01", "fabric0"]["rx_prio0_bytes"] += more

    nodes.pass_ = pass_  # type: ignore[method-assign]
    if passes:
        measured(nodes, rack())
    else:
        with pytest.raises(Mismatch, match=f"gpu-01 fabric0 to have received .* say 0: {more}, 3: "):
            measured(nodes, rack())


@pytest.mark.parametrize("name", ["tx_prio3_bytes", "rx_prio3_bytes", "tx_prio0_bytes", "rx_prio7_bytes"])
def test_a_counter_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(ParseError, match=f"gpu-0. fabric0 has no counter {name}"):
        measured(FabricNodes(lacking={name}), rack())


def test_an_adapter_without_counters_by_priority() -> None:
    lacking = {f"{way}_prio{number}_bytes" for way in ("rx", "tx") for number in range(8)}
    with pytest.raises(ParseError, match="has no counter tx_prio0_bytes"):
        measured(FabricNodes(lacking=lacking), rack())


def test_latency_moves_too_little_to_be_told_from_the_background() -> None:
    reading = measured(FabricNodes(), rack(), link_figures.RDMA_LATENCY)
    assert "priority_bytes" not in reading.companions


def collective(
    folder: Path, nodes: FabricNodes, lossless: dict[str, Any] | None = LOSSLESS, engine: str = "nccl-tests"
) -> dict[str, Measurement]:
    """An all-reduce over two nodes, by metric and size."""
    made = collectives.architecture(engine)
    assert made.fabric is not None
    declared = Lossless.model_validate(lossless) if lossless else None
    made = made.model_copy(update={"fabric": made.fabric.model_copy(update={"lossless": declared})})
    bench = Bench(made, lab_rack(), "lab")
    (step,) = [one for one in bench.steps() if one.id == f"collectives/{engine}/all_reduce"]
    measured = bench.measure(folder, nodes.answer, [step])
    return {f"{one.metric.partition('.')[2]} {one.labels['bytes']}": one for one in measured}


LARGEST = f"busbw {collectives.GIB}"


def test_collectives_in_the_priority_with_pfc_have_their_numbers(tmp_path: Path) -> None:
    for measurement in collective(tmp_path, FabricNodes()).values():
        assert measurement.samples, measurement.reason
        conditions = measurement.conditions
        assert conditions["priority_bytes_least"] == conditions["received_bytes_least"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"nccl_priority": lambda node, port: 0}, "gpu-01 fabric0 to have sent"),
        ({"nccl_priority": lambda node, port: 0 if node == "gpu-02" else 3}, "gpu-02 fabric0 to have sent"),
        ({"lacking": {"rx_prio5_bytes"}}, "gpu-01 fabric0 has no counter rx_prio5_bytes"),
        ({"lacking": {"tx_prio3_bytes"}}, "gpu-01 fabric0 has no counter tx_prio3_bytes"),
    ],
)
def test_collectives_elsewhere_have_no_number(tmp_path: Path, nodes: dict[str, Any], reason: str) -> None:
    for measurement in collective(tmp_path, FabricNodes(**nodes)).values():
        assert not measurement.samples
        assert reason in (measurement.reason or ""), measurement.reason


def test_a_receiver_that_puts_nccl_elsewhere_is_named(tmp_path: Path) -> None:
    nodes = FabricNodes()
    plain = nodes._counters

    def counted(node: str, command: str) -> str:
        """On gpu-02 what came in priority 3 is counted in priority 0."""
        text = plain(node, command)
        if node == "gpu-02":
            for old, new in (("rx_prio3", "rx_prio9"), ("rx_prio0", "rx_prio3"), ("rx_prio9", "rx_prio0")):
                text = text.replace(old, new)
        return text

    nodes._counters = counted  # type: ignore[method-assign]
    made = collective(tmp_path, nodes)
    assert "gpu-02 fabric0 to have received" in (made[LARGEST].reason or ""), made[LARGEST].reason


def test_wrong_values_are_counted_in_whatever_priority_they_came(tmp_path: Path) -> None:
    nodes = FabricNodes(nccl_priority=lambda node, port: 0, edit=collectives.wrong, status={"mpirun": 1})
    made = collective(tmp_path, nodes)
    assert made["wrong_values 65536"].samples == (777.0, 777.0)
    assert not made["busbw 65536"].samples


@pytest.mark.parametrize(
    ("lossless", "engine"), [(None, "nccl-tests"), ({"ecn": True}, "nccl-tests"), (LOSSLESS, "mpi")]
)
def test_priorities_are_asked_of_nccl_on_a_fabric_with_pfc_alone(
    tmp_path: Path, lossless: dict[str, Any] | None, engine: str
) -> None:
    asked: list[str] = []
    nodes = FabricNodes(nccl_priority=lambda node, port: 0)
    plain = nodes._counters

    def counted(node: str, command: str) -> str:
        asked.append(command)
        return plain(node, command)

    nodes._counters = counted  # type: ignore[method-assign]
    made = collective(tmp_path, nodes, lossless, engine)
    assert asked
    assert not any("ethtool" in command for command in asked)
    for measurement in made.values():
        assert measurement.samples, measurement.reason
        assert "priority_bytes_least" not in measurement.conditions


def counters(port: str = "rail0", **priorities: int) -> PortCounters:
    whole = {f"{way}_prio{number}_bytes": 0 for way in ("rx", "tx") for number in range(8)}
    return PortCounters("gpu-01", {}, {}, {}, {port: whole | priorities})


def together(*ports: PortCounters) -> PortCounters:
    priorities = {name: counted for one in ports for name, counted in one.priorities.items()}
    return PortCounters("gpu-01", {}, {}, {}, priorities)


@pytest.mark.parametrize(
    ("second", "beside", "reason"),
    [
        ({"tx_prio3_bytes": 10**9}, False, ""),
        ({"tx_prio3_bytes": 10**9, "tx_prio6_bytes": 10**7}, False, ""),
        ({"tx_prio3_bytes": 10**9, "tx_prio6_bytes": 10**7 + 1}, False, "gpu-01 rail1 to have sent 1000000000 B"),
        ({"tx_prio3_bytes": 10**9, "tx_prio0_bytes": 10**10}, True, ""),
        ({"tx_prio0_bytes": 10**9}, False, "its counters by priority say 0: 1000000000"),
        ({"tx_prio0_bytes": 10**9}, True, "gpu-01 rail0, rail1 to have sent 2000000000 B"),
        ({}, True, "its counters by priority say 3: 1000000000"),
    ],
)
def test_several_ports_share_the_payload_and_each_has_its_part_of_the_background(
    second: dict[str, int], beside: bool, reason: str
) -> None:
    ports, before = ["rail0", "rail1"], together(counters(), counters("rail1"))
    after = together(counters(tx_prio3_bytes=10**9), counters("rail1", **second))
    if not reason:
        assert prove_priority("x", before, after, ports, True, 2 * 10**9, 3, beside=beside) == 2 * 10**9
        return
    with pytest.raises(Mismatch) as error:
        prove_priority("x", before, after, ports, True, 2 * 10**9, 3, beside=beside)
    assert reason in error.value.reason


def test_counters_that_began_anew_are_no_proof() -> None:
    with pytest.raises(ParseError, match="tx_prio3_bytes fell from 9 to 3: it began anew"):
        prove_priority("x", counters(tx_prio3_bytes=9), counters(tx_prio3_bytes=3), ["rail0"], True, 1, 3)


@given(st.lists(st.integers(0, 10**10), min_size=8, max_size=8), st.integers(1, 10**10), st.integers(0, 7))
def test_a_proof_needs_the_payload_in_one_priority_and_next_to_nothing_elsewhere(
    moved: list[int], needed: int, priority: int
) -> None:
    after = counters(**{f"tx_prio{number}_bytes": count for number, count in enumerate(moved)})
    others = sum(moved) - moved[priority]
    good = moved[priority] >= 0.95 * needed and others <= max(needed / 100, moved[priority] / 100, 1 << 20)
    if good:
        assert prove_priority("x", counters(), after, ["rail0"], True, needed, priority) == moved[priority]
    else:
        with pytest.raises(Mismatch):
            prove_priority("x", counters(), after, ["rail0"], True, needed, priority)


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[str], str]:
    """Output of the command on this machine with an ethtool that prints a text."""

    def run(text: str) -> str:
        (tmp_path / "statistics").write_text(text)
        tool = tmp_path / "ethtool"
        tool.write_text(f'#!/bin/sh\n[ "$1 $2" = "-S rail0" ] || exit 94\ncat {tmp_path}/statistics\n')
        tool.chmod(0o755)
        command = counters_command(["rail0"], ["mlx5_0"], priorities=True)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command], env={"PATH": path}, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    return run


def test_the_command_and_its_reader(ran: Callable[[str], str]) -> None:
    output = ran(STATISTICS)
    # Thousands of counters by queue stay on the node.
    assert "tx_queue_0" not in output
    assert parse_port_counters(output).priorities == {
        "rail0": {"rx_prio0_bytes": 5, "tx_prio0_bytes": 6, "rx_prio3_bytes": 700, "tx_prio3_bytes": 2**64 - 1}
    }
    assert parse_port_counters(ran("no stats available\n")).priorities == {"rail0": {}}


def test_every_truncation_is_refused(ran: Callable[[str], str]) -> None:
    output = ran(STATISTICS)
    whole = parse_port_counters(output)
    for length in range(len(output)):
        try:
            cut = parse_port_counters(output[:length])
        except ParseError:
            continue
        assert cut == whole


def test_a_counter_that_is_no_number_is_refused(ran: Callable[[str], str]) -> None:
    for damaged in (STATISTICS.replace("700", "N/A"), STATISTICS.replace("NIC statistics:\n", "")):
        with pytest.raises(ParseError):
            parse_port_counters(ran(damaged))
    with pytest.raises(ParseError, match="ethtool"):
        parse_port_counters(ran(STATISTICS + "     rx_prio3_bytes: 1\n"))
