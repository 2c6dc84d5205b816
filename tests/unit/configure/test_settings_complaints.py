"""Messages about inputs that cannot be read: place, likely key, and never a secret."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.settings import Inputs, node_settings, read_inputs
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.core.rack import Node
from rackproof.errors import InventoryError
from tests.unit.refusals import error_of


def complaint(model: type[Inputs], value: Any) -> str:
    return error_of(InventoryError, read_inputs, Node("gpu-01", ("gpu",), {model.KEY: value}), model)


@pytest.mark.parametrize(
    ("key", "model", "value", "message"),
    [
        ("gpu", GpuInputs, {"repositry": {}}, "gpu.repositry: no such input; did you mean 'repository'?"),
        ("gpu", GpuInputs, {"imex": {"nods": []}}, "gpu.imex.nods: no such input; did you mean 'nodes'?"),
        ("gpu", GpuInputs, {"repository": {"ulr": "x"}}, "gpu.repository."),
        ("gpu", GpuInputs, {"hold": "maybe"}, "actual 'maybe'"),
        ("gpu", GpuInputs, "x", "gpu: expected a mapping, actual str"),
        ("nic", NicInputs, {"source": "dcoa"}, "nic.source: input should be 'doca', 'mlnx_ofed' or 'inbox'"),
        ("nic", NicInputs, {"source": "dcoa"}, "actual 'dcoa'"),
        ("nic", NicInputs, {"ring_rx": "many"}, "actual 'many'"),
    ],
)
def test_node_key_and_way_out_are_named(key: str, model: type[Inputs], value: Any, message: str) -> None:
    text = complaint(model, value)
    assert text.startswith(f"gpu-01: {key}")
    assert message in text
    assert "\n" not in text


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    assert "hunter2" not in complaint(StorageClientInputs, {"cephfs": {"secret": "hunter2"}})
    assert "hunter2" not in complaint(StorageClientInputs, {"cephfs": {"secret": {"value": "hunter2"}}})


def test_an_invalid_address_is_reported() -> None:
    with pytest.raises(InventoryError, match=r"gpu-01: fabric_addresses\.0: .*, actual '10\.0\.0\.999/24'"):
        node_settings(Node("gpu-01", ("gpu",), {"fabric_addresses": ["10.0.0.999/24"], "fabric_macs": ["x"]}), 1)
