"""The fabric between nodes: ports, addresses, settings in force, RDMA, and whether full-size packets pass."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import rails_of
from rackproof.core.port_names import rail_alias
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import some
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS
from rackproof.parse.getent import parse_ahosts, parse_named_ahosts
from rackproof.parse.kernel import parse_sysctl
from rackproof.parse.netdev import NetDevice, parse_ip
from rackproof.parse.ping import Ping, parse_answered_sizes, parse_ping
from rackproof.parse.rdma import parse_rdma_link
from rackproof.parse.ssh import login_refused
from rackproof.parse.udev import parse_id_path
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read

LINKS = "ip -j addr show"
RDMA = "rdma -j link show"
IP_AND_ICMP_BYTES = 28
SMALL_BYTES = 56
MANY = 100
"""Packets for a loss measurement: resolves 1 %, takes one second."""
AGAIN = 500
"""Packets of the second series, where the first one lost too many: one bad second is 7 % of it, not all."""
PEERS = 3
"""Number of nodes to ping; the fleet benchmark covers all pairs."""

# Several ports of a host may share a subnet: each port handles ARP for its own address only, and loose reverse-path
# filtering accepts packets whose reply would leave by another port.
PORT_SYSCTL = {"rp_filter": "2", "arp_ignore": "1", "arp_announce": "2"}


def ports(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
    return (f"{arch.fabric.interface_prefix}{rail}" for rail in range(rails_of(arch, node)))


def rail_of(arch: Architecture, port: str) -> int:
    return int(port.removeprefix(arch.fabric.interface_prefix))


def port_of(host: Host, name: str) -> NetDevice | None:
    return next((device for device in parse_ip(read(host, LINKS)) if device.name == name), None)


def present(host: Host, name: str) -> NetDevice:
    """The port. Raises Unmeasured when the node has none of this name."""
    port = port_of(host, name)
    if port is None:
        raise Unmeasured(f"there is no {name}; see fabric.port")
    return port


def _entry(node: Node, key: str, rail: int) -> str | None:
    values = node.data.get(key) or ()
    return str(values[rail]) if rail < len(values) else None


@check(
    "fabric.port",
    reads="fabric.interface_prefix",
    each=ports,
    protects="If rail 0 of one node is cabled to rail 1 of another, traffic crosses the spine or is lost.",
    hint="ip link: compare the NIC's permanent MAC address with the inventory, then reboot: udev names ports at boot.",
)
def test_port(host: Host, arch: Architecture, node: Node, item: str) -> None:
    rail = rail_of(arch, item)
    mac, path = _entry(node, "fabric_macs", rail), _entry(node, "fabric_paths", rail)
    port = port_of(host, item)
    if port is None:
        raise AssertionError(f"expected a port {item}, actual none")
    if mac:
        expect((port.mac or "none").lower(), mac.lower(), "MAC address")
    elif path:
        expect(parse_id_path(read(host, "udevadm info -q property /sys/class/net/%s", item)), path, "path of the NIC")
    else:
        raise Unmeasured("the inventory has neither fabric_macs nor fabric_paths")


@check(
    "fabric.link",
    reads="fabric.rails",
    each=ports,
    protects="A collective runs at the speed of the slowest rail; a rail that is down stops it.",
    hint="ip link; check cable and optics, then the switch port.",
)
def test_link(host: Host, item: str) -> None:
    port = present(host, item)
    state = "up with carrier" if port.carrier else f"{port.state.lower()} ({', '.join(port.flags)})"
    expect(state, "up with carrier")


@check(
    "fabric.address",
    reads="fabric.rails",
    each=ports,
    protects="Storage and MPI connect to the node at its declared address.",
    hint="networkctl status PORT; check that no other tool (NetworkManager, ifupdown) manages the interface.",
)
def test_address(host: Host, arch: Architecture, node: Node, item: str) -> None:
    expected = _entry(node, "fabric_addresses", rail_of(arch, item))
    if expected is None:
        raise Unmeasured("the inventory has no fabric_addresses for this rail")
    addresses = present(host, item).addresses
    if addresses is None:
        raise Unmeasured("ip did not list addresses")
    actual = [f"{address.address}/{address.prefix_length}" for address in addresses if address.family == "inet"]
    if expected not in actual:
        raise AssertionError(f"expected {expected}, actual {', '.join(actual) or 'none'}")


@check(
    "fabric.mtu",
    reads="fabric.mtu",
    each=ports,
    protects="If one port has a smaller MTU than its peers, large messages hang while ping and ssh work.",
    hint="ip link show PORT; networkctl reload. The switch port needs the same or a larger MTU.",
)
def test_mtu(host: Host, arch: Architecture, item: str) -> None:
    expect(present(host, item).mtu_bytes, arch.fabric.mtu, "MTU")


@check(
    "fabric.port_sysctl",
    reads="fabric.rails",
    each=ports,
    protects="With several ports in one subnet the kernel answers ARP on the wrong one, and rails share one cable.",
    hint="sysctl net.ipv4.conf.all and .PORT: the kernel takes the larger value of the two.",
)
def test_port_sysctl(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    names = ["all", *ports(arch, node, rack)]
    keys = [f"net.ipv4.conf.{name}.{key}" for name in names for key in PORT_SYSCTL]
    values = parse_sysctl(read(host, f"sysctl -e -- {' '.join(shlex.quote(key) for key in keys)}"))
    wrong = []
    for key, expected in PORT_SYSCTL.items():
        levels = [values.get(f"net.ipv4.conf.{name}.{key}") for name in ("all", item)]
        if None in levels:
            raise Unmeasured(f"the kernel has no net.ipv4.conf.{item}.{key}; see fabric.port")
        in_force = str(max(int(value or 0) for value in levels))
        if in_force != expected:
            wrong.append(f"{key}: expected {expected}, actual {in_force}")
    expect_all(wrong)


@check(
    "fabric.rdma",
    reads="fabric.rdma_prefix",
    each=ports,
    protects="Without RDMA, NFS over RDMA does not mount, and NCCL silently falls back to slow sockets.",
    hint="rdma link; for Soft-RoCE systemctl status 'rackproof-rxe@*', otherwise the driver's messages in dmesg.",
)
def test_rdma(host: Host, arch: Architecture, item: str) -> None:
    expected = f"{arch.fabric.rdma_prefix}{rail_of(arch, item)}"
    links = parse_rdma_link(read(host, RDMA))
    link = next((link for link in links if link.netdev == item), None)
    if link is None:
        others = ", ".join(f"{other.device} on {other.netdev}" for other in links) or "none"
        raise AssertionError(f"expected RDMA device {expected} on {item}, actual {others}")
    expect(link.device, expected, f"RDMA device on {item}")
    expect(link.state if link.up else f"{link.state}/{link.physical_state}", "ACTIVE", f"RDMA device {link.device}")


@check(
    "fabric.jumbo",
    reads="fabric.mtu",
    each=ports,
    when=lambda arch, node, rack: len(rack.nodes) > 1,
    timed=True,
    protects="If a switch on the path has a smaller MTU than both ends, large messages are lost while small ones pass.",
    hint="ping -M do -s SIZE PEER with decreasing sizes finds the path MTU; check the switch ports on that path.",
)
def test_jumbo(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    rail = rail_of(arch, item)
    peers = {peer.name: peer.fabric_address(rail) for peer in peers_of(arch, node, rack, rail)}
    known = {name: address for name, address in peers.items() if address}
    if not known:
        raise Unmeasured("the inventory has no fabric_addresses of other nodes")
    size = arch.fabric.mtu - IP_AND_ICMP_BYTES
    announce(host, LINKS, *(_ping(item, address, size) for address in known.values()))
    present(host, item)
    silent = [name for name, address in known.items() if not _answers(host, _ping(item, address, size))]
    # Both sizes are sent again, together, so that a peer that was booting a moment ago does not look like an MTU fault.
    announce(host, *(_both_sizes(item, known[name], size) for name in silent))
    sizes = {name: parse_answered_sizes(read(host, _both_sizes(item, known[name], size))) for name in silent}
    only_small = [name for name, answered in sizes.items() if answered == ("small",)]
    # This node cannot know whether others reach a silent peer: the path of the two is dead either way.
    dead = [name for name, answered in sizes.items() if not answered]
    problems = []
    if only_small:
        problems.append(
            f"expected packets of {arch.fabric.mtu} B to pass, actual only small ones pass, to {', '.join(only_small)}"
        )
    problems += [
        f"{item} of {node.name} to {name} ({known[name]}): expected an answer, actual none, not even to small packets"
        for name in dead
    ]
    expect_all(problems)


@check(
    "fabric.loss",
    reads="fabric.loss_max_pct",
    each=ports,
    when=lambda arch, node, rack: (
        arch.fabric is not None and arch.fabric.loss_max_pct is not None and len(rack.nodes) > 1
    ),
    timed=True,
    protects="RDMA resends whole windows: a loss of one packet in a thousand halves the bandwidth.",
    hint="ethtool -S PORT for discards and errors on both ends, counters of the switch ports; then cable and optics.",
)
def test_loss(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    allowed = arch.fabric.loss_max_pct or 0.0
    rail = rail_of(arch, item)
    known = {peer.name: address for peer in peers_of(arch, node, rack, rail) if (address := peer.fabric_address(rail))}
    if not known:
        raise Unmeasured("the inventory has no fabric_addresses of other nodes")
    announce(host, LINKS, *(_many_pings(item, address, MANY) for address in known.values()))
    present(host, item)
    series = {name: [_pings(host, item, address, MANY)] for name, address in known.items()}
    # One bad second blames no node: both series count.
    lossy = [name for name, (first,) in series.items() if first.lost_pct > allowed]
    announce(host, *(_many_pings(item, known[name], AGAIN) for name in lossy))
    for name in lossy:
        series[name].append(_pings(host, item, known[name], AGAIN))
    problems = [
        f"{item} of {node.name} to {name}: expected one reply to each packet, actual"
        f" {duplicates} further ones: a loop, or two nodes with one address"
        for name, pings in series.items()
        if (duplicates := sum(ping.duplicates for ping in pings))
    ]
    for name in lossy:
        sent, received = sum(ping.sent for ping in series[name]), sum(ping.received for ping in series[name])
        if (share := Ping(sent, received).lost_pct) > allowed:
            problems.append(
                f"{item} of {node.name} to {name}: expected at most {allowed:g} % of packets lost,"
                f" actual {share:.3g} % of {sent}"
            )
    expect_all(problems)


def _pings(host: Host, port: str, address: str, packets: int) -> Ping:
    statistics = parse_ping(answered(host, _many_pings(port, address, packets), "ping", good=(0, 1)).body)
    if statistics.sent != packets:
        raise ParseError("ping", f"sent {statistics.sent} of {packets} packets")
    return statistics


def _many_pings(port: str, address: str, packets: int) -> str:
    where = f"-I {shlex.quote(port)} -s {SMALL_BYTES} {shlex.quote(address)}"
    return f"ping -n -q -c {packets} -i 0.01 -W 2 {where} 2>&1{STATUS}"


def peers_of(arch: Architecture, node: Node, rack: Rack, rail: int) -> list[Node]:
    """Storage servers first, then the neighbours in the inventory: all nodes together cover every port.

    Nodes without an address on the rail are no peers there.
    """
    nodes = [peer for peer in rack.nodes if peer == node or peer.fabric_address(rail)]
    index = nodes.index(node)
    ring = [nodes[(index + step) % len(nodes)] for step in (1, -1)]
    servers = [peer for role in arch.roles if role != "gpu" for peer in rack.group(role)[:1] if peer in nodes]
    return list({peer.name: peer for peer in [*servers, *ring] if peer != node}.values())[:PEERS]


def _ping(port: str, address: str, size: int) -> str:
    return f"ping -n -q -M do -c 2 -i 0.2 -W 2 -I {shlex.quote(port)} -s {size} {shlex.quote(address)} 2>&1{STATUS}"


def _answers(host: Host, ping: str) -> bool:
    answer = answered(host, ping, "ping", good=(0, 1))
    return "message too long" not in answer.body and parse_ping(answer.body).received > 0


def _both_sizes(port: str, address: str, size: int) -> str:
    ping = f"ping -n -q -M do -c 2 -i 0.2 -W 2 -I {shlex.quote(port)} {shlex.quote(address)}"
    return f"{ping} -s {SMALL_BYTES} >/dev/null 2>&1; echo small $?; {ping} -s {size} >/dev/null 2>&1; echo large $?"


@check(
    "fabric.names",
    reads="fabric.rails",
    when=lambda arch, node, rack: rails_of(arch, node) > 0,
    protects="A rail's name elsewhere sends data over the slow link; a node's name on a rail sends control over it.",
    hint="getent ahostsv4 NAME; look for Debian's 127.0.1.1 line in /etc/hosts, or a DNS zone that takes precedence.",
)
def test_names(host: Host, arch: Architecture, rack: Rack) -> None:
    expected: dict[str, str] = {}
    for node in rack.nodes:
        for rail in range(arch.fabric.rails):
            if address := node.fabric_address(rail):
                control = node.control_address(arch.fabric.kind)
                expected |= {node.name: control} if rail == 0 and control else {}
                expected[rail_alias(node.name, arch.fabric.interface_prefix, rail)] = address
    if not expected:
        raise Unmeasured("the inventory has no fabric_addresses")
    resolved = _resolved(host, tuple(expected))
    wrong = [
        f"{name}: expected {address}, actual {resolved.get(name, 'no answer')}"
        for name, address in expected.items()
        if resolved.get(name) != address
    ]
    if wrong:
        raise AssertionError(some(wrong, 5, "; "))


def _resolved(host: Host, names: tuple[str, ...]) -> dict[str, str]:
    """First IPv4 address by name. One lookup for all names; if any fails, one lookup per name."""
    words = " ".join(shlex.quote(name) for name in names)
    answer = answered(host, f"getent ahostsv4 {words}{STATUS}", "getent", good=(0, 2))
    addresses = parse_ahosts(answer.body)
    if answer.status == 0 and len(addresses) == len(names):
        return dict(zip(names, addresses, strict=True))
    loop = f'for n in {words}; do echo "$n $(getent ahostsv4 "$n" | head -n 1)"; done'
    lookups = parse_named_ahosts(read(host, loop), names)
    return {name: address or "nothing" for name, address in lookups.items()}


@check(
    "fabric.ssh",
    reads="roles.gpu.count",
    roles=("gpu",),
    when=lambda arch, node, rack: arch.rails > 0 and len(rack.group("gpu")) > 1,
    protects="Users and their launchers go from node to node over ssh; a prompt or an unknown host key stops them.",
    hint="ssh PEER true as root on the node; run `rackproof deploy` again when all nodes are up: it exchanges keys.",
)
def test_ssh(host: Host, node: Node, rack: Rack) -> None:
    nodes = rack.group("gpu")
    peer = nodes[(nodes.index(node) + 1) % len(nodes)]
    command = f"ssh -n -o BatchMode=yes -o ConnectTimeout=10 %s true 2>&1{STATUS}"
    answer = answered(host, command, "ssh", peer.name, good=None)
    if answer.status != 0 and not login_refused(answer.body):
        raise Unmeasured(f"{peer.name} does not answer: {answer.failure}")
    if answer.status != 0:
        raise AssertionError(f"expected a login on {peer.name} without a prompt, actual {answer.reason}")
