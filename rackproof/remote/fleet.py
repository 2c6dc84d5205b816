"""Connections to all nodes of a rack, and actions for several of them in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from rackproof.core.rack import Rack, fold
from rackproof.remote.command import CommandResult, script_or_program
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.redaction import know, secrets_of
from rackproof.remote.ssh import Connection

MAX_PARALLEL = 64
WAIT_LINE_S = 10.0
"""Seconds between two lines that name the nodes that have not answered yet."""


class Fleet:
    """Connections to all nodes of a rack."""

    def __init__(self, rack: Rack, parallel: int = MAX_PARALLEL) -> None:
        self.rack = rack
        know(secret for node in rack.nodes for secret in secrets_of(node.data))
        self.on_wait: Callable[[str], object] = lambda line: None
        """Gets a line every ``WAIT_LINE_S`` while nodes have not answered."""
        self._parallel = parallel
        self._connections = {node.name: Connection(node) for node in rack.nodes}

    def __getitem__(self, node: str) -> Connection:
        return self._connections[node]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; after an interrupt first end what runs on the nodes."""
        if STOPPING.is_set():
            self.each(self._connections, lambda connection: connection.end_commands(), "the end of commands")
        for connection in self._connections.values():
            connection.forget()

    def each(
        self, nodes: Iterable[str], action: Callable[[Connection], Any], purpose: str, parallel: int = 0
    ) -> dict[str, Any]:
        """Run an action for several nodes in parallel; results by node, in the order given.

        ``purpose`` is part of the lines that name nodes without an answer. ``parallel``: so many nodes at once, where
        actions wait for each other; 0: as many as usual.
        """
        names = list(nodes)
        if not names:
            return {}
        began = time.monotonic()
        pool = ThreadPoolExecutor(max_workers=min(parallel or self._parallel, len(names)))
        try:
            futures = {name: pool.submit(action, self[name]) for name in names}
            while waiting := wait(futures.values(), timeout=WAIT_LINE_S).not_done:
                late = fold(name for name, future in futures.items() if future in waiting)
                self.on_wait(f"waiting for {late}: {purpose}, {time.monotonic() - began:.0f} s")
            return {name: future.result() for name, future in futures.items()}
        finally:  # after an interrupt a connection may still be on its way
            pool.shutdown(wait=not STOPPING.is_set(), cancel_futures=True)

    def run(
        self, commands: Mapping[str, str], timeout_s: float, *, hold: bool = False, parallel: int = 0
    ) -> dict[str, CommandResult]:
        """Run one command per node, all nodes in parallel. ``hold``: each ends with its connection. ``parallel``: as
        for ``each``."""
        programs = ", ".join(dict.fromkeys(script_or_program(command) for command in commands.values()))

        def run(connection: Connection) -> CommandResult:
            command = commands[connection.node.name]
            return connection.run(command, timeout_s, hold=True) if hold else connection.run(command, timeout_s)

        return self.each(commands, run, programs, parallel)

    def reachable(self, nodes: Iterable[str]) -> dict[str, str | None]:
        """By node: None if it answers, else the reason why not."""

        def ask(connection: Connection) -> str | None:
            answer = connection.run("true", 15)
            return None if answer.ok else answer.why

        return self.each(nodes, ask, "an answer")
