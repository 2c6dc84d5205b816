"""TCP from all clients to a storage: what is started, what proves it, and what is no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.architectures import load
from rackproof.bench.links import fan_in
from rackproof.bench.links.fan_in_reader import MOST_WAIT_S, at_once, is_client, waiting
from rackproof.bench.links.figures import TO_STORAGE
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.evidence import Kind, Measurement
from rackproof.core.metrics import AT_LEAST
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Status
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply
from tests.unit.judging import bar, criterion, judged, verdicts
from tests.unit.shell import sh
from tests.unit.storage_nodes import StorageNodes

ARCHITECTURE = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
DOCUMENT = ARCHITECTURE.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"curves": [], "outliers": []}
BENCH = Bench(ARCHITECTURE, lab_rack())
ADDRESSES = {"10.77.0.11": "storage-01", "10.77.0.21": "gpu-01", "10.77.0.22": "gpu-02"}
RATE = 8 * 30_000_000 / 1e9
"""Gb/s that the fabric's iperf3 gives to each client."""


class Nodes:
    """Clients whose iperf3 begins at ``starts`` (seconds, one list per run) and whose ports count what it sends."""

    def __init__(self, architecture: Architecture = ARCHITECTURE) -> None:
        self.fabric, self.storage = FabricNodes(dict(ADDRESSES)), StorageNodes(architecture)
        self.starts: dict[str, list[float]] = {}
        self.asked: list[str] = []
        self.waits: list[str] = []

    def answer(self, node: str, command: str) -> CommandResult | None:
        if not is_client(command):
            return self.fabric.answer(node, command) or self.storage.answer(node, command)
        self.waits.append(command.removesuffix(at_once(command)))
        self.asked.append(at_once(command))
        made = self.fabric.answer(node, command.partition("exec ")[2].partition("  # ")[0])
        assert made is not None
        later = self.starts[node].pop(0) if self.starts.get(node) else 0.0
        return reply(node, command, made.text, rc=made.rc, err=f"{1_795_000_000 + later:.9f}\n")


def measured(
    folder: Path, nodes: Nodes, rack: Rack | None = None, dead: set[str] = frozenset(), storage: str = "nfs-tcp"
) -> Measurement:  # type: ignore[assignment]
    bench = Bench(nodes.storage.architecture, rack or lab_rack())
    (taken,) = bench.measure(folder, nodes.answer, bench.steps(f"links/to-storage/{storage}"), dead=dead)
    return taken


@pytest.mark.parametrize("storage", ["nfs-tcp", "cephfs"])
def test_all_clients_send_to_the_address_of_their_mount_at_once(tmp_path: Path, storage: str) -> None:
    nodes = Nodes()
    taken = measured(tmp_path, nodes, storage=storage)
    assert taken.samples == pytest.approx([2 * RATE] * 2), taken.reason
    assert taken.members == ("gpu-01", "gpu-02")
    assert taken.conditions["clients"] == 2
    assert (taken.conditions["storage_ports"], taken.conditions["ports_per_storage_node"]) == (1, 1)
    assert "/mnt/" in taken.conditions["mount"]
    assert [" ".join(command.split()[4:11]) for command in nodes.asked[:2]] == [
        "iperf3 -c 10.77.0.11 -B 10.77.0.21 -p 15201",
        "iperf3 -c 10.77.0.11 -B 10.77.0.22 -p 15202",
    ]
    assert nodes.waits[0] == nodes.waits[1] != "", "one moment for all clients of a run"
    assert nodes.waits[0] != nodes.waits[2]
    assert AT_LEAST not in taken.conditions
    assert BENCH.faults(tmp_path) == {}
    (step,) = BENCH.steps(f"links/to-storage/{storage}")
    server, client = step.commands
    assert client == nodes.asked[0]
    assert server in {record.body["command"] for record in read_records(tmp_path) if record.kind is Kind.COMMAND}


