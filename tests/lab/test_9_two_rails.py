"""Four GPU nodes with two rails: group testing clears all links, and names the rail of one node that was slowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackproof.report.document import plain
from tests.lab.conftest import INVENTORY, ROOT, Command, choose

pytestmark = pytest.mark.long

SLOW, RAIL = "gpu-03", 1
SLOWED = f"modprobe sch_netem && tc qdisc replace dev fabric{RAIL} root netem rate 200kbit limit 2000"


def group_verdicts(own_rack: Command, folder: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit status of a certify; status and message of each node's verdict of group testing."""
    done = own_rack("certify", INVENTORY, "--no-deploy", "--output", str(folder))
    print(done.stdout, done.stderr)
    (document,) = folder.glob("*/certificate.json")
    verdicts: list[dict[str, Any]] = plain(json.loads(document.read_text()))["verdicts"]
    by_node = {v["subject"]: (v["status"], v["message"]) for v in verdicts if v["id"] == "fabric.groups"}
    return done.returncode, by_node


def test_a_slow_rail_of_one_node_is_named(tmp_path: Path, own_rack: Command) -> None:
    choose(tmp_path, str(ROOT / "tests" / "lab" / "two-rails.yaml"))
    started = own_rack("lab", "up", "--gpu-nodes", "4", "--rails", "2")
    assert started.returncode == 0, started.stderr
    deployed = own_rack("deploy", INVENTORY)
    assert deployed.returncode == 0, deployed.stdout[-4000:]

    status, healthy = group_verdicts(own_rack, tmp_path / "healthy")
    assert {node: verdict for node, (verdict, _) in healthy.items()} == dict.fromkeys(
        ("gpu-01", "gpu-02", "gpu-03", "gpu-04"), "PASS"
    ), healthy
    assert status == 0

    slowed = own_rack("lab", "ssh", SLOW, SLOWED)
    assert slowed.returncode == 0, slowed.stderr
    status, with_fault = group_verdicts(own_rack, tmp_path / "slowed")
    assert status == 1
    assert {node for node, (verdict, _) in with_fault.items() if verdict == "FAIL"} == {SLOW}
    assert f"rail {RAIL}" in with_fault[SLOW][1]
