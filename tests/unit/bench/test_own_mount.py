"""The mount of its own of a step goes with its process, however that ends; here it is one of tmpfs instead of NFS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackproof.bench.storage.connections import mount_command
from rackproof.bench.storage.connections_reader import Leg
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import Storage
from tests.unit.own_root import in_own_root

STORAGE = Storage.model_validate(
    {"class": "nfs", "mountpoint": "/mnt/nfs", "fstype": "nfs4", "source": "/srv/nfs", "server_role": "storage"}
)
SOURCES = ("10.0.0.1:/srv/nfs", "10.0.0.2:/srv/nfs")
COMMAND = mount_command(Leg("x", STORAGE, 4, ""), "4.1", SOURCES[:1])
SEVERAL = mount_command(Leg("x", STORAGE, 1, "", mounts=2, apart=True), "3", SOURCES)
BEGIN = f"""
mkdir /run/bin
cat >/run/bin/mount <<'END'
#!/bin/sh
echo "$*" >>/run/asked
if [ -e /run/refuses ] && echo "$*" | grep -q -- "$(cat /run/refuses)"; then
  echo 'mount.nfs: access denied' >&2; exit 32
fi
for last; do :; done
exec {os.path.realpath("/bin/mount")} -t tmpfs tmpfs "$last"
END
chmod 755 /run/bin/mount
PATH=/run/bin:$PATH
cat >/run/keep <<'END'
{COMMAND}
END
mkfifo /run/input
sh /run/keep </run/input >/run/output 2>&1 & keeper=$!
exec 9>/run/input
for i in $(seq 100); do [ -s /run/output ] && break; sleep 0.1; done
cat /run/output
mountpoint -q {OWN_MOUNT} && echo mounted
"""
BOTH = BEGIN.replace(COMMAND, SEVERAL).replace(
    f"mountpoint -q {OWN_MOUNT} && echo", f"mountpoint -q {OWN_MOUNT}1 && mountpoint -q {OWN_MOUNT}2 && echo"
)
END = f"""
wait $keeper
echo "status $?"
mountpoint -q {OWN_MOUNT} && echo still mounted
grep {OWN_MOUNT} /proc/self/mounts
ls -d {OWN_MOUNT}* 2>/dev/null || echo gone
"""


def lines(script: str, folder: Path) -> list[str]:
    done: subprocess.CompletedProcess[str] = in_own_root(script, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("ends", "status"), [("exec 9>&-", 0), ("kill $keeper; exec 9>&-", 1)], ids=["input", "signal"]
)
def test_it_is_unmounted_with_the_end_of_its_input_or_a_signal(tmp_path: Path, ends: str, status: int) -> None:
    assert lines(f"{BEGIN}{ends}{END}cat /run/asked", tmp_path) == [
        "rackproof-own-mount", "mounted", f"status {status}", "gone",
        f"-t nfs -o vers=4.1,proto=tcp,nconnect=4,retry=0 -- 10.0.0.1:/srv/nfs {OWN_MOUNT}",
    ]  # fmt: skip


def test_what_a_killed_run_has_left_is_unmounted_first(tmp_path: Path) -> None:
    killed = f"mkdir {OWN_MOUNT}; mount -t tmpfs tmpfs {OWN_MOUNT}; touch {OWN_MOUNT}/old"
    script = f"{killed}{BEGIN}ls {OWN_MOUNT}; grep -c {OWN_MOUNT} /proc/self/mounts; exec 9>&-{END}"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", "1", "status 0", "gone"]


def test_a_mount_that_a_program_still_uses_is_taken_away(tmp_path: Path) -> None:
    script = f"{BEGIN}(cd {OWN_MOUNT} && exec sleep 30 9>&-) & user=$!; sleep 0.5; exec 9>&-{END}kill $user"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", "status 0", "gone"]


def test_a_server_that_refuses_is_the_reason(tmp_path: Path) -> None:
    assert lines(f"touch /run/refuses{BEGIN}{END}", tmp_path) == ["mount.nfs: access denied", "status 1", "gone"]


@pytest.mark.parametrize("ends", ["exec 9>&-", "kill $keeper; exec 9>&-"], ids=["input", "signal"])
def test_several_mounts_go_together(tmp_path: Path, ends: str) -> None:
    status = "status 1" if "kill" in ends else "status 0"
    options = "vers=3,proto=tcp,nconnect=1,retry=0,nolock,mountproto=tcp,nosharecache"
    assert lines(f"{BOTH}{ends}{END}cat /run/asked", tmp_path) == [
        "rackproof-own-mount", "mounted", status, "gone",
        *(f"-t nfs -o {options} -- {source} {OWN_MOUNT}{number}" for number, source in enumerate(SOURCES, 1)),
    ]  # fmt: skip


def test_a_second_mount_that_is_refused_takes_the_first_away(tmp_path: Path) -> None:
    script = f"echo 10.0.0.2: >/run/refuses{BOTH}{END}"
    assert lines(script, tmp_path) == ["mount.nfs: access denied", "status 1", "gone"]


@pytest.mark.parametrize("begin", [BEGIN, BOTH], ids=["one", "several"])
def test_what_a_killed_run_has_left_of_several_mounts_goes_before_any_other(tmp_path: Path, begin: str) -> None:
    """Also a folder that was not mounted yet; the neighbour with a longer name stays."""
    places = [f"{OWN_MOUNT}{end}" for end in ("1", "2", "16", "-other")]
    left = "".join(f"mkdir {place}; mount -t tmpfs tmpfs {place}; " for place in places)
    look = f"grep -c '{OWN_MOUNT}[0-9]* ' /proc/self/mounts"
    script = f"{left}mkdir {OWN_MOUNT}3{begin}{look}; exec 9>&-\nwait $keeper; ls -d {OWN_MOUNT}*"
    count = "1" if begin is BEGIN else "2"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", count, f"{OWN_MOUNT}-other"]


def test_a_keeper_that_is_killed_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    again = "exec 9>&-; rm /run/output /run/input; mkfifo /run/input\n"
    again += "sh /run/keep </run/input >/run/output 2>&1 & keeper=$!\nexec 9>/run/input\n"
    wait = "for i in $(seq 100); do [ -s /run/output ] && break; sleep 0.1; done\n"
    script = f"{BOTH}kill -9 $keeper; wait $keeper; grep -c {OWN_MOUNT} /proc/self/mounts\n{again}{wait}"
    script += f"grep -c {OWN_MOUNT} /proc/self/mounts; kill $keeper; exec 9>&-{END}"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", "2", "2", "status 1", "gone"]
