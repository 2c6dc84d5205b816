"""A result that is removed from the evidence is missed, whatever the architecture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import load
from rackproof.cli.main import cli
from rackproof.core.architecture import Architecture, Severity
from rackproof.core.architecture.base import Count
from rackproof.core.architecture.node_checks import REAL_GPUS
from rackproof.core.architecture.published import PUBLISHED
from rackproof.core.evidence import CheckResult, Kind, NodeInfo, Record
from rackproof.core.judging.judge import judge_records
from rackproof.core.judging.missing import RunScope, missing
from rackproof.core.planned_checks import Case, PlannedChecks, planned
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.validation.checks import Check
from rackproof.validation.known import known_checks
from rackproof.validation.run import validators_folder
from tests.unit.false_certificates.edited import Body, chained, copy, example, of_kind
from tests.unit.judging import check, info_of_nodes, verdicts, whole
from tests.unit.judging.test_every_architecture import PEERS, all_evidence, run

pytestmark = pytest.mark.few(12)


@cache
def declared() -> tuple[Check, ...]:
    return tuple(known_checks(validators_folder()).values())


@cache
def architecture(name: str) -> Architecture:
    return load(name).model


WITHOUT_CRITERIA = {"virtual-rack-claims"}
"""Architectures that others extend. Without criteria there is no certificate."""


def test_an_architecture_without_criteria_only_serves_as_a_base() -> None:
    assert {name for name in PUBLISHED if not architecture(name).criteria} == WITHOUT_CRITERIA


@cache
def only_its_first_number(name: str) -> Architecture:
    """With one criterion, which is enough for a certificate, for any number of nodes, and no check advisory."""
    made = architecture(name)
    first = made.criteria[0].model_copy(update={"severity": Severity.REQUIRED})
    roles = {role: expected.model_copy(update={"count": Count()}) for role, expected in made.roles.items()}
    return made.model_copy(update={"criteria": (first,), "curves": (), "outliers": (), "roles": roles, "checks": {}})


def rack_of(made: Architecture, count: int, simulated: bool = False) -> Rack:
    """Nodes of every role that the kit logs in to."""
    nodes = [
        Node(f"{role}-{number}", (role,), {"simulated_gpus": True} if simulated else {})
        for role, expected in made.roles.items()
        if expected.managed
        for number in range(1, max(min(count, expected.count.max or count), expected.count.min) + 1)
    ]
    return Rack("rack.py", tuple(nodes))


def answered_by_validators(made: Architecture, rack: Rack) -> list[Case]:
    return [
        (one.id, item, node.name) for node in rack.nodes for one in declared() for item in one.items(made, node, rack)
    ]


def infos(rack: Rack) -> tuple[NodeInfo, ...]:
    return tuple(NodeInfo(name=n.name, groups=n.groups, simulated_gpus=n.simulated_gpus) for n in rack.nodes)


def missed(made: Architecture, rack: Rack, answered: Sequence[Case]) -> set[Case]:
    """Cases that the judge misses by its own list, without the run's plan."""
    groups = {"all": tuple(node.name for node in rack.nodes)}
    groups |= {role: tuple(node.name for node in rack.group(role)) for role in made.roles}
    verdicts_ = missing(made, infos(rack), groups, set(answered), RunScope())
    checks = set()
    for verdict in verdicts_:
        name, _, item = verdict.id.partition("[")
        checks.add((name, item.removesuffix("]"), verdict.subject))
    return checks


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_judge_lists_what_the_validators_answer(name: str, count: int, simulated: bool) -> None:
    """The two lists are made independently; where they differ, a check could vanish or never be answered."""
    made = architecture(name)
    rack = rack_of(made, count, simulated)
    answered = answered_by_validators(made, rack)
    asked = missed(made, rack, ())
    assert set(answered) - asked == set()
    # simulated GPUs have no driver: an architecture of real ones that requires its checks by name cannot be met
    never = {case for case in missed(made, rack, answered) if not (simulated and case[0] in REAL_GPUS)}
    assert never == set()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_nothing_that_a_node_of_every_role_answers_is_missing_from_the_list(name: str) -> None:
    made = architecture(name)
    managed = tuple(role for role, expected in made.roles.items() if expected.managed)
    rack = Rack("rack.py", (Node("one", managed), Node("two", ("gpu",)), Node("three", managed)))
    assert set(answered_by_validators(made, rack)) - missed(made, rack, ()) == set()


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_removing_the_result_of_any_check_leaves_a_gap(name: str) -> None:
    made = architecture(name)
    rack = rack_of(made, 2)
    answered = answered_by_validators(made, rack)
    already = missed(made, rack, answered)
    for index, case in enumerate(answered):
        if case[2] != f"{case[2].rpartition('-')[0]}-1":
            continue  # nodes of a role are alike but for the first
        assert missed(made, rack, answered[:index] + answered[index + 1 :]) - already == {case}


