"""The declared state: reached, kept, and back after a reboot."""

from __future__ import annotations

import json
import time

from rackproof.core.rack import Rack
from rackproof.lab.rack import Lab
from rackproof.remote.ssh import Fleet
from tests.lab.conftest import INVENTORY, Command

DEPLOY = "deploys/cluster.py"
REBOOT_S = 1200  # a busy host emulates a boot in five minutes; the limit is for the one that never ends
CLIENT_MOUNTS = ("/mnt/local", "/mnt/nfs-tcp", "/mnt/nfs-rdma", "/mnt/cephfs")


def changes(output: str) -> dict[str, list[str]]:
    """Operation by operation, the nodes that it changed; fails when a node was lost on the way."""
    results = json.loads(output)["results"]
    assert not results["failed_hosts"]
    assert results["totals"]["error"] == 0
    assert results["totals"]["hosts"] > 0
    return {o["name"]: o["success"] for o in results["operations"] if o["success"]}


def test_a_second_run_of_pyinfras_own_command_changes_nothing(converged: Rack, command: Command) -> None:
    done = command("pyinfra", "-y", "--json", INVENTORY, DEPLOY)
    assert done.returncode == 0, done.stderr[-3000:]
    assert changes(done.stdout) == {}


def test_a_dry_run_with_diff_plans_nothing_on_a_converged_rack(converged: Rack, command: Command) -> None:
    done = command("rackproof", "deploy", INVENTORY, "--dry", "--diff", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu-[01-02],storage-01: no changes" in done.stdout


def test_drift_is_planned_shown_and_healed(converged: Rack, fleet: Fleet, command: Command) -> None:
    drift = "sysctl -w vm.swappiness=77 && rm /etc/sysctl.d/*rackproof*.conf"
    assert fleet["gpu-02"].run(drift, 30).ok
    plan = command("rackproof", "deploy", INVENTORY, "--dry", "--quiet")
    assert "gpu-02: would change" in plan.stdout
    assert fleet["gpu-02"].run("sysctl -n vm.swappiness", 30).text.strip() == "77"
    healed = command("rackproof", "deploy", INVENTORY, "--limit", "gpu-02", "--quiet")
    assert healed.returncode == 0, healed.stdout
    assert fleet["gpu-02"].run("sysctl -n vm.swappiness", 30).text.strip() != "77"


def test_a_node_that_is_down_is_named_and_the_others_are_kept(converged: Rack, fleet: Fleet, command: Command) -> None:
    assert fleet["gpu-02"].run("systemctl stop ssh.socket ssh.service", 30).error is None
    try:
        done = command("rackproof", "deploy", INVENTORY, "--quiet")
    finally:
        fleet["gpu-02"].run("systemctl start ssh.service", 60)  # the session that is open survives its daemon
    assert done.returncode == 2, done.stdout
    assert "gpu-02: not reached" in done.stdout
    assert "gpu-01,storage-01: no changes" in done.stdout or "gpu-01" in done.stdout
    assert "not ok: gpu-02 not reached" in done.stdout


def test_after_a_reboot_of_every_node_all_mounts_are_back_and_nothing_changes(
    lab: Lab, converged: Rack, command: Command
) -> None:
    names = [node.name for node in converged.nodes]
    with Fleet(converged) as fleet:
        boots = {
            n: a.text for n, a in fleet.run(dict.fromkeys(names, "cat /proc/sys/kernel/random/boot_id"), 30).items()
        }
        fleet.run(dict.fromkeys(names, "systemctl --no-block reboot"), 30)
    waiting, deadline = set(names), time.monotonic() + REBOOT_S
    mounts = " && ".join(f"mountpoint -q {m}" for m in CLIENT_MOUNTS)
    while waiting and time.monotonic() < deadline:
        time.sleep(3)
        with Fleet(converged) as fleet:
            probes = {
                n: "cat /proc/sys/kernel/random/boot_id" + (f" && {mounts}" if n.startswith("gpu") else "")
                for n in waiting
            }
            answers = fleet.run(probes, 30)
        waiting -= {n for n, a in answers.items() if a.ok and a.text != boots[n]}
    assert not waiting, f"{waiting} not back with all mounts after {REBOOT_S} s"
    done = command("pyinfra", "-y", "--json", INVENTORY, DEPLOY)
    assert done.returncode == 0, done.stderr[-3000:]
    assert changes(done.stdout) == {}
