"""The declared state: reached and kept. What drifts away from it is in test_7_rollback, a reboot in test_8_reboot."""

from __future__ import annotations

import json

from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, Command

DEPLOY = "deploys/cluster.py"
KEPT = "/var/lib/rackproof/rollback"


def undoable(fleet: Fleet) -> dict[str, list[str]]:
    """Runs that each node can roll back."""
    answers = fleet.run(dict.fromkeys(("gpu-01", "gpu-02", "storage-01"), f"ls {KEPT}"), 30)
    assert all(answer.ok for answer in answers.values()), answers
    return {node: answer.text.split() for node, answer in answers.items()}


def changes(output: str) -> dict[str, list[str]]:
    """Changed nodes by operation; fails when a node was lost."""
    results = json.loads(output)["results"]
    assert not results["failed_hosts"]
    assert results["totals"]["error"] == 0
    assert results["totals"]["hosts"] > 0
    return {o["name"]: o["success"] for o in results["operations"] if o["success"]}


def test_a_second_run_of_pyinfras_own_command_changes_and_keeps_nothing(
    converged: Rack, fleet: Fleet, command: Command
) -> None:
    kept = undoable(fleet)
    result = command("pyinfra", "-y", "--json", INVENTORY, DEPLOY)
    assert result.returncode == 0, result.stderr[-3000:]
    assert changes(result.stdout) == {}
    assert undoable(fleet) == kept


def test_a_node_that_is_down_is_named_and_the_others_are_kept(converged: Rack, fleet: Fleet, command: Command) -> None:
    assert fleet["gpu-02"].run("systemctl stop ssh.socket ssh.service", 300).error is None
    try:
        result = command("rackproof", "deploy", INVENTORY, "--quiet")
    finally:
        fleet["gpu-02"].run("systemctl start ssh.service", 300)  # the session that is open survives its daemon
    assert result.returncode == 2, result.stdout
    assert "gpu-02: not reached" in result.stdout
    assert "gpu-01,storage-01: no changes" in result.stdout
    assert "not ok: gpu-02 not reached" in result.stdout
