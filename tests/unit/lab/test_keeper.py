"""No QEMU outlives its rack. ``sleep`` stands in for QEMU: the keeper does not know the difference."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.errors import LabError
from rackproof.lab import keeper, state

LONG = ["sleep", "600"]


def until(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def connect(folder: Path) -> keeper.KeeperClient:
    assert until(lambda: (folder / keeper.SOCKET).exists())
    return keeper.KeeperClient(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A keeper at work, below a path too long for a socket's address."""
    deep = tmp_path / ("d" * 120)
    (deep / "nodes" / "a").mkdir(parents=True)
    keeper.spawn(deep)
    assert until(lambda: state.keeper_alive(deep))
    yield deep
    if state.keeper_alive(deep):
        with connect(deep) as client:
            client.request("shutdown")
    assert until(lambda: not state.keeper_alive(deep))


def test_a_committed_node_outlives_the_command_that_started_it(folder: Path) -> None:
    with connect(folder) as client:
        client.request("hold")
        pid = client.request("start", node="a", command=LONG)["a"]
        client.request("commit")
    with connect(folder) as client:
        assert client.request("status") == {"a": pid}
    assert lives(pid)


def test_an_interrupted_start_leaves_no_process_and_no_keeper(folder: Path) -> None:
    with connect(folder) as client:
        client.request("hold")
        pid = client.request("start", node="a", command=LONG)["a"]
    assert until(lambda: not lives(pid))
    assert until(lambda: not state.keeper_alive(folder))


def test_an_interrupted_start_leaves_what_ran_before(folder: Path) -> None:
    (folder / "nodes" / "b").mkdir()
    with connect(folder) as client:
        first = client.request("start", node="a", command=LONG)["a"]
    with connect(folder) as client:
        client.request("hold")
        second = client.request("start", node="b", command=LONG)["b"]
    assert until(lambda: not lives(second))
    assert lives(first)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nodes_die_with_the_keeper(folder: Path, number: signal.Signals) -> None:
    with connect(folder) as client:
        pid = client.request("start", node="a", command=LONG)["a"]
    os.kill(int((folder / keeper.PIDFILE).read_text()), number)
    assert until(lambda: not lives(pid))
    assert until(lambda: not state.keeper_alive(folder))


def test_a_node_that_ends_by_itself_is_no_longer_running(folder: Path) -> None:
    with connect(folder) as client:
        client.request("start", node="a", command=["true"])
        assert until(lambda: client.request("status") == {})


def test_an_unknown_request_is_refused(folder: Path) -> None:
    with connect(folder) as client, pytest.raises(LabError, match="unknown request"):
        client.request("dance")


def test_without_a_keeper_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="rackproof lab up"):
        keeper.KeeperClient(tmp_path)
