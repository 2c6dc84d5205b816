"""Validators through pytest's own command, and on a rack whose NFS server is stopped.

That a healthy rack passes every check is shown by the certify run of test_6_certify.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, Command

LIMIT_S = 480  # far above what a slow emulated rack needs (180), far below forever


def test_plain_pytest_gives_the_same(converged: Rack, command: Command) -> None:
    """Checks one node, without its containers, which take minutes of an emulated processor.

    Its clock alone can only be compared with the host's, which the rack does not follow.
    """
    narrowed = ("--limit", "gpu-02", "-k", "not container and not slurm and not time_compared")
    result = command("pytest", "validators/", "--inventory", INVENTORY, "-q", *narrowed)
    assert result.returncode == 0, result.stdout[-4000:]
    assert " passed" in result.stdout


@pytest.fixture
def without_nfs_server(converged: Rack) -> Iterator[None]:
    """The server's service is stopped while clients have it mounted."""
    with Fleet(converged) as fleet:
        stopped = fleet["storage-01"].run("systemctl stop nfs-server.service", 300)
        assert stopped.ok, stopped.why
        yield
        started = fleet["storage-01"].run("systemctl start nfs-server.service", 300)
        assert started.ok, started.why


def test_a_stopped_nfs_server_fails_its_mounts_in_time_and_nothing_else_hangs(
    without_nfs_server: None, command: Command
) -> None:
    began = time.monotonic()
    result = command("rackproof", "validate", INVENTORY, "--quiet", timeout=600)
    elapsed = time.monotonic() - began
    assert result.returncode == 1, result.stdout
    assert elapsed < LIMIT_S
    assert "nfs-tcp" in result.stdout


def test_after_the_server_is_back_its_mounts_pass(converged: Rack, command: Command) -> None:
    deadline = time.monotonic() + 150  # NFS 4's grace period, and the clients' way back
    while True:
        result = command("rackproof", "validate", INVENTORY, "--quiet", "--tags", "mount,storage_server")
        if result.returncode == 0 or time.monotonic() > deadline:
            break
    assert result.returncode == 0, result.stdout
