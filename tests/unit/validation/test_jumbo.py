"""``fabric.jumbo`` distinguishes frames that do not pass, a peer that was booting, and a dead path."""

from __future__ import annotations

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.selftest.mutation import Change
from tests.unit.validation.checking import damaged, outcome

SILENT = Change(
    command="10.77.0.11", replace=("2 packets transmitted, 2 received", "2 packets transmitted, 0 received")
)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ("small 1\nlarge 1\n", "fabric0 of gpu-01 to storage-01 (10.77.0.11): expected an answer"),
        ("small 0\nlarge 0\n", ""),  # it was booting
    ],
)
def test_a_silent_peer_is_a_dead_path_and_one_that_was_booting_is_not(again: str, expected: str) -> None:
    context = damaged(SILENT, Change(command="-s 56", stdout=again))
    check_result = outcome("fabric.jumbo", "gpu-01", "fabric0", context)
    assert check_result.outcome is (CheckOutcome.FAILED if expected else CheckOutcome.PASSED)
    assert check_result.message.startswith(expected)
