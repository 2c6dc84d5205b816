"""The mount of its own of a step goes with its process, however that ends; here it is one of tmpfs instead of NFS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackproof.bench.storage.connections import mount_command
from rackproof.bench.storage.connections_reader import POINT
from rackproof.core.architecture import Storage
from tests.unit.own_root import in_own_root

STORAGE = Storage.model_validate(
    {"class": "nfs", "mountpoint": "/mnt/nfs", "fstype": "nfs4", "source": "/srv/nfs", "server_role": "storage"}
)
COMMAND = mount_command(STORAGE, "4.1", "10.0.0.1:/srv/nfs", 4)
BEGIN = f"""
mkdir /run/bin
cat >/run/bin/mount <<'END'
#!/bin/sh
echo "$*" >/run/asked
[ ! -e /run/refuses ] || {{ echo 'mount.nfs: access denied' >&2; exit 32; }}
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
mountpoint -q {POINT} && echo mounted
"""
END = f"""
wait $keeper
echo "status $?"
mountpoint -q {POINT} && echo still mounted
[ ! -e {POINT} ] && echo gone
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
        f"-t nfs -o vers=4.1,proto=tcp,nconnect=4,retry=0 -- 10.0.0.1:/srv/nfs {POINT}",
    ]  # fmt: skip


def test_what_a_killed_run_has_left_is_unmounted_first(tmp_path: Path) -> None:
    killed = f"mkdir {POINT}; mount -t tmpfs tmpfs {POINT}; touch {POINT}/old"
    script = f"{killed}{BEGIN}ls {POINT}; grep -c {POINT} /proc/self/mounts; exec 9>&-{END}"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", "1", "status 0", "gone"]


def test_a_mount_that_a_program_still_uses_is_taken_away(tmp_path: Path) -> None:
    script = f"{BEGIN}(cd {POINT} && exec sleep 30 9>&-) & user=$!; sleep 0.5; exec 9>&-{END}kill $user"
    assert lines(script, tmp_path) == ["rackproof-own-mount", "mounted", "status 0", "gone"]


def test_a_server_that_refuses_is_the_reason(tmp_path: Path) -> None:
    assert lines(f"touch /run/refuses{BEGIN}{END}", tmp_path) == ["mount.nfs: access denied", "status 1", "gone"]
