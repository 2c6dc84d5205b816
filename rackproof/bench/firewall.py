"""A firewall for the time of a step: new connections to the ports of its programs come from the step's nodes alone.

iperf3, perftest and the ranks of collectives take connections without authentication. Every node of the step gets a
table of nftables of the kit's own. It refuses, and allows nothing that another table refuses. Its process on the node
removes it when the step or the connection ends; if even that process is killed, the rules end by themselves after
``LIFE_S``.

No figure depends on it, so nothing of it is recorded, and a node without it is measured all the same.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.bench.user import BenchUsers
from rackproof.core.rack import fold
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.netdev import parse_ip
from rackproof.remote.command import MARK
from rackproof.remote.ssh import Connection
from rackproof.shell import script

Ip = IPv4Address | IPv6Address
ADDRESSES: Final = "ip -j addr show"
SWEEP: Final = script(__name__, "firewall_sweep")
"""Command that removes what a killed run has left."""
LIFE_S: Final = 3600
_READY: Final = b"rackproof-firewall\n"
_READY_S: Final = 30.0


class Firewall(OncePerStage):
    """Firewalls and addresses of the nodes, read once a stage."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._addresses: dict[str, frozenset[Ip]] = {}
        self._refusing: set[str] = set()
        """Nodes that have refused a table."""
        self._noted: set[tuple[str, str]] = set()
        """Nodes that the user has been told about, each with the reason."""

    def close(self, nodes: Collection[str], ports: Collection[int], *, chosen: bool = False) -> None:
        """Until the end of the step, let only these nodes reach these ports of each other.

        ``chosen``: also those that programs choose themselves, which is every port from 1024 on where no program
        listens yet. Nodes without it are named once in a stage.
        """
        if not nodes or not (ports or chosen):
            return
        if why := self._ask(nodes):  # a table on the others would keep this node out
            self._note(nodes, why)
            return
        users = BenchUsers.of(self._context)
        peers = frozenset[Ip]().union(*(self._addresses[node] for node in nodes))

        def start(connection: Connection) -> str | None:
            return self._start(connection, peers, ports, users[connection.node.name].uid, chosen)

        able = [node for node in nodes if node not in self._refusing]
        answers = self._session.fleet.each(able, start, "the firewall")
        for why in dict.fromkeys(answer for answer in answers.values() if answer is not None):
            refusing = [node for node in able if answers[node] == why]
            self._refusing.update(refusing)
            self._note(refusing, why)

    def _ask(self, nodes: Collection[str]) -> str:
        """Learn the addresses of the nodes. Returns why those of one are unknown; empty if all are known."""
        missing = [node for node in nodes if node not in self._addresses]
        for node, answer in self._session.fleet.run(dict.fromkeys(missing, ADDRESSES), _READY_S).items():
            try:
                if not answer.ok:
                    raise ParseError("ip", answer.why)
                own = [address for device in parse_ip(answer.stdout) for address in device.addresses or ()]
                self._addresses[node] = frozenset(ip_address(address.address) for address in own)
            except ValueError as error:
                return f"the addresses of {node} are unknown: {error}"
        return ""

    def _note(self, nodes: Iterable[str], why: str) -> None:
        """Tell the user that these nodes have no firewall; each node and reason once in a stage."""
        if new := [node for node in nodes if (node, why) not in self._noted]:
            self._noted.update((node, why) for node in new)
            self._context.say(f"{fold(new)}: no firewall around the ports of benchmarks: {why}")

    def _start(
        self, connection: Connection, peers: Iterable[Ip], ports: Iterable[int], uid: int, chosen: bool
    ) -> str | None:
        """Add a node's table. Returns why it has none."""
        table = f"rackproof_{secrets.token_hex(8)}"
        rules = ruleset(table, peers, ports, uid, chosen).encode()
        try:
            pipe = connection.pipe(command(table, len(rules)), LIFE_S)
        except RemoteError as error:
            return error.reason
        self._context.stack.callback(pipe.close)
        pipe.write(rules)
        if pipe.skip_to(_READY, _READY_S):
            return None
        why = pipe.why
        pipe.close()
        return why


def command(table: str, length: int) -> str:
    """Command of a node that keeps a table while its input is open, after so many bytes of rules.

    It has no mark: at the end of the program it gets a signal through ``timeout``, and the time to remove the table.
    """
    text = f"{SWEEP}\n{script(__name__, 'firewall', table=table, bytes=length)}"
    return f"exec env -u {MARK} sh -c {shlex.quote(text)}"


def ruleset(table: str, peers: Iterable[Ip], ports: Iterable[int], uid: int, chosen: bool) -> str:
    """Rules that drop attempts to connect from others than peers, and to ``ports`` from other users of the peers.

    Only the first packet of a TCP connection is looked at: RDMA over UDP and the data pass by the first two rules.
    """
    of_version: dict[int, set[str]] = {4: set(), 6: set()}
    for peer in peers:
        if not peer.is_loopback:
            of_version[peer.version].add(str(peer).partition("%")[0])
    first = "meta l4proto != @alive accept\n  tcp flags & (syn | ack) != syn accept"
    return f"""\
table inet {table} {{
 set alive {{ type inet_proto; flags timeout; elements = {{ tcp timeout {LIFE_S}s }}; }}
 set peers4 {{ type ipv4_addr; {_elements(of_version[4])}}}
 set peers6 {{ type ipv6_addr; {_elements(of_version[6])}}}
 set ports {{ type inet_service; {_elements({str(port) for port in ports})}}}
 chain machines {{
  type filter hook input priority 0; policy accept;
  {first}
  iifname "lo" accept
  ip saddr @peers4 accept
  ip6 saddr @peers6 accept
  tcp dport @ports drop
  {"tcp dport >= 1024 tcp dport != $known drop" if chosen else ""}
 }}
 chain users {{
  type filter hook output priority 0; policy accept;
  {first}
  tcp dport != @ports accept
  meta skuid != {{ 0, {uid} }} oifname "lo" drop
  meta skuid != {{ 0, {uid} }} ip daddr @peers4 drop
  meta skuid != {{ 0, {uid} }} ip6 daddr @peers6 drop
 }}
}}
"""


def _elements(values: Collection[str]) -> str:
    return f"elements = {{ {', '.join(sorted(values))} }}; " if values else ""
