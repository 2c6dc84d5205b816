"""Live faults without a rack: the catalogue, the record of active faults, the simulated tools."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof.cli.lab import lab as lab_command
from rackproof.configure.files import RemoteFile
from rackproof.configure.gpu import simulated
from rackproof.configure.render import templates
from rackproof.core.evidence import CheckOutcome
from rackproof.errors import LabError
from rackproof.lab import faults, monitor
from rackproof.lab.rack import Lab
from rackproof.parse import ParseError
from rackproof.parse.nvidia_smi import parse_nvidia_smi
from rackproof.parse.nvidia_topology import parse_topology
from rackproof.selftest.catalogue import read_catalogue
from tests.lab.neighbours import ALSO, may_notice
from tests.unit.configure.rack import site
from tests.unit.validation.checking import ROOT

NAMES = list(faults.live_faults())
EXPECTED = {
    *("link-down", "mtu", "packet-loss", "slow-disk", "nfs-frozen", "mount-missing", "clock-off", "service-stopped"),
    *("kernel-parameter", "package-skew", "file-changed", "memory-removed", "gpu-lost", "pcie-width", "ecc-errors"),
    *("nvlink-down", "tool-empty", "tool-truncated", "tool-garbled", "tool-localised", "tool-warnings", "tool-lies"),
    "slow-port",
}


def test_the_catalogue_has_the_common_faults() -> None:
    assert set(NAMES) >= EXPECTED


def test_faults_that_reach_further_exist() -> None:
    assert ALSO.keys() <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_has_both_scripts_and_a_check_or_benchmark(name: str) -> None:
    fault = faults.live_fault(name)
    assert bool(fault.check) != bool(fault.benchmark)
    assert fault.heal or not fault.inject
    assert bool(fault.monitor_inject) == bool(fault.monitor_heal)
    assert bool(fault.inject) != bool(fault.monitor_inject)
    for state in ("on", "off"):
        done = subprocess.run(["sh", "-n"], input=faults.script_of(fault, state), text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
    if fault.check:
        assert may_notice(fault, fault.check, fault.seen_on or fault.node)
        assert not may_notice(fault, "other.check", fault.node)


def test_the_catalogue_and_the_live_faults_expect_the_same_checks() -> None:
    live = {
        fault.live: fault
        for file in read_catalogue(ROOT / "tests" / "faults").values()
        for fault in file.faults
        if fault.live
    }
    assert len(live) > 10
    assert {name: fault.check for name, fault in live.items()} == {name: faults.live_fault(name).check for name in live}
    assert {name: fault.outcome for name, fault in live.items()} == {n: faults.live_fault(n).outcome for n in live}


# The record of active faults


class Running(Lab):
    """A rack whose nodes all seem to run."""

    def pids(self) -> dict[str, int]:
        return {"gpu-01": 1, "gpu-02": 2, "storage-01": 3}

    def require_node(self, name: str) -> Any:
        if name not in self.pids():
            raise LabError(f"no node {name!r} in the rack")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Scripts that ran on nodes; with ``broken`` in it the next one fails."""
    seen: list[str] = []

    def apply(lab: Lab, fault: faults.LiveFault, node: str, state: str) -> None:
        if "broken" in seen:
            raise LabError(f"{fault.name} {state}: {node}: no")
        seen.append(f"{fault.name} {state} {node}")

    monkeypatch.setattr(faults, "_apply", apply)
    return seen


def test_active_faults_are_recorded_and_repeated_commands_are_harmless(tmp_path: Path, done: list[str]) -> None:
    lab = Running(tmp_path)
    assert faults.inject(lab, "mtu") == "gpu-01"
    assert faults.inject(lab, "mtu") == "gpu-01"  # injected again
    assert faults.inject(lab, "clock-off", "gpu-01") == "gpu-01"
    assert faults.active(tmp_path) == {"mtu": "gpu-01", "clock-off": "gpu-01"}
    assert faults.remove(lab, "mtu") == "gpu-01"
    assert faults.remove(lab, "mtu") is None
    assert faults.remove_all(lab) == ["clock-off"]
    assert faults.remove_all(lab) == []
    assert done == ["mtu on gpu-01", "mtu on gpu-01", "clock-off on gpu-01", "mtu off gpu-01", "clock-off off gpu-01"]
    assert list(tmp_path.glob("faults.json*")) == []


def test_a_fault_whose_injection_failed_can_be_removed(tmp_path: Path, done: list[str]) -> None:
    lab = Running(tmp_path)
    done.append("broken")
    with pytest.raises(LabError, match="mtu on: gpu-01: no"):
        faults.inject(lab, "mtu")
    assert faults.active(tmp_path) == {"mtu": "gpu-01"}
    with pytest.raises(LabError, match="mtu off: gpu-01: no"):
        faults.remove_all(lab)
    assert faults.active(tmp_path) == {"mtu": "gpu-01"}
    done.remove("broken")
    assert faults.remove_all(lab) == ["mtu"]


