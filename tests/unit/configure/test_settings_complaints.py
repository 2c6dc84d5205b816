"""What is said of an input that cannot be read: where, what was meant, and never a secret."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.configure.gpu.inputs import GpuStack
from rackproof.configure.nic.inputs import NicStack
from rackproof.configure.settings import Inputs, node_settings, read_inputs
from rackproof.configure.storage.inputs import StorageClients
from rackproof.core.rack import Node
from rackproof.errors import InventoryError


def complaint(model: type[Inputs], value: Any) -> str:
    with pytest.raises(InventoryError) as error:
        read_inputs(Node("gpu-01", ("gpu",), {model.KEY: value}), model)
    return str(error.value)


@pytest.mark.parametrize(
    ("key", "model", "value", "message"),
    [
        ("gpu_stack", GpuStack, {"repositry": {}}, "gpu_stack.repositry: no such input; did you mean 'repository'?"),
        ("gpu_stack", GpuStack, {"imex": {"nods": []}}, "gpu_stack.imex.nods: no such input; did you mean 'nodes'?"),
        ("gpu_stack", GpuStack, {"repository": {"ulr": "x"}}, "gpu_stack.repository."),
        ("gpu_stack", GpuStack, {"hold": "maybe"}, "actual 'maybe'"),
        ("gpu_stack", GpuStack, "x", "gpu_stack: expected a mapping, actual str"),
        ("nic_stack", NicStack, {"source": "dcoa"}, "nic_stack.source: input should be 'doca', 'mlnx_ofed' or 'inbox'"),
        ("nic_stack", NicStack, {"source": "dcoa"}, "actual 'dcoa'"),
        ("nic_stack", NicStack, {"ring_rx": "many"}, "actual 'many'"),
    ],
)
def test_node_key_and_way_out_are_named(key: str, model: type[Inputs], value: Any, message: str) -> None:
    text = complaint(model, value)
    assert text.startswith(f"gpu-01: {key}")
    assert message in text
    assert "\n" not in text


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    assert "hunter2" not in complaint(StorageClients, {"cephfs": {"secret": "hunter2"}})
    assert "hunter2" not in complaint(StorageClients, {"cephfs": {"secret": {"value": "hunter2"}}})


def test_an_address_that_is_none_is_said() -> None:
    with pytest.raises(InventoryError, match=r"gpu-01: fabric_addresses\.0: .*, actual '10\.0\.0\.999/24'"):
        node_settings(Node("gpu-01", ("gpu",), {"fabric_addresses": ["10.0.0.999/24"], "fabric_macs": ["x"]}), 1)
