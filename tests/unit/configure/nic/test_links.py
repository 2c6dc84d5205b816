from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.network import Link, Port, PortProblem
from rackproof.configure.nic import links
from rackproof.configure.nic.inputs import NicInputs
from rackproof.errors import DeclarationError
from rackproof.parse.bonding import Bond, Member
from rackproof.parse.routes import Route, Rule
from tests.unit.refusals import refuses
from tests.unit.shell import is_shell, sh

BOND = {"bond0": {"paths": ["pci-0000:29:00.0", "pci-0000:29:00.1"], "address": "192.168.40.1/24"}}


def rails(*addresses: str) -> tuple[Port, ...]:
    return tuple(Port(f"rail{k}", f"mlx5_{k}", address, 9000, path=f"p{k}") for k, address in enumerate(addresses))


def test_a_subnet_a_rail_needs_no_tables() -> None:
    ports = rails("10.0.0.1/24", "10.0.1.1/24")
    assert links.shared_subnets(ports) == {}
    assert links.rail_routes(ports, NicInputs()) == {}


def test_rails_in_one_subnet_get_a_table_each() -> None:
    ports = rails("10.0.0.1/16", "10.0.0.2/16", "10.9.0.1/24")
    assert links.shared_subnets(ports) == {"10.0.0.0/16": ("rail0", "rail1")}
    routes = links.rail_routes(ports, NicInputs())
    assert routes == {
        "rail0": links.RailRoute(100, "10.0.0.1", "10.0.0.0/16"),
        "rail1": links.RailRoute(101, "10.0.0.2", "10.0.0.0/16"),
    }


def test_storage_ports_in_one_subnet_get_tables_after_the_rails() -> None:
    others = (Port("stor0", "", "10.9.0.1/24", 9000, path="s0"), Port("stor1", "", "10.9.0.2/24", 9000, path="s1"))
    alone = Port("stor2", "", "10.8.0.1/24", 9000, path="s2")
    routes = links.rail_routes(rails("10.0.0.1/24", "10.0.1.1/24"), NicInputs(), others=(alone, *others))
    assert {name: route.table for name, route in routes.items()} == {"stor0": 103, "stor1": 104}
    routes = links.rail_routes(rails("10.0.0.1/24"), NicInputs(), always=True, others=(alone,))
    assert set(routes) == {"rail0"}


def test_routed_rails() -> None:
    stack = NicInputs.model_validate(
        {"rail_gateways": ["10.0.0.254", "10.0.1.254"], "rail_routes": ["10.0.0.0/8"], "rail_table": 200}
    )
    routes = links.rail_routes(rails("10.0.0.1/24", "10.0.1.1/24"), stack)
    assert routes["rail1"] == links.RailRoute(201, "10.0.1.1", "10.0.1.0/24", "10.0.1.254", ("10.0.0.0/8",))


test_gateways_that_do_not_fit = refuses(
    lambda gateways: links.rail_routes(
        rails("10.0.0.1/24", "10.0.1.1/24"), NicInputs.model_validate({"rail_gateways": gateways})
    ),
    (["10.0.0.254"], "expected 2 entries"),
    (["10.0.0.254", "10.0.0.254"], "10.0.0.254 is not in 10.0.1.0/24 of rail1"),
    error=DeclarationError,
)


LINKS = (
    Link("ens41f0np0", "a0:00", 9000, True, (), "pci-0000:29:00.0"),
    Link("ens41f1np1", "a0:01", 9000, True, (), "pci-0000:29:00.1"),
)
BOND0 = Link("bond0", "a0:00", 9000, True, ("192.168.40.1/24",))
STATE = {
    "bond0": Bond(
        "bond0",
        "IEEE 802.3ad Dynamic link aggregation",
        True,
        (Member("ens41f0np0", True, 200000), Member("ens41f1np1", True, 200000)),
    )
}


def stack(**more: object) -> NicInputs:
    return NicInputs.model_validate({"bonds": BOND, **more})


def test_a_bond_in_force_is_left_alone() -> None:
    assert links.plan_uppers(links.uppers(stack()), (*LINKS, BOND0), STATE) == ()


def test_a_bond_is_made_and_awaited() -> None:
    (change,) = links.plan_uppers(links.uppers(stack()), LINKS, {})
    assert change.members == ("ens41f0np0", "ens41f1np1")
    assert change.reasons == ("without ens41f0np0, ens41f1np1", "does not exist")
    for manager in ("networkd", "NetworkManager"):
        script = links.apply_uppers((change,), manager)  # type: ignore[arg-type]
        assert is_shell(script)
        assert "bonding/slaves" in script
    assert "connection up rackproof-bond0-2 ifname ens41f1np1" in links.apply_uppers((change,), "NetworkManager")


