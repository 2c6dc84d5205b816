"""Golden plans of written racks: equal to the expected files, and consistent in themselves."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from rackproof.core.plan import RackPlan
from tests.unit.plan.golden import PLANS, ROOT, difference, plan_all, racks, texts

pytestmark = pytest.mark.usefixtures("warm_python")

NAMES = [path.name for path in racks()]


@pytest.fixture(scope="module")
def plans() -> dict[str, RackPlan]:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return plan_all()
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_the_golden_one(plans: dict[str, RackPlan], name: str) -> None:
    plan = plans[name]
    assert plan.error is None
    differences = {file: difference(ROOT / PLANS / name / "golden" / file, text) for file, text in texts(plan).items()}
    wrong = [text for text in differences.values() if text]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_every_node_is_planned_to_its_end(plans: dict[str, RackPlan], name: str) -> None:
    refusals = {node.node: [(r.name, r.refused) for r in node.refusals] for node in plans[name].nodes if node.refusals}
    assert refusals == {}
    assert [node.lost for node in plans[name].nodes if node.lost] == []
    assert all(node.changing for node in plans[name].nodes)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_a_change(plans: dict[str, RackPlan], name: str) -> None:
    silent = {operation.name for node in plans[name].nodes for operation in node.changing if not operation.changes}
    assert silent <= {"Base | Time"}  # waits for a time source


@pytest.mark.parametrize("name", NAMES)
def test_nodes_alike_are_planned_alike(plans: dict[str, RackPlan], name: str) -> None:
    """But for what only one node of a rack does: Slurm's controller is the first of them."""
    first, *others = plans[name].nodes
    mine = [operation.name for operation in first.changing if "Slurm" not in operation.name]
    for other in others:
        theirs = [operation.name for operation in other.changing if "Slurm" not in operation.name]
        assert theirs == mine


@pytest.mark.parametrize("name", NAMES)
def test_no_file_is_written_by_two_operations(plans: dict[str, RackPlan], name: str) -> None:
    """They would undo each other's work in every run. Files with a block of the kit's have room for one writer too."""
    for node in plans[name].nodes:
        headers = (line for operation in node.operations for line in operation.differences if line.startswith("+++ "))
        twice = [path for path, count in Counter(headers).items() if count > 1]
        assert twice == [], node.node


@pytest.mark.parametrize("name", NAMES)
def test_only_the_copy_of_the_architecture_names_it(plans: dict[str, RackPlan], name: str) -> None:
    """Another architecture with the same settings changes no file, and restarts nothing."""
    naming: set[str] = set()
    for operation in (operation for node in plans[name].nodes for operation in node.operations):
        path = ""
        for line in operation.differences:
            path = line.removeprefix("+++ ") if line.startswith("+++ ") else path
            naming |= {path} if f"plan-{name}" in line else set()
    assert naming <= {"/etc/rackproof/architecture.yaml"}
