"""Checks: every result has a verdict, and so has every result that should be there."""

from __future__ import annotations

from itertools import permutations

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.evidence import CheckResult, RunInfo
from rackproof.core.judging.judge import judge, judge_records
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Judgement
from tests.unit.judging import CHECKED, NODES, architecture, check, criterion, recorded, run_info, verdicts

MADE = architecture()
A100 = {"count": 8, "model": "A100", "memory_mib": None, "ecc": "Enabled", "source": "us"}
APPLIANCE = {"gpu": {}, "storage": {"managed": False, "count": {"min": 4, "max": 4}}}


def judged(*results: CheckResult, made: Architecture = MADE, run: RunInfo | None = None) -> Judgement:
    """Beside one passing check on every node; what the checks alone amount to."""
    return judge(made, run or run_info(), (), (*CHECKED, *results)).restricted_to("check")


@pytest.mark.parametrize(
    ("outcome", "status", "of_the_run"),
    [
        ("passed", Status.PASS, Outcome.PASSED),
        ("failed", Status.FAIL, Outcome.NOT_CERTIFIED),
        ("unmeasured", Status.UNMEASURED, Outcome.INCOMPLETE),
    ],
)
def test_a_result_becomes_a_verdict(outcome: str, status: Status, of_the_run: Outcome) -> None:
    result = judged(
        check("gpu-01", "base.sysctl", outcome, "vm.swappiness", reads="system.sysctl", expected={}, raw=("ab",))
    )
    verdict = verdicts(result, "base.sysctl[vm.swappiness]")["gpu-01"]
    assert (verdict.kind, verdict.status, verdict.required) == ("check", status, True)
    assert verdict.title == "base.sysctl: vm.swappiness"
    assert (verdict.reason, verdict.hint, verdict.source, verdict.raw) == (
        "Everything.",
        "Look.",
        "system.sysctl",
        ("ab",),
    )
    assert result.outcome is of_the_run


@pytest.mark.parametrize(
    ("severities", "results_own", "required"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"base.sysctl": "advisory"}, True, False),
        ({"base.sysctl": "required"}, False, True),
        ({"base.sysctl[a]": "advisory", "base.sysctl": "required"}, True, False),
        ({"base.sysctl[b]": "advisory"}, True, True),
    ],
)
def test_the_architecture_has_the_last_word_on_severity(
    severities: dict[str, str], results_own: bool, required: bool
) -> None:
    made = architecture(checks=severities)
    result = judged(check("gpu-01", "base.sysctl", "failed", "a", required=results_own), made=made)
    verdict = verdicts(result, "base.sysctl[a]")["gpu-01"]
    assert (verdict.status, verdict.required) == (Status.FAIL, required)
    assert result.outcome is (Outcome.NOT_CERTIFIED if required else Outcome.PASSED)


@pytest.mark.parametrize("order", list(permutations(("passed", "unmeasured", "failed"))))
def test_of_results_that_cannot_be_told_apart_the_worst_counts(order: tuple[str, ...]) -> None:
    result = judged(*(check("gpu-01", "base.x", outcome) for outcome in order))
    assert verdicts(result, "base.x")["gpu-01"].status is Status.FAIL


@pytest.mark.parametrize("besides", [("", "WARNING: half read"), ("WARNING: half read", "")])
def test_of_two_results_that_pass_the_one_with_a_warning_counts(besides: tuple[str, ...]) -> None:
    result = judged(*(check("gpu-01", "base.x", beside=beside) for beside in besides))
    verdict = verdicts(result, "base.x")["gpu-01"]
    assert (verdict.status, verdict.message) == (Status.WARN, "WARNING: half read")


