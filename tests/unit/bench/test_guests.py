"""Collectives in a node's guest: no number without proof that it is that node's, with its GPUs, and the same runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench.collectives.command import launcher_of
from rackproof.bench.collectives.guest_commands import inside_of, is_off, is_side
from rackproof.bench.collectives.guest_reader import COUNTS, GUEST, GUEST_WRONG, HOST, HOST_WRONG, SIDES
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.guard import Observation, results
from rackproof.bench.user import SETUP
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import CheckOutcome, Kind, Measurement, NodeInfo
from rackproof.core.load import LoadState
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.evidence.store import read_records
from rackproof.parse.gpu_load import SAMPLER
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import FakeConnection, FakePipe, reply, virtual_rack
from tests.unit.gpu_nodes import BUSES, BUSY, NAME, uuid
from tests.unit.judging import architecture as one_architecture
from tests.unit.judging import criterion, judged, verdicts
from tests.unit.load_answers import Machine

pytestmark = pytest.mark.few(11)

GIB = 1 << 30
DOMAIN = "ef70e4c2-15a7-4a0b-8ea4-9a3c3b0a0a01"
DATA = {"guest": {"domain": "gpu-guest", "address": "192.168.122.5", "boot_s": 10, "shutdown_s": 3}}
HOSTDEV = (
    "<hostdev mode='subsystem' type='pci' managed='yes'><source>"
    "<address domain='0x{}' bus='0x{}' slot='0x{}' function='0x0'/></source></hostdev>"
)


def rack(**data: Any) -> Rack:
    nodes = [Node(f"gpu-{k:02d}", ("gpu",), {**DATA, "fabric_addresses": [f"10.77.0.{20 + k}/24"], **data})
             for k in (1, 2)]  # fmt: skip
    return Rack("inventories/lab.py", tuple(nodes))


@cache
def architecture(engine: str = "nccl-tests", count: int = 2) -> Architecture:
    made = virtual_rack()
    profile = CollectiveProfile.model_validate({
        "engine": engine, "ops": [], "min_bytes": 65536, "max_bytes": GIB, "factor": 128, "iterations": 3,
        "warmup": 1, "runs": 2, "guest": {"min_bytes": GIB, "max_bytes": GIB},
    })  # fmt: skip
    assert made.gpu is not None
    profiles = {"lab": made.profiles["lab"].model_copy(update={"collectives": profile})}
    return made.model_copy(update={"profiles": profiles, "gpu": made.gpu.model_copy(update={"count": count})})


def bench(engine: str = "nccl-tests", racked: Rack | None = None) -> Bench:
    return Bench(architecture(engine), racked or rack(), "lab")


def machine(number: int) -> Machine:
    return Machine(boot=f"{number:08x}-0000-4000-8000-000000000000", uptime_s=1000.0 + number)


@dataclass
class GuestNodes:
    """Two nodes with two GPUs each, and the guest of each; a test changes one thing."""

    host: FabricNodes = field(default_factory=FabricNodes)
    guest: FabricNodes = field(default_factory=FabricNodes)
    machines: dict[str, Machine] = field(default_factory=dict)
    domain: list[str] = field(default_factory=lambda: ["shut off", "shut off"])
    """States before and after the node's own runs."""
    given: tuple[str, ...] = BUSES
    virtualisation: str = "kvm"
    product: str = DOMAIN.upper()
    gpus: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the GPUs, by ``host`` and ``guest``."""
    ended: str = "shutdown"
    fails: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Exit status and complaint, by what a command contains."""
    restarts: str = ""
    """Side that restarts during its runs."""
    steals: str = ""
    """Side whose processors others take during its runs."""
    threads: int = 1
    edit: Callable[[str, str], str] = lambda side, text: text
    """Changes the text of a state."""
    asked: int = 0

    def answer(self, node: str, command: str) -> CommandResult | None:
        inner = inside_of(command)
        for words, (status, complaint) in self.fails.items():
            if words in command:
                return reply(node, command, rc=status, err=complaint)
        if is_off(command):
            self.asked += 1
            return reply(node, command, f"rackproof guest off 1\n{self.ended}\n{self.asked}\nend of off\n")
        if command == SAMPLER:
            return reply(node, command, "".join(f"{number}, {BUSY}\n" for number in (0, 1)))
        text = inner or command
        if is_side(text):
            return reply(node, command, self._side(node, "host" if inner is None else "guest"))
        if inner is None:
            return self.host.answer(node, command)
        if inner == SETUP:
            return reply(node, command, "uid 990 gid 991\n")
        result = self.guest.answer(node, inner)
        return None if result is None else replace(result, command=command)

    def _side(self, node: str, side: str) -> str:
        name = f"{side} {node}"
        of_node = 10 * int(node[-1])
        own = self.machines.setdefault(name, machine(of_node + (side == "guest")))
        lines = ["rackproof guest side 1"]
        if side == "host":
            state = self.domain[0] if own.uptime_s < 1000 + of_node + 5 else self.domain[1]
            devices = "".join(HOSTDEV.format(bus[4:8], *bus[9:].split(":")) for bus in self.given)
            description = f"<domain type='kvm'>\n<devices>{devices}</devices>\n</domain>"
            lines += [DOMAIN, "", state, "", description, ""]
        lines += ["--", "none" if side == "host" else self.virtualisation]
        lines += ["4c4c4544-0000-2010-8020-80c04f202020" if side == "host" else self.product, "--"]
        numbers = self.gpus.get(side, [of_node, of_node + 1])
        lines += [
            f"{at}, {uuid(number)}, {bus}.0, {NAME}"
            for at, (number, bus) in enumerate(zip(numbers, BUSES, strict=False))
        ]
        own.running = self.threads
        lines += ["--", *own.state(), "end of side"]
        if side == self.restarts:
            own.restart()
        own.steal += 2000 * (side == self.steals)
        return self.edit(side, "".join(f"{line}\n" for line in lines))


