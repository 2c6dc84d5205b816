"""What a profile will do, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.bench.forecast import spaces, total_s
from rackproof.bench.plan import plan_steps
from rackproof.cli import runs
from rackproof.cli.main import cli
from tests.unit.fakes import lab_rack, virtual_rack


def test_files_of_all_clients_need_space_on_servers_and_of_one_on_its_own_drives() -> None:
    needed = {space.storage: space for space in spaces(virtual_rack(), "lab", lab_rack(gpu=3))}
    assert set(needed) == {"local", "nfs-tcp", "nfs-rdma", "cephfs"}
    assert (needed["local"].bytes_each, needed["local"].needed) == (33554432, 33554432)
    assert needed["cephfs"].needed == 3 * 33554432
    assert needed["nfs-tcp"].needed == 3 * (33554432 + 16777216)  # the containers' files as well
    assert needed["nfs-tcp"].clients == ("gpu-01", "gpu-02", "gpu-03")


def test_no_client_needs_no_space() -> None:
    assert list(spaces(virtual_rack(), "lab", lab_rack(gpu=0))) == []


def test_a_dry_run_connects_to_no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "load_rack", lambda inventory: lab_rack())
    arguments = ["bench", "rack.py", "--architecture", "virtual-rack", "--dry-run", "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    steps = plan_steps(virtual_rack(), "lab", lab_rack())
    assert all(step.id in result.output for step in steps)
    assert f"{len(steps)} steps of profile lab" in result.output
    assert "nfs-tcp: gpu-[01-02] write 50 MB each: 101 MB needed on its servers" in result.output
    assert total_s(steps) > 60
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_an_unknown_profile_names_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "load_rack", lambda inventory: lab_rack())
    arguments = ["bench", "rack.py", "--architecture", "virtual-rack", "--profile", "huge", "--dry-run"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert "no profile 'huge'" in f"{result.output}{result.exception}"
