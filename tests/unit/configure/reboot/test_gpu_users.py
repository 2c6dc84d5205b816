"""Who works on a node, asked by a real shell of real processes, and what speaks against an exchange."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.configure.reboot.drain import DrainState
from rackproof.configure.reboot.gpu_users import Use, obstacle, parse_use, use_command
from tests.unit.shell import executable, sh

DUE = ("nvidia-utils-580 580.95.05-1 becomes 580.126.20-1",)
IDLE = DrainState(frozenset({"IDLE"}))
SHOWN = "NodeName=gpu-01 Arch=x86_64 State=IDLE ThreadsPerCore=1"


def ask(folder: Path, **programs: str) -> Use:
    """The question, on this machine, with these programs before its own."""
    for name, body in programs.items():
        executable(folder / name, body)
    done = sh(use_command("gpu-01"), programs=folder)
    assert done.stderr == ""
    return parse_use(done.stdout.splitlines())


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "dev" / "nvidia0"
    path.parent.mkdir()
    path.touch()
    return path


def test_a_program_with_a_device_open_is_found_without_a_driver(tmp_path: Path, device: Path) -> None:
    own_pid = f" ({os.getpid()})"
    assert not [name for name in ask(tmp_path).programs if name.endswith(own_pid)]
    with device.open():
        assert [name for name in ask(tmp_path).programs if name.endswith(own_pid)]


def test_the_drivers_own_services_are_no_programs(tmp_path: Path, device: Path) -> None:
    code = f"import time; open('/proc/self/comm', 'w').write('nvidia-persistenced'); f = open({str(device)!r});"
    code += " print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        use = ask(tmp_path)
        process.kill()
    assert not [name for name in use.programs if name.endswith(f" ({process.pid})")]


def test_steps_are_found_where_no_controller_answers(tmp_path: Path) -> None:
    code = "import time; open('/proc/self/comm', 'w').write('slurmstepd'); print('ready', flush=True); time.sleep(600)"
    limits = {}
    for title in ("slurmstepd: [4711.extern]", "slurmstepd infinity"):
        with subprocess.Popen([title, "-c", code], executable=sys.executable, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            limits[title] = ask(tmp_path, squeue="exit 1").jobs
            process.kill()
    assert limits == {"slurmstepd: [4711.extern]": ("4711",), "slurmstepd infinity": ()}


def test_the_controller_knows_jobs_without_a_step_here(tmp_path: Path) -> None:
    use = ask(tmp_path, squeue="echo 12; echo 13_4", scontrol=f"echo '{SHOWN}'")
    assert use.jobs == ("12", "13_4")
    assert use.jobs_known
    assert use.node == IDLE


def test_a_node_unknown_to_the_controller(tmp_path: Path) -> None:
    use = ask(tmp_path, squeue="exit 1", scontrol="echo 'Node gpu-01 not found'; exit 1")
    assert (use.jobs, use.jobs_known, use.node) == ((), True, None)


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (["--", "slurmd", "--", "--"], False),
        (["--", "slurmd", "--", "answered", "", "--"], True),
        (["--", "--", "--"], True),
    ],
)
def test_jobs_are_unknown_where_slurmd_runs_and_the_controller_is_silent(lines: list[str], known: bool) -> None:
    assert parse_use(lines).jobs_known is known


@pytest.mark.parametrize("lines", [[], ["--"], ["python3", "--", "--", "--"], ["--", "--", "--", "--"]])
def test_anything_else_is_no_answer(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_use(lines)


@pytest.mark.parametrize(
    ("use", "drains", "message"),
    [
        (Use(), True, None),
        (Use(node=IDLE), True, None),
        (Use(node=IDLE), False, "not drained in Slurm"),
        (Use(node=DrainState(frozenset({"IDLE", "DRAIN"}))), False, None),
        (Use(programs=("python3 (4711)",)), True, "actual programs on the GPUs: python3 (4711)"),
        (Use(jobs=("12", "13")), True, "actual Slurm's jobs 12, 13"),
        (Use(jobs_known=False), True, "slurmd runs, and Slurm's controller does not answer"),
    ],
)
def test_what_speaks_against_an_exchange(use: Use, drains: bool, message: str | None) -> None:
    problem = obstacle(use, DUE, drains)
    assert (problem is None) is (message is None)
    if problem is not None and message is not None:
        what, remedy = problem
        assert message in what
        assert "while nvidia-utils-580 580.95.05-1 becomes 580.126.20-1, actual" in what
        assert remedy.startswith("drain the node (scontrol update NodeName=")
