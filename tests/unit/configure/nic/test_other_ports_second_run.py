"""Ports that are no rails on a node in a folder: the first run, a second one without a change, and a deviation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.network import Port, in_use, parse_links
from rackproof.configure.nic import operations, ports
from rackproof.configure.nic.declared_ports import DeclaredPort, declared_ports, settings
from rackproof.configure.nic.inputs import NicInputs
from rackproof.core.architecture import Fabric, Nic
from tests.unit.configure.loop import carried_out, left_alone
from tests.unit.configure.nic.second_run import node, shell, starts
from tests.unit.configure.nic.test_port_script import LOSSLESS
from tests.unit.configure.nic.tree import Tree

pytestmark = pytest.mark.few(1)

SLOTS = ("0000:29:00.0", "0000:29:00.1")
FABRIC = Fabric(kind="roce", rails=1, mtu=9000, lossless=LOSSLESS)
STORAGE = Nic(
    purpose="storage", count=2, speed_gbps=200, link_layer="Ethernet", mtu=9000, max_read_request=4096, source="x"
)
IP = r"""
# Links are folders below $L: mac, mtu, up, address, master.
L=@root@/links
one() { d=$L/$1; a='[]'; f='"LOWER_UP"'
  [ ! -s $d/address ] || a=$(printf '[{"family": "inet", "local": "%s", "prefixlen": 24, "scope": "global"}]' \
    "$(cut -d/ -f1 $d/address)")
  [ ! -e $d/up ] || f='"UP"'
  printf '{"ifindex": 2, "operstate": "UP", "link_type": "ether", '
  printf '"ifname": "%s", "flags": [%s], "mtu": %s, "address": "%s", "addr_info": %s}' \
    "$1" "$f" "$(cat $d/mtu)" "$(cat $d/mac)" "$a"; }
case "$*" in
"-j addr show" | "-j address show")
  s='['; for d in $L/*; do printf '%s' "$s"; one "${d##*/}"; s=', '; done; echo ']'; exit;;
"-4 -o addr show dev "*) [ ! -s $L/$6/address ] || echo "5: $6    inet $(cat $L/$6/address) brd scope global $6"; exit;;
"-j route show default" | "-j -6 route show default") echo "[]"; exit;;
"link set dev "*) n=$4; shift 4;;
*) exit 1;;
esac
while [ $# -gt 0 ]; do
  case $1 in
  up) : >$L/$n/up;; down) rm -f $L/$n/up;;
  mtu) shift; echo $1 >$L/$n/mtu;;
  name) shift; [ ! -e $L/$n/up ] || exit 1; mv $L/$n $L/$1; mv @root@/sys/class/net/$n @root@/sys/class/net/$1; n=$1;;
  *) exit 1;;
  esac
  shift
done
"""
NETWORKCTL = r"""
[ "$1" != reconfigure ] || cp @root@/etc/$2.address @root@/links/$2/address
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = node(tmp_path)
    for name, body in (("ip", IP), ("networkctl", NETWORKCTL), ("udevadm", "exit 0")):
        tree.program(name, body.replace("@root@", str(tree.root)))
    for k, slot in enumerate(SLOTS):
        tree.port(f"ens41f{k}np{k}", slot, f"mlx5_{k}")
        for key, value in {"mac": f"b8:3f:d2:00:00:0{k}", "mtu": "1500"}.items():
            tree.write(f"/links/ens41f{k}np{k}/{key}", f"{value}\n")
    starts(tree, "rackproof-roce@", '/usr/local/sbin/rackproof-port apply "$1"')
    return tree


def declared(stack: NicInputs) -> tuple[DeclaredPort, ...]:
    return declared_ports(FABRIC, stack, (), (STORAGE,), None)


def storage(**more: Any) -> dict[str, Any]:
    """Two ports by their MAC addresses."""
    return {
        f"stor{k}": {"purpose": "storage", "mac": f"b8:3f:d2:00:00:0{k}", **{key: of(k) for key, of in more.items()}}
        for k in range(2)
    }


def declare(tree: Tree, values: dict[str, dict[str, str]]) -> dict[str, Any]:
    for name, value in values.items():
        tree.write(f"/etc/rackproof/ports/{name}", ports.declaration(value))
    return {"wanted": values}


def test_storage_ports_get_name_address_mtu_and_settings_once(tree: Tree) -> None:
    stack = NicInputs.model_validate(
        {"ports": storage(address=lambda k: f"10.1.{k}.1/24", rdma=lambda k: f"mlx5_stor{k}")}
    )
    ports = declared(stack)
    for k in range(2):
        tree.write(f"/etc/stor{k}.address", f"10.1.{k}.1/24\n")
    given = {"wanted": [port.port for port in ports], "manager": "networkd"}
    assert carried_out(operations.rail_ports, shell(tree), **given)
    assert tree.read("/links/stor1/mtu") == "9000"
    assert left_alone(operations.rail_ports, shell(tree), **given) == "all ports are as declared"
    for path, text in {"mtu": "1500\n", "address": ""}.items():
        tree.write(f"/links/stor1/{path}", text)
        (command,) = carried_out(operations.rail_ports, shell(tree), **given)
        assert "stor1" in command
        assert "stor0" not in command
        left_alone(operations.rail_ports, shell(tree), **given)

    given = declare(tree, settings(ports, FABRIC, stack, nvidia=True))
    assert set(given["wanted"]) == {"stor0", "stor1"}
    assert carried_out(operations.port_settings, shell(tree), **given)
    assert left_alone(operations.port_settings, shell(tree), **given) == "all 2 ports have their settings"
    for path, text in {
        f"pci/{SLOTS[1]}-CAP_EXP_8.w": "2937",  # requests of 512 bytes, as after every reset
        "sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos": "0",
    }.items():
        tree.write(path, f"{text}\n")
        (command,) = carried_out(operations.port_settings, shell(tree), **given)
        assert "rackproof-roce@stor1.service" in command
        assert "stor0" not in command
        left_alone(operations.port_settings, shell(tree), **given)


