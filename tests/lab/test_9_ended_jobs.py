"""Collectives that are interrupted, outlive their limit or lose a node: ended on every node, by its process table."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.bench.collectives.refusal import asking, out_of_service
from rackproof.core.evidence import Kind
from rackproof.core.rack import Rack
from rackproof.evidence.store import read_records
from rackproof.lab import faults
from rackproof.lab.rack import Lab
from tests.lab.conftest import ROOT
from tests.lab.running import ENDED_S, GONE_S, Running, left_behind, on_node, traces

pytestmark = pytest.mark.long

LAUNCHERS = ("mpirun", "srun", "ssh")
LIMIT_S = (15 + 2) * 2 + 120
"""Time limit of a collective with one size, in seconds."""
BUSY_S = 600
"""A busy controller is waited for, 120 s before each of two repetitions; a lost node is asked for 20 s beside them."""
RANK = "pgrep -fx '[^ ]*python3 -I [^ ]*collectives.py .*'"
"""Programs of every launcher. A shell that starts it has other words before."""
STARTED_S = 180
SERVICE_S = 900
"""slurmctld asks silent nodes every SlurmdTimeout / 3, 100 s, and a node's slurmd needs the time of its clock."""
TORCH = "/run/rackproof-torch"
STAND_IN = f"""
mkdir -p {TORCH}/bin
ln -sf /usr/bin/python3 {TORCH}/bin/python3
printf 'home = /usr/bin\\n' >{TORCH}/pyvenv.cfg
site=$({TORCH}/bin/python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$site"
printf '%s\\n' 'import time' 'cuda = distributed = None' 'def device(*_): return None' \
    'def set_num_threads(_): time.sleep(1e6)' >"$site/torch.py"
"""
"""A Python whose torch never brings the ranks together, as one that waits for a lost rank."""


@pytest.fixture
def stand_in(converged: Rack) -> Iterator[None]:
    nodes = [node.name for node in converged.group("gpu")]
    for node in nodes:
        on_node(converged, node, STAND_IN)
    yield
    for node in nodes:
        on_node(converged, node, f"rm -rf {TORCH}")


def inventory(path: Path, launcher: str) -> Path:
    """The virtual rack's, with a launcher."""
    data: dict[str, Any] = {"launcher": launcher}
    if launcher == "ssh":
        data["python"] = f"{TORCH}/bin/python3"
    path.write_text(
        "from rackproof.lab.state import inventory_groups as _groups\n"
        "_rack = _groups()\n"
        f"gpu = [(name, {{**data, 'collectives': {data!r}}}) for name, data in _rack['gpu']]\n"
        "storage = _rack['storage']\n"
    )
    return path


@pytest.fixture
def bench(tmp_path: Path, converged: Rack, stand_in: None) -> Iterator[Callable[[str], Running]]:
    """A collective that would go on for a quarter of an hour."""
    started: list[Running] = []

    def start(launcher: str) -> Running:
        collective = {
            "engine": "torch" if launcher == "ssh" else "mpi", "ops": ["all_reduce"], "min_bytes": 1048576,
            "max_bytes": 1048576, "factor": 4, "iterations": 10000, "warmup": 1, "ranks_per_node": 1,
        }  # fmt: skip
        document = yaml.safe_load((ROOT / "architectures" / "virtual-rack.yaml").read_text())
        document["metadata"]["id"] = "virtual-rack-jobs"  # the published file may not be weakened under its own id
        document["criteria"] = [one for one in document["criteria"] if one["id"] == "collective.correct"]
        document["profiles"] = {"long": {"collectives": collective}}
        path = tmp_path / "long.yaml"
        path.write_text(yaml.safe_dump(document))
        rack = inventory(tmp_path / "rack.py", launcher)
        arguments = ("--architecture", str(path), "--profile", "long")
        started.append(Running(tmp_path / "reports", arguments, ("bench", str(rack))))
        return started[-1]

    yield start
    for run in started:
        run.stop()


def wait_for_ranks(rack: Rack, run: Running) -> None:
    """Until every GPU node runs a rank."""
    run.wait_for("step collectives/")
    deadline = time.monotonic() + STARTED_S
    for node in rack.group("gpu"):
        while not on_node(rack, node.name, f"{RANK} || true").strip():
            assert run.alive, run.text
            assert time.monotonic() < deadline, f"no rank on {node.name}\n{run.text}"
            time.sleep(1)


def wait_for_slurm(rack: Rack) -> None:
    """Until Slurm gives jobs every GPU node: it holds one that stood still for silent, until its slurmd registers."""
    names = [node.name for node in rack.group("gpu")]
    deadline = time.monotonic() + SERVICE_S
    while True:
        shown = on_node(rack, rack.group("storage")[0].name, asking(names))
        out = out_of_service(shown)
        if not out and all(f"NodeName={name} " in shown for name in names):
            return
        assert time.monotonic() < deadline, out or shown
        time.sleep(5)


def reasons(run: Running) -> set[str]:
    """Why the step has no numbers."""
    return {
        record.body["reason"]
        for record in read_records(run.run)
        if record.kind is Kind.MEASUREMENT and not record.body["samples"]
    }


@pytest.mark.usefixtures("_nothing_is_left_on")
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("ending", ["interrupted", "stopped-rank", "lost-node"])
def test_a_job_ends_on_every_node(
    launcher: str, ending: str, bench: Callable[[str], Running], converged: Rack, lab: Lab
) -> None:
    if launcher == "srun":
        wait_for_slurm(converged)
    before = traces(converged)
    run = bench(launcher)
    wait_for_ranks(converged, run)
    began = time.monotonic()
    match ending:
        case "interrupted":
            run.signal(signal.SIGINT)
        case "stopped-rank":
            on_node(converged, "gpu-02", f"kill -STOP $({RANK})")
        case "lost-node":
            faults.inject(lab, "node-frozen")
    status = run.ended()
    seconds = time.monotonic() - began
    faults.remove_all(lab)
    lost = "gpu-02" if ending == "lost-node" else ""
    # Slurm ends a lost node's part of a job once its slurmd has registered again.
    left = left_behind(converged, before, lost, SERVICE_S if lost and launcher == "srun" else GONE_S)
    why = reasons(run)
    print(f"{launcher}, {ending}: status {status} after {seconds:.0f} s, left {left}\n{why}\n{run.text}")
    assert left == {}
    if ending == "interrupted":
        assert status == 128 + signal.SIGINT
        assert seconds < ENDED_S
    else:
        assert status == 2
        assert seconds < LIMIT_S + BUSY_S
        assert all(re.search("not finished within|no answer within|ended by|gpu-02", reason) for reason in why), why
        assert ("gpu-02: lost during collectives/" in run.text) is (ending == "lost-node")
