"""The firewall of a step with real network namespaces: a node, its peer, and a stranger, each in one of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import IO, Any, Final

import pytest

from rackproof.bench import firewall
from rackproof.bench.firewall import ADDRESSES, LIFE_S, SWEEP, Firewall, Ip, command, ruleset
from rackproof.bench.step import BenchContext
from rackproof.bench.user import BenchUsers
from rackproof.remote.command import CommandResult, bounded, ending
from tests.unit.fakes import reply, scripted

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("nft", "ip", "ss", "setpriv"))),
    reason="needs root, nftables and iproute2",
)
SERVICE, KIT, CHOSEN = 9100, 15201, 23456
"""Ports: of another service of the node, of the kit's program, and one that the kit's program chose."""
ACCOUNT, OTHER = 990, 61234
"""Users: the account that measures, in the fakes, and another one without rights."""
NODES: Final = {"gpu-01": "node", "gpu-02": "peer"}
LIMIT_S: Final = 120.0
NETWORKS: Final = {"peer": ("10.91.0.1", "10.91.0.2"), "stranger": ("10.91.1.1", "10.91.1.2")}
SIX: Final = {"peer": ("fd91::1", "fd91::2"), "stranger": ("fd92::1", "fd92::2")}
"""The node's address and the other's own, by machine."""
CONNECT: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).recv(1)
except OSError:
    sys.exit(1)
"""
SERVE: Final = """
import os, socket, sys
own = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True, backlog=50)
os.write(1, b"y")
while True:
    one = own.accept()[0]
    one.sendall(b"x")
    one.close()
"""


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout


class Machines:
    """Network namespaces ``node``, ``peer`` and ``stranger``; the node has a link to each of the others."""

    def __init__(self) -> None:
        self.open = ExitStack()
        self.names = {name: f"rackproof-{os.getpid()}-{name}" for name in ("node", *NETWORKS)}
        for namespace in self.names.values():
            run("ip", "netns", "add", namespace)
            self.open.callback(run, "ip", "netns", "delete", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        for number, other in enumerate(NETWORKS):
            ends = (("node", f"p{number}"), (other, "p"))
            (own, first), (far, second) = ((self.names[name], port) for name, port in ends)
            run("ip", "-n", own, "link", "add", first, "type", "veth", "peer", "name", second, "netns", far)
            for (name, port), four, six in zip(ends, NETWORKS[other], SIX[other], strict=True):
                namespace = self.names[name]
                run("ip", "-n", namespace, "address", "add", f"{four}/24", "dev", port)
                run("ip", "-n", namespace, "address", "add", f"{six}/64", "dev", port, "nodad")
                run("ip", "-n", namespace, "link", "set", port, "up")

    def words(self, machine: str, user: int, *words: str) -> list[str]:
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return ["ip", "netns", "exec", self.names[machine], *become, *words]

    def serve(self, port: int, user: int = ACCOUNT) -> None:
        words = self.words("node", user, sys.executable, "-Ic", SERVE, str(port))
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.open.callback(_end, server)
        assert server.stdout is not None
        assert server.stdout.read(1) == b"y"

    def reaches(self, machine: str, address: str, port: int, user: int = ACCOUNT, patience_s: float = 1.0) -> bool:
        words = self.words(machine, user, sys.executable, "-Ic", CONNECT, address, str(port), str(patience_s))
        return subprocess.run(words, check=False, timeout=LIMIT_S).returncode == 0

    def tables(self, machine: str = "node") -> str:
        return run(*self.words(machine, 0, "nft", "list", "tables"))

    def pipe(self, machine: str, asked: str, limit_s: float, mark: str = "", user: str = "") -> LocalPipe:
        return LocalPipe(self.words(machine, 0, "sh", "-c", bounded(asked, limit_s, mark=mark, user=user)))


class LocalPipe:
    """A pipe to a local process instead of one to a node."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def why(self) -> str:
        return _stream(self.process.stderr).read().decode().strip()

    def write(self, data: bytes) -> bool:
        _stream(self.process.stdin).write(data)
        _stream(self.process.stdin).flush()
        return True

    def skip_to(self, mark: bytes, timeout_s: float) -> bool:
        return _stream(self.process.stdout).readline() == mark

    def close(self) -> None:
        with self.process:
            pass


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _end(server: subprocess.Popen[bytes]) -> None:
    with server:
        server.kill()


@pytest.fixture
def machines() -> Iterator[Machines]:
    own = Machines()
    with own.open:
        yield own


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while not (seen := true()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


@contextmanager
def step_of(
    machines: Machines, folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool = True, user: str = ""
) -> Iterator[list[str]]:
    """A step with the firewall, on the node and its peer. Yields what the run says."""

    def answer(node: str, asked: str) -> CommandResult | None:
        words = machines.words(NODES[node], 0, "sh", "-c", asked)
        return reply(node, asked, run(*words)) if asked == ADDRESSES else None

    with scripted(folder, answer) as session:
        fake: Any = type(session.fleet["gpu-01"])
        monkeypatch.setattr(
            fake, "pipe", lambda own, asked, limit_s: machines.pipe(NODES[own.node.name], asked, limit_s, user=user)
        )
        lines: list[str] = []
        context = BenchContext(session, lines.append)
        BenchUsers.of(context).ready(NODES)
        with context.stack:
            Firewall.of(context).close(list(NODES), [KIT], chosen=chosen)
            yield lines


@pytest.mark.parametrize("chosen", [False, True])
def test_a_peer_connects_and_a_stranger_does_not(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    def reached(other: str, user: int = ACCOUNT) -> set[int]:
        ways = [(networks[other][0], port) for networks in (NETWORKS, SIX) for port in (SERVICE, KIT, CHOSEN)]
        seen = [(address, port) for address, port in ways if machines.reaches(other, address, port, user)]
        per_port = {port: sum(port == one for _, one in seen) for port in (SERVICE, KIT, CHOSEN)}
        assert set(per_port.values()) <= {0, 2}, f"both versions of IP, or none: {seen}"
        return {port for port, count in per_port.items() if count}

    machines.serve(SERVICE, OTHER)
    if chosen:
        machines.serve(KIT)  # another program listened on the kit's port before
    with step_of(machines, tmp_path, monkeypatch, chosen) as lines:
        if not chosen:
            machines.serve(KIT)
        machines.serve(CHOSEN)
        assert machines.tables().count("table inet rackproof_") == 1
        assert reached("peer") == {SERVICE, KIT, CHOSEN}
        assert reached("stranger") == ({SERVICE} if chosen else {SERVICE, CHOSEN})
        # Another user of a peer, and of the node itself.
        assert reached("peer", OTHER) == {SERVICE, CHOSEN}
        for address in ("127.0.0.1", "::1", NETWORKS["peer"][0], SIX["stranger"][0]):
            assert machines.reaches("node", address, KIT)
            assert machines.reaches("node", address, CHOSEN, OTHER)
            assert not machines.reaches("node", address, KIT, OTHER)
    assert lines == []
    assert machines.tables() == machines.tables("peer") == ""
    assert reached("stranger") == reached("peer", OTHER) == {SERVICE, KIT, CHOSEN}


def test_what_a_loopback_address_has_is_no_hole(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = f"import socket,time; s=socket.create_server(('127.0.0.1',{CHOSEN})); print(flush=True); time.sleep(600)"
    holder = subprocess.Popen(machines.words("node", OTHER, sys.executable, "-Ic", hold), stdout=subprocess.PIPE)
    machines.open.callback(_end, holder)
    _stream(holder.stdout).readline()
    with step_of(machines, tmp_path, monkeypatch):
        _end(holder)
        machines.serve(CHOSEN)
        assert machines.reaches("peer", NETWORKS["peer"][0], CHOSEN)
        assert not machines.reaches("stranger", NETWORKS["stranger"][0], CHOSEN)


def test_data_over_udp_passes(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RoCE is UDP on port 4791."""
    listen = "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4791)); print(flush=True)"
    with step_of(machines, tmp_path, monkeypatch):
        words = machines.words("node", 0, sys.executable, "-Ic", f"{listen}; print(s.recv(9), flush=True)")
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        machines.open.callback(_end, server)
        _stream(server.stdout).readline()
        to = f"('{NETWORKS['peer'][0]}', 4791)"
        send = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', {to})"
        run(*machines.words("peer", OTHER, sys.executable, "-Ic", send))
        assert _stream(server.stdout).readline() == b"b'x'\n"


def kept(machines: Machines, limit_s: float = LIFE_S, mark: str = "") -> LocalPipe:
    """A table on the node, as a step has it."""
    rules = ruleset("rackproof_abc", [], [KIT], ACCOUNT, True).encode()
    pipe = machines.pipe("node", command("rackproof_abc", len(rules)), limit_s, mark)
    pipe.write(rules)
    assert pipe.skip_to(b"rackproof-firewall\n", LIMIT_S), pipe.why
    assert machines.tables() != ""
    return pipe


@pytest.mark.parametrize("way", ["the connection", "Ctrl-C", "the time limit", "timeout killed"])
def test_the_table_goes_whatever_ends_the_step(machines: Machines, way: str) -> None:
    mark = f"firewall{os.getpid()}"
    pipe = kept(machines, 2 if way == "the time limit" else LIFE_S, mark)
    if way == "Ctrl-C":
        subprocess.run(["sh", "-c", ending(mark)], check=False, timeout=LIMIT_S)
    elif way == "timeout killed":
        pipe.process.kill()
        pipe.close()
    elif way == "the connection":
        pipe.close()
    assert eventually(lambda: machines.tables() == "")
    pipe.close()


def test_what_a_killed_run_left_goes_with_the_next_stage(machines: Machines) -> None:
    run(*machines.words("node", 0, "nft", "add", "table", "inet", "rackproof_0a"))
    run(*machines.words("node", 0, "nft", "add", "table", "inet", "site_rackproof_0a"))
    pipe = kept(machines)
    assert sorted(machines.tables().splitlines()) == ["table inet rackproof_abc", "table inet site_rackproof_0a"]
    run(*machines.words("node", 0, "sh", "-c", SWEEP))
    assert machines.tables() == "table inet site_rackproof_0a\n"
    pipe.close()


def test_rules_that_are_not_removed_end_by_themselves(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall, "LIFE_S", 2)
    machines.serve(KIT)
    rules = ruleset("rackproof_abc", [], [KIT], ACCOUNT, False)
    subprocess.run(machines.words("node", 0, "nft", "-f", "-"), input=rules, text=True, check=True, timeout=LIMIT_S)
    assert eventually(lambda: machines.reaches("stranger", NETWORKS["stranger"][0], KIT))
    assert machines.tables() != ""


def test_a_node_that_refuses_nft_measures_without_it(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"setpriv --reuid={OTHER} --regid={OTHER} --clear-groups "
    with step_of(machines, tmp_path, monkeypatch, user=user) as lines:
        machines.serve(KIT)
        assert machines.reaches("stranger", NETWORKS["stranger"][0], KIT)
    assert len(lines) == 1
    assert re.fullmatch(r"gpu-\[01-02\]: no firewall around the ports of benchmarks: .*not permitted.*", lines[0])


@pytest.mark.parametrize("chosen", [False, True])
def test_nft_takes_thousands_of_peers(machines: Machines, chosen: bool) -> None:
    peers: list[Ip] = [IPv4Address(0x0A000000 + number) for number in range(4000)]
    peers += [IPv6Address(0xFD91 << 112 | number) for number in range(4000)]
    rules = "define known = { 22, 0 }\n" + ruleset("rackproof_abc", peers, range(15201, 15300), ACCOUNT, chosen)
    subprocess.run(machines.words("node", 0, "nft", "-f", "-"), input=rules, text=True, check=True, timeout=LIMIT_S)
