"""Wrong content is FAIL with its place, whatever else the node did."""

from __future__ import annotations

import pytest

from rackproof.core.status import Status
from tests.unit.judging import architecture, bar, criterion, judged, measurement, verdicts

METRIC = "storage.damaged_places"
MADE = architecture(criterion(metric=METRIC, scope="node", bar=bar("eq", 0, "1")))
WHERE = [f"/mnt/nfs/rackproof.0, offset {4096 * n}, written by gpu-02, read by gpu-01" for n in range(4)]


@pytest.mark.parametrize("spoilt", [{}, {"steal_pct": 60.0}, {"in_use": "gpu-01: job 7"}])
def test_a_flipped_byte_is_fail_with_file_and_offset(spoilt: dict[str, object]) -> None:
    wrong = measurement("gpu-01", 4.0, metric=METRIC, conditions={"damage": WHERE, **spoilt})
    result = verdicts(judged(MADE, wrong, measurement("gpu-02", 0.0, metric=METRIC)))
    assert result["gpu-01"].status is Status.FAIL
    assert WHERE[0] in result["gpu-01"].message
    assert WHERE[3] not in result["gpu-01"].message
    assert result["gpu-02"].status is Status.PASS


def test_a_slow_number_of_a_starved_machine_is_still_no_failure() -> None:
    made = architecture(criterion())
    slow = measurement("gpu-01", 0.001, conditions={"steal_pct": 60.0})
    assert verdicts(judged(made, slow))["gpu-01"].status is Status.INVALID
