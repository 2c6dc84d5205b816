"""Files of the storage benchmarks are removed after a whole stage, and nothing else is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackproof.bench.forecast import CONTAINER, FIO, GDS, SMALL, Space
from rackproof.bench.in_turn import in_turn, parts_of
from rackproof.bench.leftovers import removals, remove_files
from rackproof.remote.command import CommandResult
from tests.unit.fakes import lab_rack, part_by_part, reply, scripted, virtual_rack

SPACE = Space("local", ("gpu-01", "gpu-02"), {FIO: 1, GDS: 1, SMALL: 1, CONTAINER: 1}, shared=False)
STAND_INS = {
    "mountpoint": "exit ${NOT_MOUNTED:-0}", "id": f'[ "$1" = -u ] && echo {os.getuid()} || echo {os.getgid()}',
    "setpriv": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
}  # fmt: skip


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A directory in the mount's place, with programs that take it for one."""
    (tmp_path / "bin").mkdir()
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "mount").mkdir()
    return tmp_path / "mount"


def remove(mount: Path, space: Space = SPACE, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    storage = virtual_rack().storage["local"].model_copy(update={"mountpoint": str(mount)})
    path = f"{mount.parent / 'bin'}:{os.environ['PATH']}"
    return [
        subprocess.run(
            ["sh", "-c", command],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path, **environment},
        )
        for command in removals(space, storage, lab_rack().node("gpu-01"))
    ]


