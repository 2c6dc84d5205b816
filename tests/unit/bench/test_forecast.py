"""What a profile will do, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import load
from rackproof.bench.forecast import spaces, spaces_of, total_s
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step, expected
from rackproof.bench.storage.fio_launch import launches
from rackproof.cli import runs
from rackproof.cli.main import cli
from rackproof.core.evidence import Scope
from rackproof.core.fiojob import command_line
from rackproof.remote.command import CommandResult
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes


def test_files_of_all_clients_need_space_on_servers_and_of_one_on_its_own_drives() -> None:
    needed = {space.storage: space for space in spaces(virtual_rack(), "lab", lab_rack(gpu=3))}
    assert set(needed) == {"local", "nfs-tcp", "nfs-rdma", "cephfs"}
    assert (needed["local"].bytes_each, needed["local"].needed) == (33554432, 33554432)
    assert needed["cephfs"].needed == 3 * 33554432
    assert needed["nfs-tcp"].needed == 3 * (33554432 + 16777216)  # the containers' files as well
    assert needed["nfs-tcp"].clients == ("gpu-01", "gpu-02", "gpu-03")


def test_no_client_needs_no_space() -> None:
    assert list(spaces(virtual_rack(), "lab", lab_rack(gpu=0))) == []


def test_a_checkpoint_that_is_left_on_a_resume_asks_for_its_space() -> None:
    in_depth = load(Path(__file__).parents[3] / "architectures" / "virtual-rack-storage.yaml").model
    needed = list(spaces(in_depth, "depth", lab_rack()))
    steps = {step.id: step for step in plan_steps(in_depth, "depth", lab_rack())}
    left = [step for name, step in steps.items() if name.endswith("/checkpoint")]
    assert left
    for step in left:
        assert [space.storage for space in spaces_of([step], needed)] == [step.expects[0].labels["storage"]]
    assert spaces_of([], needed) == []
    assert {space.storage for space in spaces_of(steps.values(), needed)} == {space.storage for space in needed}


def test_a_storage_that_is_only_reached_needs_no_space() -> None:
    needed = list(spaces(virtual_rack(), "lab", lab_rack()))
    places = (expected("link.tcp_bandwidth_to_storage", Scope.RACK, ["gpu-01"], {"storage": "nfs-tcp"}, "links"),)
    step = Step("links", "Reached", 1.0, places, lambda context: iter(()))
    assert spaces_of([step], needed) == []


def test_a_dry_run_connects_to_no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "load_rack", lambda inventory: lab_rack())
    arguments = ["bench", "rack.py", "--architecture", "virtual-rack", "--dry-run", "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    steps = plan_steps(virtual_rack(), "lab", lab_rack())
    assert all(step.id in result.output for step in steps)
    assert f"{len(steps)} steps of profile lab" in result.output
    assert "nfs-tcp: gpu-[01-02] write 50 MB each: 101 MB needed on its servers" in result.output
    assert all(command in result.output for step in steps for command in step.commands)
    assert total_s(steps) > 60
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
        assert step.commands or step.id.startswith(("collectives/", "links/to-storage/")), step.id
        synced = {place.metric for place in step.expects} == {"storage.synced_write_iops"}
        assert any("--fsync=1" in command for command in step.commands) == synced, step.id
    storage, fabric = StorageNodes(virtual_rack()), FabricNodes()
    chosen = [steps[name] for name in ("storage/nfs-tcp/randread", "links/rail0/round1/tcp-bandwidth", "loss/rail0")]

    def answer(node: str, command: str) -> CommandResult | None:
        return storage.answer(node, command) or fabric.answer(node, command)

    with scripted(tmp_path, answer) as session:
        run_steps(session, chosen, set(), lambda text: None)
        asked = [command for _, command in session.fleet.asked]  # type: ignore[attr-defined]
    for step in chosen[1:]:
        assert set(step.commands) <= set(asked)
    jobs = [job for launch in launches([reply("gpu-01", text) for text in asked]) for job in launch.jobs.values()]
    lines = [command_line("\n".join([f"[{job['name']}]", *(f"{k}={v}" for k, v in job.items() if k != "name")]))
             for job in jobs]  # fmt: skip
    assert set(chosen[0].commands) <= set(lines)
