"""The question, asked for real on this machine, and its answers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api.exceptions import FactProcessError

from rackproof.configure.preflight import state as node_state
from rackproof.configure.preflight.operations import PreflightState
from rackproof.configure.preflight.state import parse_state, state_command
from tests.unit.shell import sh

ANSWER = """\
gpu-01
1785931200
--
/ /dev/nvme0n1p2 921000000 41000000 833000000 5% /
/boot /dev/nvme0n1p1 1038336 312564 725772 31% /boot
/nowhere
--
812 (/usr/bin/python3 /usr/bin/unattended-upgrade )
--
dpkg
The following packages are only half configured, probably due to problems
 nfs-common   NFS support files
--
degraded
USEC=1785931300000000 WARN_WALL=1 MODE=reboot
--
/dev/nvme0n1p2 / ext4 rw,relatime 0 0
10.0.0.9:/home /mnt/home nfs4 rw,soft 0 0
--
/mnt/home 812(python) 901(bash)
"""


def test_an_answer_is_read() -> None:
    state = parse_state(ANSWER.splitlines())
    assert (state.name, state.clock_s, state.manager, state.system) == ("gpu-01", 1785931200, "dpkg", "degraded")
    assert state.free_mib == {"/": 813476, "/boot": 708, "/nowhere": None}
    assert state.lock_holder == "812 (/usr/bin/python3 /usr/bin/unattended-upgrade )"
    assert len(state.broken) == 2
    assert state.shutdown == "reboot"
    assert state.mounted["/mnt/home"].source == "10.0.0.9:/home"
    assert state.users == {"/mnt/home": ("812(python)", "901(bash)")}


@given(st.integers(0, len(ANSWER.splitlines()) - 3))
def test_half_an_answer_is_none(lines: int) -> None:
    with pytest.raises(ValueError, match=r"sections|no name|invalid literal"):
        parse_state(ANSWER.splitlines()[:lines])


def test_a_cut_off_answer_is_none() -> None:
    with pytest.raises(FactProcessError):
        PreflightState().process(ANSWER.splitlines())


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_this_machine_answers_the_command(tmp_path: Path, shell: str) -> None:
    command = PreflightState().command(["/", "/no such path"], ["/", "/mnt/it's not there"])
    done = subprocess.run([shell, "-c", command], capture_output=True, text=True, timeout=60, check=True)
    state = PreflightState().process(done.stdout.splitlines()) if "offline" not in done.stdout else None
    assert done.stdout.rstrip().endswith("rackproof-end")
    if state is not None:
        assert state.name == os.uname().nodename
        assert (state.free_mib["/"] or 0) > 0


def test_who_works_in_a_mount_is_found_without_touching_it() -> None:
    # The root file system is mounted everywhere, and this process works in it.
    command = state_command([], ["/"])
    done = sh(command, check=True)
    assert done.stdout.rsplit("--\n", 1)[1].startswith("/ ")
    assert "(" in done.stdout.rsplit("--\n", 1)[1]


def test_each_mount_has_the_processes_that_work_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "BUSY_SHOWN", 100_000)
    with subprocess.Popen(["sleep", "300"], cwd="/proc") as inside:
        try:
            answer = sh(state_command([], ["/proc", "/pro", "/sys"]), check=True).stdout.rsplit("--\n", 1)[1]
        finally:
            inside.kill()
    users = {line.split()[0]: line.split()[1:] for line in answer.splitlines()}
    assert users.keys() == {"/proc", "/sys"}  # the other is no mount
    assert f"{inside.pid}(sleep)" in users["/proc"]
    assert f"{inside.pid}(sleep)" not in users["/sys"]


def test_no_mounts_have_no_users() -> None:
    assert sh(state_command([], []), check=True).stdout.endswith("--\n")
