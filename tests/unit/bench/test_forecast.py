"""Forecast of a profile, before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import load
from rackproof.bench.forecast import FIO, dlio_bytes, spaces, storage_lines, total_s, writings
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step, expected
from rackproof.bench.storage.commands import DROP
from rackproof.bench.storage.fio_launch import launches
from rackproof.cli import runs
from rackproof.cli.main import cli
from rackproof.core.architecture import Criterion, DlioRun, IngestProfile, Profile, Reduce, Tree
from rackproof.core.evidence import Scope
from rackproof.core.fiojob import command_line
from rackproof.remote.command import CommandResult
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import FILE_BYTES, StorageNodes, with_long_runs

RACK = with_long_runs(virtual_rack())


def test_files_of_all_clients_need_space_on_servers_and_of_one_on_its_own_drives() -> None:
    needed = {space.storage: space for space in spaces(RACK, "lab", lab_rack(gpu=3))}
    assert set(needed) == {"local", "nfs-tcp", "nfs-rdma", "cephfs"}
    assert (needed["local"].bytes_each, needed["local"].needed) == (FILE_BYTES, FILE_BYTES)
    assert needed["cephfs"].needed == 3 * FILE_BYTES
    assert needed["nfs-tcp"].needed == 3 * (FILE_BYTES + FILE_BYTES)  # the containers' files as well
    assert needed["nfs-tcp"].clients == ("gpu-01", "gpu-02", "gpu-03")


def test_no_client_needs_no_space() -> None:
    assert list(spaces(virtual_rack(), "lab", lab_rack(gpu=0))) == []


def test_a_checkpoint_that_is_left_on_a_resume_asks_for_its_space() -> None:
    in_depth = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
    steps = {step.id: step for step in plan_steps(in_depth, "depth", lab_rack())}
    left = [step for name, step in steps.items() if name.endswith("/checkpoint")]
    assert left
    for step in left:
        (space,) = spaces(in_depth, "depth", lab_rack(), [step])
        assert space.storage == step.expects[0].labels["storage"]
        assert list(space.kinds) == [FIO]
    assert list(spaces(in_depth, "depth", lab_rack(), [])) == []
    assert list(spaces(in_depth, "depth", lab_rack(), steps.values())) == list(spaces(in_depth, "depth", lab_rack()))


def test_a_storage_that_is_only_reached_needs_no_space() -> None:
    places = (expected("link.tcp_bandwidth_to_storage", Scope.RACK, ["gpu-01"], {"storage": "nfs-tcp"}, "links"),)
    step = Step("links", "Reached", 1.0, places, lambda context: iter(()))
    assert list(spaces(virtual_rack(), "lab", lab_rack(), [step])) == []


LOADED = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-ingest.yaml")
INGEST = LOADED.model
PHOTOS, SMALL, TREES = int(64 * 16 * 30400 * 1.03), int(32 * 2 * 10400 * 1.03), 32 * 262144


def test_data_sets_need_space_once_with_their_copies() -> None:
    space = {space.storage: space for space in spaces(INGEST, "ingest", lab_rack())}["nfs-tcp"]
    assert {files.name: files.bytes for files in space.sets} == {
        "data set photos": PHOTOS, "data set small": SMALL, "trees": TREES,
    }  # fmt: skip
    assert (space.needed, space.bytes_each) == (PHOTOS + SMALL + TREES, 0)
    ((photos, *_),) = [[files for files in space.sets if "photos" in files.name]]
    assert photos.shards == 8 * 16
    assert [photos.left(count) for count in (0, 64, 128, 999)] == [PHOTOS, PHOTOS - PHOTOS // 2, 0, 0]
    both = INGEST.profiles["ingest"].model_copy(update={"storage": RACK.profiles["lab"].storage})
    beside = INGEST.model_copy(update={"profiles": {"both": both}})
    together = {space.storage: space for space in spaces(beside, "both", lab_rack())}
    assert together["nfs-tcp"].needed == 2 * FILE_BYTES + PHOTOS + SMALL + TREES


def test_only_the_data_sets_of_steps_that_are_left_need_space() -> None:
    steps = {step.id: step for step in plan_steps(INGEST, "ingest", lab_rack())}
    for name, sets in (
        ("ingest/nfs-tcp/control/settling", ["data set small"]), ("ingest/nfs-tcp/cached/epochs", ["data set photos"]),
        ("ingest/nfs-tcp/bring/protocol", ["trees"]),
    ):  # fmt: skip
        (space,) = spaces(INGEST, "ingest", lab_rack(), [steps[name]])
        assert [files.name for files in space.sets] == sets
    assert list(spaces(INGEST, "ingest", lab_rack(), [])) == []


def test_a_data_set_on_own_drives_needs_space_on_each() -> None:
    ingest = INGEST.profiles["ingest"].ingest
    assert ingest is not None
    photos = ingest.datasets["photos"].model_copy(update={"storage": "local"})
    part = ingest.model_copy(update={"datasets": {**ingest.datasets, "photos": photos}})
    local = INGEST.model_copy(update={"profiles": {"ingest": Profile(ingest=part)}})
    own = {space.storage: space for space in spaces(local, "ingest", lab_rack())}["local"]
    assert (own.needed, own.first_written, own.nodes) == (PHOTOS, 2 * PHOTOS, ("gpu-01", "gpu-02"))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, None), ({"dataset.record_length": "4096"}, 24 * 4096), ({"dataset.record_length_bytes": "1e3"}, 24000),
        ({"dataset.record_length": "10", "dataset.num_samples_per_file": "5"}, 1200),
        ({"dataset.record_length": "x1"}, None), ({"dataset.record_length": "inf"}, None),
    ],
)  # fmt: skip
def test_the_size_of_dlios_data_set_is_what_the_profile_says(options: dict[str, str], size: int | None) -> None:
    run = DlioRun.model_validate(
        {"workload": "unet3d", "config": "unet3d_h100", "storage": "nfs-tcp", "accelerators": 2, "batch": 2,
         "files": 24, "limit_s": 60, "options": options}
    )  # fmt: skip
    assert dlio_bytes(run) == size
    part = IngestProfile(dlio={"seg": run})
    architecture = INGEST.model_copy(update={"profiles": {"ingest": Profile(ingest=part)}})
    lines = list(storage_lines(architecture, "ingest", lab_rack(), plan_steps(architecture, "ingest", lab_rack())))
    assert any("the size of DLIO's seg is unknown" in line for line in lines) == (size is None)


def test_timed_writes_have_no_bound_and_the_line_tells_it() -> None:
    lines = list(storage_lines(RACK, "lab", lab_rack(), plan_steps(RACK, "lab", lab_rack())))
    job = RACK.profiles["lab"].storage
    assert job is not None
    timed_s = 2 * (job.jobs["write"].runtime_s + job.jobs["write"].ramp_s) * job.jobs["write"].runs
    assert f"nfs-tcp: gpu-[01-02],storage-01 drop their caches before each run: {DROP}" in lines
    assert f"local: gpu-[01-02] drop their caches before each run: {DROP}" in lines
    written = [line for line in lines if line.startswith("nfs-tcp: writes")]
    assert written == [
        f"nfs-tcp: writes at least 67.1 MB; its timed writes have no known bound: {timed_s} s of all clients together,"
        f" {timed_s} GB at 1 GB/s of each"
    ]
    (line,) = [line for line in storage_lines(INGEST, "ingest", lab_rack(), plan_steps(INGEST, "ingest", lab_rack()))
               if line.startswith("nfs-tcp: writes")]  # fmt: skip
    known = f"{(PHOTOS + SMALL + TREES) / 1e6:.1f} MB"
    assert line == f"nfs-tcp: writes {known}: files once, and jobs that write a known number of bytes"


def test_jobs_of_a_known_size_are_counted_with_their_runs() -> None:
    in_depth = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
    storage = in_depth.profiles["depth"].storage
    assert storage is not None
    assert storage.checkpoint is not None
    assert storage.integrity is not None
    writes = {step.id: step.writes for step in plan_steps(in_depth, "depth", lab_rack())}
    part = storage.checkpoint.file_bytes * storage.checkpoint.ranks
    assert writes["storage/nfs-tcp/checkpoint"].bytes == 2 * storage.checkpoint.runs * part
    assert writes["storage/nfs-tcp/integrity"].bytes == 2 * storage.integrity.file_bytes


def test_a_dry_run_of_ingest_shows_the_commands_of_every_step_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rack = lab_rack()
    rack.node("gpu-01").data["ingest"] = {"hdfs_url": "http://mover:s3cretWord@isilon:8082/webhdfs/v1"}
    ingest = INGEST.profiles["ingest"].ingest
    assert ingest is not None
    trees = {**ingest.trees, "moved": Tree(storage="nfs-tcp", protocol="hdfs", files=2)}
    part = INGEST.profiles["ingest"].model_copy(update={"ingest": ingest.model_copy(update={"trees": trees})})
    architecture = INGEST.model_copy(update={"profiles": {"ingest": part}})
    steps = plan_steps(architecture, "ingest", rack)
    lines = list(runs._forecast(rack, replace(LOADED, model=architecture), "ingest"))
    text = "\n".join(lines)
    assert all(step.commands for step in steps)
    assert "hdfs" in text
    assert "s3cretWord" not in text
    for step in steps:
        at = next(number for number, line in enumerate(lines) if f"  {step.id}  " in line)
        shown = lines[at + 1 : at + 1 + len(step.commands)]
        assert all(line.startswith(" " * 10) and ".py" in line for line in shown)


def test_a_dry_run_connects_to_no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "load_rack", lambda inventory: lab_rack())
    arguments = ["bench", "rack.py", "--architecture", "virtual-rack", "--dry-run", "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    steps = plan_steps(virtual_rack(), "lab", lab_rack())
    assert all(step.id in result.output for step in steps)
    assert f"{len(steps)} steps of profile lab" in result.output
    assert "nfs-tcp: gpu-[01-02] write 16.8 MB each: 33.6 MB needed on its servers" in result.output
    assert all(command in result.output for step in steps for command in step.commands)
    assert total_s(steps, ()) > 60
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_an_unknown_profile_names_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "load_rack", lambda inventory: lab_rack())
    arguments = ["bench", "rack.py", "--architecture", "virtual-rack", "--profile", "huge", "--dry-run"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert "no profile 'huge'" in f"{result.output}{result.exception}"


def test_commands_of_a_dry_run_are_those_of_the_run(tmp_path: Path) -> None:
    steps = {step.id: step for step in plan_steps(virtual_rack(), "lab", lab_rack())}
    in_depth = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
    for step in (*steps.values(), *plan_steps(in_depth, "depth", lab_rack())):
        assert step.commands, step.id
        synced = {place.metric for place in step.expects} == {"storage.synced_write_iops"}
        assert any("--fsync=1" in command for command in step.commands) == synced, step.id
    storage, fabric = StorageNodes(virtual_rack()), FabricNodes()
    names = ("storage/nfs-tcp/write", "storage/nfs-tcp/randread", "links/rail0/round1/tcp-bandwidth", "loss/rail0")
    chosen = [steps[name] for name in names]

    def answer(node: str, command: str) -> CommandResult | None:
        return storage.answer(node, command) or fabric.answer(node, command)

    with scripted(tmp_path, answer) as session:
        run_steps(session, chosen, set(), lambda text: None)
        asked = [command for _, command in session.fleet.asked]  # type: ignore[attr-defined]
    for step in chosen[2:]:
        assert set(step.commands) <= set(asked)
    jobs = [job for launch in launches([reply("gpu-01", text) for text in asked]) for job in launch.jobs.values()]
    lines = [command_line("\n".join([f"[{job['name']}]", *(f"{k}={v}" for k, v in job.items() if k != "name")]))
             for job in jobs]  # fmt: skip
    assert set(chosen[0].commands) | set(chosen[1].commands) <= set(lines)
    assert len(chosen[0].commands) == 2, "it writes the files first"


def rate_of(**change: object) -> list[tuple[str, float | None, str]]:
    """Storages, seconds and rates of first writings, where ``local.write`` is changed so."""
    criteria = tuple(entry.model_copy(update=change) if entry.id == "local.write" else entry for entry in RACK.criteria)
    changed = RACK.model_copy(update={"criteria": criteria})
    return [(one.storage, one.seconds, one.rate) for one in writings(changed, "lab", lab_rack())]


def test_the_first_writing_takes_as_long_as_an_entry_on_it_allows() -> None:
    known = ("local", FILE_BYTES / 10e6, "20 MB/s, as local.write asks")
    others = [("nfs-tcp", None, ""), ("nfs-rdma", None, ""), ("cephfs", None, "")]  # shares of other numbers
    assert rate_of() == [known, *others]
    assert rate_of(scope=Scope.RACK) == [("local", FILE_BYTES / 5e6, "10 MB/s, as local.write asks"), *others]
    assert rate_of(where={"storage": ("local", "nfs-tcp")})[1][1] == pytest.approx(2 * FILE_BYTES / 10e6)
    local = next(entry for entry in RACK.criteria if entry.id == "local.write")
    bar = local.pass_.model_copy(update={"value": None, "levels": {"good": 20.0}})
    assert isinstance(local, Criterion)
    for change in (
        {"where": {"storage": "local", "clients": "1"}}, {"metric": "storage.read_bandwidth"},
        {"reduce": Reduce.MIN_OVER_MEDIAN}, {"pass_": bar}, {"pass_": local.pass_.model_copy(update={"op": "le"})},
    ):  # fmt: skip
        assert rate_of(**change) == [("local", None, ""), *others]


def test_a_dry_run_tells_the_time_of_the_first_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = load(Path(__file__).parents[3] / "architectures" / "virtual-rack.yaml")
    lines = list(runs._forecast(lab_rack(), replace(reference, model=RACK), "lab"))
    assert "local: writes its files, 33.6 MB, before it measures: about 2 s at 20 MB/s, as local.write asks" in lines
    assert "cephfs: writes its files, 33.6 MB, before it measures: how long that takes is not known" in lines
    (total,) = [line for line in lines if "steps of profile lab" in line]
    assert total.endswith(", and the time to write 134 MB of files")
    assert runs.clock(total_s(plan_steps(RACK, "lab", lab_rack()), ()) + FILE_BYTES / 10e6) in total


def test_a_dry_run_shows_own_mounts_both_programs_of_a_join_and_the_loads_of_a_search(tmp_path: Path) -> None:
    in_depth = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
    steps = {step.id: step for step in plan_steps(in_depth, "depth", lab_rack())}
    mounts = [command for command in steps["storage/nfs-tcp/connections"].commands if command.startswith("mount ")]
    assert [("nconnect=1," in one, one.rpartition(" ")[2]) for one in mounts] == [
        (True, "/run/rackproof-own-mount"),
        (False, "/run/rackproof-own-mount"),
    ]
    assert all("vers=4.2" in one and "10.77.0.11:/srv/nfs" in one for one in mounts)
    over = [command for command in steps["storage/nfs-rdma/transports"].commands if command.startswith("mount ")]
    assert ["proto=tcp" in one for one in over] == [True, False]
    plant, join = steps["storage/nfs-tcp/join"].commands
    assert '"action": "plant"' in plant
    assert '"action": "join"' in join
    loads = [command for command in steps["storage/nfs-tcp/knee"].commands if command.startswith("#")]
    assert "choose among 1, 2, " in loads[0]
    assert "choose among 5, " in loads[1]


def test_programs_that_measure_end_with_their_connection(tmp_path: Path) -> None:
    """A killed controller leaves no load behind that lasts to its limit; servers end with theirs anyway."""
    steps = {step.id: step for step in plan_steps(virtual_rack(), "lab", lab_rack())}
    ids = ("links/rail0/round1/rdma-bandwidth", "links/rail0/round1/tcp-bandwidth", "collectives/mpi/all_reduce",
           "container/nfs-tcp/read")  # fmt: skip
    storage, fabric = StorageNodes(virtual_rack()), FabricNodes()

    def answer(node: str, command: str) -> CommandResult | None:
        return storage.answer(node, command) or fabric.answer(node, command)

    with scripted(tmp_path, answer) as session:
        run_steps(session, [steps[name] for name in ids], set(), lambda text: None)
        held = session.fleet.held  # type: ignore[attr-defined]
    for name in ids:
        first = 1 if name.startswith("links/") else 0
        assert set(steps[name].commands[first:]) <= held, name
