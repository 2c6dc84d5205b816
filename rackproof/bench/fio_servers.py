"""fio servers on the clients of a storage, running for the whole benchmark stage."""

from __future__ import annotations

from contextlib import ExitStack

from rackproof.bench.ports import wait_listening
from rackproof.bench.step import BenchContext
from rackproof.errors import NodeUnreachable, RemoteError
from rackproof.remote.ssh import Server

PORT = 8765
LIFE_S = 24 * 3600
"""A server whose controller is gone ends after this time."""


class FioServers:
    """Starts missing servers; they end with the stage."""

    def __init__(self, context: BenchContext) -> None:
        self._context = context
        self._running: dict[str, Server] = {}

    @staticmethod
    def of(context: BenchContext) -> FioServers:
        servers: FioServers = context.shared.setdefault("fio-servers", FioServers(context))
        return servers

    def ensure(self, nodes: list[str]) -> dict[str, str | None]:
        """By node: None when its server is ready, otherwise the reason."""
        return self._context.session.fleet.each(nodes, lambda connection: self._start(connection.node.name))

    def address(self, node: str) -> str:
        address = self._context.session.rack.node(node).fabric_address()
        if address is None:
            raise NodeUnreachable(
                node, "the inventory gives no fabric address, so the launcher cannot reach its fio server"
            )
        return address

    def _start(self, node: str) -> str | None:
        server = self._running.get(node)
        try:
            if server is not None and server.poll():
                return None
            address = self.address(node)
            stack = ExitStack()
            server = stack.enter_context(self._context.session.serving(node, f"fio --server={address},{PORT}", LIFE_S))
            self._context.stack.push(stack.pop_all())
            wait_listening(self._context.session.fleet[node], server, PORT)
            self._running[node] = server
        except RemoteError as error:
            return str(error)
        except (OSError, EOFError) as error:
            return f"{node}: {error}"
        return None
