"""Numbers that were measured otherwise than a criterion asks."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.judging.conditions import unmet
from rackproof.core.status import Status
from tests.unit.judging import architecture, criterion, judged, measurement, verdicts


@pytest.mark.parametrize(
    ("asked", "actual", "fault"),
    [
        ({"cache": "cold"}, {"cache": "cold"}, None),
        ({"cache": "cold"}, {"cache": "warm"}, "expected cache = cold, actual warm"),
        ({"cache": "cold"}, {}, "expected cache = cold, actual not recorded"),
        ({"cache": "cold"}, {"cache": None}, "expected cache = cold, actual not recorded"),
        ({"ranks": 32}, {"ranks": "32"}, None),
        ({"ranks": "32"}, {"ranks": 32.0}, None),
        ({"ranks": 32}, {"ranks": "many"}, "expected ranks = 32, actual many"),
        ({"ranks": 32}, {"ranks": "nan"}, "expected ranks = 32, actual nan"),
        ({"ranks_min": 32}, {"ranks": "64"}, None),
        ({"ranks_min": 32}, {"ranks": 32}, None),
        ({"ranks_min": 32}, {"ranks": 31}, "expected ranks ≥ 32, actual 31"),
        ({"ranks_min": 32}, {"ranks_min": 64}, "expected ranks ≥ 32, actual not recorded"),
        ({"ranks_min": 32}, {"ranks": "inf"}, "expected ranks ≥ 32, actual inf"),
        ({"ranks_min": 1}, {"ranks": True}, "expected ranks ≥ 1, actual true"),
        ({"depth_max": 8}, {"depth": 8}, None),
        ({"depth_max": 8}, {"depth": 9}, "expected depth ≤ 8, actual 9"),
        ({"sharp": True}, {"sharp": True}, None),
        ({"sharp": True}, {"sharp": 1}, "expected sharp = true, actual 1"),
        ({"sharp": 1}, {"sharp": True}, "expected sharp = 1, actual true"),
        ({"algorithm": ("ring", "tree")}, {"algorithm": "tree"}, None),
        ({"algorithm": ("ring", "tree")}, {"algorithm": "nvls"}, "expected algorithm = ring or tree, actual nvls"),
        ({"algorithm": "ring"}, {"algorithm": ["ring"]}, "expected algorithm = ring, actual ring"),
    ],
)
def test_conditions(asked: dict[str, Any], actual: dict[str, Any], fault: str | None) -> None:
    assert unmet(tuple(asked.items()), actual) == (
        None if fault is None else f"measured under other conditions: {fault}"
    )


def test_every_different_condition_is_named() -> None:
    asked = (("cache", "cold"), ("ranks_min", 2))
    assert unmet(asked, {"ranks": 1}) == (
        "measured under other conditions: expected cache = cold, actual not recorded; expected ranks ≥ 2, actual 1"
    )


def test_a_number_under_other_conditions_is_invalid_on_either_side_of_the_bar() -> None:
    made = architecture(criterion(conditions={"cache": "cold"}))
    result = judged(
        made, measurement("gpu-01", 90.0, conditions={"cache": "warm", "runtime_s": 5}), measurement("gpu-02", 1.0)
    )
    by_subject = verdicts(result)
    assert {v.status for v in by_subject.values()} == {Status.INVALID}
    assert by_subject["gpu-01"].message == "measured under other conditions: expected cache = cold, actual warm"
    assert by_subject["gpu-01"].samples == (90.0,)
    good = judged(made, measurement("gpu-01", 90.0, conditions={"cache": "cold"}))
    assert verdicts(good)["gpu-01"].status is Status.PASS