def test_a_check_that_the_architecture_asks_for_by_name_must_be_there() -> None:
    made = architecture(required_checks={"gpu": ["gpu.count", "base.kernel"], "all": ["base.time"]})
    result = judged(check("gpu-01", "gpu.count", item="8"), check("sto-01", "base.time"), made=made)
    assert verdicts(result, "gpu.count")["gpu-02"].status is Status.UNMEASURED
    assert set(verdicts(result, "gpu.count")) == {"gpu-02"}
    assert set(verdicts(result, "base.time")) == {"gpu-01", "gpu-02", "sto-01"}
    missing = verdicts(result, "base.time")["gpu-01"]
    assert missing.message == "expected a result of base.time on every node, actual none"
    assert result.outcome is Outcome.INCOMPLETE


def test_an_advisory_check_that_is_missing_does_not_decide() -> None:
    made = architecture(required_checks={"gpu": ["gpu.count"]}, checks={"gpu.count": "advisory"})
    result = judged(made=made)
    assert {v.required for v in verdicts(result, "gpu.count").values()} == {False}
    assert result.outcome is Outcome.PASSED


def test_a_node_that_was_not_asked_is_unmeasured() -> None:
    result = judge(MADE, run_info(), (), [c for c in CHECKED if c.node != "gpu-02"])
    (verdict,) = verdicts(result, "rack.checked").values()
    assert (verdict.subject, verdict.status) == ("gpu-02", Status.UNMEASURED)
    assert verdict.message == "no check ran on gpu-02"
    assert result.outcome is Outcome.INCOMPLETE


def test_being_reached_and_deployed_is_not_being_looked_at() -> None:
    arrived = [check(name, id_) for name in ("gpu-01", "sto-01") for id_ in ("node.reachable", "deploy.converged")]
    result = judge(MADE, run_info("gpu-01", "sto-01"), (), arrived)
    assert set(verdicts(result, "rack.checked")) == {"gpu-01", "sto-01"}


def test_no_evidence_at_all_is_incomplete() -> None:
    result = judge(MADE, run_info(), (), ())
    assert result.outcome is Outcome.INCOMPLETE
    assert set(verdicts(result, "rack.checked")) == {"gpu-01", "gpu-02", "sto-01"}


def test_a_failure_on_a_node_that_is_not_in_the_run_is_not_lost() -> None:
    result = judged(check("gpu-09", "base.x", "failed"))
    assert verdicts(result, "base.x")["gpu-09"].status is Status.FAIL


@pytest.mark.parametrize(
    ("count", "status", "message"),
    [
        ({"min": 2}, Status.PASS, "expected ≥ 2 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 3}, Status.FAIL, "expected ≥ 3 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 1, "max": 1}, Status.FAIL, "expected = 1 nodes of gpu, actual 2 (gpu-[01-02])"),
        ({"min": 1, "max": 4}, Status.PASS, "expected 1 to 4 nodes of gpu, actual 2 (gpu-[01-02])"),
    ],
)
def test_the_number_of_nodes_of_a_role(count: dict[str, int], status: Status, message: str) -> None:
    made = architecture(roles={"gpu": {"count": count}, "storage": {"count": {"min": 0}}})
    (verdict,) = verdicts(judged(made=made), "rack.count[gpu]").values()
    assert (verdict.subject, verdict.status, verdict.message) == ("rack", status, message)
    assert verdict.value == 2


def test_a_role_without_nodes_fails() -> None:
    result = judged(run=run_info("gpu-01"))
    (verdict,) = verdicts(result, "rack.count[storage]").values()
    assert verdict.message == "expected = 1 nodes of storage, actual 0 (no node)"
    assert result.outcome is Outcome.NOT_CERTIFIED


def test_answers_of_simulated_gpus_are_marked_and_others_of_the_node_are_not() -> None:
    run = run_info("gpu-01", "gpu-02", "sto-01", simulated=("gpu-01",))
    result = judged(*(check(name, "gpu.count") for name in ("gpu-01", "gpu-02")), run=run)
    assert [v.simulated for v in verdicts(result, "gpu.count").values()] == [True, False]
    assert not any(v.simulated for v in verdicts(result, "base.kernel").values())