def test_a_later_start_lowers_the_figure_and_a_much_later_one_is_measured_again(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.starts["gpu-02"] = [0.5, 3.0, 0.0]
    taken = measured(tmp_path, nodes)
    assert taken.samples == pytest.approx([2 * RATE * 5 / 5.5, 2 * RATE])
    assert taken.companions["start_lag_s"] == pytest.approx((0.5, 0.0))
    assert taken.conditions["unreliable_runs"] == 1
    assert taken.conditions[AT_LEAST] == (
        "the last client began 0.5 s after the first, a run takes 5 s: raise tcp_duration_s of the profile's links"
    )
    assert BENCH.faults(tmp_path) == {}


@pytest.mark.parametrize(("lag", "status"), [(0.5, Status.INVALID), (0.0, Status.FAIL)])
def test_a_lower_bound_blames_no_port(tmp_path: Path, lag: float, status: Status) -> None:
    nodes = Nodes()
    nodes.starts["gpu-02"] = [lag, lag]
    taken = measured(tmp_path, nodes)
    for value, expected in ((2.02 * RATE, status), (1.8 * RATE, Status.PASS)):
        entry = criterion(
            metric=TO_STORAGE, where={"storage": "nfs-tcp"}, scope="rack", bar=bar("ge", value, "Gb/s")
        ) | {"members": "gpu"}
        made = Architecture.model_validate(DOCUMENT | {"criteria": [entry]})
        assert verdicts(judged(made, taken))["rack"].status is expected


@pytest.mark.parametrize(
    ("from_now_s", "waits"), [(0.25, "0.250"), (0.0, "0.000"), (-5.0, "0.000"), (2.0 * MOST_WAIT_S, "0.000")]
)
def test_a_client_waits_for_the_moment_and_not_for_a_wrong_clock(from_now_s: float, waits: str) -> None:
    stubs = 'date() { echo 1795000000.500000000; }; sleep() { echo "$1"; }; '
    done = sh(stubs + waiting("echo begun", 1795000000.5 + from_now_s))
    assert done.stdout.split() == [waits, "begun"], done.stderr


def test_clients_that_never_send_together_give_no_number(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.starts["gpu-01"] = [60.0] * 9
    taken = measured(tmp_path, nodes)
    assert not taken.samples
    assert "no reliable figure in 3 attempts: the last client began 60 s after the first" in (taken.reason or "")


REFUSED = json.dumps({"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"})


def mounts(old: str, new: str) -> Callable[[Nodes], object]:
    return lambda nodes: setattr(nodes.storage, "mountinfo", lambda text: text.replace(old, new))


def mounted_anew(nodes: Nodes) -> None:
    """By the second state of each client the mount is another one."""
    plain, asked = nodes.answer, list[str]()

    def answer(node: str, command: str) -> CommandResult | None:
        made = plain(node, command)
        if made is None or not command.startswith(": storage-state"):
            return made
        asked.append(node)
        return reply(node, command, made.text.replace(" 0:47 ", f" 0:{46 + asked.count(node)} "))

    nodes.answer = answer  # type: ignore[method-assign]


def slow_clock(nodes: Nodes) -> None:
    plain = nodes.answer

    def answer(node: str, command: str) -> CommandResult | None:
        made = plain(node, command)
        return reply(node, command, made.text) if made and "exec iperf3" in command else made

    nodes.answer = answer  # type: ignore[method-assign]


BROKEN: list[tuple[str, Callable[[Nodes], object], str]] = [
    ("another port", lambda n: setattr(n.fabric, "way", lambda port: "eth0"), "another path"),
    ("iperf3 failed", lambda n: n.fabric.status.update(iperf3=1), "gpu-01"),
    ("refused", lambda n: setattr(n.fabric, "edit", lambda *_: REFUSED), "Connection refused"),
    ("cut off", lambda n: setattr(n.fabric, "edit", lambda _, text: text[:400]), "JSON document is cut off"),
    ("no counters", lambda n: n.fabric.lacking.add("rx_bytes"), "no counter rx_bytes"),
    ("a bind mount", mounts(" / /mnt/nfs-tcp ", " /local /mnt/nfs-tcp "), "bind mount of /local"),
    ("no mount on any client", mounts(" /mnt/nfs-tcp ", " /mnt/other "), "expected nfs4, actual not mounted"),
    ("a mount that was made anew", mounted_anew, "changed during the run: device 0:"),
    ("another server", mounts("10.77.0.11:/srv", "10.99.0.11:/srv"), "10.99.0.11"),
    ("no time of its start", slow_clock, "it does not report when it began"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "break_", "reason"), BROKEN, ids=[case[0] for case in BROKEN])
def test_what_is_no_number(tmp_path: Path, what: str, break_: Callable[[Nodes], object], reason: str) -> None:
    nodes = Nodes()
    break_(nodes)
    taken = measured(tmp_path, nodes)
    assert not taken.samples, what
    assert reason in (taken.reason or "")


def test_a_silent_client_or_server_is_no_number_of_the_others(tmp_path: Path) -> None:
    for name in ("gpu-02", "storage-01"):
        (tmp_path / name).mkdir()
        taken = measured(tmp_path / name, Nodes(), dead={name})
        assert not taken.samples
        assert f"{name} does not answer" in (taken.reason or "")


def test_a_client_outside_the_network_of_the_mount_is_named(tmp_path: Path) -> None:
    rack = lab_rack()
    far = Node("gpu-02", ("gpu",), {"fabric_addresses": ["10.78.0.22/24"], "virtual": True})
    taken = measured(tmp_path, Nodes(), Rack(rack.source, (*rack.nodes[:2], far)))
    assert not taken.samples
    assert "gpu-02: no rail of it is in the network of 10.77.0.11" in (taken.reason or "")


def test_nothing_is_started_on_an_appliance(tmp_path: Path) -> None:
    storage = ARCHITECTURE.storage["nfs-tcp"].model_copy(update={"managed": False})
    made = ARCHITECTURE.model_copy(update={"storage": {**ARCHITECTURE.storage, "nfs-tcp": storage}})
    nodes = Nodes(made)
    taken = measured(tmp_path, nodes)
    assert "starts no iperf3 on servers that it does not set up" in (taken.reason or "")
    assert not nodes.asked


def test_a_client_whose_run_is_cut_from_the_evidence_disproves_the_sum(tmp_path: Path) -> None:
    measured(tmp_path, Nodes())
    records = read_records(tmp_path)
    cut = next(r for r in records if r.kind is Kind.COMMAND and "exec iperf3" in r.body["command"])
    why = BENCH.faults(tmp_path, [r for r in records if r is not cut])
    assert any("its data goes to 10.77.0.11, iperf3 sent to nothing" in text for text in why.values())


def test_a_drive_of_the_clients_is_no_storage_to_send_to() -> None:
    document = ARCHITECTURE.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document["profiles"]["depth"]["links"]["to_storage"] = ["local"]
    made = ARCHITECTURE.model_validate(document)
    assert any("has no network path" in str(problem) for problem in problems(made))


def test_every_address_of_a_client_with_several_mounts_gets_its_test() -> None:
    server = Node("s", ("storage",), {"fabric_addresses": ["10.1.0.1/24", "10.2.0.1/24"],
                                      "fabric_second_addresses": ["10.1.0.9/24"]})  # fmt: skip
    assert [fan_in.rail_of(server, a) for a in ("10.1.0.1", "10.2.0.1", "10.1.0.9", "10.3.0.1")] == [
        0, 1, 0, fan_in.NO_RAIL,
    ]  # fmt: skip
    client = Node("c", ("gpu",), {"fabric_addresses": ["10.1.0.5/24", "10.2.0.5/24"]})
    assert [fan_in.rail_to(client, a) for a in ("10.1.0.1", "10.2.0.9", "10.3.0.1")] == [0, 1, fan_in.NO_RAIL]