def measured(folder: Path, nodes: GuestNodes, engine: str = "nccl-tests", **more: Any) -> dict[str, Measurement]:
    """By metric and node."""
    made = bench(engine).measure(folder, nodes.answer, bench(engine).steps("collectives"), **more)
    return {f"{m.metric} {m.subject}": m for m in made}


@pytest.mark.parametrize("engine", ["nccl-tests", "torch"])
def test_both_sides_are_measured_and_every_number_is_read_again(tmp_path: Path, engine: str) -> None:
    nodes = GuestNodes(guest=FabricNodes(hostnames={"gpu-01": "vm-a", "gpu-02": "vm-b"}))
    made = measured(tmp_path, nodes, engine)
    assert sorted(made) == [f"{metric} gpu-0{k}" for metric in sorted(SIDES) for k in (1, 2)]
    for measurement in made.values():
        assert measurement.reason is None, measurement.reason
        assert len(measurement.samples) == 2
        conditions = measurement.conditions
        assert (conditions["gpus"], conditions["ranks"], conditions["virtualisation"]) == (2, 2, "kvm")
        assert (conditions["domain_ended_by"], conditions["nccl"]) == ("shutdown", "2.26.2")
    (step,) = bench(engine).steps("collectives/")
    program, start = step.commands
    assert program in commands(tmp_path)
    assert {inside_of(command) for command in commands(tmp_path)} >= {program}
    assert start == "virsh -c qemu:///system start gpu-guest"
    records = read_records(tmp_path)
    samples = {r.seq for r in records if r.kind is Kind.MEASUREMENT}
    assert not {seq for seq in bench(engine).faults(tmp_path) if seq in samples}
    doubled = [
        r.model_copy(update={"body": {**r.body, "samples": [2 * s + 1 for s in r.body["samples"]]}})
        if r.seq in samples else r
        for r in records
    ]  # fmt: skip
    assert samples <= bench(engine).faults(tmp_path, doubled).keys()


def test_numbers_of_the_node_recorded_as_those_of_its_guest_are_a_fault(tmp_path: Path) -> None:
    measured(tmp_path, GuestNodes())
    records = read_records(tmp_path)
    swapped = []
    bodies = {r.body["metric"]: r.body["raw"] for r in records if r.kind is Kind.MEASUREMENT}
    for record in records:
        if record.kind is Kind.MEASUREMENT and record.body["metric"] == GUEST:
            record = record.model_copy(update={"body": {**record.body, "raw": bodies[HOST]}})
        swapped.append(record)
    faults = bench().faults(tmp_path, swapped)
    assert any("other outputs" in why for why in faults.values())


def wrong_values(program: str, text: str) -> str:
    return re.sub(r"(?m)^(\d+ \d+ float .*) 0$", r"\1 3", text).replace(": 0 OK", ": 3 FAILED")


def fewer(program: str, text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "Rank  1" not in line)


def older(node: str, lines: list[str]) -> list[str]:
    return [line.replace("2.26.2", "2.21.5") for line in lines]


