"""The whole deploy, planned by pyinfra's own command against nodes that are not there.

In a process of its own: pyinfra's command patches the interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit import warm_python

ROOT = Path(__file__).resolve().parents[2]
GPU, STORAGE = {"@fake/gpu-01", "@fake/gpu-02"}, {"@fake/storage-01"}


def pyinfra(*options: str, fake: str = "") -> subprocess.CompletedProcess[str]:
    return warm_python.run(
        [sys.executable, "-m", "pyinfra", *options, "tests/unit/configure/fake_inventory.py", "deploys/cluster.py"],
        cwd=ROOT,
        env={**os.environ, "RACKPROOF_FAKE": fake},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def plan() -> list[dict[str, Any]]:
    result = pyinfra("--dry", "--json")
    assert result.returncode == 0, result.stderr
    operations: list[dict[str, Any]] = json.loads(result.stdout)["plan"]
    return operations


def test_every_operation_has_a_name_of_its_own(plan: list[dict[str, Any]]) -> None:
    names = [operation["name"] for operation in plan]
    assert len(names) == len(set(names)) > 20
    assert all(len(operation["names"]) == 1 for operation in plan)


def test_bare_nodes_are_changed_by_every_operation_of_their_roles(plan: list[dict[str, Any]]) -> None:
    changed = {operation["name"]: set(operation["hosts_with_change"]) for operation in plan}
    assert changed["Base | Packages"] == GPU | STORAGE
    assert changed["Storage server | File system"] == STORAGE
    assert changed["Ceph server | Cluster"] == STORAGE
    assert changed["Storage client | Mounts"] == GPU
    unchanged = {name for name, nodes in changed.items() if not nodes}
    # An order without an action, and a question that has no answer before the packages are there.
    # Nothing that the rack declares, or Slurm's own orders and questions about a running controller.
    idle = {"Node | Kernel arguments", "Node | Settings", "Reboot | Servers", "Reboot | Reboot"}
    idle |= {name for name in unchanged if name.startswith("Slurm | ")} - {"Slurm | Files", "Slurm | Services"}
    assert unchanged - idle == {"Preflight | Checks", "Servers before clients", "Tools | Programs"}


def test_servers_are_set_up_before_clients_whatever_else_runs_in_parallel(plan: list[dict[str, Any]]) -> None:
    names = [operation["name"] for operation in plan]
    meeting = names.index("Servers before clients")
    servers = [i for i, name in enumerate(names) if name.startswith(("Storage server", "Ceph server"))]
    clients = [i for i, name in enumerate(names) if name.startswith("Storage client")]
    assert max(servers) < meeting < min(clients)


def test_servers_are_rebooted_before_those_that_wait_for_them_and_all_of_it_last(plan: list[dict[str, Any]]) -> None:
    assert [operation["name"] for operation in plan][-2:] == ["Reboot | Servers", "Reboot | Reboot"]


def test_differences_are_shown_and_secrets_are_not() -> None:
    result = pyinfra("--dry", "--diff")
    assert result.returncode == 0, result.stderr
    shown = result.stdout + result.stderr
    assert "+server 10.77.0.11 iburst minpoll 4 maxpoll 6" in shown
    assert "/etc/ceph/rackproof.secret: changed (secret, not shown)" in shown


def test_an_inventory_without_a_drive_touches_nothing() -> None:
    result = pyinfra("-y", fake="no-drive")
    assert result.returncode == 1
    assert "nfs_drive: the architecture needs a drive, the inventory names none" in result.stderr
    assert "Starting operation" not in result.stderr


def test_a_foreign_drive_stops_its_own_node_before_its_first_change() -> None:
    result = pyinfra("-y", fake="foreign")
    assert result.returncode == 1
    assert "expected ext4 'rp-local' or a blank drive, actual ext4 'data'; nothing was done" in result.stderr
    assert "[drives.foreign]" in result.stderr
    after = result.stderr.split("Starting operation: Base | Updates")[1].split("Starting operation")[0]
    assert "gpu-02" in after
    assert "gpu-01" not in after