class TestAnotherArchitecture:
    """A result says something about the architecture that it was checked against."""

    @pytest.mark.parametrize("outcome", ["passed", "failed"])
    def test_a_result_with_another_expectation_is_unmeasured(self, outcome: str) -> None:
        made = architecture(system={"sysctl": {"vm.swappiness": "1"}})
        checked = check("gpu-01", "base.sysctl", outcome, reads="system.sysctl", expected={"vm.swappiness": "60"})
        result = judged(checked, made=made)
        verdict = verdicts(result, "base.sysctl")["gpu-01"]
        assert verdict.status is Status.UNMEASURED
        assert verdict.message == (
            'was checked against system.sysctl = {"vm.swappiness": "60"},'
            ' this architecture expects {"vm.swappiness": "1"}; validate again'
        )
        assert result.outcome is Outcome.INCOMPLETE

    @pytest.mark.parametrize(
        ("reads", "expected", "status"),
        [
            ("fabric.mtu", 9000, Status.PASS),
            ("fabric.mtu", 9000.0, Status.PASS),
            ("fabric.mtu", 1500, Status.UNMEASURED),
            ("fabric.rails", True, Status.UNMEASURED),
            ("fabric.mtu", None, Status.UNMEASURED),
            ("fabric", None, Status.UNMEASURED),
            ("no.such.key", None, Status.PASS),
            ("", None, Status.PASS),
            ("", 1500, Status.PASS),
            ("no.such.key", 1500, Status.PASS),
            ("storage.gone.mountpoint", "/mnt", Status.PASS),
            ("tools.programs", ["fio"], Status.PASS),
            ("tools.programs", ["fio", "ior"], Status.UNMEASURED),
        ],
    )
    def test_only_a_known_difference_counts(self, reads: str, expected: object, status: Status) -> None:
        made = architecture(fabric={"kind": "roce", "mtu": 9000}, tools={"programs": ["fio"]})
        result = judged(check("gpu-01", "base.x", reads=reads, expected=expected), made=made)
        assert verdicts(result, "base.x")["gpu-01"].status is status

    def test_what_was_unmeasured_stays_so(self) -> None:
        result = judged(check("gpu-01", "base.x", "unmeasured", reads="fabric.mtu", expected=1500))
        assert verdicts(result, "base.x")["gpu-01"].status is Status.UNMEASURED


STORAGE = {
    "local": {"class": "local", "mountpoint": "/a", "fstype": "ext4", "source": "x"},
    "nfs": {"class": "nfs", "mountpoint": "/b", "fstype": "nfs4", "source": "/srv", "transport": "tcp",
            "server_role": "storage", "connections": 4, "options": ["vers=4.2", "nconnect=4"], "min_free_gb": 1},
}  # fmt: skip


