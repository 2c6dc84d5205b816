"""One booted rack for all tests here. A rack that is up already is used and left up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.core.rack import Rack
from rackproof.inventory import load_rack
from rackproof.lab.rack import Lab, UpOptions
from rackproof.lab.state import lab_folder
from rackproof.remote.ssh import Fleet
from rackproof.run.converge import converge

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
    """Every line says how long its test took, what it waited for included: a run that is cut off has said so too."""
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


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    lab = Lab(lab_folder(), lambda line: print(line, flush=True))
    was_up = bool(lab.pids())
    lab.up(UpOptions())
    yield lab
    if not was_up:
        lab.down(now=True)


@pytest.fixture(scope="session")
def rack(lab: Lab) -> Rack:
    return load_rack(INVENTORY)


@pytest.fixture(scope="session")
def converged(rack: Rack) -> Rack:
    """The rack in its declared state."""
    outcome = converge(rack, on_line=lambda line: print(line, flush=True) if "Starting" in line else None)
    assert outcome.record.ok, f"{outcome.record.reason}\n{outcome.stderr.decode()[-4000:]}"
    return rack


@pytest.fixture
def fleet(converged: Rack) -> Iterator[Fleet]:
    with Fleet(converged) as fleet:
        yield fleet


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
