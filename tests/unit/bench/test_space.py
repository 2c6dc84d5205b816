"""A profile begins only with the space that its files need."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest
import yaml

from rackproof.architectures import load
from rackproof.bench.forecast import CONTAINER, FIO, FileSet, Space, spaces
from rackproof.bench.space import Room, lacking, refuse_without_space, room_in, space_command
from rackproof.core.evidence import Kind
from rackproof.errors import RunError
from rackproof.evidence.store import read_records
from rackproof.parse.statfs import parse_room
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from tests.unit.fakes import lab_rack, part_by_part, reply, scripted, virtual_rack
from tests.unit.false_certificates.racks import STORAGES, World
from tests.unit.judging import criterion, document
from tests.unit.refusals import refuses_parts
from tests.unit.storage_nodes import FILE_BYTES, JOB, with_long_runs

NEEDED = FILE_BYTES
LOCAL = Space("local", ("gpu-01", "gpu-02"), {FIO: NEEDED, CONTAINER: 0}, shared=False)
NFS = Space("nfs-tcp", ("gpu-01", "gpu-02"), {FIO: NEEDED}, shared=True)
SET = FileSet("data set photos", 1000, ("gpu-01",), "/mnt/x/rackproof-data/photos-1/index", 10)
TREE, UNKNOWN = FileSet("trees", 50, ("gpu-01",)), FileSet("DLIO's seg", None, ("gpu-01",), folder="/mnt/x/dlio-seg")
INGEST = NFS._replace(sets=(SET, TREE, UNKNOWN))
ALONE = Space("nfs-tcp", (), {}, shared=True, sets=(SET,))
OWN = Space("local", (), {}, shared=False, sets=(SET._replace(nodes=("gpu-01", "gpu-02")),))


def told(free: int, own: int = 0) -> str:
    """Output of ``space.sh`` for blocks of 512 B."""
    return f"512 9000000 {free // 512}\n{own}\n"


@pytest.mark.parametrize(
    ("space", "rooms", "lines"),
    [
        (LOCAL, {"gpu-01": Room(NEEDED, 0), "gpu-02": Room(NEEDED, 0)}, 0),
        (LOCAL, {"gpu-01": Room(NEEDED - 1, 0), "gpu-02": Room(NEEDED, 0)}, 1),
        (LOCAL, {"gpu-01": Room(0, NEEDED), "gpu-02": Room(0, 0)}, 1),
        (LOCAL, {}, 0),
        (NFS, {"gpu-01": Room(2 * NEEDED, 0), "gpu-02": Room(2 * NEEDED, 0)}, 0),
        (NFS, {"gpu-01": Room(2 * NEEDED - 1, 0), "gpu-02": Room(2 * NEEDED, 0)}, 1),
        (NFS, {"gpu-01": Room(0, NEEDED), "gpu-02": Room(0, NEEDED)}, 0),
        (NFS, {"gpu-01": Room(0, NEEDED), "gpu-02": Room(0, NEEDED - 512)}, 1),
        (NFS, {"gpu-01": Room(0, 0)}, 0),  # the silent one's files may be what fills it
        (INGEST, {"gpu-01": Room(2 * NEEDED + 1050, 0, (0,)), "gpu-02": Room(2 * NEEDED + 1050, 0)}, 0),
        (INGEST, {"gpu-01": Room(2 * NEEDED + 1049, 0, (0,)), "gpu-02": Room(2 * NEEDED + 1050, 0)}, 1),
        (INGEST, {"gpu-01": Room(2 * NEEDED + 650, 0, (4,)), "gpu-02": Room(2 * NEEDED + 650, 0)}, 0),
        (INGEST, {"gpu-01": Room(2 * NEEDED + 649, 0, (4,)), "gpu-02": Room(2 * NEEDED + 650, 0)}, 1),
        (ALONE, {"gpu-01": Room(0, 0, (10,))}, 0),
        (ALONE, {"gpu-01": Room(0, 0, (99,))}, 0),  # more copies than this profile has
        (ALONE, {"gpu-01": Room(99, 0, (9,))}, 1),
        (ALONE, {}, 0),
        (OWN, {"gpu-01": Room(0, 0, (10,)), "gpu-02": Room(999, 0, (0,))}, 1),
        (OWN, {"gpu-01": Room(999, 0, (0,)), "gpu-02": Room(999, 0, (0,))}, 2),
    ],
)
def test_files_of_earlier_benchmarks_are_room(space: Space, rooms: dict[str, Room], lines: int) -> None:
    assert len(list(lacking(space, "/mnt/x", rooms))) == lines


def test_a_node_without_space_is_named_with_mount_and_bytes_and_nothing_is_recorded(tmp_path: Path) -> None:
    def answer(node: str, command: str) -> CommandResult | None:
        if "/mnt/local" in command:
            return reply(node, command, told(1024 if node == "gpu-02" else 1 << 40, 512))
        return reply(node, command, told(1 << 40))

    with scripted(tmp_path, part_by_part(answer)) as session, pytest.raises(RunError) as raised:
        refuse_without_space(session, spaces(with_long_runs(virtual_rack()), "lab", lab_rack()))
    assert str(raised.value) == (
        "gpu-02: /mnt/local needs 16,777,216 B for the benchmarks' files, 1,024 B are free, 512 B are its earlier"
        " files; make room, or lower the sizes of files in the profile"
    )
    assert not [record for record in read_records(tmp_path) if record.kind is Kind.COMMAND]


def test_data_sets_are_refused_before_the_first_step_and_those_that_are_complete_are_not(tmp_path: Path) -> None:
    ingest = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-ingest.yaml").model
    shards = {"small-": 16, "photos-": 128, "/kept-": 64}

    def answer(node: str, command: str) -> CommandResult | None:
        asked = sorted((name for name in shards if name in command), key=command.index)
        counts = "".join(f"{shards[name] * complete}\n" for name in asked)
        return reply(node, command, told(8 * 1024 * 1024) + counts)

    complete = 0
    with scripted(tmp_path, part_by_part(answer), architecture=ingest) as session:
        with pytest.raises(RunError) as raised:
            refuse_without_space(session, spaces(ingest, "ingest", lab_rack()))
        complete = 1  # the trees are left
        refuse_without_space(session, spaces(ingest, "ingest", lab_rack()))
    assert "gpu-01: /mnt/nfs-tcp needs 41," in str(raised.value)
    assert "B for the benchmarks' files, data set small, data set photos, trees, 8,388,608 B are free" in str(
        raised.value
    )


@pytest.mark.parametrize("text", ["", "512 9 1\n", "512 9\n0\n", "512 9 1\nmany\n", "not mounted\n"])
def test_a_client_that_does_not_tell_refuses_nothing(tmp_path: Path, text: str) -> None:
    assert room_in(reply("gpu-01", "x", text)) is None
    with scripted(tmp_path, lambda node, command: reply(node, command, text, rc=1)) as session:
        refuse_without_space(session, [LOCAL, NFS])


def test_a_status_is_no_answer() -> None:
    assert room_in(reply("gpu-01", "x", told(512))) == Room(512, 0)
    assert room_in(reply("gpu-01", "x", f"{told(512)}3\n8\n"), 2) == Room(512, 0, (3, 8))
    assert room_in(reply("gpu-01", "x", f"{told(512)}3\n"), 2) is None
    assert room_in(reply("gpu-01", "x", f"{told(512)}3\n")) is None
    assert room_in(reply("gpu-01", "x", told(512), rc=1)) is None
    assert room_in(reply("gpu-01", "x", told(512), rc=None, error="no answer within 90 s")) is None


test_no_part_of_an_answer_is_taken_for_one = refuses_parts((partial(parse_room, sets=2), f"{told(512)}3\n18\n"))


def test_the_command_counts_the_files_of_both_folders(tmp_path: Path) -> None:
    """On a directory in the mount's place, with a ``mountpoint`` that takes it for one."""
    storage = virtual_rack().storage["local"].model_copy(update={"mountpoint": str(tmp_path)})
    node = lab_rack().node("gpu-01")
    for name, folder in (
        ("rackproof.0", "rackproof-bench"),
        ("rackproof.1", "rackproof-user"),
        ("mine", "rackproof-user"),
    ):
        place = tmp_path / folder / "gpu-01"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(os.urandom(8192))
    for name in ("000000.json", "000001.json", "000002.json.part"):
        (tmp_path / "index").mkdir(exist_ok=True)
        (tmp_path / "index" / name).write_text("{}")
    dlio = tmp_path / "dlio"
    (dlio / "train").mkdir(parents=True)
    (dlio / "train" / "rackproof._0.npz").write_bytes(os.urandom(8192))
    sets = (
        SET._replace(entries=str(tmp_path / "index")), FileSet("DLIO", 9, ("gpu-01",), folder=str(dlio)),
        SET._replace(name="none", entries=str(tmp_path / "nothing")),
    )  # fmt: skip
    space = LOCAL._replace(sets=sets)
    assert str(dlio) not in space_command(space, storage, lab_rack().node("gpu-02"))
    command = space_command(space, storage, node)
    assert "-printf" in command
    assert "%b\\n" in command
    assert "[ ! -d" not in command  # without a time limit of its own on a mount that hangs
    command = command.replace("%b\\n", "16\\n")  # file systems allocate late, or compress
    plain = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (plain.returncode, plain.stdout) == (1, "")  # no mount point
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mountpoint").write_text("#!/bin/sh\nexit 0\n")
    (tools / "mountpoint").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=environment)
    room = room_in(CommandResult("gpu-01", command, done.returncode, done.stdout.encode()), 2)
    free = os.statvfs(tmp_path)
    assert room is not None
    assert room.own == 3 * 16 * 512
    assert room.complete == (2, 0)
    assert 0 < room.free <= free.f_blocks * free.f_frsize


