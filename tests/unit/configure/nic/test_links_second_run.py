"""The second run of bonds, tables of rails and link counters, read back through their facts' own parsers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.nic import links, operations
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.render import templates
from tests.unit.configure.loop import carried_out, left_alone
from tests.unit.configure.nic.second_run import node, shell
from tests.unit.configure.nic.test_operations import RAILS
from tests.unit.configure.nic.test_second_run import SLOT
from tests.unit.configure.nic.tree import UDEVADM_249, Tree

pytestmark = pytest.mark.few(2)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return node(tmp_path)


BOND = {
    "paths": ["pci-0000:29:00.0", "pci-0000:29:00.1"], "address": "192.168.40.1/24", "mtu": 9000,
}  # fmt: skip
NETWORKCTL = r"""
[ "$1" = reload ] && [ ! -e @root@/proc/net/bonding/bond0 ] || exit 0
value() { sed -n "s/^$1=//p" /etc/systemd/network/20-bond0.netdev; }
mkdir -p @root@/proc/net/bonding @root@/sys/class/net/bond0/bonding
echo ens41f0np0 ens41f1np1 >@root@/sys/class/net/bond0/bonding/slaves
case $(value Mode) in
802.3ad) mode='IEEE 802.3ad Dynamic link aggregation';;
active-backup) mode='fault-tolerance (active-backup)';;
balance-xor) mode='load balancing (xor)';;
esac
{ printf 'Ethernet Channel Bonding Driver: v6.8.0-87-generic\n\nBonding Mode: %s\n' "$mode"
policy=$(value TransmitHashPolicy); [ -z "$policy" ] || echo "Transmit Hash Policy: $policy (1)"
i=$(value MIIMonitorSec); printf 'MII Status: up\nMII Polling Interval (ms): %s\nUp Delay (ms): 0\n' "${i%ms}"
rate=$(value LACPTransmitRate); [ -z "$rate" ] || printf '\n802.3ad info\nLACP active: on\nLACP rate: %s\n' "$rate"
for each in ens41f0np0 ens41f1np1; do
  printf '\nSlave Interface: %s\nMII Status: up\nSpeed: 200000 Mbps\nDuplex: full\n' $each
done; } >@root@/proc/net/bonding/bond0
"""
"""As networkd: a bond that is there keeps what it has."""
IP = r"""
case "$*" in
"-j addr show" | "-j address show")
  cat @root@/members.json; [ ! -e @root@/proc/net/bonding/bond0 ] || cat @root@/bond.json; echo ']';;
