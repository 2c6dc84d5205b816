from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.port_names import names_by_purpose

STACK = {"ports": {"stor0": {"purpose": "storage"}, "stor1": {"purpose": "storage"}, "front": {"path": "p"}}}


def test_ports_that_the_stack_names_are_those_of_their_purpose() -> None:
    assert names_by_purpose({"nic": STACK}) == {"storage": ("stor0", "stor1")}
    both = {"nic": STACK, "nic_ports": {"storage": "mlx5_[8-9]", "compute": ["rail1", "rail0"]}}
    assert names_by_purpose(both) == {"storage": ("mlx5_8", "mlx5_9"), "compute": ("rail1", "rail0")}


@pytest.mark.parametrize("stack", [None, "x", {}, {"ports": ["x"]}, {"ports": {"stor0": "x"}}])
def test_a_stack_that_names_none(stack: Any) -> None:
    assert names_by_purpose({"nic": stack}) == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [("mlx5_0", "nic_ports: expected a mapping"), ({"storage": 7}, "nic_ports.storage: names of ports are text")],
)
def test_invalid_names_are_refused(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        names_by_purpose({"nic_ports": value})
