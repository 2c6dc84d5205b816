from __future__ import annotations

from typing import ClassVar

import pytest

from rackproof.configure.settings import Inputs, node_settings, read_inputs
from rackproof.core.rack import Node
from rackproof.errors import InventoryError
from tests.unit.refusals import refuses

GOOD = {"fabric_addresses": ["10.77.0.21/24"], "fabric_macs": ["52:54:77:20:00:0B"], "ssh_port": 2201}


def test_settings_read_host_data_and_leave_other_keys_alone() -> None:
    settings = node_settings(Node("gpu-01", ("gpu",), {**GOOD, "simulated_gpus": True}), rails=1)
    assert str(settings.fabric_addresses[0].network) == "10.77.0.0/24"
    assert settings.fabric_macs == ("52:54:77:20:00:0b",)
    assert settings.simulated_gpus is True
    assert settings.virtual is False


test_contradictions_are_refused_with_node_and_key = refuses(
    lambda change: node_settings(Node("gpu-01", ("gpu",), {**GOOD, **change}), rails=1),
    ({"fabric_addresses": []}, r"gpu-01: fabric_addresses: the architecture has 1 rail\(s\)"),
    ({"fabric_addresses": ["10.77.0.300/24"]}, r"gpu-01: fabric_addresses\.0: "),
    ({"fabric_macs": []}, "gpu-01: give either fabric_macs or fabric_paths"),
    ({"fabric_paths": ["pci-0000:3b:00.0"]}, "gpu-01: give either fabric_macs or fabric_paths"),
    ({"fabric_macs": ["02:aa", "02:bb"]}, "gpu-01: fabric_macs: expected 1 entries"),
    error=InventoryError,
)


def test_absent_addresses_are_named() -> None:
    with pytest.raises(InventoryError, match=r"gpu-01: fabric_addresses: the architecture has 1 rail.*lists 0 address"):
        node_settings(Node("gpu-01", ("gpu",), {"fabric_macs": ["02:aa"]}), rails=1)


@pytest.mark.parametrize("data", [{}, {"fabric_addresses": []}, {"fabric_addresses": [], "fabric_macs": []}])
def test_a_node_that_need_not_be_on_the_fabric_may_have_no_rail(data: dict[str, object]) -> None:
    node = Node("login-01", ("login",), data)
    assert node_settings(node, rails=8, every=False).fabric_addresses == ()
    assert node_settings(node, rails=0).fabric_addresses == ()
    with pytest.raises(InventoryError, match="login-01: fabric_addresses"):
        node_settings(node, rails=8)


def test_such_a_node_may_have_the_first_rails_and_names_a_nic_for_each() -> None:
    assert len(node_settings(Node("login-01", ("login",), GOOD), rails=8, every=False).fabric_macs) == 1
    for change, message in (
        ({"fabric_macs": []}, "give either fabric_macs or fabric_paths"),
        ({"fabric_macs": ["02:aa", "02:bb"]}, "fabric_macs: expected 1 entries, one a rail, actual 2"),
        ({"fabric_addresses": []}, "fabric_macs: expected 0 entries, one a rail, actual 1"),
    ):
        with pytest.raises(InventoryError, match=message):
            node_settings(Node("login-01", ("login",), {**GOOD, **change}), rails=8, every=False)
    with pytest.raises(InventoryError, match="the architecture has no fabric, the inventory lists 1 address"):
        node_settings(Node("gpu-01", ("gpu",), GOOD), rails=0)


test_what_servers_are_told_is_checked = refuses(
    lambda change: node_settings(Node("gpu-01", ("gpu",), {**GOOD, **change}), rails=1),
    # A text would be read letter by letter, one server each.
    ({"time_upstreams": "192.0.2.1"}, r"gpu-01: time_upstreams: input should be a valid tuple"),
    ({"time_upstreams": ["192.0.2.1 key 1"]}, r"gpu-01: time_upstreams\.0: string should match pattern"),
    ({"nfs_threads": 0}, r"gpu-01: nfs_threads: input should be greater than or equal to 1, actual 0"),
    error=InventoryError,
)


class Example(Inputs):
    KEY: ClassVar = "example"

    depth: int = 3
    """How deep."""


def test_inputs_of_a_concern_have_defaults_and_refuse_unknown_keys() -> None:
    assert read_inputs(Node("n", ()), Example).depth == 3
    assert read_inputs(Node("n", (), {"example": {"depth": 4}}), Example).depth == 4
    for data, message in (
        ({"example": {"dept": 4}}, r"^n: example\.dept: no such input; did you mean 'depth'\?$"),
        ({"example": {"depth": "x"}}, r"^n: example\.depth: input should be a valid integer"),
        ({"example": [4]}, r"^n: example: expected a mapping, actual list$"),
    ):
        with pytest.raises(InventoryError, match=message):
            read_inputs(Node("n", (), data), Example)
