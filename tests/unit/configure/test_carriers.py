"""No device that carries an ssh session, the default route or an undeclared address is ever taken down."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from rackproof.configure import carriers, facts
from rackproof.configure.carriers import Carrier, Touched, needs
from rackproof.configure.network import Link, Port
from rackproof.configure.nic import facts as nic_facts
from rackproof.configure.nic import links, stack
from rackproof.configure.nic import operations as nic
from rackproof.parse.bonding import Bond, Member
from tests.unit.configure.stub import StubHost, run
from tests.unit.shell import executable, sh
from tests.unit.sources import tree_of

CONFIGURE: Final = Path(carriers.__file__).parent


def device(name: str, *addresses: str, **more: Any) -> dict[str, Any]:
    given = [
        {"family": "inet6" if ":" in a else "inet", "local": a, "prefixlen": 24,
         "scope": "link" if a.startswith("fe80") else "global"}
        for a in addresses
    ]  # fmt: skip
    return {"ifindex": 2, "ifname": name, "flags": ["UP"], "mtu": 1500, "operstate": "UP", "link_type": "ether",
            "address": "a0:00", "addr_info": given, **more}  # fmt: skip


DEVICES: Final = [
    device("lo", "127.0.0.1", link_type="loopback"),
    device("eno1", "192.0.2.21", "fe80::1"),
    device("ens1", master="bond0"),
    device("ens2", master="bond0"),
    device("bond0"),
    device("bond0.7", "198.51.100.9", link="bond0"),
    device("front", "203.0.113.5"),
    device("rail0", "10.0.0.1", "fe80::2"),
]
ANSWER: Final = [
    json.dumps(DEVICES), "--", '[{"dst": "default", "gateway": "198.51.100.1", "dev": "bond0.7", "flags": []}]', "--",
    '[{"dst": "default", "metric": 1024, "nexthops": [{"gateway": "fe80::1", "dev": "front"}]}]', "--",
    "192.0.2.21 192.0.2.9 front", "fe80::2%rail0 fe80::9%rail0 -", "driver ens1 mlx5_core", "driver rail0 mlx5_core",
    "driver eno1 igb",
]  # fmt: skip


def test_a_device_carries_what_is_on_top_of_it() -> None:
    carried = carriers.parse(ANSWER)
    assert {name for name, carrier in carried.items() if carrier.default} == {
        "ens1", "ens2", "bond0", "bond0.7", "front",
    }  # fmt: skip
    assert carried["ens1"].addresses == {"198.51.100.9"}
    assert {name for name, carrier in carried.items() if carrier.sessions} == {"eno1", "front", "rail0"}
    assert carried["lo"] == Carrier()
    assert carried["rail0"].addresses == {"10.0.0.1"}
    assert carriers.of_driver("mlx5_core", carried).down == {"ens1", "rail0"}


@pytest.mark.parametrize(
    ("touched", "declared", "message"),
    [
        (Touched(down=frozenset({"ens2"})), ["198.51.100.9/24"], "ens2 carries the default route"),
        (Touched(reconfigured=frozenset({"bond0.7"})), [], "bond0.7 carries the default route:"),
        (Touched(reconfigured=frozenset({"eno1"})), ["192.0.2.21/24"], "eno1 carries the ssh session of 192.0.2.9:"),
        (Touched(down=frozenset({"front"})), [], "203.0.113.5, which is not declared"),
        (Touched(down=frozenset({"rail0"})), ["10.0.0.1/24"], "rail0 carries the ssh session of fe80::9%rail0:"),
        (Touched(down=frozenset({"gone"})), [], None),
    ],
)
def test_what_a_change_must_not_touch(touched: Touched, declared: list[str], message: str | None) -> None:
    problem = needs(touched, carriers.parse(ANSWER), declared)
    assert (problem is None) if message is None else message in (problem or "")


@pytest.mark.skipif(not (shutil.which("ip") and shutil.which("ss")), reason="needs iproute2")
def test_the_question_is_answered_by_a_real_iproute2() -> None:
    done = sh(carriers.command(), check=True)
    assert "lo" in carriers.parse(done.stdout.splitlines())


SS: Final = """\
0 0 192.0.2.21:22 192.0.2.9:50112 users:(("sshd-session",pid=11,fd=4),("sshd",pid=9,fd=4))
0 0 [::ffff:10.0.0.1]:2222 [::ffff:10.0.0.9]:50113 users:(("sshd",pid=12,fd=4))
0 0 [fe80::2]%rail0:22 [fe80::9]%rail0:40000 users:(("sshd",pid=13,fd=4))
0 0 10.0.0.1:873 10.0.0.8:50114 users:(("rsync",pid=14,fd=4))
"""


def test_sessions_are_found_on_every_port_and_over_ipv6(tmp_path: Path) -> None:
    (tmp_path / "sockets").write_text(SS)
    (tmp_path / "devices").write_text(json.dumps(DEVICES) + "\n")
    for name, body in (
        ("ss", f"cat {tmp_path}/sockets"),
        ("ip", f'case "$*" in *address*) cat {tmp_path}/devices;; *default) echo "[]";;'
               ' *"get 10.0.0.9"*) echo "x dev rail0 x";; esac'),
    ):  # fmt: skip
        executable(tmp_path / name, body)
    done = sh(carriers.command(), programs=tmp_path, check=True)
    carried = carriers.parse(done.stdout.splitlines())
    assert carried["eno1"].sessions == {"192.0.2.9"}
    assert carried["rail0"].sessions == {"10.0.0.9", "fe80::9%rail0"}


PORT: Final = Port("rail0", "mlx5_0", "10.0.0.1/24", 9000, mac="a0:01")
AS_DECLARED: Final = Link("rail0", "a0:01", 9000, True, ("10.0.0.1/24",))
BOND: Final = links.Upper("bond0", 9000, "10.9.0.1/24", (("a0:01", None),), "active-backup")
VLAN: Final = links.Upper("storage", 9000, "10.4.0.1/24", parent="bond0")
MEMBER: Final = replace(AS_DECLARED, name="ens1", addresses=())
OTHER_MODE: Final = {"bond0": Bond("bond0", "load balancing (xor)", True, (Member("ens1", True, 1),))}
STACK: Final = stack.StackState(
    "25.10", "6.8", {"mlx5_core": stack.Module("old", "new", "/updates/dkms/mlx5_core.ko")}, (), (), True, frozenset()
)
PRESENT_BOND: Final = replace(AS_DECLARED, name="bond0", mac="a0:09", addresses=("10.9.0.1/24",), upper=True)

CHANGES: Final[dict[str, tuple[Any, dict[str, Any], dict[type, Any], str, bool]]] = {
    # operation, arguments, answers, a device that it takes down, whether its addresses count
    "mtu": (nic.rail_ports, {"wanted": [PORT]}, {facts.Links: (replace(AS_DECLARED, mtu=1500),)}, "rail0", False),
    "rename": (nic.rail_ports, {"wanted": [PORT]}, {facts.Links: (replace(AS_DECLARED, name="ens1"),)}, "ens1", True),
    "bond anew": (nic.upper_links, {"wanted": [BOND], "manager": "networkd"},
                  {facts.Links: (MEMBER, PRESENT_BOND), nic_facts.Bonds: OTHER_MODE}, "bond0", True),
    "new member": (nic.upper_links, {"wanted": [BOND], "manager": "NetworkManager"},
                   {facts.Links: (MEMBER,), nic_facts.Bonds: {}}, "ens1", True),
    "vlan": (nic.upper_links, {"wanted": [VLAN], "manager": "networkd"},
             {facts.Links: (PRESENT_BOND,), nic_facts.Bonds: {}}, "bond0", False),
    "table": (nic.rail_tables, {"wanted": {"rail0": links.RailRoute(100, "10.0.0.1", "10.0.0.0/24")},
                                "manager": "networkd"}, {nic_facts.RailTables: ((), ())}, "rail0", False),
    "openibd": (nic.drivers, {"source": "doca", "dkms": (), "restart": True},
                {nic_facts.StackState: STACK}, "eno1", True),
}  # fmt: skip
KEPT: Final[dict[str, Carrier]] = {
    "the ssh session of 192.0.2.9": Carrier(sessions=frozenset({"192.0.2.9"}), driver="mlx5_core"),
    "the default route": Carrier(default=True, driver="mlx5_core"),
    "192.0.2.21, which is not declared": Carrier(addresses=frozenset({"192.0.2.21"}), driver="mlx5_core"),
}


@pytest.mark.parametrize("message", KEPT)
@pytest.mark.parametrize("name", CHANGES)
def test_no_change_takes_down_a_device_that_is_needed(name: str, message: str) -> None:
    operation, arguments, answers, taken, addresses_count = CHANGES[name]
    others: Mapping[type, Any] = {facts.Marks: frozenset(), **answers}
    (command,) = run(operation, StubHost({**others, facts.Carriers: {"other": KEPT[message]}}), **arguments) or ["none"]
    if name != "openibd":
        assert not command.endswith("exit 1")
    if addresses_count or "declared" not in message:
        (command,) = run(operation, StubHost({**others, facts.Carriers: {taken: KEPT[message]}}), **arguments)
        assert command.endswith("exit 1")
        assert f"{taken} carries {message}: such a device is never taken down" in command
    (command,) = run(operation, StubHost({**others, facts.Carriers: None}), **arguments)
    assert "could not be read, so nothing was changed" in command


TAKES_DOWN: Final = re.compile(
    r"ip link (set dev \S+ (down|name)|delete)|networkctl reconfigure|nmcli .*connection up|restart openibd"
    r"|ifdown|ifup|netplan apply|restart (systemd-networkd|NetworkManager)"
)
PLANNERS: Final = {"network.py": {"apply_script"}, "nic/links.py": {"apply_uppers", "apply_routes"},
                   "nic/stack.py": {"plan_drivers"}}  # fmt: skip
"""Modules whose scripts take devices down, and the functions that make these scripts."""


def test_every_script_that_takes_a_device_down_is_known() -> None:
    scripts = {
        str(path.relative_to(CONFIGURE))
        for path in (*CONFIGURE.rglob("*.py"), *CONFIGURE.rglob("*.sh"))
        if TAKES_DOWN.search("\n".join(line.partition("#")[0] for line in path.read_text().splitlines()))
    }
    assert scripts == set(PLANNERS)


def test_every_operation_with_such_a_script_asks_the_rule() -> None:
    asking = 0
    for path in CONFIGURE.rglob("operations.py"):
        for function in tree_of(path).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            called = {
                (node.func.value.id, node.func.attr) if isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name) else ("", getattr(node.func, "id", ""))
                for node in ast.walk(function) if isinstance(node, ast.Call)
            }  # fmt: skip
            makes = {
                ("network", "apply_script"), ("links", "apply_uppers"),
                ("links", "apply_routes"), ("stack", "plan_drivers"),
            }  # fmt: skip
            if called & makes:
                asking += 1
                assert "keep_up" in {name for _, name in called}, function.name
    assert asking == 4


def test_a_declared_bond_that_lost_its_mtu_keeps_its_members_up() -> None:
    bonds = {"bond0": replace(OTHER_MODE["bond0"], mode=links.MODES["active-backup"])}
    (change,) = links.plan_uppers([BOND], (replace(MEMBER, mtu=1500), PRESENT_BOND), bonds)
    script = links.apply_uppers([change], "networkd")
    assert "ens1 down" not in script
    assert "ip link set dev ens1 mtu 9000" in script
