from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from rackproof import architectures
from rackproof.configure.network import (
    Link,
    Port,
    PortProblem,
    apply_script,
    find_link,
    hosts_block,
    parse_links,
    plan_ports,
)
from rackproof.configure.nic.inputs import NicInputs
from rackproof.core.architecture import Fabric
from rackproof.core.rack import Node
from rackproof.core.texts import KERNELS_PREFIXES
from tests.unit.published import EVERY
from tests.unit.refusals import refuses

PORT = Port("fabric0", "rxe0", "10.77.0.21/24", 9000, mac="52:54:77:20:00:0b")
LINK = Link("fabric0", "52:54:77:20:00:0b", 9000, True, ("10.77.0.21/24",))
OTHER = Link("enp0s3", "52:54:77:10:00:0b", 1500, True, ("10.0.2.15/24",))


def test_a_port_as_declared_needs_nothing() -> None:
    assert plan_ports([PORT], [OTHER, LINK]) == ()


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        (replace(LINK, name="enp0s16"), "enp0s16 becomes fabric0"),
        (replace(LINK, mtu=1500), "MTU 1500 becomes 9000"),
        (replace(LINK, up=False), "down"),
        (replace(LINK, addresses=("10.77.0.21/16",)), "no address 10.77.0.21/24"),
    ],
)
def test_every_difference_is_a_reason(link: Link, reason: str) -> None:
    (change,) = plan_ports([PORT], [OTHER, link])
    assert change.reasons == (reason,)


def test_a_rename_takes_the_port_down_first_and_waits_for_the_address() -> None:
    script = apply_script(plan_ports([PORT], [replace(LINK, name="enp0s16")]))
    steps = ["enp0s16 down", "enp0s16 name fabric0", "networkctl reload", "mtu 9000 up", "reconfigure fabric0", "until"]
    assert [script.index(step) for step in steps] == sorted(script.index(step) for step in steps)


def test_a_port_that_only_lost_its_mtu_is_not_taken_down() -> None:
    assert " down" not in apply_script(plan_ports([PORT], [replace(LINK, mtu=1500)]))


def test_a_vlan_on_the_port_is_not_mistaken_for_it() -> None:
    vlan = replace(LINK, name="fabric0.7", addresses=())
    assert plan_ports([PORT], [LINK, vlan]) == ()


def test_a_bond_or_a_vlan_shows_its_ports_address_and_is_not_the_port() -> None:
    port = {"ifindex": 2, "ifname": "ens3", "flags": ["UP"], "operstate": "UP", "mtu": 9000, "link_type": "ether",
            "address": PORT.mac, "addr_info": []}  # fmt: skip
    bond = {**port, "ifname": "bond0", "flags": ["MASTER", "UP"]}
    vlan = {**port, "ifname": "bond0.7", "link": "bond0"}
    links = parse_links([json.dumps([port, bond, vlan]), "--"])
    assert [link.upper for link in links] == [False, True, True]
    assert find_link(PORT, links).name == "ens3"


def test_a_port_without_an_address_is_not_waited_for_and_a_bonds_is_left_to_it() -> None:
    bare = replace(PORT, address="")
    assert plan_ports([bare], [replace(LINK, addresses=())]) == ()
    changes = plan_ports([bare], [replace(LINK, name="enp0s16")])
    assert "until" not in apply_script(changes)
    assert "reconfigure" in apply_script(changes)
    changes = plan_ports([replace(bare, bond="bond0")], [replace(LINK, name="enp0s16")])
    for manager in ("networkd", "NetworkManager"):
        assert "name fabric0" in apply_script(changes, manager)
        assert "reconfigure" not in apply_script(changes, manager)
        assert "connection up" not in apply_script(changes, manager)


test_what_cannot_be_configured_is_refused = refuses(
    lambda links: plan_ports([PORT], links),
    ([OTHER], "fabric0: expected one NIC with MAC address 52:54:77:20:00:0b, actual 0; present: enp0s3 52:54"),
    ([], "present: none"),
    ([replace(LINK, name="a"), replace(LINK, name="b")], "actual 2"),
    ([replace(LINK, name="enp0s16"), replace(OTHER, name="fabric0")], "another NIC has this name"),
    error=PortProblem,
)


