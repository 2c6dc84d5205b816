"""One booted rack for all tests here.

A rack that is up is used and left up, and one that is down is started with the disks that it has. Where there is no
rack, a new one starts from converged disks (``converged_disks``), which are made first where there are none for the
present sources, and its own copies are removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.core.rack import Rack
from rackproof.inventory import load_rack
from rackproof.lab import faults
from rackproof.lab.rack import Lab, UpOptions
from rackproof.lab.state import lab_folder, private_folder
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import Fleet
from rackproof.remote.ssh import Connection
from rackproof.run.converge import Converged, converge
from tests.lab.converged_disks import ConvergedDisks, fingerprint

ROOT = Path(__file__).parents[2]
INVENTORY = "inventories/lab.py"
COMMAND_TIMEOUT_S = 1500

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


_prepared_s: dict[str, float] = {}


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """Print each test's duration with its setup, so that a run that is cut off has printed them, too."""
    if not isinstance(report, pytest.TestReport):
        return None
    if report.when == "setup":
        _prepared_s[report.nodeid] = report.duration
    if report.when == "call" and report.outcome != "skipped":
        took = f"{report.duration + _prepared_s.pop(report.nodeid, 0):.0f} s"
        return report.outcome, "." if report.passed else "F", f"{report.outcome.upper()} in {took}"
    return None


@pytest.fixture(scope="session", autouse=True)
def _in_the_checkout() -> Iterator[None]:
    before = Path.cwd()
    os.chdir(ROOT)
    yield
    os.chdir(before)


def say(line: str) -> None:
    print(line, flush=True)


def ask(connection: Connection, command: str) -> CommandResult:
    """A node's answer. One that has just booted on a busy machine may need several connections."""
    deadline = time.monotonic() + 900
    while (result := connection.run(command, 300)).rc is None and time.monotonic() < deadline:
        connection.forget()
        time.sleep(1)
    assert result.rc is not None, f"{connection.node.name}: {command}: {result.why}"
    return result


def deployed(rack: Rack) -> Converged:
    """Outcome of the whole deploy; fails when it is not a success."""
    outcome = converge(rack, on_line=lambda line: say(line) if "Starting" in line else None)
    assert outcome.record.ok, f"{outcome.record.reason}\n{outcome.stderr.decode()[-4000:]}"
    return outcome


def start_converged(lab: Lab, disks: ConvergedDisks) -> None:
    """Start a rack without disks of its own from converged ones, which are made first where there are none."""
    nodes = lab.folder / "nodes"
    private_folder(lab.folder)
    if not disks.restore(nodes):
        lab.up(UpOptions())
        deployed(load_rack(INVENTORY))
        lab.down()
        disks.keep(nodes)
    lab.up(UpOptions())


@pytest.fixture(scope="session")
def disks() -> ConvergedDisks:
    return ConvergedDisks(fingerprint(ROOT), say)


@pytest.fixture(scope="session")
def is_new() -> bool:
    """Whether the rack has no disks yet, and starts from converged ones."""
    return not (lab_folder() / "nodes").exists()


@pytest.fixture(scope="session")
def lab(disks: ConvergedDisks, is_new: bool) -> Iterator[Lab]:
    lab = Lab(lab_folder(), say)
    was_up = bool(lab.pids())
    if is_new:
        start_converged(lab, disks)
    else:
        lab.up(UpOptions())
    yield lab
    if not was_up:
        lab.down(now=True)
        if is_new:
            lab.reset()


@pytest.fixture(scope="session")
def rack(lab: Lab) -> Rack:
    return load_rack(INVENTORY)


@pytest.fixture(scope="session")
def converged(lab: Lab, rack: Rack, disks: ConvergedDisks, is_new: bool) -> Rack:
    """The rack in its declared state. Converged disks need no change, or are made anew, once."""
    changes = changed_nodes(deployed(rack))
    if changes and is_new:
        say(f"the converged disks are made anew: the deploy changes {changes}")
        disks.discard()
        lab.down(now=True)
        lab.reset()
        start_converged(lab, disks)
        assert changed_nodes(deployed(rack)) == {}
    return rack


def changed_nodes(outcome: Converged) -> dict[str, tuple[str, ...]]:
    """Operations that changed something, by node."""
    return {node.node: node.changed for node in outcome.record.nodes if node.changed}


@pytest.fixture
def fleet(converged: Rack) -> Iterator[Fleet]:
    with Fleet(converged) as fleet:
        yield fleet


@pytest.fixture
def _nothing_is_left_on(lab: Lab) -> Iterator[None]:
    faults.remove_all(lab)
    yield
    faults.remove_all(lab)


@pytest.fixture(scope="session")
def command() -> Command:
    """Run one of the kit's commands as a user does."""

    def run(*arguments: str, timeout: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name(arguments[0])
        return subprocess.run(
            [str(program), *arguments[1:]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run


STEP_S = 7200
"""Time limit of one command on a busy host; the first deploy of a rack is the longest."""
CHOICE = 'architecture = "virtual-rack"\n'
"""In the inventories' common data."""


@pytest.fixture
def own_rack(tmp_path: Path) -> Iterator[Command]:
    """The kit's commands in a folder with inventories and a rack of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rackproof", *arguments], cwd=tmp_path, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=STEP_S, check=False,
        )  # fmt: skip

    shutil.copytree(ROOT / "inventories", tmp_path / "inventories")
    yield run
    run("lab", "down", "--now")


def choose(folder: Path, architecture: str) -> None:
    """Name the architecture in the inventory of a folder."""
    common = folder / "inventories" / "group_data" / "all.py"
    text = common.read_text()
    assert CHOICE in text
    common.write_text(text.replace(CHOICE, f"architecture = {architecture!r}\n"))
