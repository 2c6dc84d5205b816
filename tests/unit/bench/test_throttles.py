"""Limits of ports and drives around the steps of a scaled system: set, read back, proven, removed, refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step, expected
from rackproof.bench.throttles import held
from rackproof.bench.throttles.held import is_state, proven
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Kind, Measurement, NodeInfo, Scope
from rackproof.core.rack import Node, Rack
from rackproof.core.throttles import CONDITION, limits_of
from rackproof.evidence.store import read_records
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.fakes import FakePipe, lab_rack, reply, scripted
from tests.unit.parse.test_throttles import EACH, answer

FOLDER = Path(__file__).parents[3] / "architectures"
STEP = "ingest/nfs-tcp/ports/port-10"


def scaled(seed: str) -> Architecture:
    return load(f"{seed}-scaled", [FOLDER]).model


@dataclass
class ListeningPipe(FakePipe):
    """Keeps what it is told."""

    told: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> bool:
        self.told.append(data)
        return super().write(data)


@dataclass
class Kernels:
    """Commands to nodes, and limits of their kernels: the last rate, or ``actual`` instead."""

    told: list[tuple[str, str]] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    actual: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ends: list[FakePipe] = field(default_factory=list)

    def open(self, node: str) -> FakePipe:
        def write(data: bytes) -> bool:
            self.told.append((node, data.decode().strip()))
            self.rates[node] = float(data.decode().split()[0].rpartition(":")[2])
            return node not in self.refused

        end = FakePipe(False, why=self.refused.get(node, ""))
        end.write = write  # type: ignore[method-assign]
        self.ends.append(end)
        return end

    def answer(self, node: str, command: str) -> CommandResult | None:
        if not is_state(command):
            return None
        rate = self.actual.get(node, self.rates.get(node, 0.0)) / 8
        queue = f'[{{"kind":"tbf","handle":"7270:","options":{{"rate":{rate:.0f}}}}}]' if rate else "[]"
        return reply(node, command, answer(f"port fabric0\n{queue}\n{queue}\n{int(rate > 0)}\n"))


@contextmanager
def stage(folder: Path, monkeypatch: pytest.MonkeyPatch, rack: Rack | None = None) -> Iterator[tuple[Any, Kernels]]:
    kernels = Kernels()
    with scripted(folder, kernels.answer, rack, scaled("hitachi-v225g")) as session:
        fake: Any = type(session.fleet["gpu-01"])
        monkeypatch.setattr(fake, "pipe", lambda own, asked, limit_s, user="": kernels.open(own.node.name))
        yield session, kernels


def step(gbps: int | None = 10, then: Any = lambda: None) -> Step:
    """A step that measures 5 samples a second."""
    labels = {"workload": "ports"} | ({"port_gbps": str(gbps)} if gbps else {})
    place = expected("ingest.samples_rate", Scope.RACK, ["gpu-01", "gpu-02"], labels, STEP)

    def execute(context: Any) -> list[Measurement]:
        then()
        return [place.model_copy(update={"samples": (5.0,), "reason": None})]

    return Step(STEP, "a step", 1, (place,), execute, port_gbps=gbps)


def numbers(folder: Path) -> list[Measurement]:
    return [Measurement.model_validate(r.body) for r in read_records(folder) if r.kind is Kind.MEASUREMENT]


def test_limits_are_set_read_back_recorded_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch) as (session, kernels):
        run_steps(session, [step(10), step(100), step(100)], (), lambda line: None)
        cleared = [node for node, command in session.fleet.asked if command == held._CLEAR]
    assert kernels.told == [
        (node, f"port:fabric0:{rate}") for rate in (2470000, 24700000) for node in ("gpu-01", "gpu-02")
    ]
    assert [m.conditions[CONDITION]["gpu-02"] for m in numbers(tmp_path)] == [
        {"fabric0": {"bits_per_s": rate}} for rate in (2470000.0, 24700000.0, 24700000.0)
    ]
    assert not any(end.alive for end in kernels.ends)
    assert cleared == ["storage-01", "gpu-01", "gpu-02", "gpu-01", "gpu-02"]  # before the first, after the last


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_step_whose_limits_are_not_in_force_has_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    with stage(tmp_path, monkeypatch) as (session, kernels):
        lose = {"gpu-02": 0.001 if when == "during" else 40e6}
        if when == "before":
            kernels.actual |= lose
        run_steps(session, [step(10, lambda: kernels.actual.update(lose))], (), lambda line: None)
    (number,) = numbers(tmp_path)
    assert number.samples == ()
    assert "gpu-02: limits of ports and drives: fabric0: expected 2470000 bits_per_s, actual" in str(number.reason)


def test_a_node_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch) as (session, kernels):
        kernels.refused["gpu-01"] = "limits are for virtual machines of QEMU, this is Dell Inc. (none)"
        run_steps(session, [step()], (), lambda line: None)
    (number,) = numbers(tmp_path)
    assert number.samples == ()
    assert "gpu-01: limits of ports and drives: limits are for virtual machines" in str(number.reason)


def test_hardware_is_never_told_of_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rack = Rack("a.py", tuple(Node(n.name, n.groups, dict(n.data) | {"virtual": False}) for n in lab_rack().nodes))
    with stage(tmp_path, monkeypatch, rack) as (session, kernels):
        run_steps(session, [step()], (), lambda line: None)
        assert not any(command == held._CLEAR for _, command in session.fleet.asked)
    assert (kernels.told, kernels.ends) == ([], [])
    (number,) = numbers(tmp_path)
    assert number.samples == ()
    assert "is no virtual machine" in str(number.reason)


def test_the_program_of_a_node_refuses_a_machine_that_is_not_qemus(tmp_path: Path) -> None:
    for name, text in (
        ("systemd-detect-virt", "echo none; exit 1"),
        ("tc", "echo called >&2"),
        ("ip", "echo called >&2"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", held._HOLD], input=b"port:fabric0:1000\n", capture_output=True, check=False, timeout=60,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1
    assert b"limits are for virtual machines of QEMU" in done.stderr
    assert b"called" not in done.stderr


TOOLS = {
    "systemd-detect-virt": "echo kvm",
    "modprobe": ":",
    "ip": """