def test_one_nic_is_not_two_ports() -> None:
    link = replace(LINK, path="pci-0000:29:00.0")
    twice = replace(PORT, name="stor0", mac=None, path=link.path)
    with pytest.raises(PortProblem, match="stor0: fabric0 is fabric0 already: the inventory names one NIC twice"):
        plan_ports([PORT, twice], [link])


def test_a_path_finds_the_port_as_a_mac_address_does() -> None:
    port = replace(PORT, mac=None, path="pci-0000:3b:00.0")
    assert plan_ports([port], [OTHER, replace(LINK, path="pci-0000:3b:00.0")]) == ()


def test_the_answer_of_ip_is_read_with_the_permanent_address() -> None:
    answer = [
        {"ifindex": 1, "ifname": "lo", "link_type": "loopback", "flags": ["UP"], "operstate": "UNKNOWN", "mtu": 65536,
         "address": "00:00:00:00:00:00"},
        {
            "ifindex": 2, "ifname": "fabric0", "link_type": "ether", "flags": ["BROADCAST", "UP"], "mtu": 9000,
            "operstate": "UP",
            "address": "02:00:00:00:00:01", "permaddr": "52:54:77:20:00:0B",
            "addr_info": [
                {"family": "inet", "local": "10.77.0.21", "prefixlen": 24, "scope": "global"},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
            ],
        },
    ]  # fmt: skip
    lines = [*json.dumps(answer, indent=1).splitlines(), "--", "lo ", "fabric0 pci-0000:00:10.0"]
    assert parse_links(lines) == (replace(LINK, path="pci-0000:00:10.0"),)


def test_an_answer_without_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 sections"):
        parse_links(["[]"])


def test_every_rail_has_a_name_and_the_nodes_own_name_is_not_for_data() -> None:
    rails = {"gpu-01": ("10.77.0.21", "10.77.1.21"), "storage-01": ("10.77.0.11",), "login-01": ()}
    control = {"gpu-01": "192.0.2.21", "storage-01": None, "login-01": "192.0.2.5"}
    assert hosts_block(rails, control, "rail").splitlines() == [
        "192.0.2.21 gpu-01",
        "10.77.0.21 gpu-01-rail0",
        "10.77.1.21 gpu-01-rail1",
        "10.77.0.11 storage-01-rail0",
        "192.0.2.5 login-01",
    ]
    assert hosts_block({"gpu-01": ("10.77.0.21",)}, {"gpu-01": "10.77.0.21"}, "fabric").splitlines() == [
        "10.77.0.21 gpu-01 gpu-01-fabric0"
    ]


@pytest.mark.parametrize("kind", ["roce", "infiniband", "soft-roce"])
def test_control_traffic_stays_off_rails_of_real_adapters(kind: str) -> None:
    node = Node("gpu-01", ("gpu",), {"fabric_addresses": ["10.77.0.21/24"]})
    assert node.control_address(kind) == ("10.77.0.21" if kind == "soft-roce" else None)
    named = replace(node, data={**node.data, "management_address": "192.0.2.21"})
    assert named.control_address(kind) == "192.0.2.21"


@pytest.mark.parametrize("prefix", KERNELS_PREFIXES)
def test_no_port_gets_a_name_that_the_kernel_gives(prefix: str) -> None:
    with pytest.raises(ValidationError, match=f"{prefix}0 is a name that the kernel gives"):
        Fabric(kind="infiniband", mtu=4092, interface_prefix=prefix)
    with pytest.raises(ValidationError, match=f"{prefix}7 is a name that the kernel gives"):
        NicInputs.model_validate({"ports": {f"{prefix}7": {"path": "pci-0000:29:00.0"}}})
    Fabric(kind="infiniband", mtu=4092, interface_prefix=f"{prefix}-rail")


def test_no_published_architecture_names_ports_as_the_kernel_does() -> None:
    prefixes = {model.fabric.interface_prefix for name in EVERY if (model := architectures.load(name).model).fabric}
    assert prefixes
    assert not prefixes & set(KERNELS_PREFIXES)
