"""The firewall of a step: its rules, which steps have it, and nodes that cannot have it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.bench.collectives import launch as collective_launch
from rackproof.bench.firewall import ADDRESSES, SWEEP, Firewall, Ip, command, ruleset
from rackproof.bench.links import gpu_memory as link_gpu
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.step import BenchContext
from rackproof.bench.user import BenchUsers
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.core.evidence import Measurement
from rackproof.errors import NodeUnreachable
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.bench import test_collectives, test_link_gpu
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import Answer, FakePipe, lab_rack, reply, scripted, virtual_rack
from tests.unit.false_certificates import test_fan_in

DEVICE = '[{"ifindex":2,"ifname":"fabric0","mtu":1500,"operstate":"UP","flags":["UP"],"addr_info":[%s]}]'
NODES = ["gpu-01", "gpu-02"]
OWN = {"gpu-01": ["10.77.0.21", "fe80::21"], "gpu-02": ["10.77.0.22"], "storage-01": ["10.77.0.11"]}
LINKS = "links/rail0/round1/tcp-bandwidth"
ACCOUNT: Final = 990
"""User id of the account that measures, in the fakes."""


def addresses(*own: str) -> str:
    item = '{"family":"inet","local":"%s","prefixlen":24,"scope":"global"}'
    return DEVICE % ",".join(item % address for address in own)


def elements(rules: str, name: str) -> set[str]:
    """Members of a set."""
    line = next(line for line in rules.splitlines() if line.startswith(f" set {name} "))
    match = re.search(r"elements = \{ (.*?) \}", line)
    return set(match[1].split(", ")) if match else set()


@given(st.lists(st.ip_addresses()), st.lists(st.integers(1, 65535)), st.integers(1, 2**32 - 2), st.booleans())
def test_a_ruleset_has_these_peers_and_ports_and_nothing_else(
    peers: list[Ip], ports: list[int], uid: int, chosen: bool
) -> None:
    rules = ruleset("rackproof_0123abcd", [*peers, IPv4Address("127.0.0.1"), IPv6Address("::1%lo")], ports, uid, chosen)
    named = {IPv4Address(word) for word in elements(rules, "peers4")}
    named |= {IPv6Address(word) for word in elements(rules, "peers6")}  # type: ignore[arg-type]
    assert named == {peer for peer in peers if not peer.is_loopback}
    assert elements(rules, "ports") == {str(port) for port in ports}
    assert set(re.findall(r"meta skuid != \{ 0, (\d+) \}", rules)) == {str(uid)}
    assert rules.count("$known") == chosen
    assert re.fullmatch(r"[\w \n:.,;{}@&|()!=<>\"$]+", rules)


@given(st.text(alphabet="0123456789abcdef", min_size=1, max_size=32), st.integers(0, 10**9))
def test_the_command_of_a_node_is_whole_in_a_shell(token: str, length: int) -> None:
    done = subprocess.run(["sh", "-nc", command(f"rackproof_{token}", length)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@dataclass
class Pipes:
    """Tables that nodes are asked to keep, by node: the rules of each, and whether the step has ended."""

    rules: list[tuple[str, str]] = field(default_factory=list)
    ends: list[FakePipe] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """By node: why it has no table."""
    unreachable: bool = False

    def open(self, node: str, asked: str) -> FakePipe:
        if "firewall" not in asked:
            return FakePipe(False)
        if self.unreachable:
            raise NodeUnreachable(node, "the connection was lost")
        end = FakePipe(node in self.refused, why=self.refused.get(node, ""))
        end.write = lambda data: self.rules.append((node, data.decode())) is None  # type: ignore[method-assign]
        self.ends.append(end)
        return end


@contextmanager
def stage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer | None = None
) -> Iterator[tuple[Any, Pipes, list[str]]]:
    """A session, the pipes of its nodes, and what a run says."""

    def reading(node: str, asked: str) -> CommandResult | None:
        if asked == ADDRESSES:
            return reply(node, asked, addresses(*OWN[node]))
        return answer(node, asked) if answer else None

    pipes = Pipes()
    with scripted(folder, reading) as session:
        fake: Any = type(session.fleet["gpu-01"])
        monkeypatch.setattr(fake, "pipe", lambda own, asked, limit_s, user="": pipes.open(own.node.name, asked))
        yield session, pipes, []


def closed(session: Any, lines: list[str], *ports: int, chosen: bool = False) -> None:
    """A step that only has a firewall, twice in one stage."""
    context = BenchContext(session, lines.append)
    BenchUsers.of(context).ready(NODES)
    for _ in range(2):
        with ExitStack() as context.stack:
            Firewall.of(context).close(NODES, ports, chosen=chosen)


def test_every_node_of_a_step_lets_in_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch) as (session, pipes, lines):
        closed(session, lines, 15201)
        assert [node for node, _ in pipes.rules] == NODES * 2
        for _, rules in pipes.rules:
            assert elements(rules, "peers4") == {"10.77.0.21", "10.77.0.22"}
            assert elements(rules, "peers6") == {"fe80::21"}
            assert elements(rules, "ports") == {"15201"}
            assert f"meta skuid != {{ 0, {ACCOUNT} }}" in rules
        assert len({rules.splitlines()[0] for _, rules in pipes.rules}) == 4  # no two tables have one name
        assert not any(end.alive for end in pipes.ends)
        assert session.fleet.asked.count(("gpu-01", ADDRESSES)) == 1
    assert lines == []
    assert not [record for record in read_records(tmp_path) if ADDRESSES in str(record.body)]


def test_a_step_without_ports_has_no_firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch) as (session, pipes, lines):
        closed(session, lines)
        assert not pipes.ends


@pytest.mark.parametrize("text", ["", "[]", addresses("10.77.0.22; flush ruleset"), addresses("fe80::1 }")])
def test_a_node_with_unknown_addresses_is_not_locked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setitem(OWN, "gpu-02", [])
    with stage(tmp_path, monkeypatch) as (session, pipes, lines):
        plain = session.fleet.answer
        session.fleet.answer = lambda node, asked: (
            reply(node, asked, text) if (node, asked) == ("gpu-02", ADDRESSES) else plain(node, asked)
        )
        closed(session, lines, 15201)
        assert not pipes.ends
    assert len(lines) == 1
    assert lines[0].startswith(
        "gpu-[01-02]: no firewall around the ports of benchmarks: the addresses of gpu-02 are unknown: "
    )


@pytest.mark.parametrize("unreachable", [False, True])
def test_nodes_that_cannot_have_it_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreachable: bool
) -> None:
    with stage(tmp_path, monkeypatch) as (session, pipes, lines):
        pipes.unreachable = unreachable
        pipes.refused = dict.fromkeys(NODES, "nft is not installed")
        closed(session, lines, 15201)
        why = "the connection was lost" if unreachable else "nft is not installed"
        assert lines == [f"gpu-[01-02]: no firewall around the ports of benchmarks: {why}"]
        assert len(pipes.ends) == (0 if unreachable else len(NODES))  # it is not tried again
        assert not any(end.alive for end in pipes.ends)


@pytest.mark.parametrize("refused", [False, True])
def test_links_are_measured_with_and_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    (step,) = [step for step in plan_steps(virtual_rack(), "lab", lab_rack()) if step.id == LINKS]
    with stage(tmp_path, monkeypatch, FabricNodes().answer) as (session, pipes, lines):
        pipes.refused = dict.fromkeys(NODES, "Operation not permitted") if refused else {}
        run_steps(session, [step], set(), lines.append)
        assert {(node, *elements(rules, "ports")) for node, rules in pipes.rules} == {(n, "15201") for n in NODES}
        assert not any("$known" in rules for _, rules in pipes.rules)
        assert all(SWEEP in asked for _, asked in session.fleet.asked if asked.startswith("rm -rf -- /run/"))
    made = [Measurement.model_validate(r.body) for r in read_records(tmp_path) if r.kind == "measurement"]
    assert all(measurement.samples for measurement in made)
    assert len(lines) == refused


def test_rdma_between_gpus_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch, FabricNodes().answer) as (session, pipes, lines):
        session.architecture = test_link_gpu.architecture()
        links = virtual_rack().profiles["lab"].links
        assert links is not None
        run_steps(session, link_gpu.plan(session.architecture, links, lab_rack())[:1], set(), lines.append)
        assert {(node, *elements(rules, "ports")) for node, rules in pipes.rules} == {(n, "18515") for n in NODES}


def test_every_stream_to_a_storage_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = test_fan_in.Nodes()
    with stage(tmp_path, monkeypatch, nodes.answer) as (session, pipes, lines):
        session.architecture = nodes.storage.architecture
        steps = plan_steps(session.architecture, "depth", lab_rack())
        run_steps(session, [step for step in steps if step.id == "links/to-storage/nfs-tcp"], set(), lines.append)
        assert sorted(node for node, _ in pipes.rules) == sorted(OWN)
        assert all(elements(rules, "ports") == {"15201", "15202"} for _, rules in pipes.rules)
        assert all("10.77.0.11" in elements(rules, "peers4") for _, rules in pipes.rules)


@pytest.mark.parametrize(
    ("id_", "engine", "launcher", "ports", "chosen"),
    [
        (test_collectives.RACK, "nccl-tests", "mpirun", set(), True),
        (test_collectives.NVLS, "nccl-tests", "mpirun", set(), True),
        (test_collectives.NVLS, "nccl-tests", "srun", set(), True),  # each node by itself, without Slurm
        (test_collectives.TORCH, "torch", "ssh", {"29500"}, True),
        (test_collectives.TORCH, "torch", "srun", {"29500"}, False),
    ],
)
def test_ranks_choose_their_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_: str, engine: str, launcher: Any, ports: set[str], chosen: bool
) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher=launcher))
    with stage(tmp_path, monkeypatch, FabricNodes().answer) as (session, pipes, lines):
        session.architecture = test_collectives.architecture(engine)
        run_steps(session, [test_collectives.step(id_, engine)], set(), lines.append)
        assert [node for node, _ in pipes.rules] == NODES
        for _, rules in pipes.rules:
            assert (elements(rules, "ports"), "$known" in rules) == (ports, chosen)