def test_a_fault_of_a_stopped_node_is_removed_without_a_script(
    tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Running(tmp_path)
    faults.inject(lab, "mtu")
    monkeypatch.setattr(Running, "pids", lambda self: {"gpu-02": 2})
    assert faults.remove(lab, "mtu") == "gpu-01"
    assert done == ["mtu on gpu-01"]
    assert faults.active(tmp_path) == {}


def test_no_fault_is_active_when_the_rack_is_down(tmp_path: Path, done: list[str]) -> None:
    faults.inject(Running(tmp_path), "mtu")
    Lab(tmp_path).down()
    assert faults.active(tmp_path) == {}


def test_an_invalid_fault_is_refused_and_not_recorded(tmp_path: Path, done: list[str]) -> None:
    lab = Running(tmp_path)
    for name, node, complaint in (
        ("mtuu", None, "no fault 'mtuu'; did you mean 'mtu'"),
        ("mtu", "gpu-09", "no node 'gpu-09'"),
    ):
        with pytest.raises(LabError, match=complaint):
            faults.inject(lab, name, node)
    assert faults.active(tmp_path) == {}
    faults.inject(lab, "mtu")
    with pytest.raises(LabError, match="mtu is already on, on gpu-01"):
        faults.inject(lab, "mtu", "gpu-02")
    (tmp_path / "faults.json").write_text("[]")
    with pytest.raises(LabError, match="unreadable"):
        faults.active(tmp_path)


def test_a_second_lab_command_at_once_is_refused(tmp_path: Path, done: list[str]) -> None:
    with (tmp_path / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(LabError, match="another `rackproof lab` command"):
            faults.inject(Running(tmp_path), "mtu")


def test_faults_outside_of_the_node_are_requests_to_the_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(monitor, "ask", lambda folder, request: asked.append((folder.name, request)))
    lab = Running(tmp_path)
    faults.inject(lab, "link-down")
    faults.remove(lab, "link-down")
    assert [(node, request["arguments"]["up"]) for node, request in asked] == [("gpu-02", False), ("gpu-02", True)]


def test_the_lab_fault_command(tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.cli.lab._lab", lambda: Running(tmp_path))

    def output(*arguments: str) -> str:
        return CliRunner().invoke(lab_command, ["fault", *arguments], catch_exceptions=False).output

    assert "mtu is on, on gpu-01; noticed by fabric.mtu[fabric0]" in output("mtu", "on")
    rows = {line.split()[0]: line.split()[1:3] for line in output("list").splitlines()}
    assert (rows["mtu"], rows["link-down"]) == (["gpu-01", "on"], ["gpu-02", "-"])
    assert output("all", "off") == "off: mtu\n"
    assert output("mtu", "off") == "mtu is off; it was not on\n"
    assert "on or off is missing" in output("mtu")


# The simulated nvidia-smi


@pytest.fixture
def smi(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the simulated nvidia-smi of a node; its /run is tmp_path."""
    here = site("gpu-01")
    assert here.architecture.gpu is not None
    for file in simulated.files(here, here.architecture.gpu):
        assert isinstance(file, RemoteFile)
        text = file.content.replace(simulated.RECORDINGS, str(tmp_path)).replace("/run/", f"{tmp_path}/run/")
        (tmp_path / Path(file.path).name).write_text(text)

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["sh", str(tmp_path / "nvidia-smi"), *arguments], capture_output=True, check=False)

    return run


def put(folder: Path, name: str, state: str = "on") -> None:
    script = faults.script_of(faults.live_fault(name), state)
    script = script.replace("/run/", f"{folder}/run/").replace("/usr/local/bin", str(folder))
    done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


Smi = Callable[..., "subprocess.CompletedProcess[bytes]"]


def test_faults_of_gpus_add_up_and_are_taken_off_one_by_one(tmp_path: Path, smi: Smi) -> None:
    before = smi("-q", "-x").stdout
    matrix = smi("topo", "-m").stdout
    for name in ("gpu-lost", "pcie-width", "ecc-errors", "nvlink-down", "nvlink-down"):
        put(tmp_path, name)
    parsed = parse_nvidia_smi(smi("-q", "-x").stdout.decode())
    assert len(parsed.gpus) == 7
    assert [gpu.pcie_width for gpu in parsed.gpus] == [8] + 6 * [16]
    assert [gpu.ecc_volatile.uncorrected for gpu in parsed.gpus] == [2] + 6 * [0]
    changed = parse_topology(smi("topo", "-m").stdout.decode())
    assert changed != parse_topology(matrix.decode())
    put(tmp_path, "gpu-lost", "off")
    parsed = parse_nvidia_smi(smi("-q", "-x").stdout.decode())
    assert (len(parsed.gpus), parsed.gpus[0].pcie_width) == (8, 8)
    for name in ("gpu-lost", "pcie-width", "ecc-errors", "nvlink-down"):
        put(tmp_path, name, "off")
    assert (smi("-q", "-x").stdout, smi("topo", "-m").stdout) == (before, matrix)


@pytest.mark.parametrize("name", ["tool-empty", "tool-truncated", "tool-garbled", "tool-localised", "tool-lies"])
def test_a_bad_answer_comes_with_status_0_and_cannot_be_read(tmp_path: Path, smi: Smi, name: str) -> None:
    put(tmp_path, name)
    done = smi("-q", "-x")
    assert done.returncode == 0
    with pytest.raises(ParseError):
        parse_nvidia_smi(done.stdout.decode(errors="replace"))
    # A driver that says it has lost a GPU is believed, whatever status it ends with.
    outcome = CheckOutcome.FAILED if name == "tool-lies" else CheckOutcome.UNMEASURED
    assert faults.live_fault(name).outcome is outcome
    assert smi("-L").stdout == done.stdout or name in ("tool-truncated", "tool-garbled")


def test_a_node_without_the_simulated_tool_says_so(tmp_path: Path) -> None:
    script = faults.script_of(faults.live_fault("gpu-lost"), "on").replace("/run/", f"{tmp_path}/run/")
    script = script.replace("/usr/local/bin", str(tmp_path))
    done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert "deploy first" in done.stderr
    assert templates.text("/usr/local/bin/nvidia-smi", recordings="/x").count("/run/rackproof/nvidia-smi") == 1
