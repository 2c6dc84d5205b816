"""Every deploy file, executed alone by pyinfra: its operations, or one line that says why a node gets none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit import warm_python
from tests.unit.plan.golden import DEPLOY, PLANS, ROOT

pytestmark = pytest.mark.few(15)

VIRTUAL = "@recording/tests/data/recordings/virtual-rack-deploy"
INVENTORIES = (
    VIRTUAL,
    f"@recording/{PLANS}/a100-rocky9-scale",
    f"@recording/{PLANS}/debian13-l40s",
    f"@recording/{PLANS}/hgx-h200-ubuntu2404-roce",
)
DEPLOYS = sorted(path.stem for path in (ROOT / "deploys").glob("[a-z]*.py"))
ACTIONS = {"rollback", "unmount"}
"""Not part of a rack's deploy."""
ALONE = ("Fabric needed | ", "Containers needed | ", "Health check needed | ", "Versions: the rest | ")
"""Operations that a rack's deploy need not have: it sets up the fabric, and other deploys install the set's stages."""

AROUND = "Fabric | "
"""The deploy that calls the one of the adapters in a rack's deploy."""


@cache
def loaded() -> dict[str, dict[str, dict[str, dict[str, list[str]]]]]:
    """Inventory, deploy file, node: operations and lines."""
    result = warm_python.run(
        [sys.executable, "-m", "tests.unit.plan.alone", *INVENTORIES],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def nodes(deploy: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Operations and lines of every node, and its operations in the deploy of the whole rack."""
    for deploys in loaded().values():
        for name, node in deploys[f"deploys/{deploy}.py"].items():
            yield node["operations"], node["lines"], deploys[DEPLOY][name]["operations"]


@pytest.mark.parametrize("deploy", DEPLOYS)
def test_a_deploy_file_does_something_or_says_why_not(deploy: str) -> None:
    reason = f"{deploy.replace('_', ' ')}: "
    acted = 0
    for operations, lines, _ in nodes(deploy):
        reasons = [line for line in lines if line.strip().startswith(reason)]
        assert (len(operations) > 0, len(reasons)) in ((True, 0), (False, 1))
        acted += bool(operations)
    assert acted, "no inventory of this test has a node that it is for"


@pytest.mark.parametrize("deploy", sorted({*DEPLOYS} - ACTIONS))
def test_alone_means_what_a_racks_deploy_does_in_its_order(deploy: str) -> None:
    """Preflight before everything, what waits for a reboot at the end, the operations of its own in between."""
    for operations, _, whole in nodes(deploy):
        if not operations:
            continue
        assert operations[0] == "Preflight | Checks"
        assert deploy in ("preflight", "driver_swap") or operations[-1].startswith("Reboot | ")
        order = [name.removeprefix(AROUND) for name in whole]
        places = [order.index(name.removeprefix(AROUND)) for name in operations if not name.startswith(ALONE)]
        assert all(first <= second for first, second in pairwise(places))


@pytest.mark.parametrize("deploy", sorted({*DEPLOYS} - ACTIONS - {"cluster", "preflight", "reboot", "base"}))
def test_what_a_file_brings_is_not_all_that_it_does(deploy: str) -> None:
    brought = ("Preflight | ", "Base | ", "Versions: freeze", "Versions: kernel", "Driver", "Fabric needed",
               "Containers needed", "Health check needed", "Reboot")  # fmt: skip
    own = brought[:4] if deploy in ("driver_swap", "versions") else brought
    for operations, lines, _ in nodes(deploy):
        assert not operations or [name for name in operations if not name.startswith(own)], lines


@pytest.mark.parametrize("deploy", sorted({*DEPLOYS} - ACTIONS - {"cluster", "base"}))
def test_packages_come_from_the_repositories_of_the_version_set(deploy: str) -> None:
    """Without them apt installs the newest version, and a later deploy of the rack would have to downgrade it."""
    set_up = "Versions: freeze and repositories | "
    for operations, _, whole in nodes(deploy):
        installs = any(name.endswith(" | Packages") and not name.startswith("Base | ") for name in operations)
        if installs and any(name.startswith(set_up) for name in whole):
            assert any(name.startswith(set_up) for name in operations), operations


def test_pyinfras_own_command_says_it() -> None:
    program = str(Path(sys.executable).with_name("pyinfra"))
    result = warm_python.run(
        [program, VIRTUAL, "deploys/storage_client.py", "--dry"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert "[storage-01] storage client: the architecture declares no mounts for this node" in result.stderr
    assert "Storage client | Mounts" in result.stderr


def test_the_gpus_driver_comes_after_the_drivers_of_the_adapters() -> None:
    """It links to their symbols."""
    ordered = 0
    for operations, _, whole in nodes("gpu"):
        names = [name.removeprefix(AROUND) for name in operations]
        driver = [name for name in names if name.startswith("GPU | ") and name.endswith(" | Driver")]
        for name in [name.removeprefix(AROUND) for name in whole if name.endswith(" | Drivers")]:
            for own in driver:
                assert names.index(name) < names.index(own)
                ordered += 1
    assert ordered, "no inventory of this test has both"