def evidence(name: str) -> tuple[Architecture, list[CheckResult], list[Record]]:
    """Everything that certifies a rack of this architecture, made up: results of the validators, and all records."""
    made = only_its_first_number(name)
    most = {role: expected.count.max or PEERS for role, expected in architecture(name).roles.items()}
    kept = [
        node
        for node in run(made).nodes
        if made.roles[node.groups[0]].managed and int(node.name.rpartition("-")[2]) <= most[node.groups[0]]
    ]
    rack = Rack("rack.py", tuple(Node(node.name, node.groups) for node in kept))
    results = [check(node, id_, item=item) for id_, item, node in answered_by_validators(made, rack)]
    numbers = all_evidence(made, made.criteria[0], good=True)
    return made, results, whole(made, *results, *numbers, run=info_of_nodes(kept))


def vanished(
    records: Sequence[Record], gone: Case | None = None, plan_too: bool = False, plan: bool = True
) -> list[Record]:
    """Without one result; ``plan_too``: the plan of what was asked does not name it either."""
    bodies: list[tuple[Kind, Body]] = []
    for record in records:
        body = record.body
        if record.kind is Kind.CHECK and case_of(body) == gone:
            continue
        if record.kind is Kind.PLANNED:
            if not plan:
                continue
            asked = PlannedChecks.model_validate(body).cases()
            body = planned(case for case in asked if not (plan_too and case == gone)).model_dump(mode="json")
        bodies.append((record.kind, body))
    assert len(bodies) == len(records) - (gone is not None or not plan)
    return chained(bodies)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(PUBLISHED - WITHOUT_CRITERIA))
def test_without_any_one_result_the_run_is_incomplete(name: str) -> None:
    made, results, records = evidence(name)
    assert judge_records(made, records).outcome is Outcome.CERTIFIED
    first = [result for result in results if result.node.endswith("-1")]
    for gone in first[:: max(1, len(first) // 12)]:
        for plan_too in (False, True):  # the second forger removes it from the plan as well
            again = judge_records(made, vanished(records, (gone.check, gone.item, gone.node), plan_too))
            assert again.outcome is Outcome.INCOMPLETE, gone
            id_ = f"{gone.check}[{gone.item}]" if gone.item else gone.check
            verdict = verdicts(again, id_)[gone.node]
            assert (verdict.status, verdict.required) == (Status.UNMEASURED, True)
            assert verdict.message.startswith(f"expected a result of {id_}")


def test_a_planned_check_that_the_architecture_does_not_know_is_missed_too() -> None:
    """A check of the site, or one that depends on the inventory."""
    made, results, _ = evidence("h200-single")
    numbers = all_evidence(made, made.criteria[0], good=True)
    badge = check(results[0].node, "site.badge", item="left")
    records = whole(made, *results, badge, *numbers, run=info_of_nodes(run(made).nodes[:1]))
    assert judge_records(made, records).outcome is Outcome.CERTIFIED
    again = judge_records(made, vanished(records, ("site.badge", "left", badge.node)))
    (verdict,) = verdicts(again, "site.badge[left]").values()
    assert verdict.message == "expected a result of site.badge[left], which was planned, actual none"
    assert again.outcome is Outcome.INCOMPLETE


def test_a_run_that_did_not_record_what_it_asks_is_incomplete() -> None:
    made, _, records = evidence("h200-single")
    again = judge_records(made, vanished(records, plan=False))
    assert again.outcome is Outcome.INCOMPLETE
    assert verdicts(again, "run.planned")["rack"].status is Status.UNMEASURED


def cases() -> Iterator[Case]:
    for node in ("gpu-2", "gpu-1", "sto-1"):
        yield "base.kernel", "", node
        yield "base.sysctl", "vm.swappiness", node
    yield "gpu.count", "", "gpu-1"


def test_a_plan_names_every_case_and_each_set_of_nodes_once() -> None:
    plan = planned(cases())
    assert sorted(plan.cases()) == sorted(cases())
    assert plan.nodes == (("gpu-2", "gpu-1", "sto-1"), ("gpu-1",))


class TestOnDisk:
    """Certified evidence through ``rackproof judge``."""

    @pytest.mark.few(1)
    @pytest.mark.parametrize("plan_too", [False, True])
    @pytest.mark.parametrize("check_id", ["base.kernel", "gpu.healthy", "fabric.jumbo"])
    def test_without_one_result_it_is_incomplete(self, tmp_path: Path, check_id: str, plan_too: bool) -> None:
        gone = next(case_of(r.body) for r in of_kind(Kind.CHECK) if r.body["check"] == check_id)
        folder = copy(tmp_path / "a", vanished(example(), gone, plan_too))
        result = CliRunner().invoke(cli, ["judge", str(folder)])
        assert result.exit_code == 2
        assert "INCOMPLETE" in result.output
        assert f"UNMEASURED {check_id}" in result.output
        assert f"expected a result of {check_id}" in (folder / "certificate.html").read_text()
        assert json.loads((folder / "certificate.json").read_text())["outcome"] == "INCOMPLETE"

    def test_without_the_plan_it_is_incomplete(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(cli, ["judge", str(copy(tmp_path / "a", vanished(example(), plan=False)))])
        assert result.exit_code == 2
        assert "expected a record of the validation's planned checks, actual none" in result.output


def case_of(body: Body) -> Case:
    return body["check"], body["item"], body["node"]
