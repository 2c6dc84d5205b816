"""Ports that are no rails: what is declared of each, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.configure.network import Port
from rackproof.configure.nic.declared_ports import DeclaredPort, declared_ports, settings
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Fabric, Lossless, Nic
from rackproof.core.rack import Node
from rackproof.errors import DeclarationError, InventoryError
from tests.unit.refusals import refuses

RAILS = (
    Port("rail0", "mlx5_0", "10.0.0.1/24", 9000, path="pci-0000:1a:00.0"),
    Port("rail1", "mlx5_1", "10.0.1.1/24", 9000, mac="b8:3f:d2:00:00:01"),
)
LOSSLESS = Lossless(pfc_priority=3, trust="dscp", tos=106, traffic_class=106, roce_mode="RoCE v2")
ROCE = Fabric(kind="roce", rails=2, mtu=9000, lossless=LOSSLESS)
INFINIBAND = Fabric(kind="infiniband", rails=2, mtu=2044)
COMPUTE = Nic(purpose="compute", count=2, speed_gbps=400, link_layer="Ethernet", max_read_request=512, source="x")
STORAGE = Nic(
    purpose="storage", count=2, speed_gbps=200, link_layer="Ethernet", mtu=4200, max_read_request=4096,
    relaxed_ordering=True, source="x",
)  # fmt: skip
IN_BAND = Nic(purpose="in_band", count=1, speed_gbps=100, link_layer="Ethernet", source="x")
IPOIB = Nic(purpose="storage", count=1, speed_gbps=200, link_layer="InfiniBand", max_read_request=4096, source="x")
STOR0 = {"purpose": "storage", "path": "pci-0000:29:00.0", "address": "10.1.0.1/24", "rdma": "mlx5_stor0"}
STOR1 = {"purpose": "storage", "path": "pci-0000:29:00.1", "address": "10.1.1.1/24"}
TWO = {"stor0": STOR0, "stor1": STOR1}
MEMBER0 = {"purpose": "storage", "path": "pci-0000:29:00.0", "lossless": True}
MEMBER1 = {"purpose": "storage", "path": "pci-0000:29:00.1", "lossless": True}
BOND = {"ports": ["stor0", "stor1"], "address": "10.1.0.1/24", "mtu": 4200}
GUID = "a0:88:c2:03:00:01:02:03"


def declared(stack: dict[str, Any], *nics: Nic, fabric: Fabric = ROCE) -> dict[str, DeclaredPort]:
    ports = declared_ports(fabric, NicInputs.model_validate(stack), RAILS, (COMPUTE, *nics), COMPUTE)
    return {port.port.name: port for port in ports}


def test_a_storage_port_is_a_port_with_a_purpose() -> None:
    ports = declared({"ports": TWO}, STORAGE)
    assert list(ports) == ["rail0", "rail1", "stor0", "stor1"]
    assert ports["stor0"].port == Port("stor0", "mlx5_stor0", "10.1.0.1/24", 4200, path="pci-0000:29:00.0")
    values = settings(tuple(ports.values()), ROCE, NicInputs(ring_rx=8192), nvidia=True)
    pcie = {"max_read_request": "4096", "relaxed_ordering": "1"}
    assert values["stor1"] == pcie  # no RDMA port: neither classes nor pauses
    assert values["stor0"] == {key: values["rail0"][key] for key in ("trust", "pfc", *CONNECTIONS)} | pcie
    assert values["rail0"]["max_read_request"] == "512"
    assert "ring_rx" not in values["stor0"]


CONNECTIONS = ("tos", "roce_mode", "traffic_class")


def test_members_of_a_bond_have_the_ports_settings_and_the_bond_those_of_its_device() -> None:
    stack = {"ports": {"stor0": MEMBER0, "stor1": MEMBER1}, "bonds": {"bond0": BOND}}
    ports = declared(stack, STORAGE)
    assert ports["stor1"].port == Port("stor1", "", "", 4200, path="pci-0000:29:00.1", bond="bond0")
    values = settings(tuple(ports.values()), ROCE, NicInputs(), nvidia=True)
    assert values["stor0"] == values["stor1"] == {
        "trust": "dscp", "pfc": "0,0,0,1,0,0,0,0", "max_read_request": "4096", "relaxed_ordering": "1",
    }  # fmt: skip
    assert values["bond0"] == {"tos": "106", "roce_mode": "RoCE v2", "traffic_class": "106"}
    plain = {name: {**port, "lossless": False} for name, port in {"stor0": MEMBER0, "stor1": MEMBER1}.items()}
    ports = declared({**stack, "ports": plain}, STORAGE)
    values = settings(tuple(ports.values()), ROCE, NicInputs(), nvidia=True)
    assert "bond0" not in values
    assert values["stor0"] == {"max_read_request": "4096", "relaxed_ordering": "1"}


def test_a_front_end_port_needs_no_purpose_no_address_and_no_adapter_of_nvidias() -> None:
    port = {"mac": "52:54:00:00:00:01", "mtu": 1500, "max_read_request": 1024}
    front = declared({"ports": {"front": port}})["front"]
    assert (front.port.address, front.port.mtu, front.of_nvidia) == ("", 1500, False)
    assert settings((front,), ROCE, NicInputs(), nvidia=False) == {"front": {"max_read_request": "1024"}}
    silent = declared({"ports": {"front": {"mac": "52:54:00:00:00:01"}}})["front"]
    assert silent.port.mtu is None
    assert settings((silent,), ROCE, NicInputs(), nvidia=False) == {}


@pytest.mark.parametrize(("fabric", "mtu"), [(ROCE, "4092"), (INFINIBAND, "2044")])
def test_an_infiniband_port_beside_either_kind_of_rails(fabric: Fabric, mtu: str) -> None:
    whole = f"00:00:10:29:fe:80:00:00:00:00:00:00:{GUID}"
    for mac in (GUID, whole):
        stack = {"ports": {"stor0": {"purpose": "storage", "mac": mac, "address": "10.1.0.1/24"}}}
        stor0 = declared(stack, IPOIB, fabric=fabric)["stor0"]
        assert (stor0.infiniband, stor0.port.mac, stor0.port.mtu, stor0.lossless) == (True, GUID, None, False)
        values = settings((stor0,), fabric, NicInputs(), nvidia=True)
        assert values == {"stor0": {"ipoib_mode": "datagram", "mtu": mtu, "max_read_request": "4096"}}
    too_large = declared({"ports": {"stor0": {"purpose": "storage", "mac": GUID, "mtu": 9000}}}, IPOIB, fabric=fabric)[
        "stor0"
    ]
    with pytest.raises(DeclarationError, match=r"nic\.ports\.stor0: mtu is 9000: IPoIB in datagram mode carries"):
        settings((too_large,), fabric, NicInputs(), nvidia=True)


def ports(**changed: Any) -> dict[str, Any]:
    return {"ports": {"stor0": {**STOR0, **changed}, "stor1": STOR1}}


def bonded(port: dict[str, Any], **bond: Any) -> dict[str, Any]:
    return {"ports": {"stor0": {**MEMBER0, **port}, "stor1": MEMBER1}, "bonds": {"bond0": {**BOND, **bond}}}


test_contradictions_are_named_with_the_port = refuses(
    lambda stack: declared(stack, STORAGE, IN_BAND),
    (ports(purpose="storge"), r"ports\.stor0: purpose: the architecture has no storge .*did you mean 'storage'"),
    (ports(purpose="compute"), r"purpose: compute is reserved for the rails"),
    (ports(path="pci-0000:29:00.1"), "path pci-0000:29:00.1 is declared for stor0 and stor1"),
    (ports(path="pci-0000:1a:00.0"), "path pci-0000:1a:00.0 is declared for rail rail0 and stor0"),
    (ports(path=None, mac="B8:3F:D2:00:00:01"), "mac b8:3f:d2:00:00:01 is declared for rail rail1 and stor0"),
    (ports(rdma="mlx5_1"), "rdma mlx5_1 is declared for rail rail1 and stor0"),
    (ports(path=None, mac=GUID), "is no address of an Ethernet port"),
    ({"ports": {"rail0": STOR0, "stor1": STOR1}}, "name rail0 is declared for rail rail0 and rail0"),
    (ports(link_layer="InfiniBand"), "link_layer: InfiniBand here, Ethernet for its purpose"),
    (ports(mtu=9000), "mtu: 9000 here, 4200 for its purpose"),
    (ports(max_read_request=512), "max_read_request: 512 here, 4096"),
    (ports(relaxed_ordering=False), "relaxed_ordering: False here, True"),
    ({"ports": {"stor0": STOR0}}, "storage: the architecture has 2 of these ports, named are stor0: name all of them"),
    ({}, "2 ports are declared to have max_read_request, relaxed_ordering, and none is named: name each with"),
    (
        {"ports": {**TWO, "stor2": {"purpose": "storage", "path": "p"}}},
        "the architecture has 2 of these ports, named are stor0, stor1, stor2",
    ),
    (bonded({"address": "10.1.0.1/24"}), "address: it is a member of bond0, which has the address"),
    (bonded({"rdma": "mlx5_stor0"}), "rdma: it is a member of bond0"),
    (bonded({"mtu": 1500}), "mtu of bond0: 4200 here, 1500"),
    (bonded({}, mtu=9000), "mtu: 9000 here, 4200 for its purpose"),
    (bonded({"lossless": False}), r"bonds\.bond0: lossless is not declared for stor0: declare it for all, or none"),
    (bonded({"path": "pci-0000:30:00.0"}), "its members are of 2 adapters: RoCE runs over a bond of one"),
    (bonded({}, ports=["stor0", "stor9"]), r"bonds\.bond0\.ports: stor9: did you mean"),
    ({**bonded({}), "bonds": {"bond0": BOND, "bond1": BOND}}, r"bonds\.bond1\.ports: stor0 is a member of bond0, too"),
    (
        {**ports(), "bonds": {"bond0": {"paths": ["pci-0000:29:00.0", "pci-0000:31:00.0"]}}},
        r"stor0 of nic\.ports is a member: name the members there",
    ),
    ({**ports(), "bonds": {"stor0": {"paths": ["a", "b"]}}}, "stor0 is the name of a port and of a bond"),
    (
        {**bonded({}), "vlans": {"v": {"parent": "stor0", "id": 4, "address": "10.4.0.1/24"}}},
        r"it is the parent of nic\.vlans\.v: say parent: bond0",
    ),
    (
        {**ports(), "vlans": {"v": {"parent": "stor0", "id": 4, "address": "10.4.0.1/24", "mtu": 9000}}},
        r"MTU 9000 of nic\.vlans\.v is more than its 4200",
    ),
    error=DeclarationError,
)


test_roce_that_cannot_be = refuses(
    lambda port: declared({"ports": {"stor0": port}}, fabric=INFINIBAND),
    ({"mac": GUID, "link_layer": "InfiniBand", "lossless": True}, "lossless: RoCE needs an Ethernet port"),
    ({"path": "p", "lossless": True}, "lossless: the architecture says nothing in fabric.lossless"),
    ({"mac": "b8:3f:d2:00:00:09", "link_layer": "InfiniBand"}, "is no address of an InfiniBand port"),
    error=DeclarationError,
)


def test_vlans_of_an_infiniband_port_are_refused() -> None:
    stack = {
        "ports": {"stor0": {"purpose": "storage", "mac": GUID}},
        "vlans": {"v": {"parent": "stor0", "id": 4, "address": "10.4.0.1/24"}},
    }
    with pytest.raises(DeclarationError, match="InfiniBand has partitions"):
        declared(stack, IPOIB)


@pytest.mark.parametrize(
    ("stack", "says"),
    [
        ({"ports": {"storage-port-zero": {"path": "p"}}}, "at most 15 letters, digits, .* actual 'storage-port-zero'"),
        ({"ports": {"stor0": {"path": "p", "mtus": 9000}}}, "ports.stor0.mtus"),
        ({"ports": {"stor0": {}}}, "give either mac or path"),
        ({"ports": {"stor0": {"path": "p", "mac": "b8:3f:d2:00:00:01"}}}, "give either mac or path"),
        ({"bonds": {"bond0": {"paths": ["a", "b"], "ports": ["x", "y"]}}}, "give one of macs, paths and ports"),
    ],
)
def test_inputs_of_a_port(stack: dict[str, Any], says: str) -> None:
    with pytest.raises(InventoryError, match=f"gpu-01: nic.*{says}"):
        read_inputs(Node("gpu-01", ("gpu",), {"nic": stack}), NicInputs)


@pytest.mark.parametrize("mac", [GUID, f"00:00:10:29:fe:80:00:00:00:00:00:00:{GUID}"])
def test_infiniband_ports_are_not_bonded(mac: str) -> None:
    """The node, the bond and the way out; by name and by address."""
    stack = {"bonds": {"bond0": {"macs": [mac, mac.replace(":03", ":04")], "mode": "active-backup"}}}
    with pytest.raises(InventoryError, match=r"gpu-01: nic\.bonds\.bond0: .* InfiniBand ports are not bonded here"):
        read_inputs(Node("gpu-01", ("gpu",), {"nic": stack}), NicInputs)
    named = {
        "ports": {
            "stor0": {"link_layer": "InfiniBand", "mac": GUID},
            "stor1": {"link_layer": "InfiniBand", "path": "p"},
        },
        "bonds": {"bond0": {"ports": ["stor0", "stor1"]}},
    }
    with pytest.raises(
        DeclarationError, match=r"ports\.stor0: it is a member of bond0: .*give each an address of its own"
    ):
        declared(named)


def test_a_bond_of_ethernet_ports_by_mac_address_is_one() -> None:
    stack = NicInputs.model_validate({"bonds": {"bond0": {"macs": ["B8:3F:D2:00:00:01", "b8:3f:d2:00:00:02"]}}})
    assert stack.members("bond0") == (("b8:3f:d2:00:00:01", None), ("b8:3f:d2:00:00:02", None))
    with pytest.raises(ValidationError, match="no Ethernet port's MAC address"):
        NicInputs.model_validate({"bonds": {"bond0": {"macs": ["b8:3f", "b8:40"]}}})
