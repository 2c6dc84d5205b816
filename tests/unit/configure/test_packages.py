from __future__ import annotations

import subprocess
from pathlib import Path

from rackproof.configure.packages import declared_packages, install_script
from tests.unit.configure.rack import architecture, rack
from tests.unit.shell import executable, sh


def test_a_node_gets_what_its_roles_need_once_and_sorted() -> None:
    gpu = declared_packages(architecture(), rack().node("gpu-01"))
    storage = declared_packages(architecture(), rack().node("storage-01"))
    assert gpu == tuple(sorted(set(gpu)))
    assert {"chrony", "rdma-core", "nfs-common", "ceph-common", "fio", "openmpi-bin"} <= set(gpu)
    assert {"nfs-kernel-server", "ceph-osd"} <= set(storage)
    assert not {"nfs-kernel-server", "ceph-osd"} & set(gpu)


STUB = """\
echo "${0##*/} $*" >>"$LOG"
case "${0##*/} $*" in
"apt-get "*update*) touch "$LOG.lists" ;;
"apt-get "*install*) [ -e "$LOG.lists" ] && touch "$LOG.installed" ;;
"dpkg-query "*) [ ! -e "$LOG.installed" ] || echo installed 3.39-1 ;;
esac
"""


def install(folder: Path, *, lists: bool, dpkg_query: str = STUB) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the script with stand-ins for apt and dpkg; an installation needs package lists."""
    log = folder / "log"
    for name in ("apt-get", "dpkg", "dpkg-query", "systemctl"):
        executable(folder / name, dpkg_query if name == "dpkg-query" else STUB)
    if lists:
        (folder / "log.lists").touch()
    done = sh(install_script(["fio"]), programs=folder, LOG=str(log))
    calls = [line.split() for line in log.read_text().splitlines() if line.split()]
    return done, [f"{words[0]} {words[-1]}" for words in calls if words[0] in ("apt-get", "dpkg", "systemctl")]


def test_package_lists_are_fetched_only_when_those_that_are_there_do_not_do(tmp_path: Path) -> None:
    done, calls = install(tmp_path, lists=True)
    assert done.returncode == 0, done.stderr
    assert calls == ["apt-get fio", "systemctl daemon-reload"]


def test_absent_package_lists_are_fetched_and_the_installation_is_tried_again(tmp_path: Path) -> None:
    done, calls = install(tmp_path, lists=False)
    assert done.returncode == 0, done.stderr
    assert calls[:4] == ["apt-get fio", "dpkg --force-confold", "apt-get update", "apt-get fio"]


def test_a_package_that_is_not_there_afterwards_is_an_error(tmp_path: Path) -> None:
    done, _ = install(tmp_path, lists=True, dpkg_query="#!/bin/sh\nprintf half-configured\n")
    assert done.returncode == 1
    assert "asked for and not there afterwards: fio (actual: half-configured)" in done.stderr


def test_installation_asks_nothing() -> None:
    script = install_script(["fio", "chrony"])
    assert "DEBIAN_FRONTEND=noninteractive" in script
    assert "--no-install-recommends" in script
    assert "set -- fio chrony\n" in script
