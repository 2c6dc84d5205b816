"""The last run is undone on nodes of the virtual rack, and the next converge heals forward."""

from __future__ import annotations

from rackproof.core.rack import Rack
from rackproof.remote.ssh import Fleet
from tests.lab.conftest import INVENTORY, Command

CONF = "/etc/sysctl.d/60-rackproof.conf"
DEPLOY = ("rackproof", "deploy", INVENTORY, "--limit", "gpu-02", "--quiet")
KEPT = "/var/lib/rackproof/rollback"


def runs(fleet: Fleet, node: str) -> list[str]:
    return fleet[node].run(f"ls {KEPT} 2>/dev/null", 30).text.split()


def test_the_last_run_is_undone_shown_before_and_healed_after(converged: Rack, fleet: Fleet, command: Command) -> None:
    node = fleet["gpu-02"]
    damaged = "# by hand"
    assert node.run(f"echo '{damaged}' >{CONF} && chmod 600 {CONF} && sysctl -qw vm.swappiness=77", 30).ok
    assert command(*DEPLOY).returncode == 0
    assert damaged not in node.run(f"cat {CONF}", 30).text
    before = runs(fleet, "gpu-02")
    assert before
    other = runs(fleet, "gpu-01")

    shown = command("rackproof", "rollback", INVENTORY, "--dry", "--diff")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"+{damaged}" in shown.stderr
    assert damaged not in node.run(f"cat {CONF}", 30).text

    undone = command("rackproof", "rollback", INVENTORY, "--quiet")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert node.run(f"cat {CONF}", 30).text.strip() == damaged
    assert node.run(f"stat -c %a {CONF}", 30).text.strip() == "600"
    assert node.run("sysctl -n vm.swappiness", 30).text.strip() == "77"
    assert len(runs(fleet, "gpu-02")) == len(before) + 1
    assert runs(fleet, "gpu-01") == other  # it was not changed by the run that was undone

    assert command(*DEPLOY).returncode == 0
    assert damaged not in node.run(f"cat {CONF}", 30).text
    assert node.run("sysctl -n vm.swappiness", 30).text.strip() != "77"


def test_what_somebody_changed_since_is_refused_and_named(converged: Rack, fleet: Fleet, command: Command) -> None:
    node = fleet["gpu-02"]
    assert node.run(f"echo '# once' >{CONF}", 30).ok
    assert command(*DEPLOY).returncode == 0
    assert node.run(f"echo '# twice' >>{CONF}", 30).ok
    try:
        refused = command("rackproof", "rollback", INVENTORY)
        assert refused.returncode == 1
        assert f"changed by somebody else since: {CONF}" in refused.stderr + refused.stdout
        assert "# twice" in node.run(f"cat {CONF}", 30).text
        forced = command("rackproof", "rollback", INVENTORY, "--force", CONF, "--quiet")
        assert forced.returncode == 0, forced.stdout + forced.stderr
        assert node.run(f"cat {CONF}", 30).text.strip() == "# once"
    finally:
        assert command(*DEPLOY).returncode == 0


def test_what_is_kept_can_be_read_by_root_only(converged: Rack, fleet: Fleet) -> None:
    found = fleet["gpu-02"].run(f"find {KEPT} -perm /077", 30)
    assert found.ok
    assert found.text.strip() == ""


def test_a_run_without_changes_keeps_nothing(converged: Rack, fleet: Fleet, command: Command) -> None:
    before = runs(fleet, "gpu-01")
    assert command(*DEPLOY).returncode == 0
    assert runs(fleet, "gpu-01") == before