def test_a_run_ends_before_its_first_step_and_goes_on_once_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"storage": {"jobs": {"read": JOB.model_dump()}}}
    criteria = [criterion(id=f"{name}.read", where={"storage": name}) for name in STORAGES]
    made = document(*criteria, profiles={"lab": sizes, "full": sizes})
    made["storage"]["local"]["client_roles"] = ["gpu"]
    (world.folder / "architectures/small.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    plain, free, removed = world.answer, [512], list[str]()

    def answer(node: str, command: str) -> CommandResult | None:
        if "rmdir" in command and "stem=rackproof" in command:
            removed.append(command)
            return reply(node, command, rc=1)
        return reply(node, command, told(free[0])) if "stat -f -c '%S %b %a'" in command else plain(node, command)

    monkeypatch.setattr(world, "answer", part_by_part(answer))
    refused = world.run("certify", "a.py", "--quiet").exception
    assert isinstance(refused, RunError)
    assert "gpu-01: /mnt/local needs 33,554,432 B for the benchmarks' files, 512 B are free" in str(refused)
    assert world.steps == []
    assert not [record for record in world.records if record.kind in (Kind.STEP, Kind.MEASUREMENT)]
    assert removed == []
    free[0] = 1 << 40

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stages, "run_steps", interrupted)
        world.run("certify", "a.py", "--quiet", "--resume", "latest")
    assert removed == []  # the run that goes on may need the room of these files
    ended = world.run("certify", "a.py", "--quiet", "--resume", "latest")
    assert world.steps
    assert removed
    assert not isinstance(ended.exception, RunError)  # files that stay are a line, no lost result
    assert not [record for record in world.records if "rmdir" in str(record.body.get("command"))]


def test_files_that_cannot_be_counted_in_time_refuse_nothing(tmp_path: Path) -> None:
    storage = virtual_rack().storage["local"].model_copy(update={"mountpoint": str(tmp_path)})
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("mountpoint", "exit 0"), ("find", "echo 16; sleep 9")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    command = space_command(LOCAL, storage, lab_rack().node("gpu-01")).replace(
        "timeout -k 2 20 find", "timeout 0.1 find"
    )
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, env=environment)
    assert done.returncode == 1
    assert room_in(CommandResult("gpu-01", command, done.returncode, done.stdout)) is None
