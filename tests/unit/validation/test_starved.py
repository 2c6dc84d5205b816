"""A machine that is too busy to answer in time does not fail a check that depends on time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.core.rack import Node, Rack
from rackproof.remote import controller
from rackproof.selftest.mutation import Change
from rackproof.validation import context as module
from rackproof.validation.context import Context
from tests.unit.validation.checking import damaged, healthy, outcome

CAUSE = "the controller, which runs the virtual machines, was starved"
LOST = [
    Change(command="-c 100", replace=("100 packets transmitted, 100 received", "100 packets transmitted, 92 received")),
    Change(command="-c 500", stdout="500 packets transmitted, 460 received\nstatus 1\n"),
]
SILENT = [
    Change(command="10.77.0.11", replace=("2 packets transmitted, 2 received", "2 packets transmitted, 0 received")),
    Change(command="-s 56", stdout="small 1\nlarge 1\n"),
]


@pytest.mark.parametrize(
    ("check", "changes"), [("fabric.loss", LOST), ("fabric.jumbo", SILENT)], ids=["fabric.loss", "fabric.jumbo"]
)
@pytest.mark.parametrize(("cause", "expected"), [("", CheckOutcome.FAILED), (CAUSE, CheckOutcome.UNMEASURED)])
def test_lost_packets_of_a_starved_machine_are_unmeasured(
    check: str, changes: list[Change], cause: str, expected: CheckOutcome
) -> None:
    result = outcome(check, "gpu-01", "fabric0", replace(damaged(*changes), starved=cause))
    assert result.outcome is expected
    assert result.message.startswith(cause)
    assert "fabric0 of gpu-01 to storage-01" in result.message


@pytest.mark.parametrize(
    ("received", "expected"), [(500, CheckOutcome.PASSED), (496, CheckOutcome.PASSED), (495, CheckOutcome.FAILED)]
)
def test_one_bad_second_blames_no_node_and_its_losses_count(received: int, expected: CheckOutcome) -> None:
    """8 of 100 packets lost, at most 2 % allowed: 12 of 600."""
    again = Change(command="-c 500", stdout=f"500 packets transmitted, {received} received\nstatus 1\n")
    assert outcome("fabric.loss", "gpu-01", "fabric0", damaged(LOST[0], again)).outcome is expected


def test_other_checks_of_a_starved_machine_fail_as_before() -> None:
    context = replace(damaged(Change(command="ip ", replace=("9000", "1500"))), starved=CAUSE)
    assert outcome("fabric.mtu", "gpu-01", "fabric0", context).outcome is CheckOutcome.FAILED


@pytest.mark.parametrize(("others", "cause"), [(0, ""), (900, CAUSE)])
def test_the_controllers_load_is_read_around_the_questions(
    monkeypatch: pytest.MonkeyPatch, others: int, cause: str
) -> None:
    """``others`` of 1000 jiffies, used by other programs than the virtual machines."""
    readings = iter(
        [controller.Reading(0, 0, 0, 0, None, 0.0), controller.Reading(1000, 50 + others, 50, 0, None, 10.0)]
    )
    monkeypatch.setattr(controller, "reading", lambda runs_rack: next(readings))
    monkeypatch.setattr(module, "gather", lambda *arguments, **options: None)
    nodes = (Node("gpu-01", (), {"virtual": True, "ssh_hostname": "127.0.0.1"}),)
    context = Context(Rack("rack.py", nodes), healthy().arch, {}, fleet=cast(Any, object()))
    context.gather({})
    assert context.starved.startswith(cause)
    assert bool(context.starved) == bool(cause)