def bonded(tree: Tree) -> tuple[NicInputs, dict[str, Any]]:
    stack = NicInputs.model_validate(
        {"ports": storage(lossless=lambda k: True), "bonds": {"bond0": {"ports": ["stor0", "stor1"]}}}
    )
    return stack, {"wanted": [port.port for port in declared(stack)], "manager": "networkd"}


def test_a_bonds_members_get_their_names_and_are_left_to_the_bond(tree: Tree) -> None:
    """The bond shows the first member's MAC address, and is not taken for it."""
    _, given = bonded(tree)
    (command,) = carried_out(operations.rail_ports, shell(tree), **given)
    assert "reconfigure" not in command
    addresses = tree.programs / "ip"
    addresses.write_text(
        addresses.read_text().replace("echo ']'", "cat @root@/bond.json".replace("@root@", str(tree.root)))
    )
    bond = {
        "ifindex": 2,
        "operstate": "UP",
        "ifname": "bond0",
        "flags": ["MASTER", "UP"],
        "mtu": 9000,
        "link_type": "ether",
        "addr_info": [],
    }
    tree.write("/bond.json", f", {json.dumps({**bond, 'address': 'b8:3f:d2:00:00:00'})}]\n")
    assert left_alone(operations.rail_ports, shell(tree), **given) == "all ports are as declared"
    tree.write("/links/stor0/mtu", "1500\n")
    (command,) = carried_out(operations.rail_ports, shell(tree), **given)
    assert "ip link set dev stor0 mtu 9000 up" in command


def test_roce_over_a_bond_is_set_at_its_ports_and_at_their_one_device(tree: Tree) -> None:
    stack, given = bonded(tree)
    carried_out(operations.rail_ports, shell(tree), **given)
    # As mlx5 does with both ports of an adapter: one device, at its first function, which speaks for the bond.
    one = tree.root / "sys/class/infiniband/mlx5_0"
    (tree.root / "sys/class/infiniband/mlx5_1").unlink()
    (tree.root / f"sys/devices/{SLOTS[1]}/infiniband/mlx5_1/tc/1").rmdir()
    (tree.root / f"sys/devices/{SLOTS[1]}/infiniband/mlx5_1/tc").rmdir()
    (tree.root / f"sys/devices/{SLOTS[1]}/infiniband/mlx5_1").rmdir()
    tree.write("/sys/class/net/bond0/type", "1\n")
    tree.write(str(one.relative_to(tree.root) / "ports/1/gid_attrs/ndevs/0"), "bond0\n")
    given = declare(tree, settings(declared(stack), FABRIC, stack, nvidia=True))
    assert given["wanted"]["bond0"] == {"tos": "106", "roce_mode": "RoCE v2"}
    assert carried_out(operations.port_settings, shell(tree), **given)
    assert left_alone(operations.port_settings, shell(tree), **given) == "all 3 ports have their settings"
    tos = "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"
    for path, text, unit in ((tos, "0", "bond0"), (f"pci/{SLOTS[1]}-CAP_EXP_8.w", "2937", "stor1")):
        tree.write(path, f"{text}\n")
        (command,) = carried_out(operations.port_settings, shell(tree), **given)
        assert f"rackproof-roce@{unit}.service" in command
        left_alone(operations.port_settings, shell(tree), **given)
    # Without a common device the bond's packets cannot be marked, which is reported.
    (one / "ports/1/gid_attrs/ndevs/0").write_text("stor0\n")
    with pytest.raises(AssertionError, match=r"bond0: tos: expected 106, actual nothing"):
        carried_out(operations.port_settings, shell(tree), **given)


def test_a_port_in_use_under_another_name_is_not_renamed(tree: Tree) -> None:
    port = Port("front", "", "10.1.0.1/24", 1500, mac="b8:3f:d2:00:00:00")
    tree.write("/links/ens41f0np0/address", "192.0.2.21/24\n")
    lines = [*shell(tree)("ip -j addr show").stdout.splitlines(), "--"]
    assert in_use([port], parse_links(lines)) == (
        "front: ens41f0np0 is in use with 192.0.2.21/24: only a port without addresses is renamed; remove its"
        " addresses, or remove the port from nic.ports"
    )
    tree.write("/links/ens41f0np0/address", "")
    assert in_use([port], parse_links([*shell(tree)("ip -j addr show").stdout.splitlines(), "--"])) is None