"-j route show default" | "-j -6 route show default") echo "[]";;
"link delete dev bond0") rm -r @root@/proc/net/bonding/bond0 @root@/sys/class/net/bond0;;
"-4 -o addr show dev bond0") echo '9: bond0    inet 192.168.40.1/24 brd 192.168.40.255 scope global bond0';;
esac
"""


@pytest.mark.parametrize("mode", ["802.3ad", "active-backup", "balance-xor"])
def test_bonds(tree: Tree, mode: str) -> None:
    link = {
        "ifindex": 2,
        "operstate": "UP",
        "flags": ["UP"],
        "mtu": 9000,
        "link_type": "ether",
        "address": "b8:3f:d2:00:00:01",
        "addr_info": [],
    }
    members = [{**link, "ifname": f"ens41f{k}np{k}"} for k in range(2)]
    address = {"family": "inet", "local": "192.168.40.1", "prefixlen": 24, "scope": "global"}
    tree.write("/members.json", json.dumps(members).removesuffix("]"))
    tree.write("/bond.json", f", {json.dumps({**link, 'ifname': 'bond0', 'addr_info': [address]})}")
    for k in range(2):
        (tree.root / f"sys/class/net/ens41f{k}np{k}").mkdir(parents=True)
    path = 'n=${device##*/ens41f}; [ "$n" = "$device" ] || echo "ID_PATH=pci-0000:29:00.${n%np*}"'
    tree.program("udevadm", f"{UDEVADM_249}{path}")
    for name, body in (("networkctl", NETWORKCTL), ("ip", IP)):
        body = body.replace("/etc/", f"{tree.root}/etc/")
        tree.program(name, body.replace("@root@", str(tree.root)))

    def declared(**more: object) -> dict[str, Any]:
        stack = NicInputs.model_validate({"bonds": {"bond0": {**BOND, "mode": mode, **more}}})
        path = "/etc/systemd/network/20-bond.netdev"
        tree.write(
            path.replace("bond", "bond0"), templates.text(path, name="bond0", bond=stack.bonds["bond0"], vlans=())
        )
        return {"wanted": links.uppers(stack), "manager": "networkd"}

    for more in ({}, {"miimon_ms": 50}, {"mode": "802.3ad"}, {"mode": "802.3ad", "lacp_rate": "slow"}, {"mode": mode}):
        given = declared(**more)
        changed = more != {"mode": "802.3ad"} or mode != "802.3ad"
        assert carried_out(operations.upper_links, shell(tree), **given) or not changed
        assert left_alone(operations.upper_links, shell(tree), **given) == "all bonds and VLANs are as declared"
    report = tree.root / "proc/net/bonding/bond0"
    report.write_text(f"{report.read_text()}\nSlave Interface: ens9\nMII Status: up\nSpeed: 25000 Mbps\nDuplex: full\n")
    (command,) = carried_out(operations.upper_links, shell(tree), **given)
    assert "ip link delete dev bond0" in command
    left_alone(operations.upper_links, shell(tree), **given)


def test_tables_of_rails(tree: Tree) -> None:
    """iproute2's own words, as they are with the tables of two rails in one subnet."""
    rules = [
        {"priority": 0, "src": "all", "table": "local"},
        {"priority": 1100, "src": "10.0.0.1", "table": "100"},
        {"priority": 1101, "src": "10.0.0.2", "table": "101"},
        {"priority": 32766, "src": "all", "table": "main"},
    ]
    routes = [
        {"dst": "10.0.0.0/16", "dev": f"rail{k}", "table": f"10{k}", "protocol": "static", "scope": "link", "flags": []}
        for k in range(2)
    ]
    two = (replace(RAILS[0], address="10.0.0.1/16"), replace(RAILS[1], address="10.0.0.2/16"))
    given = {"wanted": links.rail_routes(two, NicInputs()), "manager": "networkd"}
    for name, entries in (("rule", rules), ("route", routes)):
        tree.write(f"/{name}.json", f"{json.dumps(entries)}\n")
    loopback = {"ifindex": 1, "ifname": "lo", "flags": [], "mtu": 65536, "operstate": "UNKNOWN"}
    tree.write("/show.json", f"{json.dumps([loopback])}\n")
    tree.program("ip", f'case "$*" in *default) echo "[]";; *) cat {tree.root}/$3.json;; esac')
    assert left_alone(operations.rail_tables, shell(tree), **given) == "all 2 rails have their tables"
    for name, entries in (("rule", rules), ("route", routes)):
        tree.write(f"/{name}.json", f"{json.dumps([entry for entry in entries if entry['table'] != '101'])}\n")
        with pytest.raises(AssertionError, match="networkctl reconfigure rail1"):
            left_alone(operations.rail_tables, shell(tree), **given)
        tree.write(f"/{name}.json", f"{json.dumps(entries)}\n")


def test_link_counters_begin_once_in_a_boot(tree: Tree) -> None:
    boot = "/proc/sys/kernel/random/boot_id"
    tree.port("rail0", SLOT, "mlx5_0")
    tree.write("/sys/class/net/rail0/carrier_down_count", "3\n")
    given = {"names": ["rail0"]}
    for number in range(2):
        tree.write(boot, f"7d2a2d5e-62c1-4c1f-8a53-00000000000{number}\n")
        assert carried_out(operations.zero_link_counters, shell(tree), **given)
        left_alone(operations.zero_link_counters, shell(tree), **given)