case "$1 $2" in
  "link add") mkdir "$SYS/class/net/$3" ;;
  "link del") rmdir "$SYS/class/net/$3" ;;
esac""",
    "tc": """
case "$1 $2" in
  "qdisc show") [ -e "$SYS/limited" ] && echo 'qdisc prio 7271: root' || echo 'qdisc fq_codel 0: root' ;;
  "filter show") for protocol in ip ipv6; do
    echo "filter parent 7271: protocol $protocol pref 49152 flower chain 0 handle 0x1 classid 7271:1"
    echo "filter parent 7271: protocol $protocol pref 49151 flower chain 0 handle 0x1 classid 7271:3"
    printf '  ip_proto tcp\\n  src_port 2049\\n  not_in_hw\\n'
  done ;;
  "qdisc add") echo "$*" >>"$SYS/told"; touch "$SYS/limited" ;;
  "qdisc del") echo "$*" >>"$SYS/told"; [ "$5" != root ] || rm "$SYS/limited" ;;
  *) echo "$*" >>"$SYS/told" ;;
esac""",
}
"""Programs of a guest; ``$SYS`` is in the place of /sys."""


def in_guest(command: str, folder: Path, given: str = "") -> str:
    """Output of a command, with ``TOOLS``."""
    system = folder / "sys"
    if not system.exists():
        (folder / "bin").mkdir()
        (system / "class/dmi/id").mkdir(parents=True)
        (system / "class/dmi/id/sys_vendor").write_text("QEMU\n")
        (system / "class/net/fabric0/device").mkdir(parents=True)
        (system / "class/net/fabric0/mtu").write_text("9000\n")
        (folder / "virtio_net").mkdir()
        (system / "class/net/fabric0/device/driver").symlink_to(folder / "virtio_net")
        for name, text in TOOLS.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command.replace("/sys/", f"{system}/").replace("/run/", f"{folder}/")], input=given, text=True,
        capture_output=True, check=False, timeout=60, env={"PATH": f"{folder}/bin:/usr/bin:/bin", "SYS": str(system)},
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout


def test_each_connection_of_a_server_is_limited_until_the_program_ends(tmp_path: Path) -> None:
    """Set twice, with another rate, and removed at the end; RoCE and all else pass."""
    lines = "connections:fabric0:2049:6000000\nconnections:fabric0:2049:4000000\n"
    assert in_guest(held._HOLD, tmp_path, lines) == "rackproof-throttles\n" * 2
    told = (tmp_path / "sys/told").read_text().splitlines()
    assert not (tmp_path / "sys/limited").exists()
    assert not list((tmp_path / "sys/class/net").glob("rp-*"))
    begin, end = "qdisc add dev fabric0 root handle 7271: prio bands 3", "qdisc del dev fabric0 root"
    assert [line[: len(begin)] for line in told if "root" in line] == [begin, end] * 2
    for protocol in ("ip", "ipv6"):
        own = f"filter add dev fabric0 parent 7271: protocol {protocol} flower ip_proto"
        assert [line for line in told if line.startswith(own)] == [
            f"{own} udp dst_port 4791 classid 7271:1", f"{own} tcp src_port 2049 classid 7271:3",
        ] * 2  # fmt: skip
    assert [line for line in told if "maxrate" in line] == [
        f"qdisc add dev fabric0 parent 7271:3 handle 7272: fq maxrate {rate}bit" for rate in (6000000, 4000000)
    ]


def test_what_a_killed_program_leaves_is_removed_by_the_next_stage(tmp_path: Path) -> None:
    killed = held._HOLD.replace("trap 'trap", ": 'trap")
    assert in_guest(killed, tmp_path, "connections:fabric0:2049:6000000\n") == "rackproof-throttles\n"
    assert (tmp_path / "sys/limited").exists()
    assert in_guest(held._CLEAR, tmp_path) == ""
    assert not (tmp_path / "sys/limited").exists()
    assert not list((tmp_path / "sys/class/net").glob("rp-*"))


def test_both_filters_of_both_protocols_are_counted(tmp_path: Path) -> None:
    asked = held.state_command(["fabric0:2049"], {}, False)
    assert in_guest(asked, tmp_path).splitlines()[-2:] == ["4", "end"]
    assert in_guest(asked.replace("2049", "204"), tmp_path).splitlines()[-2:] == ["2", "end"]


INFOS = [NodeInfo(name=node.name, groups=node.groups, virtual=True) for node in lab_rack().nodes]


def test_evidence_without_the_limits_proves_no_number() -> None:
    kernels = Kernels(rates={"gpu-01": 2470000, "gpu-02": 2470000})
    told = held.state_command({"fabric0": 1.0}, {}, False)
    answers = [answer for node in ("gpu-01", "gpu-02") if (answer := kernels.answer(node, told))]
    (place,) = step(10).expects
    file = scaled("hitachi-v225g")
    assert proven(file, INFOS, place, answers)[CONDITION]["gpu-01"] == {"fabric0": {"bits_per_s": 2470000.0}}
    with pytest.raises(ParseError, match="gpu-02: nothing says that its ports and drives were limited"):
        proven(file, INFOS, place, answers[:1])
    with pytest.raises(ParseError, match="fabric0: expected 24700000 bits_per_s, actual 2470000"):
        proven(file, INFOS, step(100).expects[0], answers)
    with pytest.raises(ParseError, match="the answer is not complete"):
        proven(file, INFOS, place, [*answers, reply("gpu-01", told, "rackproof throttles 1\n")])
    assert proven(load("virtual-rack", [FOLDER]).model, INFOS, place, []) == {}


CONNECTION = "storage/nfs-tcp/connections"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (EACH, ""),
        (EACH.replace("750000", "760000"), "fabric0:2049: expected 6000000 bits_per_s_each, actual 6080000"),
        (EACH.replace('"fq"', '"fq_codel"'), "fabric0:2049: expected 6000000 bits_per_s_each, actual no limit of"),
        ("", "fabric0:2049: expected 6000000 bits_per_s_each, actual no limit of"),
        (EACH.replace("\n4", "\n0"), "fabric0:2049: not every connection is limited"),
        (None, "nothing says that its ports and drives were limited"),
    ],
)
def test_a_speedup_without_the_limit_of_each_connection_is_not_proven(state: str | None, why: str) -> None:
    file = scaled("weka-inference-nvme-dram")
    local = limits_of(file, ("gpu",)).drives["local"]["bytes_per_s"]
    drive = f"rbps={local:.0f} wbps=max riops=max wiops=max"
    clients = answer(f"drive local\nuser.slice {drive}\nsystem.slice {drive}\nrackproof.slice none\n")
    texts = {"gpu-01": clients, "gpu-02": clients} | ({} if state is None else {"storage-01": answer(state)})
    told = held.state_command(["fabric0:2049"], {}, False)
    answers = [reply(node, told, text) for node, text in texts.items()]
    place = expected("storage.connections_speedup", Scope.NODE, ["gpu-01"], {"storage": "nfs-tcp"}, CONNECTION)
    if why:
        with pytest.raises(ParseError, match=f"storage-01: .*{why}"):
            proven(file, INFOS, place, answers)
    else:
        limited = proven(file, INFOS, place, answers)[CONDITION]["storage-01"]
        assert limited == {"fabric0:2049": {"bits_per_s_each": 6e6}}


def test_a_step_has_no_number_once_connections_have_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[str] = []

    def kernel(node: str, command: str) -> CommandResult | None:
        return reply(node, command, answer("" if lost else EACH)) if is_state(command) else None

    file = scaled("weka-inference-nvme-dram")
    assert file.scale is not None
    file = file.model_copy(update={"scale": file.scale.model_copy(update={"drives": {}})})
    with scripted(tmp_path, kernel, None, file) as session:
        fake: Any = type(session.fleet["storage-01"])
        end = ListeningPipe(False)
        monkeypatch.setattr(fake, "pipe", lambda own, asked, limit_s, user="": end)
        run_steps(session, [step(None), step(None, lambda: lost.append("it"))], (), lambda line: None)
    assert end.told == [b"connections:fabric0:2049:6000000\n"]
    limited, without = numbers(tmp_path)
    assert limited.conditions[CONDITION] == {"storage-01": {"fabric0:2049": {"bits_per_s_each": 6e6}}}
    assert without.samples == ()
    assert "fabric0:2049: expected 6000000 bits_per_s_each, actual no limit of" in str(without.reason)


@pytest.mark.parametrize(
    ("seed", "group", "ports", "drives"),
    [
        ("dell-isilon-f800-dgx1", "gpu", {}, {}),
        ("dell-isilon-f800-dgx1", "storage", {"fabric0": 8e6}, {}),
        ("dell-scaling-little", "storage", {}, {"nfs-tcp": {"bytes_per_s": 12e6}}),
        ("hitachi-v225g", "storage", {}, {}),
        ("hpe-apollo6500-weka", "storage", {}, {"cephfs": {"bytes_per_s": 10e6}}),
        ("weka-inference-nvme-dram", "gpu", {}, {"local": {"bytes_per_s": pytest.approx(33291, rel=1e-3)}}),
        ("weka-inference-nvme-dram", "storage", {}, {}),
    ],
)
def test_the_limits_of_the_scaled_systems(seed: str, group: str, ports: Any, drives: Any) -> None:
    limits = limits_of(scaled(seed), (group,))
    assert (limits.ports, limits.drives) == (ports, drives)
    connections = {"fabric0:2049": 6e6} if (seed, group) == ("weka-inference-nvme-dram", "storage") else {}
    assert limits.connections == connections


def test_a_link_of_a_series_only_limits_nothing_else() -> None:
    """The least limit counts of the links of one port that are in force."""
    file = scaled("hitachi-v225g")
    assert file.scale is not None
    only = file.scale.links["v225g"].model_copy(update={"only_series": True})
    slower = only.model_copy(update={"only_series": False, "series": False, "published": 20.0})
    for links, rates in (
        ({"a": only}, {None: {}, 10: {"fabric0": 2.47e6}}),
        ({"a": only, "b": slower}, {None: {"fabric0": 4.94e6}, 10: {"fabric0": 2.47e6}, 100: {"fabric0": 4.94e6}}),
    ):
        model = file.model_copy(update={"scale": file.scale.model_copy(update={"links": links})})
        for gbps, ports in rates.items():
            assert limits_of(model, ("gpu",), gbps).ports == pytest.approx(ports)


def test_a_port_series_has_a_step_for_each_rate() -> None:
    steps = {step.id: step for step in plan_steps(scaled("hitachi-v225g"), "lab", lab_rack())}
    for gbps in (10, 25, 40, 100):
        own = steps[f"ingest/nfs-tcp/ports/port-{gbps}"]
        assert own.port_gbps == gbps
        assert {place.labels["port_gbps"] for place in own.expects} == {str(gbps)}
    assert all(step.port_gbps is None for id_, step in steps.items() if "/port-" not in id_)