CASES: dict[str, tuple[Callable[[], GuestNodes], str]] = {
    "no virsh": (
        lambda: GuestNodes(fails={"rackproof guest side 1": (1, "virsh is not installed: install libvirt-clients")}),
        "virsh is not installed: install libvirt-clients",
    ),
    "unknown domain": (
        lambda: GuestNodes(fails={"domuuid": (1, "error: failed to get domain 'gpu-guest'")}),
        "failed to get domain 'gpu-guest'",
    ),
    "running before": (lambda: GuestNodes(domain=["running", "running"]), "actual running: shut it down"),
    "started by another": (lambda: GuestNodes(domain=["shut off", "running"]), "actual running: shut it down"),
    "a GPU stays": (lambda: GuestNodes(given=BUSES[:1]), "gets 1 of the node's 2 GPUs: add a hostdev"),
    "a lost GPU": (lambda: GuestNodes(gpus={"host": [10], "guest": [10]}), "expected 2 GPUs on the node, actual 1"),
    "does not boot": (
        lambda: GuestNodes(fails={"boot_s=10": (1, "ssh: connect to host 192.168.122.5 port 22: No route to host")}),
        "its guest: ssh: connect to host 192.168.122.5 port 22: No route to host",
    ),
    "another host key": (
        lambda: GuestNodes(fails={"boot_s=10": (1, "Host key verification failed.")}), "Host key verification failed",
    ),
    "not virtualised": (lambda: GuestNodes(virtualisation="none"), "is no virtual machine"),
    "another machine": (
        lambda: GuestNodes(product="4c4c4544-0000-2010-8020-80c04f202020"), f"expected the domain {DOMAIN}",
    ),
    "other GPUs": (lambda: GuestNodes(gpus={"guest": [8, 9]}), "actual 0 of them and 2 others"),
    "fewer GPUs": (lambda: GuestNodes(gpus={"host": [3, 4], "guest": [3]}), "actual 1 of them and 0 others"),
    "fewer ranks": (lambda: GuestNodes(guest=FabricNodes(edit=fewer)), "contradicts"),
    "wrong values": (lambda: GuestNodes(guest=FabricNodes(edit=wrong_values)), "3 wrong values in the result"),
    "wrong values on the node": (lambda: GuestNodes(host=FabricNodes(edit=wrong_values)), "3 wrong values"),
    "another NCCL": (
        lambda: GuestNodes(guest=FabricNodes(spoken=older)), "expected 2.26.2 in the guest of gpu-01 as on the node",
    ),
    "no log of NCCL": (lambda: GuestNodes(guest=FabricNodes(spoken=lambda node, lines: [])), "NCCL wrote no log"),
    "a failed run": (
        lambda: GuestNodes(guest=FabricNodes(status={"all_reduce_perf": 3})), "nccl-tests: ",
    ),
    "no way back": (
        lambda: GuestNodes(fails={"# rackproof guest off 1": (1, "the node has 0 of its 2 GPUs")}),
        "its guest is not shut off, or its GPUs have not come back: virsh: the node has 0 of its 2 GPUs",
    ),
    "restarted": (lambda: GuestNodes(restarts="guest"), "the guest of gpu-01 has restarted during its runs"),
    "starved": (lambda: GuestNodes(steals="guest"), "the guest of gpu-01 was starved"),
    "starved on the node": (lambda: GuestNodes(steals="host"), "gpu-01 was starved: 10 %"),
    "threads of others": (lambda: GuestNodes(threads=40), "was starved: others had more threads ready to run"),
    "cut off": (lambda: GuestNodes(edit=lambda side, text: text[: len(text) // 2]), "last line is cut off"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_no_comparison_gives_no_number(tmp_path: Path, case: str) -> None:
    nodes, why = CASES[case]
    made = measured(tmp_path, nodes())
    assert len(made) == 8
    for measurement in made.values():
        if measurement.metric in COUNTS and any(measurement.samples):
            assert "wrong values" in case
            continue
        assert not measurement.samples, measurement.metric
        assert "\n" not in (measurement.reason or "\n")
    assert why in (made[f"{GUEST} gpu-01"].reason or ""), made[f"{GUEST} gpu-01"].reason


@pytest.mark.parametrize(
    ("side", "metric", "other"), [("host", HOST_WRONG, GUEST_WRONG), ("guest", GUEST_WRONG, HOST_WRONG)]
)
@pytest.mark.parametrize("status", [0, 1])
def test_wrong_values_of_either_side_are_counted_read_again_and_fail(
    tmp_path: Path, side: str, metric: str, other: str, status: int
) -> None:
    nodes = FabricNodes(edit=wrong_values, status={"all_reduce_perf": status} if status else {})
    made = measured(tmp_path, GuestNodes(**{side: nodes}))
    records = {r.seq for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT}
    assert not records & bench().faults(tmp_path).keys()
    judgement = judged(one_architecture(criterion()), *made.values())
    for node in ("gpu-01", "gpu-02"):
        assert set(made[f"{metric} {node}"].samples) == {3.0}
        assert not made[f"{GUEST} {node}"].samples
        assert not any(made[f"{other} {node}"].samples)
        verdict = verdicts(judgement, f"content[{metric}]")[node]
        assert (verdict.status, verdict.required, verdict.value) == (Status.FAIL, True, 3.0)
    assert judgement.outcome is Outcome.NOT_CERTIFIED


def test_counters_of_gpus_that_come_back_from_a_guest_may_begin_anew() -> None:
    state = LoadState("1f2e3d4c", (100.0, 100.0), 100.0, 4, (0, 40_000), 0, counters={"gpus": {"g pcie_replays": 7}})
    before = Observation(state)
    after = Observation(
        replace(state, uptime_s=(200.0, 200.0), clock_s=200.0, counters={"gpus": {"g pcie_replays": 1}})
    )
    node = NodeInfo(name="gpu-01", groups=("gpu",))
    (step,) = bench().steps("collectives/nccl-tests/guest/")
    for id_, outcome in ((step.id, CheckOutcome.PASSED), ("collectives/nccl-tests/all_reduce", CheckOutcome.FAILED)):
        every = {result.check: result for result in results(architecture(), node, id_, before, after)}
        assert every["load.gpus"].outcome is outcome


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"guest": None}, "gpu-01 has no guest: give it guest: {domain: …, address: …} in the inventory"),
        ({"simulated_gpus": True}, "its GPUs are simulated, and no guest can get them"),
    ],
)
def test_a_node_without_a_guest_is_unmeasured_and_not_touched(tmp_path: Path, data: dict[str, Any], why: str) -> None:
    without = bench(racked=rack(**data))
    made = without.measure(tmp_path, GuestNodes().answer, without.steps("collectives"))
    assert all(not m.samples and why in (m.reason or "").replace("gpu-02", "gpu-01") for m in made)
    assert not [command for command in commands(tmp_path) if "virsh" in command or launcher_of(command)]


