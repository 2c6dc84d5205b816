"""The whole self-test of this checkout: what ``rackproof selftest`` shows must be clean."""

from __future__ import annotations

import pytest

from rackproof.selftest.detection import HEALTHY_RUNS, Detection, Material, detect, read_material
from rackproof.selftest.table import complaints
from rackproof.selftest.written import racks_below
from tests.unit.validation.checking import DATA, ROOT


@pytest.fixture(scope="module")
def material() -> Material:
    return read_material(ROOT / "validators", ROOT / "tests" / "faults", DATA)


@pytest.fixture(scope="module")
def detection(material: Material) -> Detection:
    return detect(material)


def test_every_fault_is_caught_by_its_check_and_nothing_else_is_wrong(detection: Detection) -> None:
    assert complaints(detection) == []
    assert detection.good


def test_every_check_has_a_fault(detection: Detection) -> None:
    assert detection.untried == []


def test_healthy_racks_give_no_alarm_in_fifty_runs_each(detection: Detection) -> None:
    assert detection.alarms == []
    assert detection.healthy_runs == len(racks_below(DATA)) * (1 + HEALTHY_RUNS)
    assert HEALTHY_RUNS >= 50


def test_every_check_is_asked_somewhere_on_a_healthy_rack(material: Material) -> None:
    asked = {
        seen.case.check.id for subject in material.subjects.values() for s in subject.healthy.values() for seen in s
    }
    assert set(material.validators) - asked == set()


def test_damages_were_really_tried(detection: Detection) -> None:
    assert detection.damaged > 10 * len(detection.checks)
