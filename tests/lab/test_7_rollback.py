"""Drift of a node is shown and healed, the run that healed it is undone, and the next heals forward."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, Command, ask
from tests.lab.test_2_deploy import KEPT, undoable

NODE = "gpu-02"
CONF = "/etc/sysctl.d/60-rackproof.conf"
BY_HAND = "# by hand"
DEPLOY = ("rackproof", "deploy", INVENTORY, "--limit", NODE, "--quiet")


def content(fleet: Fleet) -> str:
    answer = ask(fleet[NODE], f"cat {CONF}")
    assert answer.ok, answer.why
    return answer.text.strip()


def swappiness(fleet: Fleet) -> str:
    return ask(fleet[NODE], "sysctl -n vm.swappiness").text.strip()


def held(fleet: Fleet) -> set[str]:
    answer = ask(fleet[NODE], "apt-mark showhold")
    assert answer.ok, answer.why
    return set(answer.text.split())


def test_drift_is_planned_shown_and_healed(converged: Rack, fleet: Fleet, command: Command) -> None:
    damage = f"echo '{BY_HAND}' >{CONF} && chmod 600 {CONF} && sysctl -qw vm.swappiness=77"
    assert ask(fleet[NODE], damage).ok
    before = undoable(fleet)

    plan = command("rackproof", "deploy", INVENTORY, "--dry", "--diff", "--quiet")
    assert plan.returncode == 0, plan.stdout + plan.stderr
    assert f"{NODE}: would change" in plan.stdout
    assert "gpu-01,storage-01: no changes" in plan.stdout
    assert (content(fleet), swappiness(fleet)) == (BY_HAND, "77")

    healed = command(*DEPLOY)
    assert healed.returncode == 0, healed.stdout
    assert BY_HAND not in content(fleet)
    assert swappiness(fleet) != "77"
    after = undoable(fleet)
    assert len(after.pop(NODE)) == len(before.pop(NODE)) + 1
    assert after == before


def test_the_last_run_is_undone_shown_before_and_healed_after(converged: Rack, fleet: Fleet, command: Command) -> None:
    before = undoable(fleet)
    shown = command("rackproof", "rollback", INVENTORY, "--dry", "--diff")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"+{BY_HAND}" in shown.stderr
    assert BY_HAND not in content(fleet)

    undone = command("rackproof", "rollback", INVENTORY, "--quiet")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert content(fleet) == BY_HAND
    assert ask(fleet[NODE], f"stat -c %a {CONF}").text.strip() == "600"
    assert swappiness(fleet) == "77"
    after = undoable(fleet)
    assert len(after.pop(NODE)) == len(before.pop(NODE)) + 1
    assert after == before  # the others were not changed by the run that was undone

    healed = command(*DEPLOY)
    assert healed.returncode == 0, healed.stdout
    assert BY_HAND not in content(fleet)
    assert swappiness(fleet) != "77"


@pytest.mark.long
def test_a_file_changed_after_the_run_is_not_rolled_back_without_force(
    converged: Rack, fleet: Fleet, command: Command
) -> None:
    assert ask(fleet[NODE], f"echo '{BY_HAND}' >{CONF}").ok
    healed = command(*DEPLOY)
    assert healed.returncode == 0, healed.stdout
    assert ask(fleet[NODE], f"echo '# twice' >>{CONF}").ok
    try:
        refused = command("rackproof", "rollback", INVENTORY)
        assert refused.returncode == 1, refused.stdout + refused.stderr
        assert f"changed since these runs: {CONF}" in refused.stderr + refused.stdout
        assert "# twice" in content(fleet)
        forced = command("rackproof", "rollback", INVENTORY, "--force", CONF, "--quiet")
        assert forced.returncode == 0, forced.stdout + forced.stderr
        assert content(fleet) == BY_HAND
    finally:
        last = command(*DEPLOY)
    assert last.returncode == 0, last.stdout + last.stderr


@pytest.mark.long
def test_a_version_set_is_locked_from_the_nodes_held_and_undone(
    converged: Rack, fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    lock = tmp_path / "versions.lock.yaml"
    locked = command("rackproof", "versions", "lock", INVENTORY, "-o", str(lock))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    kernel = ask(fleet[NODE], "uname -r").text.strip()
    assert f"version: {kernel}" in lock.read_text()
    deploy_locked = (*DEPLOY, "--data", f"versions_lock={lock}")
    result = command(*deploy_locked)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {"ceph-common", f"linux-image-{kernel}"} <= held(fleet)
    again = command(*deploy_locked)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{NODE}: no changes" in again.stdout

    other = tmp_path / "other.lock.yaml"
    other.write_text(lock.read_text().replace(kernel, "6.1.0-1-amd64"))
    refused = command(*DEPLOY, "--data", f"versions_lock={other}")  # edited by hand: the seal is broken
    assert refused.returncode != 0, refused.stdout + refused.stderr
    assert str(other) in refused.stdout + refused.stderr

    undone = command("rackproof", "rollback", INVENTORY, "--limit", NODE, "--quiet")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert not {"ceph-common", f"linux-image-{kernel}"} & held(fleet)


def test_kept_states_are_readable_by_root_only(converged: Rack, fleet: Fleet) -> None:
    readable = ask(fleet[NODE], f"find {KEPT} -perm /077")
    assert readable.ok
    assert readable.text.strip() == ""
