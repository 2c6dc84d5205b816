"""Tables of checks: one row for the steps after which every node passed."""

from __future__ import annotations

from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.report.verdict_tables import check_table

NODES = ("gpu-01", "gpu-02")


def load(step: str, node: str, status: Status) -> Verdict:
    return Verdict(
        id=f"load.kernel[{step}]", kind="check", title="Kernel", subject=node, status=status, required=True, message="",
    )  # fmt: skip


def test_steps_without_a_finding_share_a_row_and_the_others_are_listed() -> None:
    verdicts = [load(f"step-{k}", node, Status.PASS) for k in range(5) for node in NODES]
    verdicts += [load("storage/local/read", "gpu-01", Status.FAIL), load("storage/local/read", "gpu-02", Status.PASS)]
    ((module, (group,)),) = check_table(verdicts, NODES).modules
    assert module == "load"
    assert [(row.title, [cell.text for cell in row.cells]) for row in group.rows] == [
        ("storage/local/read", ["FAIL", "PASS"]),
        ("5 steps", ["PASS", "PASS"]),
    ]


def test_a_check_is_called_advisory_only_where_all_of_its_items_are() -> None:
    first = load("a", "gpu-01", Status.PASS).model_copy(update={"required": False})
    second = load("b", "gpu-01", Status.FAIL)
    for several, required in (((first, second), True), ((first,), False)):
        ((_, (group,)),) = check_table(several, NODES).modules
        assert group.required is required