@pytest.mark.parametrize(
    ("present", "bonds", "reason"),
    [
        ((LINKS[0], Link("ens41f1np1", "a0:01", 1500, True, (), "pci-0000:29:00.1"), BOND0), STATE,
         "MTU 1500 of ens41f1np1 becomes 9000"),
        ((*LINKS, BOND0), {"bond0": Bond("bond0", "fault-tolerance (active-backup)", True, STATE["bond0"].members)},
         "mode is fault-tolerance (active-backup)"),
        ((*LINKS, BOND0), {"bond0": Bond("bond0", STATE["bond0"].mode, True, STATE["bond0"].members[:1])},
         "without ens41f1np1"),
        ((*LINKS, Link("bond0", "a0:00", 9000, True, ())), STATE, "no address 192.168.40.1/24"),
        ((*LINKS, Link("bond0", "a0:00", 9000, False, ("192.168.40.1/24",))), STATE, "down"),
    ],
)  # fmt: skip
def test_what_makes_a_bond_differ(present: tuple[Link, ...], bonds: dict[str, Bond], reason: str) -> None:
    (change,) = links.plan_uppers(links.uppers(stack()), present, bonds)
    assert reason in change.reasons


def test_a_member_that_is_missing_or_anothers() -> None:
    with pytest.raises(PortProblem, match=r"bond0: member 2: expected one NIC with path pci-0000:29:00.1"):
        links.plan_uppers(links.uppers(stack()), LINKS[:1], {})
    other = {"bond9": Bond("bond9", "x", True, (Member("ens41f0np0", True, 1),))}
    with pytest.raises(PortProblem, match="bond0: ens41f0np0 belongs to bond9"):
        links.plan_uppers(links.uppers(stack()), LINKS, other)


def test_vlans_come_after_their_bond_and_have_its_mtu() -> None:
    uppers = links.uppers(stack(vlans={"storage": {"parent": "bond0", "id": 40, "address": "10.4.0.1/24"}}))
    assert [(upper.name, upper.mtu) for upper in uppers] == [("bond0", 9000), ("storage", 9000)]


test_links_on_nothing = refuses(
    lambda inputs: links.check_parents(NicInputs.model_validate(inputs), rails("10.0.0.1/24")),
    (
        {"vlans": {"v": {"parent": "eth9", "id": 4, "address": "10.4.0.1/24"}}},
        "eth9 is neither a rail, a port nor a bond",
    ),
    ({"bonds": {"rail0": BOND["bond0"]}}, "rail0 is the name of a rail"),
    ({"bonds": {"b": {"paths": ["p0", "p9"]}}}, "rail0 is a rail; rails are not bonded"),
    error=DeclarationError,
)


def test_other_tools_are_found_by_name_and_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "50-cloud-init.yaml").write_text(
        "network:\n  ethernets:\n    a:\n      match: {macaddress: 'A0:88:C2:01:00:0E'}\n"
    )
    (tmp_path / "90.yaml").write_text("ens260np0: {}\nrail00: {}\n")
    (tmp_path / "10-rail0.network").write_text("# Managed by rackproof.\n[Match]\nName=rail0\n")
    monkeypatch.setattr(links, "FOREIGN", (f"{tmp_path}/*",))
    command = links.foreign_command({"rail0": ("rail0", "ens26np0", "a0:88:c2:01:00:0e"), "rail1": ("rail1",)})
    out = sh(command).stdout
    foreign = links.parse_foreign(out.splitlines())
    assert foreign == (("rail0", f"{tmp_path}/50-cloud-init.yaml"),)
    assert links.foreign_problem(foreign) == (
        f"ports that something else manages, too ({tmp_path}/50-cloud-init.yaml: rail0): take them out there, and let"
        " this node's tool apply it"
    )
    assert links.foreign_problem(()) is None


def test_tables_that_the_kernel_does_not_have() -> None:
    wanted = {
        "rail0": links.RailRoute(100, "10.0.0.1", "10.0.0.0/16"),
        "rail1": links.RailRoute(101, "10.0.0.2", "10.0.0.0/16", "10.0.0.254", ("0.0.0.0/0",)),
    }
    rules = (Rule(1100, "10.0.0.1", "100"), Rule(1101, "10.0.0.2", "101"))
    routes = (
        Route("10.0.0.0/16", "rail0", "100"),
        Route("10.0.0.0/16", "rail1", "101"),
        Route("default", "rail1", "101"),
    )
    assert links.missing_routes(wanted, rules, routes) == {}
    assert links.missing_routes(wanted, rules[:1], routes) == {"rail1": "no rule from 10.0.0.2 to table 101"}
    missing = links.missing_routes(wanted, rules, (*routes[1:2], Route("10.0.0.0/16", "rail1", "100")))
    assert missing == {"rail0": "no route to 10.0.0.0/16 in table 100", "rail1": "no route to default in table 101"}
    for manager in ("networkd", "NetworkManager"):
        script = links.apply_routes(missing, wanted, manager)  # type: ignore[arg-type]
        assert is_shell(script)
        assert "ip -4 rule show from 10.0.0.2 table 101" in script
