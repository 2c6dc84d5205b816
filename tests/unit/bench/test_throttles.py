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
from tests.unit.parse.test_throttles import answer

FOLDER = Path(__file__).parents[3] / "architectures"
STEP = "ingest/nfs-tcp/ports/port-10"


def scaled(seed: str) -> Architecture:
    return load(f"{seed}-scaled", [FOLDER]).model


@dataclass
class Kernels:
    """What nodes were told and what their kernels have: the last rate, or ``actual`` instead."""

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
