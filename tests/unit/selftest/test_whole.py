"""The self-test of this checkout: what ``rackproof selftest`` shows must be clean.

Every fault is tried in every run; damaged, partial and varied answers for a sample of the checks, and all of them by
``make test-exhaustive``.
"""

from __future__ import annotations

import pytest

from rackproof.selftest.detection import HEALTHY_RUNS, Detection, Material, detect, read_material
from rackproof.selftest.table import complaints
from rackproof.selftest.trial import try_fault
from rackproof.selftest.written import racks_below
from tests.unit.sampling import sample
from tests.unit.validation.checking import DATA, ROOT

pytestmark = pytest.mark.few(1)

FEW = 8
"""Checks of the sample."""


@pytest.fixture(scope="module")
def material() -> Material:
    return read_material(ROOT / "validators", ROOT / "tests" / "faults", DATA)


def test_every_fault_is_caught_by_its_check(material: Material) -> None:
    tried = [
        try_fault(material.subjects[file.rack], fault) for file in material.catalogue.values() for fault in file.faults
    ]
    assert [(finding.fault.name, finding.problem) for finding in tried if not finding.caught] == []
    assert {finding.fault.check for finding in tried} == set(material.validators)


def test_healthy_racks_give_no_alarm(material: Material) -> None:
    assert set(material.subjects) == set(racks_below(DATA))
    assert [alarm for subject in material.subjects.values() for alarm in subject.false_alarms()] == []


def test_every_check_is_asked_somewhere_on_a_healthy_rack(material: Material) -> None:
    asked = {
        seen.case.check.id for subject in material.subjects.values() for s in subject.healthy.values() for seen in s
    }
    assert set(material.validators) - asked == set()


def test_a_sample_of_the_checks_takes_no_damaged_answer_for_a_good_one(material: Material) -> None:
    checks = sample(material.validators, FEW, seed="checks")
    assert len(checks) == FEW
    for check in checks:
        detection = detect(material, check, healthy=2)
        assert complaints(detection) == []
        assert detection.damaged > 10


@pytest.fixture(scope="module")
def detection(material: Material) -> Detection:
    return detect(material)


@pytest.mark.exhaustive
class TestAll:
    def test_every_fault_is_caught_by_its_check_and_nothing_else_is_wrong(self, detection: Detection) -> None:
        assert complaints(detection) == []
        assert detection.good

    def test_every_check_has_a_fault(self, detection: Detection) -> None:
        assert detection.untried == []

    def test_healthy_racks_give_no_alarm_in_fifty_runs_each(self, detection: Detection) -> None:
        assert detection.alarms == []
        assert detection.healthy_runs == len(racks_below(DATA)) * (1 + HEALTHY_RUNS)
        assert HEALTHY_RUNS >= 50

    def test_damages_were_really_tried(self, detection: Detection) -> None:
        assert detection.damaged > 10 * len(detection.checks)
