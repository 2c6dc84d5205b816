from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.core.architecture import Nic
from rackproof.core.architecture.network import FABRIC_CHECKS, NIC_CHECKS, PCIE_CHECKS, Lossless, Pcie

NIC = {"purpose": "compute", "count": 2, "speed_gbps": 400, "link_layer": "Ethernet", "source": "written"}


def nic(**more: Any) -> Nic:
    return Nic.model_validate({**NIC, **more})


def test_names_are_sets_or_lists_in_their_own_order() -> None:
    assert nic(ports="mlx5_[0-1]").ports == ("mlx5_0", "mlx5_1")
    assert nic(interfaces=["rail1", "rail0"]).interfaces == ("rail1", "rail0")
    assert nic(ports=["mlx5_[10-11]"]).ports == ("mlx5_10", "mlx5_11")
    assert nic(numa_nodes=1).numa_nodes == (1,)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ports": "mlx5_[0-2]"}, "ports names 3 of 2 ports"),
        ({"ports": ["mlx5_0", "mlx5_0"]}, "names a port twice"),
        ({"ports": "mlx5_[0-"}, "no set of names"),
        ({"interfaces": ["rail0"]}, "interfaces names 1 of 2 ports"),
        ({"slots": ["1a:00.0", "1b:00.0"]}, "pattern"),
        ({"numa_nodes": [0, 0, 1]}, "numa_nodes names 3 of 2 ports"),
        ({"counters": {}}, "at least 1"),
        ({"firmware_settings": {}}, "at least 1"),
        ({"link_layer": "InfiniBand", "mtu": 9000}, "4096 at most"),
        ({"link_layer": "InfiniBand", "gid_index": 3}, "on Ethernet only"),
    ],
)
def test_what_cannot_be_meant_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        nic(**more)


def test_off_without_quotes_is_off() -> None:
    assert [Lossless.model_validate({"global_pause": value}).global_pause for value in ("off", False, True)] == [
        *("off", "off", "on")
    ]


def test_every_key_has_a_check() -> None:
    said = {"purpose", "ports", "source", "claim"}
    assert set(Nic.model_fields) - said == set(NIC_CHECKS)
    assert set(Pcie.model_fields) - {"source", "claim"} == set(PCIE_CHECKS)
    assert set(Lossless.model_fields) == set(FABRIC_CHECKS)
