"""Plans of many nodes as few paragraphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.rollback.journal import Journal, file_line, unit_line
from rackproof.configure.run_lock import Holder
from rackproof.core.plan import (
    Change,
    NodePlan,
    PlannedOperation,
    RackPlan,
    anonymous,
    deviation,
    fold_plans,
    identity_of,
)
from rackproof.report.plan import overview, summary, whole
from rackproof.shell import shown_form


def node(number: int, *operations: PlannedOperation, lost: str | None = None) -> NodePlan:
    name = f"gpu-{number:02d}"
    data = {"ssh_hostname": f"192.0.2.{number}", "fabric_addresses": [f"10.0.0.{number}/24", f"10.0.1.{number}/24"]}
    return NodePlan(node=name, groups=("gpu",), operations=operations, lost=lost, identity=identity_of(name, data))


def addressed(number: int) -> PlannedOperation:
    return PlannedOperation(
        name="Fabric | Ports", changes=(Change(what="eth2", why=f"no address 10.0.0.{number}/24"),),
        commands=(f"ip addr add 10.0.0.{number}/24 dev rail0",),
    )  # fmt: skip


def rack(*nodes: NodePlan) -> RackPlan:
    return RackPlan(inventory="inv.py", deploy="deploys/cluster.py", nodes=nodes)


PACKAGES = PlannedOperation(name="Base | Packages", commands=("apt-get install chrony",))
DONE = PlannedOperation(name="Base | Files")


def test_nodes_that_differ_in_their_addresses_only_are_one_paragraph() -> None:
    plan = rack(*(node(n, DONE, PACKAGES, addressed(n)) for n in range(1, 33)))
    lines = list(overview(plan))
    assert lines == [
        "gpu-[01-32]: 2 changes",
        "  Base | Packages",
        "  Fabric | Ports",
        "      eth2: no address 10.0.0.1/24",
        "32 nodes: gpu-[01-32] would change (64 operations)",
    ]


def test_a_neighbours_address_stands_out() -> None:
    wrong = node(7, PACKAGES, addressed(8))
    folds = fold_plans(node(n, PACKAGES, addressed(n)) if n != 7 else wrong for n in range(1, 10))
    assert [fold.nodes for fold in folds][1:] == [("gpu-07",)]


def test_a_node_that_stands_out_is_compared_with_its_peers() -> None:
    other = PlannedOperation(name="Base | Files", changes=(Change(what="/etc/x", why="content"),), commands=("mv x",))
    plan = rack(*(node(n, DONE, PACKAGES) for n in (1, 2, 3)), node(4, other, PACKAGES))
    lines = list(overview(plan))
    assert lines[2:4] == ["gpu-04: 2 changes; differs from gpu-[01-03]:", "  + Base | Files"]
    assert deviation(plan.nodes[0], plan.nodes[3]) == ("- Base | Files",)


def test_the_same_operation_with_another_content_is_printed_line_by_line() -> None:
    def files(mtu: int) -> PlannedOperation:
        return PlannedOperation(name="Files", changes=(Change(what=f"MTU {mtu}"),), commands=("mv",))

    assert deviation(node(1, files(1500)), node(2, files(9000))) == ("~ Files", "    + MTU 1500", "    - MTU 9000")


def test_lost_and_refusing_nodes_are_named() -> None:
    refusing = PlannedOperation(name="GPU | Driver", refused="the GPU is too old")
    plan = rack(node(1, PACKAGES), node(2, lost="Could not connect"), node(3, PACKAGES, refusing))
    lines = list(overview(plan))
    assert "gpu-02: not planned: Could not connect" in lines
    assert "gpu-03: 1 change, then refused" in lines
    assert "  GPU | Driver: refused: the GPU is too old" in lines
    assert plan.incomplete == ("gpu-02", "gpu-03")
    assert summary(plan) == (
        "3 nodes: gpu-[01,03] would change (2 operations); gpu-02 not planned; gpu-03 would refuse"
    )


def test_reboots_are_collected_with_their_nodes() -> None:
    def with_reboot(*reasons: str) -> PlannedOperation:
        return PlannedOperation(
            name="Node | Boot", commands=("x",), changes=[Change(what="arguments", reboot=reason) for reason in reasons]
        )

    plan = rack(node(1, with_reboot("kernel command line")), node(2, with_reboot("kernel command line", "nouveau")))
    assert list(overview(plan))[-4:-1] == [
        "reboot afterwards:",
        "  gpu-[01-02]: kernel command line",
        "  gpu-02: nouveau",
    ]


def test_commands_and_differences_are_shown_when_asked_for() -> None:
    change = Change(what="/etc/a", difference=("+server x",))
    operation = PlannedOperation(name="Files", commands=("set -eu\nmv a b",), changes=(change,))
    lines = list(overview(rack(node(1, operation)), differences=True, commands=True))
    assert "      | +server x" in lines
    assert lines[lines.index("      $ set -eu") + 1] == "      $ mv a b"


def test_nothing_to_do_is_printed() -> None:
    plan = rack(node(1, DONE), node(2, DONE))
    assert list(overview(plan)) == ["gpu-[01-02]: no changes", "2 nodes: no changes"]
    assert plan.changes == 0


def test_a_whole_plan_names_what_does_not_change_too() -> None:
    text = whole(node(1, DONE, PACKAGES))
    assert text == ("# gpu-01 (gpu)\n\n== Base | Files\nno change\n\n== Base | Packages\n$ apt-get install chrony\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ping 10.0.0.1", "ping ‹3›"),
        ("ping 10.0.0.11 and 110.0.0.1", "ping 10.0.0.11 and 110.0.0.1"),
        ("10.0.0.1/24,10.0.0.1:22", "‹2›,‹3›:22"),
        ("gpu-01 gpu-01-fabric0 gpu-011", "‹0› ‹0›-fabric0 gpu-011"),
        ("10.0.0.1.", "‹3›."),
    ],
)
def test_an_identity_is_replaced_as_a_whole_word(text: str, expected: str) -> None:
    assert anonymous(text, node(1).identity) == expected


@given(st.text())
def test_without_an_identity_text_stays(text: str) -> None:
    assert anonymous(text, ()) == text


def test_a_plan_shows_what_the_journal_keeps_and_not_its_functions() -> None:
    journal = Journal("20261121T183000-4f2a", holder=Holder("20261121T183000-4f2a", "root", "here", "0"))
    whole = journal.before([unit_line("a.service")], "set -eu\nsystemctl stop a.service")
    short = shown_form(whole)
    assert "rp_unit a.service" in short
    assert short.endswith("set -eu\nsystemctl stop a.service")
    assert "() {" not in short
    assert "here" not in short
    assert len(short.splitlines()) < 12 < len(whole.splitlines())
    assert shown_form("f() {\n  true\n}\nf") == "f() {\n  true\n}\nf"


def test_a_digest_is_shown_of_what_has_no_difference() -> None:
    digest = "0" * 64
    journal = Journal("20261121T183000-4f2a")
    lines = [file_line("/etc/a", digest), file_line("/etc/b", digest, secret=True), file_line("/etc/c", None)]
    script = journal.before(lines, "true")
    assert script.count(digest) == 2
    shown = [line for line in shown_form(script).splitlines() if line.startswith("rp_file")]
    assert shown == ["rp_file /etc/a", f"rp_file /etc/b {digest} secret", "rp_file /etc/c - -"]
