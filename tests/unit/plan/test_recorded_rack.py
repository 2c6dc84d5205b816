"""The virtual rack as it was recorded after a deploy: read again, nothing is left to do.

What a deploy asks is part of a recording. When a question changes, the rack has to be recorded anew:
``rackproof record all -o tests/data/recordings/virtual-rack-deploy --deploy deploys/cluster.py``, after a deploy.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rackproof.run.plan import plan_deploys
from tests.unit import warm_python
from tests.unit.plan.golden import DEPLOY, ROOT

INVENTORY = "@recording/tests/data/recordings/virtual-rack-deploy"
NODES = ("gpu-01", "gpu-02", "storage-01")


def test_a_rack_that_was_recorded_after_its_deploy_is_left_alone() -> None:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        (plan,) = plan_deploys([INVENTORY], DEPLOY)
    finally:
        os.chdir(before)
    assert plan.error is None
    assert [node.node for node in plan.nodes] == list(NODES)
    for node in plan.nodes:
        assert node.lost is None
        assert [(operation.name, operation.refused) for operation in node.refusals] == []
        assert [change.what for operation in node.changing for change in operation.changes] == []
        assert len(node.operations) >= 15


def test_pyinfras_own_command_plans_from_it() -> None:
    program = str(Path(sys.executable).with_name("pyinfra"))
    done = warm_python.run(
        [program, INVENTORY, DEPLOY, "--dry"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"[{name}]" in done.stderr for name in NODES)
    assert "Base | Files" in done.stderr