def plant(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_own_files_and_empty_folders_go_and_others_stay(mount: Path) -> None:
    own = [
        plant(mount / "rackproof-bench/gpu-01/rackproof.0"), plant(mount / "rackproof-bench/gpu-01-gds/gpu0/gdsio.3"),
        plant(mount / "rackproof-user/gpu-01/rackproof.0"),
    ]  # fmt: skip
    (mount / "rackproof-bench/gpu-01-files").mkdir()
    others = [
        plant(mount / "rackproof-bench/gpu-02/rackproof.0"), plant(mount / "rackproof-user/gpu-01/thesis"),
        plant(mount / "rackproof-user/gpu-01/own/rackproof.0"), plant(mount / "rackproof-bench/gpu-01-gds/gpu1/thesis"),
        plant(mount / "rackproof-data/photos-1/rackproof.000000.tar"), plant(mount / "rackproof.0"),
    ]  # fmt: skip
    assert [(done.returncode, done.stderr) for done in remove(mount)] == [(0, ""), (0, "")]
    assert not any(path.exists() for path in own)
    assert all(path.exists() for path in others)
    assert sorted(path.name for path in (mount / "rackproof-bench").iterdir()) == ["gpu-01-gds", "gpu-02"]
    assert {done.returncode for done in remove(mount)} == {0}  # once more, without folders


def test_the_folder_above_goes_when_nothing_else_is_in_it(mount: Path) -> None:
    """The last client removes it; a folder that another run has made in it keeps it. The deploy declares that of the
    containers: without it the next deploy would change the node."""
    plant(mount / "rackproof-bench/gpu-01/rackproof.0")
    (mount / "rackproof-bench/gpu-02").mkdir()
    plant(mount / "rackproof-user/gpu-01/rackproof.0")
    assert {done.returncode for done in remove(mount)} == {0}
    assert sorted(path.name for path in mount.rglob("*")) == ["gpu-02", "rackproof-bench", "rackproof-user"]
    (mount / "rackproof-bench/gpu-02").rmdir()
    assert {done.returncode for done in remove(mount)} == {0}  # its own folder is gone already
    assert [path.name for path in mount.iterdir()] == ["rackproof-user"]


def test_a_link_in_the_place_of_the_folder_above_stays(mount: Path) -> None:
    (mount.parent / "elsewhere").mkdir()
    (mount / "rackproof-bench").symlink_to(mount.parent / "elsewhere")
    assert {done.returncode for done in remove(mount)} == {0}
    assert (mount / "rackproof-bench").is_symlink()
    assert (mount.parent / "elsewhere").is_dir()


@pytest.mark.parametrize("linked", ["rackproof-bench/gpu-01", "rackproof-bench"])
def test_no_link_is_followed(mount: Path, linked: str) -> None:
    target = plant(mount.parent / "elsewhere/gpu-01/rackproof.0").parent
    place = mount / linked
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(target if linked.endswith("gpu-01") else target.parent)
    (done,) = remove(mount, SPACE._replace(kinds={FIO: 1}))
    assert done.returncode == 1
    assert "expected a directory of user" in done.stderr
    assert (target / "rackproof.0").exists()


def test_a_link_among_the_files_stays_with_its_target(mount: Path) -> None:
    target, folder = plant(mount.parent / "elsewhere"), mount / "rackproof-bench/gpu-01"
    folder.mkdir(parents=True)
    (folder / "rackproof.0").symlink_to(target)
    (done,) = remove(mount, SPACE._replace(kinds={FIO: 1}))
    assert (done.returncode, target.exists(), (folder / "rackproof.0").is_symlink()) == (0, True, True)


def test_nothing_is_removed_beside_a_mount_or_of_another_user(mount: Path) -> None:
    own, space = plant(mount / "rackproof-bench/gpu-01/rackproof.0"), SPACE._replace(kinds={FIO: 1})
    (done,) = remove(mount, space, NOT_MOUNTED="1")
    assert (done.returncode, own.exists()) == (1, True)
    (mount.parent / "bin/id").write_text("#!/bin/sh\necho 4711\n")
    (done,) = remove(mount, space)
    assert (done.returncode, own.exists()) == (1, True)
    assert "directory of user 4711 (rackproof-bench)" in done.stderr


def test_a_failure_is_a_line_and_a_lost_node_is_not_asked(tmp_path: Path) -> None:
    def answer(node: str, command: str) -> CommandResult:
        return reply(node, command, rc=1, err="rackproof-bench: Read-only file system\n")

    lines: list[str] = []
    with scripted(tmp_path, answer) as session:
        remove_files(session, [SPACE._replace(kinds={FIO: 1})], lines.append)
        assert lines == []  # no node has answered in this run
        session.answered.add("gpu-01")
        remove_files(session, [SPACE._replace(kinds={FIO: 1})], lines.append)
    (line,) = lines
    assert line.startswith("gpu-01: files of the benchmarks stay below /mnt/local: ")
    assert "Read-only file system" in line


@pytest.mark.parametrize("shared", [True, False])
def test_files_of_a_lost_client_go_where_another_client_sees_them(tmp_path: Path, shared: bool) -> None:
    asked: list[tuple[str, str]] = []

    def answer(node: str, command: str) -> CommandResult:
        asked.append((node, command))
        failed = "rackproof-bench/gpu-02" in command
        return reply(node, command, rc=int(failed), err="rmdir: Directory not empty\n" if failed else "")

    lines: list[str] = []
    space = SPACE._replace(storage="nfs-tcp" if shared else "local", kinds={FIO: 1}, shared=shared)
    with scripted(tmp_path, part_by_part(answer)) as session:
        session.answered |= {"gpu-01", "gpu-02"}
        session.lose("gpu-02", "no answer")
        remove_files(session, [space], lines.append)
    folders = [f"/mnt/{space.storage}/rackproof-bench/{node}" for node in ("gpu-01", "gpu-02")]
    removed = [(node, folder) for node, command in asked for folder in folders if folder in command]
    assert removed == [("gpu-01", folder) for folder in folders[: 2 if shared else 1]]
    assert len(lines) == shared
    assert all(line.startswith("gpu-01: gpu-02's files of the benchmarks stay below /mnt/nfs-tcp: ") for line in lines)


def test_commands_in_turn_have_an_answer_each() -> None:
    """Run by a real shell: an ``exit`` ends its own command alone; a shell that is killed leaves the rest without."""
    commands = ["echo one; exit 3", "echo two >&2", "printf three", "kill -9 $$", "echo five"]
    for count, ended in ((3, 3), (5, 3)):
        done = subprocess.run(["sh", "-c", in_turn(commands[:count])], capture_output=True, check=False)
        error = None if done.returncode >= 0 else "ended by SIGKILL"
        whole = CommandResult(
            "n", "x", done.returncode if error is None else None, done.stdout, done.stderr, error=error
        )
        parts = parts_of(whole, commands[:count])
        assert [(part.rc, part.text) for part in parts[:3]] == [(3, "one\n"), (0, "two\n"), (0, "three")]
        assert [part.error for part in parts[ended:]] == ["ended by SIGKILL"] * (count - ended)
