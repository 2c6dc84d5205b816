"""fio servers on storage clients, which steps share: on an emulated node one takes seconds to start."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from rackproof.bench.ports import at_socket, wait_listening
from rackproof.bench.relay import FIO, LIFE_S, Relay
from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.bench.user import BenchUsers
from rackproof.errors import RemoteError
from rackproof.remote.channel import Server

SERVER: Final = f"rm -f {FIO}; exec fio --server=sock:{FIO}"


class FioServers(OncePerStage):
    """Starts missing servers and the way to them; both stay for later steps.

    A server takes every job that reaches it. It listens where only the account that measures can enter.
    """

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._running: dict[str, Server] = {}

    def missing(self, nodes: list[str]) -> dict[str, str]:
        """Start missing servers on nodes with an account. Returns the nodes without one and the reasons."""
        started = self._session.fleet.each(nodes, lambda connection: self._start(connection.node.name), "fio --server")
        return {node: why for node, why in started.items() if why is not None}

    def _start(self, node: str) -> str | None:
        server, session = self._running.get(node), self._session
        try:
            Relay.of(self._context).serve(node)
            if server is not None and server.poll():
                return None
            prefix = BenchUsers.of(self._context)[node].prefix
            stack = ExitStack()
            server = stack.enter_context(session.serving(node, SERVER, LIFE_S, prefix))
            stack.callback(self._running.pop, node, None)
            self._context.stage.push(stack.pop_all())
            wait_listening(session.fleet[node], server, at_socket(FIO))
            self._running[node] = server
        except RemoteError as error:
            return str(error)
        except (OSError, EOFError) as error:
            return f"{node}: {error}"
        return None
