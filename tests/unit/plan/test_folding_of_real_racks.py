"""Plans that differ in nothing but the node's own addresses, with everything that a script says about a file."""

from __future__ import annotations

from rackproof.configure.rollback.journal import file_line
from rackproof.core.plan import Change, NodePlan, PlannedOperation, fold_plans, identity_of
from rackproof.report.plan import overview, summary
from rackproof.shell import shown_form
from tests.unit.plan.test_folding import rack


def files(number: int, *, content: str = "", secret: bool = False) -> NodePlan:
    """A node that would write one file; its digest depends on its address, unless it is a secret."""
    name, address = f"gpu-{number:02d}", f"10.0.0.{number}/24"
    digest = f"{number if not secret else len(content):064x}"
    difference = ("/etc/x: changed (secret, not shown)",) if secret else (f"+Address={address}{content}",)
    operation = PlannedOperation(
        name="Fabric | Files",
        changes=(Change(what="/etc/x", why="content", difference=difference),),
        commands=(f"set -eu\n{shown_form(file_line('/etc/x', digest, secret))}\nmv /etc/.x.new /etc/x",),
    )
    identity = identity_of(name, {"nic": {"bonds": {"bond0": {"address": address}}}})
    return NodePlan(node=name, groups=("gpu",), operations=(operation,), identity=identity)


def test_the_digest_of_a_file_with_the_nodes_address_does_not_divide_a_rack() -> None:
    assert [fold.nodes for fold in fold_plans(files(n) for n in (1, 2, 3))] == [("gpu-01", "gpu-02", "gpu-03")]


def test_another_content_divides_it() -> None:
    folds = fold_plans([files(1), files(2), files(3, content=" # odd")])
    assert [fold.nodes for fold in folds] == [("gpu-01", "gpu-02"), ("gpu-03",)]


def test_another_secret_divides_it_although_it_is_not_shown() -> None:
    folds = fold_plans([files(1, content="a", secret=True), files(2, content="bb", secret=True)])
    assert len(folds) == 2


def test_of_two_nodes_that_differ_the_second_is_compared_with_the_first() -> None:
    lines = list(overview(rack(files(1), files(2, content=" # odd"))))
    assert lines[0] == "gpu-01: 1 change"
    assert "gpu-02: 1 change; differs from gpu-01:" in lines
    after = lines[lines.index("gpu-02: 1 change; differs from gpu-01:") + 1 :]
    assert "      + +Address=‹1› # odd" in after
    assert not any("set -eu" in line for line in after)


def test_a_rack_that_was_not_reached_has_no_changes_to_speak_of() -> None:
    lost = NodePlan(node="gpu-01", lost="Could not connect")
    assert summary(rack(lost)) == "1 node: gpu-01 not planned"
    assert summary(rack(lost, NodePlan(node="gpu-02"))) == "2 nodes: no changes on gpu-02; gpu-01 not planned"
