"""Selected checks and nodes, the exit status, and results for a build server."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, RunError
from rackproof.validation.checks import Check, check, check_of
from rackproof.validation.junit import render_checks
from rackproof.validation.outcome import exit_status
from rackproof.validation.selection import EVERYTHING, Selection, refuse_malformed, refuse_unknown, tags_of
from tests.unit.refusals import error_of


def declared(id: str, *tags: str) -> Check:
    def function() -> None:
        """A check."""

    declared = check_of(check(id, protects="p", hint="h", reads="gpu", tags=tags)(function))
    assert declared is not None
    return declared


def result(outcome: CheckOutcome, message: str = "", required: bool = True, node: str = "gpu-01") -> CheckResult:
    return CheckResult(
        check="t.x", node=node, item="a", outcome=outcome, required=required, protects="p", hint="h", message=message
    )


PASSED, FAILED, UNMEASURED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.UNMEASURED


def test_a_check_has_the_tags_of_its_id_of_its_domain_and_its_own() -> None:
    assert declared("gpu.count").tags == {"gpu"}
    assert declared("fabric.mtu", "slow").tags == {"fabric", "network", "slow"}
    assert declared("mount.options").tags == {"mount", "storage"}


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [("gpu,storage", None), ("gpux", "--tags gpux: no check has that tag; did you mean 'gpu'?"), ("", None)],
)
def test_a_tag_that_no_check_has_is_refused(tags: str, complaint: str | None) -> None:
    checks = [declared("gpu.count"), declared("ceph.health")]
    if complaint is None:
        refuse_unknown(tags_of(tags), checks)
        return
    assert error_of(RunError, refuse_unknown, tags_of(tags), checks) == complaint


def test_tags_are_one_of_several() -> None:
    selection = Selection(tags=tags_of("storage, gpu"))
    assert [selection.has_check(declared(id)) for id in ("gpu.count", "ceph.health", "base.kernel")] == [
        True,
        True,
        False,
    ]


def test_expressions_look_into_every_name() -> None:
    names = ("test_gpu.py", "test_count[gpu-01]", "gpu.count")
    assert Selection(expression="gpu.count and not gpu-02").has_name(*names)
    assert Selection(expression="COUNT or zzz").has_name(*names)
    assert not Selection(expression="not count").has_name(*names)
    assert EVERYTHING.has_name("whatever")
    with pytest.raises(RunError, match="-k 'a and': expected"):
        refuse_malformed("a and")


def test_what_is_left_out_is_listed() -> None:
    assert EVERYTHING.description == ""
    part = Selection("gpu-[01-02]", frozenset({"gpu-01"}), frozenset({"storage", "gpu"}), "x")
    assert part.description == "limited to gpu-[01-02], tags gpu, storage, -k 'x'"
    assert [part.has_node(name) for name in ("gpu-01", "gpu-02")] == [True, False]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], EXIT_INCOMPLETE),
        ([(PASSED, True)], EXIT_OK),
        ([(PASSED, True), (FAILED, False)], EXIT_OK),
        ([(FAILED, False)], EXIT_INCOMPLETE),
        ([(PASSED, True), (UNMEASURED, True)], EXIT_INCOMPLETE),
        ([(FAILED, True), (UNMEASURED, True)], EXIT_FAILED),
    ],
)
def test_nothing_selected_is_no_success(outcomes: list[tuple[CheckOutcome, bool]], status: int) -> None:
    assert exit_status([result(outcome, required=required) for outcome, required in outcomes]) == status


@given(st.lists(st.builds(result, st.sampled_from(list(CheckOutcome)), st.text(), st.booleans(), st.text(min_size=1))))
def test_the_document_is_readable_with_any_message_of_a_check(results: list[CheckResult]) -> None:
    root = ElementTree.fromstring(render_checks(results, {"rack": "\x00\x1b"}))  # noqa: S314
    assert len(list(root.iter("testcase"))) == len(results) == int(root.get("tests", ""))
    assert list(root.iter("skipped")) == []
    for tag, outcome, count in (("failure", FAILED, "failures"), ("error", UNMEASURED, "errors")):
        expected = sum(r.outcome is outcome and r.required for r in results)
        assert len(list(root.iter(tag))) == expected == int(root.get(count, ""))


def test_a_case_says_which_node_check_and_item_and_what_to_do() -> None:
    root = ElementTree.fromstring(render_checks([result(FAILED, "expected 8,\nactual \x1b[31m7")]))  # noqa: S314
    (case,) = root.iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("gpu-01", "t.x[a]")
    (failure,) = case
    assert (failure.get("type"), failure.get("message")) == ("failed", "expected 8, actual �[31m7")
    assert failure.text is not None
    assert failure.text.endswith("\np\nh")


def test_an_advisory_check_stops_no_build_and_is_not_hidden() -> None:
    root = ElementTree.fromstring(render_checks([result(UNMEASURED, "no answer", required=False)]))  # noqa: S314
    (case,) = root.iter("testcase")
    assert [(child.tag, child.text) for child in case] == [("system-out", "advisory, unmeasured: no answer\np\nh")]
