"""Converged disks of the virtual rack's tests: which sources name them, what is kept, what is thrown away."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.lab import converged_disks
from tests.lab.converged_disks import MOST_KEPT, ConvergedDisks, fingerprint

SOURCES = (
    "deploys/node.py",
    "templates/etc/chrony.conf",
    "rackproof/configure/files.py",
    "rackproof/lab/recipe.yaml",
    "architectures/virtual-rack.yaml",
    "inventories/lab.py",
    "inventories/group_data/all.py",
    "uv.lock",
)
ELSEWHERE = (
    "README.md",
    "tests/lab/test_1_lab.py",
    "validators/test_node.py",
    "rackproof/report/page.py",
    "architectures/dgx.yaml",
    "deploys/__pycache__/node.cpython-311.pyc",
)
HOLE = 64 * 1024 * 1024


def test_all_sources_exist() -> None:
    root = Path(__file__).parents[3]
    for name in (*converged_disks.SOURCES, *converged_disks.READ_ONLY):
        assert (root / name).exists(), name


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*SOURCES, *ELSEWHERE):
        write(tmp_path / "checkout" / name, name)
    return tmp_path / "checkout"


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_changes_names_other_disks(checkout: Path, name: str) -> None:
    before = fingerprint(checkout)
    write(checkout / name, "changed")
    changed = fingerprint(checkout)
    (checkout / name).unlink()
    assert len({before, changed, fingerprint(checkout)}) == 3


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_leaves_nothing_on_a_disk_names_the_same_disks(checkout: Path, name: str) -> None:
    before = fingerprint(checkout)
    write(checkout / name, "changed")
    assert fingerprint(checkout) == before


def rack(folder: Path) -> Path:
    """Folder of the nodes of a rack that is off."""
    nodes = folder / "nodes"
    for node in ("gpu-01", "storage-01"):
        for name in ("root.qcow2", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "console.log", "initrd.img"):
            write(nodes / node / name, f"{node} {name}")
        (nodes / node / "ssh_host_ed25519_key").chmod(0o600)
        with (nodes / node / "rplocal.raw").open("wb") as drive:
            drive.write(b"data")
            drive.truncate(HOLE)
    return nodes


def test_disks_and_host_keys_are_kept_and_nothing_else(tmp_path: Path) -> None:
    lines: list[str] = []
    disks = ConvergedDisks("abc", lines.append, tmp_path / "cache")
    assert not disks.restore(tmp_path / "none")
    nodes = rack(tmp_path)
    disks.keep(nodes)
    (tmp_path / "other").mkdir()
    assert disks.restore(tmp_path / "other/nodes")
    assert len(lines) == 2
    for node in ("gpu-01", "storage-01"):
        copy = tmp_path / "other/nodes" / node
        kept = ["root.qcow2", "rplocal.raw", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"]
        assert sorted(path.name for path in copy.iterdir()) == kept
        assert all((copy / name).read_bytes() == (nodes / node / name).read_bytes() for name in kept)
        assert stat.S_IMODE((copy / "ssh_host_ed25519_key").stat().st_mode) == 0o600
        assert (copy / "rplocal.raw").stat().st_blocks * 512 < HOLE / 2
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["nodes"]


def test_the_latest_used_are_kept(tmp_path: Path) -> None:
    nodes, cache = rack(tmp_path), tmp_path / "cache"
    (cache / ".part.killed").mkdir(parents=True)
    for number in range(MOST_KEPT + 2):
        ConvergedDisks(str(number), lambda line: None, cache).keep(nodes)
        os.utime(cache / str(number), (number, number))
    latest = [str(number) for number in range(2, MOST_KEPT + 2)]
    assert sorted(path.name for path in cache.iterdir()) == [".lock", *latest]


def test_disks_that_cannot_be_copied_leave_nothing_and_the_tests_go_on(tmp_path: Path) -> None:
    lines: list[str] = []
    nodes, disks = rack(tmp_path), ConvergedDisks("abc", lines.append, tmp_path / "cache")
    (nodes / "gpu-01/unreadable.raw").symlink_to(tmp_path / "nowhere")
    disks.keep(nodes)
    assert not disks.exist
    assert lines[0].startswith("the converged disks are not kept: ")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_discarded_disks_are_gone(tmp_path: Path) -> None:
    disks = ConvergedDisks("abc", lambda line: None, tmp_path / "cache")
    disks.keep(rack(tmp_path))
    disks.discard()
    assert not disks.exist