class TestScope:
    """Which results there must be comes from the architecture and the inventory, item by item."""

    def test_every_mount_of_every_client_must_have_been_looked_at(self) -> None:
        made = architecture(storage=STORAGE)
        results = [check(name, "mount.mounted", item="local") for name in ("gpu-01", "gpu-02")]
        result = judged(*results, made=made)
        assert {v.status for v in verdicts(result, "mount.mounted[local]").values()} == {Status.PASS}
        assert set(verdicts(result, "mount.mounted[nfs]")) == {"gpu-01", "gpu-02"}
        assert {v.status for v in verdicts(result, "mount.mounted[nfs]").values()} == {Status.UNMEASURED}
        assert not verdicts(result, "mount.transport[local]")
        assert verdicts(result, "mount.connections[nfs]")
        assert not verdicts(result, "mount.free[local]")

    def test_every_kernel_value_and_every_program(self) -> None:
        made = architecture(system={"sysctl": {"a.b": "1", "c.d": "2"}}, tools={"programs": ["fio", "iperf3"]})
        results = [check(name, "base.sysctl", item="a.b") for name in NODES]
        result = judged(*results, made=made)
        assert {v.status for v in verdicts(result, "base.sysctl[c.d]").values()} == {Status.UNMEASURED}
        assert set(verdicts(result, "tools.present[iperf3]")) == set(NODES)

    def test_a_check_asked_for_by_name_is_asked_for_every_item(self) -> None:
        fabric = {"kind": "roce", "mtu": 9000, "rails": 2}
        made = architecture(fabric=fabric, required_checks={"all": ["fabric.link"]})
        result = judged(*(check(name, "fabric.link", item="fabric0") for name in NODES), made=made)
        assert set(verdicts(result, "fabric.link[fabric1]")) == set(NODES)

    def test_what_a_server_must_answer_is_asked_of_the_one_that_serves(self) -> None:
        made = architecture(storage=STORAGE, required_checks={"storage": ["storage_server.listens"]})
        result = judged(made=made)
        assert set(verdicts(result, "storage_server.listens[tcp 2049]")) == {"sto-01"}

    @pytest.mark.parametrize("groups", [("gpus",), (), ("all",)])
    def test_a_node_without_a_role_is_unmeasured(self, groups: tuple[str, ...]) -> None:
        run = run_info()
        stray = run.nodes[1].model_copy(update={"groups": groups})
        result = judged(run=run.model_copy(update={"nodes": (run.nodes[0], stray, run.nodes[2])}))
        (verdict,) = verdicts(result, "rack.role").values()
        assert (verdict.subject, verdict.status, verdict.required) == ("gpu-02", Status.UNMEASURED, True)
        assert result.outcome is Outcome.INCOMPLETE

    def test_no_node_at_all_is_unmeasured(self) -> None:
        made = architecture(roles={"gpu": {"count": {"min": 0}}, "storage": {"count": {"min": 0}}})
        result = judge(made, run_info().model_copy(update={"nodes": ()}), (), ()).restricted_to("check")
        assert verdicts(result, "rack.nodes")["rack"].status is Status.UNMEASURED
        assert result.outcome is Outcome.INCOMPLETE

    def test_an_architecture_that_requires_no_number_certifies_nothing(self) -> None:
        advisory = architecture(criterion(severity="advisory"))
        for made in (architecture(), advisory):
            result = judge(made, run_info(), (), CHECKED)
            assert verdicts(result, "rack.numbers")["rack"].status is Status.UNMEASURED
            assert result.outcome is Outcome.INCOMPLETE

    @pytest.mark.parametrize(("stage", "id_"), [("connect", "node.reachable"), ("deploy", "deploy.converged")])
    def test_a_stage_that_began_must_have_said_something_of_every_node(self, stage: str, id_: str) -> None:
        records = recorded(run_info(), *CHECKED, {"stage": stage, "event": "begin"}, check("gpu-01", id_))
        answers = verdicts(judge_records(MADE, records), id_)
        assert {name: v.status for name, v in answers.items()} == {
            "gpu-01": Status.PASS, "gpu-02": Status.UNMEASURED, "sto-01": Status.UNMEASURED
        }  # fmt: skip

    def test_removing_the_result_of_any_check_never_certifies(self) -> None:
        made = architecture(storage=STORAGE, tools={"programs": ["fio"]}, system={"sysctl": {"a.b": "1"}}, gpu=A100)
        wanted = [
            check(node, entry.check, item=entry.item)
            for entry in expected_checks(made)
            for node in NODES
            if entry.role == "all" or node.startswith(entry.role[:3])
        ]
        assert judged(*wanted, made=made).outcome is Outcome.PASSED
        for index in range(len(wanted)):
            rest = wanted[:index] + wanted[index + 1 :]
            assert judged(*rest, made=made).outcome is Outcome.INCOMPLETE, wanted[index]


