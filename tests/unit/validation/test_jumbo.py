"""Frames that do not pass are told from a peer that was booting, and from a dead path."""

from __future__ import annotations

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult
from rackproof.selftest.mutation import Change
from tests.unit.validation.checking import outcome, subject

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
    asked_again = Change(command="-s 56", stdout=again)

    def edit(result: CommandResult) -> CommandResult:
        for change in (SILENT, asked_again):
            if change.applies(result.command):
                result = change(result)
        return result

    check_result = outcome("fabric.jumbo", "gpu-01", "fabric0", subject().altered("gpu-01", edit))
    assert check_result.outcome is (CheckOutcome.FAILED if expected else CheckOutcome.PASSED)
    assert check_result.message.startswith(expected)
