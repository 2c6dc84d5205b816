"""Frames that do not pass are told from a peer that is down or was booting: no fault of the port's."""

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
    "again",
    [
        "small 1\nlarge 1\n",  # it is down: its own affair
        "small 0\nlarge 0\n",  # it was booting
    ],
)
def test_a_peer_that_is_down_is_not_the_ports_fault(again: str) -> None:
    asked_again = Change(command="-s 56", stdout=again)

    def edit(result: CommandResult) -> CommandResult:
        for change in (SILENT, asked_again):
            if change.applies(result.command):
                result = change(result)
        return result

    check_result = outcome("fabric.jumbo", "gpu-01", "fabric0", subject().altered("gpu-01", edit))
    assert (check_result.outcome, check_result.message) == (CheckOutcome.PASSED, "")