def test_a_node_without_a_guest_leaves_the_others_their_numbers(tmp_path: Path) -> None:
    racked = rack()
    racked.nodes[1].data["guest"] = None  # type: ignore[index]
    mixed = bench(racked=racked)
    made = {m.subject: m for m in mixed.measure(tmp_path, GuestNodes().answer, mixed.steps("collectives"))}
    assert made["gpu-01"].samples
    assert "gpu-02 has no guest" in (made["gpu-02"].reason or "")


def test_a_domain_that_was_ended_is_named(tmp_path: Path) -> None:
    lines: list[str] = []
    made = measured(tmp_path, GuestNodes(ended="destroy"), say=lines.append)
    assert "gpu-01: its guest did not shut down within 3 s and was ended (destroy)" in lines
    assert {m.conditions["domain_ended_by"] for m in made.values()} == {"destroy"}


def test_a_domain_that_does_not_start_gives_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = FakePipe(True, why="Failed to start domain 'gpu-guest'")
    monkeypatch.setattr(FakeConnection, "pipe", lambda self, command, timeout_s, user="": refusing)
    made = measured(tmp_path, GuestNodes())
    for measurement in made.values():
        assert "its guest does not start: Failed to start domain 'gpu-guest'" in (measurement.reason or "")
    assert not refusing.alive


@pytest.mark.parametrize("moment", ["boot_s=10", "uid", "all_reduce_perf"])
def test_whatever_fails_the_domain_is_shut_off_and_the_keeper_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    pipes: list[FakePipe] = []

    def pipe(self: FakeConnection, command: str, timeout_s: float, user: str = "") -> FakePipe:
        pipes.append(FakePipe(False))
        return pipes[-1]

    monkeypatch.setattr(FakeConnection, "pipe", pipe)
    nodes = GuestNodes()
    answer = nodes.answer

    def failing(node: str, command: str) -> CommandResult | None:
        inner = inside_of(command)
        if moment in command and (inner is not None or "guest_wait" in moment or moment == "boot_s=10"):
            raise KeyboardInterrupt
        return answer(node, command)

    with pytest.raises(KeyboardInterrupt):
        bench().measure(tmp_path, failing, bench().steps("collectives"))
    assert len(pipes) == 2
    assert not [pipe for pipe in pipes if pipe.alive]
    assert sum(is_off(command) for command in commands(tmp_path)) == 2


def test_the_published_system_plans_the_step_and_no_gap() -> None:
    file = load(Path(__file__).parents[3] / "architectures" / "hitachi-v225g.yaml").model
    racked = Rack("rack.py", (*rack().nodes, Node("nas", ("storage",), {"fabric_addresses": ["10.77.0.11/24"]})))
    planned = Bench(file, racked, "full").steps()
    (step,) = [step for step in planned if step.id == "collectives/nccl-tests/guest/all_reduce"]
    assert {place.metric for place in step.expects} == set(SIDES)
    assert not [line for line in plan_gaps(file, "full", racked, planned) if "guest." in line]
