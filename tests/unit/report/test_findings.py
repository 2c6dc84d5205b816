from __future__ import annotations

from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.report.findings import findings
from rackproof.report.statements import area_of, area_order, fold_subjects

from .sample import sample


def verdict(identifier: str, subject: str, status: Status, **fields: object) -> Verdict:
    given = {"kind": "check", "title": "Title", "required": True, "message": "", **fields}
    return Verdict.model_validate({"id": identifier, "subject": subject, "status": status, **given})


def test_worst_first_and_required_before_advisory() -> None:
    merged = findings(sample()[0].verdicts)
    assert [f.status for f in merged] == [
        Status.FAIL,
        Status.FAIL,
        Status.UNMEASURED,
        Status.UNMEASURED,
        Status.INVALID,
        Status.WARN,
    ]
    advisory = findings(
        [verdict("a.x", "n1", Status.FAIL, required=False), verdict("b.x", "n1", Status.WARN, required=True)]
    )
    assert [f.required for f in advisory] == [True, False]


def test_nothing_that_passed_is_a_finding() -> None:
    assert findings([verdict("a.x", "n1", Status.PASS)]) == ()


def test_one_check_on_many_nodes_is_one_finding() -> None:
    nodes = [f"gpu-{i:02d}" for i in range(1, 5)]
    (finding,) = findings([verdict("fabric.mtu", n, Status.FAIL, message="expected 9000 actual 1500") for n in nodes])
    assert finding.subjects == "gpu-[01-04]"
    assert finding.messages == (("gpu-[01-04]", "expected 9000 actual 1500"),)


def test_items_of_a_check_stay_apart_in_its_messages() -> None:
    (finding,) = findings(
        [
            verdict("base.sysctl[vm.swappiness]", "n1", Status.FAIL, message="expected 1 actual 60"),
            verdict("base.sysctl[vm.overcommit]", "n1", Status.FAIL, message="expected 0 actual 1"),
        ]
    )
    assert finding.messages == (
        ("vm.swappiness: n1", "expected 1 actual 60"),
        ("vm.overcommit: n1", "expected 0 actual 1"),
    )


def test_a_dead_node_is_one_finding() -> None:
    (finding,) = findings(
        [verdict(f"base.check{i}", "gpu-02", Status.UNMEASURED, message="gpu-02: connection refused") for i in range(9)]
    )
    assert finding.title == "9 checks unmeasured for the same reason"
    assert len(finding.verdict_ids) == 9


def test_variants_of_one_criterion_are_counted_each() -> None:
    absent = {"kind": "criterion", "message": "no measurement"}
    ids = ("c.a[1]", "c.a[2]", "c.b", "c.c")
    (finding,) = findings([verdict(i, "rack", Status.UNMEASURED, **absent) for i in ids])
    assert finding.title == "4 criteria unmeasured for the same reason"


def test_many_pairs_are_counted_not_listed() -> None:
    text = fold_subjects(f"a{i:02d}|b{i:02d}" for i in range(40))
    assert text.endswith("a04 ↔ b04, 35 more pairs")


def test_different_failures_are_never_merged() -> None:
    merged = findings(
        [verdict(f"base.check{i}", "gpu-02", Status.FAIL, message="expected 1 actual 2") for i in range(9)]
    )
    assert len(merged) == 9


def test_subjects_that_clustershell_cannot_fold_are_shown_as_they_are() -> None:
    assert fold_subjects(["a[", "rack", "gpu-01|gpu-02"]) == "a[, gpu-01 ↔ gpu-02, rack"
    assert fold_subjects([]) == "no node"


def test_areas_in_reading_order() -> None:
    certificate, _ = sample()
    classes = {s.name: s.class_ for s in certificate.architecture.storages}
    areas = sorted({area_of(v, classes) for v in certificate.verdicts}, key=area_order)
    assert areas == [
        "checks: base",
        "checks: fabric",
        "checks: gpu",
        "checks: storage",
        "checks: tools",
        "storage: local",
        "storage: nfs",
        "storage: parallel",
        "links",
        "collectives",
    ]


def test_an_item_is_named_once() -> None:
    fields = {"message": "expected 1 actual 60"}
    (named,) = findings([verdict("a.b[vm.swappiness]", "n1", Status.FAIL, title="a.b: vm.swappiness", **fields)])
    (unnamed,) = findings([verdict("a.b[vm.swappiness]", "n1", Status.FAIL, title="Setting", **fields)])
    assert not named.says_where
    assert unnamed.says_where
    assert unnamed.messages == (("vm.swappiness: n1", "expected 1 actual 60"),)
