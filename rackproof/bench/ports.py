"""Wait until a server listens on its node: tools do not reliably print into a pipe that they are ready."""

from __future__ import annotations

from rackproof.errors import NodeUnreachable
from rackproof.remote.ssh import Connection, Server

READY_S = 30


def wait_listening(connection: Connection, server: Server, port: int) -> None:
    """Return when a TCP socket listens on the port. Raises NodeUnreachable when the server ends or is too slow."""
    probe = (
        f"for i in $(seq 1 {READY_S * 5}); do ss -Hltn 'sport = :{port}' | grep -q . && exit 0; sleep 0.2; done; exit 1"
    )
    answer = connection.run(probe, READY_S + 10)
    if answer.ok:
        return
    tool = server.command.split()[0]
    if not server.poll():
        raise NodeUnreachable(connection.node.name, f"{tool} ended at once: {server.stop().why}")
    raise NodeUnreachable(connection.node.name, f"{tool} does not listen on port {port}: {answer.why}")