class TestWhatTheHardwareKeysAskFor:
    def test_every_node_must_have_an_answer(self) -> None:
        result = judged(check("gpu-01", "gpu.count"), check("gpu-01", "gpu.model"), made=architecture(gpu=A100))
        assert set(verdicts(result, "gpu.count")) == {"gpu-01", "gpu-02"}
        missing = verdicts(result, "gpu.count")["gpu-02"]
        assert (missing.status, missing.required, missing.source) == (Status.UNMEASURED, True, "gpu.count")
        assert missing.message == "expected a result of gpu.count for gpu.count, 8, actual none"
        assert set(verdicts(result, "gpu.ecc_mode")) == {"gpu-01", "gpu-02"}
        assert not verdicts(result, "gpu.memory")

    def test_a_check_of_several_items_needs_each_of_them(self) -> None:
        nic = {"purpose": "compute", "count": 1, "speed_gbps": 100, "link_layer": "Ethernet", "source": "us"}
        roles = {
            "gpu": {"expect": {"nics": [nic, nic | {"purpose": "storage"}]}},
            "storage": {"count": {"min": 1, "max": 1}},
        }
        made = architecture(roles=roles)
        results = [check(name, "nic.count", item="compute") for name in ("gpu-01", "gpu-02")]
        result = judged(*results, made=made)
        assert {v.status for v in verdicts(result, "nic.count[compute]").values()} == {Status.PASS}
        assert {v.status for v in verdicts(result, "nic.count[storage]").values()} == {Status.UNMEASURED}

    def test_one_missing_result_is_reported_once(self) -> None:
        made = architecture(gpu=A100, required_checks={"gpu": ["gpu.count"]})
        counts = [v for v in judged(made=made).verdicts if v.id == "gpu.count"]
        assert [v.subject for v in counts] == ["gpu-01", "gpu-02"]

    def test_its_severity_may_be_lowered(self) -> None:
        made = architecture(gpu=A100, checks={"gpu.count": "advisory"})
        assert {v.required for v in verdicts(judged(made=made), "gpu.count").values()} == {False}


class TestAppliances:
    def test_an_appliance_is_reported_as_not_checked(self) -> None:
        result = judged(made=architecture(roles=APPLIANCE), run=run_info("gpu-01"))
        (verdict,) = verdicts(result, "rack.count[storage]").values()
        assert (verdict.status, verdict.required, verdict.bar) == (Status.UNMEASURED, False, "= 4")
        assert verdict.message == (
            "expected = 4 nodes of storage, actual unknown: not managed by the kit and not in the inventory"
        )
        assert result.outcome is Outcome.PASSED

    def test_where_they_are_in_the_inventory_they_are_counted_but_need_not_answer(self) -> None:
        made = architecture(roles=APPLIANCE, required_checks={"storage": ["base.x"]})
        result = judge(made, run_info("gpu-01", "sto-01"), (), [check("gpu-01")])
        (verdict,) = verdicts(result, "rack.count[storage]").values()
        assert (verdict.status, verdict.required) == (Status.FAIL, True)
        assert not verdicts(result, "rack.checked")
        assert not verdicts(result, "base.x")

    def test_an_appliance_is_not_asked_for_its_gpus(self) -> None:
        made = architecture(roles={"gpu": {"managed": False}, "storage": {}}, gpu=A100)
        result = judged(made=made)
        assert not [v for v in result.verdicts if v.id.startswith("gpu.")]

    def test_a_node_that_is_also_managed_must_answer(self) -> None:
        roles = {"gpu": {"managed": False}, "all-in-one": {}}
        run = run_info("gpu-01")
        node = run.nodes[0].model_copy(update={"groups": ("gpu", "all-in-one")})
        made = architecture(roles=roles, required_checks={"gpu": ["base.x"]}, system={}, storage={})
        result = judge(made, run.model_copy(update={"nodes": (node,)}), (), ())
        assert set(verdicts(result, "rack.checked")) == {"gpu-01"}
        assert set(verdicts(result, "base.x")) == {"gpu-01"}
