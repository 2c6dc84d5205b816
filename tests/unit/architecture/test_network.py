from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from rackproof import architectures
from rackproof.core.architecture import Architecture, Nic, Role
from rackproof.core.architecture.expectations import items_of, on_fabric, rails_of
from rackproof.core.architecture.network import FABRIC_CHECKS, NIC_CHECKS, PCIE_CHECKS, Lossless, Pcie
from rackproof.core.rack import Node
from tests.unit.refusals import refuses

HEAD, GPU = ("head",), ("gpu",)


def with_head(name: str = "nvidia-dgx-h100", **head: Any) -> Architecture:
    architecture = architectures.load(name).model
    role = Role.model_validate({"count": {"min": 1}, "expect": head})
    return architecture.model_copy(update={"roles": {**architecture.roles, "head": role}})


def test_who_must_have_every_rail() -> None:
    arch = with_head()
    assert on_fabric(arch, GPU)
    assert not on_fabric(arch, HEAD)
    assert on_fabric(arch.model_copy(update={"required_checks": {"head": ("fabric.link",)}}), HEAD)
    assert on_fabric(arch.model_copy(update={"required_checks": {"all": ("fabric.rdma",)}}), HEAD)
    assert on_fabric(with_head(nics=[{**NIC, "count": 8}]), HEAD)
    assert not on_fabric(with_head(nics=[{**NIC, "purpose": "storage", "count": 8}]), HEAD)
    assert not on_fabric(with_head(nics=[NIC]), HEAD)
    assert not on_fabric(with_head("h200-single"), GPU)
    assert on_fabric(architectures.load("virtual-rack").model, ("storage",))


def test_a_node_has_the_rails_that_it_must_have_or_those_that_are_listed() -> None:
    arch, given = with_head(), {"fabric_addresses": ["10.0.0.1/24"]}
    assert rails_of(arch, Node("gpu-01", GPU, given)) == 8  # what lacks is looked for
    assert rails_of(arch, Node("head-01", HEAD, given)) == 1
    assert rails_of(arch, Node("head-01", HEAD)) == 0
    assert items_of(arch, "fabric.port", (*HEAD, "all")) == ("",)
    assert len(items_of(arch, "fabric.port", (*GPU, "all"))) == 8


NIC = {"purpose": "compute", "count": 2, "speed_gbps": 400, "link_layer": "Ethernet", "source": "written"}


def nic(**more: Any) -> Nic:
    return Nic.model_validate({**NIC, **more})


def test_names_are_sets_or_lists_in_their_own_order() -> None:
    assert nic(ports="mlx5_[0-1]").ports == ("mlx5_0", "mlx5_1")
    assert nic(interfaces=["rail1", "rail0"]).interfaces == ("rail1", "rail0")
    assert nic(ports=["mlx5_[10-11]"]).ports == ("mlx5_10", "mlx5_11")
    assert nic(numa_nodes=1).numa_nodes == (1,)


test_what_cannot_be_meant_is_refused = refuses(
    lambda more: nic(**more),
    ({"ports": "mlx5_[0-2]"}, "ports names 3 of 2 ports"),
    ({"ports": ["mlx5_0", "mlx5_0"]}, "names a port twice"),
    ({"ports": "mlx5_[0-"}, "invalid node set"),
    ({"interfaces": ["rail0"]}, "interfaces names 1 of 2 ports"),
    ({"slots": ["1a:00.0", "1b:00.0"]}, "pattern"),
    ({"numa_nodes": [0, 0, 1]}, "numa_nodes names 3 of 2 ports"),
    ({"counters": {}}, "at least 1"),
    ({"firmware_settings": {}}, "at least 1"),
    ({"link_layer": "InfiniBand", "mtu": 9000}, "4096 at most"),
    ({"link_layer": "InfiniBand", "gid_index": 3}, "on Ethernet only"),
    error=ValidationError,
)


def test_off_without_quotes_is_off() -> None:
    assert [Lossless.model_validate({"global_pause": value}).global_pause for value in ("off", False, True)] == [
        *("off", "off", "on")
    ]


def test_every_key_has_a_check() -> None:
    without_check = {"purpose", "ports", "source", "claim"}
    assert set(Nic.model_fields) - without_check == set(NIC_CHECKS)
    assert set(Pcie.model_fields) - {"source", "claim"} == set(PCIE_CHECKS)
    assert set(Lossless.model_fields) == set(FABRIC_CHECKS)
