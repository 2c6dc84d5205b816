"""Carries connections between nodes over the kit's own ssh connections.

fio and Open MPI need a way from the launcher to all nodes. A port on the fabric takes whoever reaches it, and ssh
between nodes needs keys. Here the launcher has Unix sockets in a folder that only the account that measures can enter;
what arrives there goes through the controller to the same account on the other node.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from typing import Final

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.bench.user import HOME, BenchUsers
from rackproof.errors import NodeUnreachable
from rackproof.remote.channel import END_S, Pipe

_FILE: Final = "relay_node.py"
PROGRAM: Final = f"{HOME}/{_FILE}"
AGENT: Final = f"python3 -I {PROGRAM} run {HOME}"
"""Command prefix that runs a command on another node; the node's name and the command's words follow."""
FIO: Final = f"{HOME}/fio.sock"
"""Socket of a node's own fio."""
READY_S: Final = 60.0
LIFE_S: Final = 24 * 3600.0
"""Seconds after which a relay process ends, for the case that the controller is lost."""
_MAGIC: Final = b"rackproof-relay\n"
_WORD: Final = 4
_LISTENER: Final = ""


def socket_of(node: str) -> str:
    """The launcher's socket for a node's fio."""
    return f"{HOME}/{node}.fio"


class Relay(OncePerStage):
    """The ends, which steps share. One end listens on the launcher, one serves on each node."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._ends: dict[str, Pipe] = {}
        """By node; the launcher's is ``_LISTENER``."""
        self._listening: tuple[str, frozenset[str]] = ("", frozenset())
        """Launcher, and the nodes that it has sockets for."""
        self._routes: dict[int, str] = {}
        """Node of each connection."""

    def serve(self, node: str) -> None:
        """Start a node's end unless it runs. Raises RemoteError."""
        self._start(node, node, f"serve {HOME}")

    def listen(self, launcher: str, nodes: Sequence[str]) -> None:
        """Make the launcher's sockets for these nodes unless it has them. Raises RemoteError."""
        name, known = self._listening
        own = self._ends.get(_LISTENER)
        if own is not None and (name != launcher or not set(nodes) <= known):
            own.close()
        first = max(self._routes, default=0) + 1
        self._start(_LISTENER, launcher, f"listen {HOME} {first} {shlex.join(nodes)}")
        self._listening = (launcher, frozenset(nodes))

    def _start(self, name: str, node: str, arguments: str) -> None:
        if name in self._ends and self._ends[name].alive:
            return
        users = BenchUsers.of(self._context)
        users.put([node], "rackproof.bench", (_FILE,))
        end = self._ends[name] = self._session.fleet[node].pipe(
            f"exec python3 -I {PROGRAM} {arguments}", LIFE_S, users[node].prefix
        )
        thread = threading.Thread(target=self._carry, args=(name, end), daemon=True)
        self._context.stage.callback(_end, end, thread)
        if not end.skip_to(_MAGIC, READY_S):
            raise NodeUnreachable(node, f"no relay: {end.why}")
        thread.start()

    def _carry(self, name: str, end: Pipe) -> None:
        """Pass on what an end sends, until it ends; then end its connections."""
        while len(head := end.read(2 * _WORD)) == 2 * _WORD:
            number, length = int.from_bytes(head[:_WORD]), int.from_bytes(head[_WORD:])
            data = end.read(length)
            if name == _LISTENER:
                node = self._routes.setdefault(number, data.decode(errors="replace").partition(" ")[0])
                self._send(node, number, data)
            elif self._routes.get(number) == name:
                self._send(_LISTENER, number, data)
        for number, node in list(self._routes.items()):
            if name in (_LISTENER, node):
                self._send(_LISTENER if name else node, number, b"")

    def _send(self, name: str, number: int, data: bytes) -> None:
        """Send a frame. If a node's relay process has ended, close the connection on the launcher."""
        frame = number.to_bytes(_WORD) + len(data).to_bytes(_WORD) + data
        end = self._ends.get(name)
        if (end is None or not end.write(frame)) and name != _LISTENER and data:
            self._send(_LISTENER, number, b"")


def _end(end: Pipe, thread: threading.Thread) -> None:
    end.close()
    if thread.is_alive():
        thread.join(END_S)
