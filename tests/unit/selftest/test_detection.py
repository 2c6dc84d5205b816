"""The self-test notices bad validators, faults that prove nothing, alarms without a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackproof.errors import SelfTestError
from rackproof.selftest.detection import detect
from rackproof.selftest.table import as_json, complaints, detection_table, summary
from tests.unit.selftest.small import FAULT, GOOD, material, tried, write


def test_a_good_check_with_a_fault_is_good(tmp_path: Path) -> None:
    detection = tried(tmp_path)
    assert complaints(detection) == []
    assert detection.good
    assert detection_table(detection)[1].split() == ["port-lost", "port.count", "port.count"]
    assert summary(detection)[:2] == ["1 of 1 faults caught by the expected check", "1 of 1 checks have a fault"]
    assert detection.healthy_runs == 4
    assert json.loads(json.dumps(as_json(detection)))["good"] is True


def test_a_check_that_cannot_fail_is_found(tmp_path: Path) -> None:
    detection = tried(tmp_path, validator=GOOD.replace("expect(int(words[0]), 8", "expect(8, 8"))
    assert not detection.good
    assert complaints(detection) == ["missed: port-lost on small: port.count: expected failed, actual passed"]
    assert "MISSED" in detection_table(detection)[1]


def test_a_check_that_takes_no_answer_for_a_good_one_is_found(tmp_path: Path) -> None:
    blind = """
        from rackproof.validation import check

        @check("port.count", reads="system", protects="A test.", hint="None.")
        def test_ports(host):
            assert "ports 7" not in host.run("count --ports").stdout, "expected 8, actual 7"
    """
    wrong = {mishap.damage.name for mishap in tried(tmp_path, validator=blind).mishaps}
    assert wrong >= {"empty", "blanks", "cut-10", "cut-50", "cut-90", "binary", "garbled", "foreign-text", "banner"}
    assert not wrong & {"hung", "lost", "no-tool"}  # the kit's own backend sees to these


def test_a_check_that_fails_on_a_mere_warning_is_found(tmp_path: Path) -> None:
    strict = GOOD.replace('.split("ports ")[-1].split()', ".split()[1:]").replace(
        "raise ParseError(", "raise AssertionError("
    )
    assert {m.damage.name for m in tried(tmp_path, validator=strict).mishaps} >= {"warnings-before", "banner-before"}


@pytest.mark.parametrize("why", ['"no answer"', 'f"exit status {result.rc}: {result.stderr.split()[-1]}"'])
def test_a_check_that_hides_why_a_program_failed_is_found(tmp_path: Path, why: str) -> None:
    asks = f"""result = host.run("count --ports")
        if result.rc:
            raise ParseError("count", {why})
        text = result.stdout"""
    mute = GOOD.replace('text = read(host, "count --ports")', asks)
    (mishap,) = [m for m in tried(tmp_path, validator=mute).mishaps if m.damage.name == "refused"]
    assert "in the message, actual unmeasured: count: " in mishap.problem


def test_a_check_without_a_fault_is_found(tmp_path: Path) -> None:
    second = GOOD + GOOD.split("\n\n", 1)[1].replace("port.count", "port.speed").replace("test_ports", "test_speed")
    detection = tried(tmp_path, validator=second)
    assert detection.untried == ["port.speed"]
    assert "no fault: port.speed: no fault of the catalogue makes it fail" in complaints(detection)
    assert not detection.good


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ports 8, ports 7", "doors 8, doors 7", "the change to 'count' changes nothing"),
        ("command: count", "command: measure", "no check reads a command that contains 'measure'"),
        ("node: n1", "node: n9", "no node n9 in small"),
        ("check: port.count", "check: port.speed", "no check port.speed"),
        (
            "actual 7",
            "actual 6",
            "port.count: expected 'expected 8, actual 6' in the message, actual 'ports: expected 8, ac",
        ),
        ("check: port.count", "check: port.count\n        item: x", "port.count[x] does not read the changed answer"),
        ("node: n1", "node: n1\n        outcome: unmeasured", "port.count: expected unmeasured, actual failed"),
    ],
)
def test_a_fault_that_proves_nothing_is_found(tmp_path: Path, old: str, new: str, problem: str) -> None:
    detection = tried(tmp_path, faults=FAULT.replace(old, new))
    assert complaints(detection)[0].startswith(f"missed: port-lost on small: {problem}")
    assert not detection.good


def test_an_alarm_on_a_healthy_rack_is_found_and_its_fault_proves_nothing(tmp_path: Path) -> None:
    detection = tried(
        tmp_path, answers='- {match: count, stdout: "ports 9 of n1\\n"}\n', faults=FAULT.replace("ports 8", "ports 9")
    )
    assert [alarm.moment for alarm in detection.alarms] == [None, None]
    assert "false alarm: port.count on n[1-2] of small (2 times): failed: ports: expected 8, actual 9" in complaints(
        detection
    )
    assert "does not pass on the healthy rack" in detection.missed[0].problem


def test_an_alarm_at_another_moment_is_found(tmp_path: Path) -> None:
    hot = """
        from rackproof.validation import check, expect, read

        @check("port.count", reads="system", protects="A test.", hint="None.")
        def test_ports(host):
            expect(read(host, "nvidia-smi -q"), "<gpu_temp>30 C<\\n")
    """
    detection = tried(tmp_path, validator=hot, answers='- {match: nvidia-smi, stdout: "<gpu_temp>30 C<\\n"}\n')
    assert {alarm.moment for alarm in detection.alarms} & {0, 1, 2}


def test_an_unknown_check_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(SelfTestError, match=r"no check 'port\.cuont'.*port\.count"):
        detect(material(tmp_path), "port.cuont")


def test_an_unknown_rack_is_refused(tmp_path: Path) -> None:
    write(tmp_path, faults=FAULT.replace("rack: small", "rack: smal"))
    with pytest.raises(SelfTestError, match=r"port\.yaml: rack: no 'smal' below .*small"):
        material(tmp_path)
