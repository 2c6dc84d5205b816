from __future__ import annotations

from xml.etree import ElementTree as ET

from rackproof.core.status import Status
from rackproof.report.junit import render_junit

from .sample import passing, rejudged, sample

ORDER = ("properties", "testcase")


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  (our own output)


def test_one_case_for_every_verdict() -> None:
    certificate, _ = sample()
    root = parsed(render_junit(certificate))
    names = {case.get("name") for case in root.iter("testcase")}
    assert names == {f"{v.id} {v.subject}" for v in certificate.verdicts}
    assert root.get("tests") == str(len(certificate.verdicts))


def test_counts_of_suites_are_those_of_their_cases() -> None:
    root = parsed(render_junit(sample()[0]))
    for suite in root.iter("testsuite"):
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert suite.get("failures") == str(len(list(suite.iter("failure"))))
        assert suite.get("errors") == str(len(list(suite.iter("error"))))
    assert (root.get("failures"), root.get("errors"), root.get("time")) == ("2", "3", "372.000")


def test_structure_is_what_jenkins_accepts() -> None:
    root = parsed(render_junit(sample()[0]))
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors"} <= set(suite.attrib)
        assert [child.tag for child in suite] == ["properties"] + ["testcase"] * (len(suite) - 1)
        for case in suite.iter("testcase"):
            assert set(case.attrib) == {"name", "classname"}
            assert {child.tag for child in case} <= {"failure", "error", "system-out"}


def test_fail_is_a_failure_and_no_number_is_an_error() -> None:
    root = parsed(render_junit(sample()[0]))
    assert {f.get("type") for f in root.iter("failure")} == {"FAIL"}
    assert {e.get("type") for e in root.iter("error")} == {"INVALID", "UNMEASURED"}
    failure = next(root.iter("failure"))
    assert failure.get("message") == "expected 1 actual 60"
    assert "Do: Run the deploy again" in (failure.text or "")


def test_advisory_failure_decides_nothing_and_is_not_hidden() -> None:
    certificate, _ = passing()
    advisory = next(v for v in certificate.verdicts if not v.required)
    failing = advisory.model_copy(update={"status": Status.FAIL, "message": "expected fio actual nothing"})
    root = parsed(render_junit(rejudged(certificate, [failing])))
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    assert "ADVISORY FAIL: expected fio actual nothing" in (next(root.iter("system-out")).text or "")


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    certificate, _ = passing()
    bad = certificate.verdicts[0].model_copy(
        update={"status": Status.FAIL, "message": 'a\x00b\x1b[31m ]]> <x a="b"> & \ufffe\ud800', "title": "\x08"}
    )
    root = parsed(render_junit(rejudged(certificate, [bad])))
    message = next(root.iter("failure")).get("message")
    assert message == 'a␀b ]]> <x a="b"> & �⟨U+D800⟩'


def test_same_bytes_twice() -> None:
    assert render_junit(sample()[0]) == render_junit(sample()[0])
