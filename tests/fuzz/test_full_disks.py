"""A disk that is really full: a small tmpfs, for outputs, for temporary files, and for the cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import inputs, servers
from tests.fuzz.conftest import Finished
from tests.fuzz.test_inputs import CONTROL

FILL = """
set -eu
disk=$1 room=$2
mount -t tmpfs -o size=4m none "$disk"
[ ! -e run ] || cp -r run "$disk/run"
dd if=/dev/zero of="$disk/filler" bs=4096 status=none 2>/dev/null || :
truncate -s "-$room" "$disk/filler"
shift 2
status=0
"$@" || status=$?
find "$disk" -name '*.part' >parts
[ ! -e "$disk/run" ] || diff -r run "$disk/run" >changed || :
exit "$status"
"""
WRITES: dict[str, tuple[str, ...]] = {
    "judge": ("judge", "disk/run"),
    "junit": ("validate", "--from", inputs.RECORDINGS, "-k", "base.kernel", "--junit", "disk/out.xml"),
    "html": ("size", "hpe-apollo6500-weka", "-w", "resnet50", "--html", "disk/out.html"),
    "svg": ("size", "hpe-apollo6500-weka", "-w", "resnet50", "--svg", "disk/svg"),
    "selftest": ("selftest", "--check", "base.kernel", "--healthy", "1", "--json", "disk/out.json"),
    "validate": ("validate", "rack.py", "--output", "disk/out"),
    "bench": ("bench", "rack.py", "--output", "disk/out"),
    "certify": ("certify", "rack.py", "--output", "disk/out"),
    "deploy": ("deploy", "rack.py", "--output", "disk/out"),
    "dry": ("deploy", "rack.py", "--dry", "--output", "disk/out"),
    "rollback": ("rollback", "rack.py", "--output", "disk/out"),
}
ANSWERED: dict[str, tuple[str, ...]] = {
    "record": ("record", "all", "-o", "disk/out", "--inventory", "rack.py"),
    "versions": ("versions", "lock", "rack.py", "-o", "disk/versions.lock.yaml"),
    "validate": ("validate", "rack.py", "--output", "disk/out", "-k", "base.kernel"),
}
"""Commands that write only where a node answers."""
TEMPORARY: dict[str, tuple[str, ...]] = {
    "validate": ("validate", "--from", inputs.RECORDINGS, "-k", "base.kernel"),
    "judge": ("judge", "run"),
    "plan": ("plan", "rack.py"),
    "preflight": ("preflight", "rack.py"),
    "mirror": ("mirror", "list", "--from", inputs.RECORDINGS),
}
MAY = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True)
pytestmark = pytest.mark.skipif(MAY.returncode != 0, reason="no mount namespace here")


def run(folder: Path, arguments: tuple[str, ...], room: int, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "disk").mkdir()
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", FILL, "sh", str(folder / "disk"), str(room),
         sys.executable, "-m", "rackproof", *arguments],
        cwd=folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in done.stdout + done.stderr
    assert "internal error" not in done.stderr
    assert not CONTROL.search((done.stdout + done.stderr).replace("\x1b[", ""))
    assert len([line for line in done.stderr.splitlines() if line.startswith("rackproof: ")]) <= 1, done.stderr


@pytest.mark.parametrize("room", [0, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "html" else pytest.mark.slow) for name in WRITES]
)
def test_a_full_disk_is_one_line_with_its_path(name: str, room: int, tmp_path: Path, finished: Finished) -> None:
    inputs.copied(finished.folder, tmp_path / "run")
    with servers.server(servers.closed) as (port, _):
        servers.inventory(tmp_path, port)
        done = run(tmp_path, WRITES[name], room)
    check(done)
    assert (tmp_path / "parts").read_text() == ""
    if done.returncode != 3:  # what it writes has room
        assert room
        assert name in ("junit", "svg", "selftest", "deploy", "dry", "rollback"), done
        return
    assert re.search(r"^rackproof: \S*disk\S*: .*No space left on device", done.stderr, re.MULTILINE), done.stderr
    if name == "judge":
        assert (tmp_path / "changed").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 4096])
@pytest.mark.parametrize("name", ANSWERED)
def test_answers_of_a_node_for_which_the_disk_has_no_room_are_not_written_in_part(
    name: str, room: int, tmp_path: Path
) -> None:
    with servers.server(servers.answering) as (port, _):
        servers.inventory(tmp_path, port)
        done = run(tmp_path, ANSWERED[name], room)
    check(done)
    assert (tmp_path / "parts").read_text() == ""
    if done.returncode != 3:  # the few versions of this machine have room
        assert (name, room) == ("versions", 4096), done
        return
    assert re.search(r"^rackproof: \S*disk\S*: .*No space left on device", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 4096])
@pytest.mark.parametrize("name", TEMPORARY)
def test_a_full_disk_of_temporary_files_or_caches_is_named_or_does_not_matter(
    name: str, room: int, tmp_path: Path, finished: Finished
) -> None:
    inputs.copied(finished.folder, tmp_path / "run")
    disk = str(tmp_path / "disk")
    with servers.server(servers.closed) as (port, _):
        servers.inventory(tmp_path, port)
        done = run(tmp_path, TEMPORARY[name], room, TMPDIR=disk, XDG_CACHE_HOME=f"{disk}/cache")
    check(done)
    if "No space left on device" in done.stderr:
        assert done.returncode == 3
        assert disk in done.stderr
    else:
        assert done.returncode in (0, 1, 2, 3)
        assert done.returncode != 3 or "rackproof: " in done.stderr
