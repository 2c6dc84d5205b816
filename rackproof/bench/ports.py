"""Wait until a server listens, which tools do not reliably report on a pipe, and until it has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rackproof.bench.user import Account
from rackproof.errors import NodeUnreachable
from rackproof.remote.channel import Server
from rackproof.remote.command import program
from rackproof.remote.ssh import Connection

READY_S = 30
PROBE = f"for i in $(seq 1 {READY_S * 5}); do "
"""Begin of the commands that wait until a server listens."""


def at_port(port: int, account: Account, address: str = "") -> str:
    """Command that succeeds when a TCP socket of the account listens: another user may have taken the port.

    With ``address`` the socket is bound to it.
    """
    own = f" and src {address}" if address else ""
    return f"ss -Hltne 'sport = :{port}{own}' | grep -q ' uid:{account.uid} '"


def at_socket(path: str) -> str:
    """Command that succeeds when a Unix socket is open; the file of a server that has ended does not count."""
    return f"grep -q ' {path}$' /proc/net/unix"


def wait_ended(servers: Sequence[Server], limit_s: float) -> None:
    """Return when all servers have ended by themselves, or after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and any(server.poll() for server in servers):
        time.sleep(0.1)


def wait_listening(connection: Connection, server: Server, listens: str) -> None:
    """Return when the command ``listens`` succeeds. Raises NodeUnreachable if the server ends or is too slow."""
    probe = f"{PROBE}{listens} && exit 0; sleep 0.2; done; exit 1"
    answer = connection.run(probe, READY_S + 10)
    if answer.ok:
        return
    tool = program(server.command)
    if not server.poll():
        raise NodeUnreachable(connection.node.name, f"{tool} ended at once: {server.stop().why}")
    raise NodeUnreachable(connection.node.name, f"{tool} does not listen: {answer.why}")
