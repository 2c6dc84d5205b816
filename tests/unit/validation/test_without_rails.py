"""Nodes outside the fabric have no fabric checks, and are not peers of nodes in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.core.rack import Node, Rack
from rackproof.selftest.mutation import Change
from rackproof.validation.context import Context
from tests.unit.validation.checking import healthy, outcome, subject, validators


def without_rail(*names: str) -> Context:
    """The virtual rack with an architecture that asks for ports of GPU nodes only, and nodes without a rail."""
    context = healthy()
    nodes = tuple(
        replace(node, data={key: value for key, value in node.data.items() if not key.startswith("fabric_")})
        if node.name in names
        else node
        for node in context.rack.nodes
    )
    arch = context.arch.model_copy(update={"required_checks": {}})
    return replace(context, arch=arch, rack=replace(context.rack, nodes=nodes))


@pytest.mark.parametrize("check", ["fabric.port", "fabric.jumbo", "fabric.names", "fabric.rdma"])
def test_only_what_must_have_rails_or_lists_them_is_asked(check: str) -> None:
    context = without_rail("storage-01", "gpu-02")
    declared = validators()[check][0]
    asked = [node.name for node in context.rack.nodes if declared.items(context.arch, node, context.rack)]
    assert asked == ["gpu-01", "gpu-02"]


def test_a_node_without_a_rail_has_no_peers() -> None:
    context = without_rail("storage-01")
    assert outcome("fabric.jumbo", "gpu-01", "fabric0", context).outcome is CheckOutcome.PASSED
    logins = tuple(Node(f"login-{k}", ("login",)) for k in range(4))
    first, second, *_ = context.rack.nodes
    mixed = Rack("", (logins[0], first, logins[1], logins[2], second, logins[3]))
    check_result = outcome("fabric.jumbo", "gpu-01", "fabric0", replace(context, rack=mixed))
    assert (check_result.outcome, check_result.message) == (CheckOutcome.PASSED, "")


@pytest.mark.parametrize(
    ("change", "expected", "message"),
    [
        (None, CheckOutcome.UNMEASURED, "it follows 10.77.0.11; without fabric_addresses of both"),
        (("^,*", "^,?"), CheckOutcome.FAILED, "expected to follow storage-01, actual no time server"),
        ((",377,", ",0,"), CheckOutcome.FAILED, "expected answers of 10.77.0.11, actual none"),
    ],
)
def test_the_time_server_cannot_be_identified_without_a_rail(
    change: tuple[str, str] | None, expected: CheckOutcome, message: str
) -> None:
    context = without_rail("storage-01")
    if change:
        spoilt = Change(command="sources", replace=change)
        edited = subject().altered(
            "gpu-01", lambda result: spoilt(result) if spoilt.applies(result.command) else result
        )
        context = replace(edited, arch=context.arch, rack=context.rack)
    check_result = outcome("base.time_synchronised", "gpu-01", "", context)
    assert check_result.outcome is expected
    assert message in check_result.message
