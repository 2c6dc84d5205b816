"""For every unit test."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.unit import made_once
from tests.unit import warm_python as warm
from tests.unit.sampling import sample

if TYPE_CHECKING:
    from tests.unit.false_certificates.racks import World

# No test says how fast a machine is. The same examples every time, so that a change is what makes a test fail;
# RACKPROOF_EXPLORE=1 looks for new ones.
EXPLORE = "RACKPROOF_EXPLORE" in os.environ
for name, examples in (("rackproof", 100 if EXPLORE else 12), ("exhaustive", 100)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not EXPLORE,
    )
settings.load_profile("rackproof")


@pytest.hookimpl(optionalhook=True)  # without xdist, too
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more worker than processors: some tests wait for timeouts of real commands."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(tryfirst=True)  # before ``-m`` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``few(n)``: of the cases of a test, or of the tests of a class or module, all but a sample are ``exhaustive``."""
    sampled: dict[str, tuple[int, list[pytest.Item]]] = {}
    for item in items:
        for node, marker in item.iter_markers_with_node("few"):
            sampled.setdefault(node.nodeid.partition("[")[0], (marker.args[0], []))[1].append(item)
            break  # the mark of a test stands before that of its module
    for name, (count, whole) in sampled.items():
        chosen = sample(whole, count, seed=name)
        for item in whole:
            if item not in chosen:
                item.add_marker(pytest.mark.exhaustive)


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist leaves its memory to the system when it ends: to free it takes a second."""
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)
        config.pluginmanager.register(OneReport())


class OneReport:
    """For a test that passes, a worker of xdist sends only the report of its call.

    Those of set-up and tear-down, and notices of its begin and end, take a millisecond, and nothing shows them.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


gc.set_threshold(50_000, 50)  # as ``rackproof.cli.main``


def pytest_collection_finish() -> None:
    """Collected tests stay until the end: the garbage collector need not go through them again and again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def without_waiting_for_disks() -> Iterator[None]:
    """No test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def separate_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests use a cache folder of their own, not the user's."""
    base = tmp_path_factory.getbasetemp()
    folder = base / "cache"
    made_once.folders[:] = [base.parent if "PYTEST_XDIST_WORKER" in os.environ else base]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def network_sockets() -> set[str]:
    """Inodes of this process's sockets for TCP."""
    inodes = {line.split()[9] for kind in ("tcp", "tcp6") for line in Path("/proc/net", kind).read_text().splitlines()}
    links = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            links.add(str(entry.readlink()))
    return {inode for inode in inodes if f"socket:[{inode}]" in links}


@pytest.fixture(autouse=True, scope="module")
def no_open_sockets() -> Iterator[None]:
    """A module closes its sockets: one that is left open is found, at some later time, in another module's test."""
    before = network_sockets()
    yield
    deadline = time.monotonic() + 10
    while (left := network_sockets() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"sockets left open, inodes: {left}"


@pytest.fixture(scope="module")
def warm_python() -> Iterator[None]:
    """Python processes that the kit starts with ``subprocess.run`` are forked from one that has pyinfra loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", warm.run)
        yield


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A healthy rack of three nodes, whose stages run without a network."""
    from tests.unit.false_certificates.racks import world_in  # only its tests import the whole kit

    return world_in(tmp_path, monkeypatch)
