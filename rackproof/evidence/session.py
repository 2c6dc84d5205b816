"""Session of a running run: rack, connections, architecture and evidence store in one handle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rackproof.core.architecture import Architecture
from rackproof.core.course import CONNECTION_BROKE
from rackproof.core.evidence import Event, EventKind, Kind, Measurement
from rackproof.core.rack import Rack
from rackproof.evidence.store import EvidenceStore
from rackproof.remote.channel import Server
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import Fleet
from rackproof.remote.redaction import redacted


@dataclass
class Session:
    """Runs commands on nodes; each result is recorded as evidence before the caller sees it."""

    rack: Rack
    architecture: Architecture
    fleet: Fleet
    store: EvidenceStore
    stage: str | None = None
    step: str | None = None
    """The current step, for events."""
    answered: set[str] = field(default_factory=set)
    """Nodes that have run a command to its end in this part of the run."""
    lost: set[str] = field(default_factory=set)
    """Nodes that stopped answering since."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, commands: Mapping[str, str], timeout_s: float, *, hold: bool = False, parallel: int = 0
    ) -> dict[str, CommandResult]:
        """Run one command a node, all nodes in parallel; results are recorded in the order of ``commands``. ``hold``:
        as for ``run_on``; ``parallel``: as for ``Fleet.each``."""
        results = self.fleet.run(commands, timeout_s, hold=hold, parallel=parallel)
        return {node: self.record(result) for node, result in results.items()}

    def run_on(
        self,
        node: str,
        command: str,
        timeout_s: float,
        stdin: bytes | None = None,
        user: str = "",
        *,
        hold: bool = False,
    ) -> CommandResult:
        """``user``: prefix that runs the command as another user. ``hold``: it ends with the connection, so that a
        killed controller leaves no load on the node."""
        return self.record(self.fleet[node].run(command, timeout_s, stdin, user, hold=hold))

    @contextmanager
    def serving(self, node: str, command: str, timeout_s: float, user: str = "") -> Iterator[Server]:
        """Run a server for the length of the block; record its output at the end. Raises NodeUnreachable."""
        with self.fleet[node].serving(command, timeout_s, user) as server:
            try:
                yield server
            finally:
                self.record(server.stop())

    def record(self, result: CommandResult) -> CommandResult:
        """Record a result; return it as recorded, with secrets redacted, so that callers see what the evidence has."""
        with self._lock:
            result = self.store.command(result)
        if result.rc is not None:
            self.answered.add(result.node)
        elif (result.error or "").startswith(CONNECTION_BROKE):
            self.lose(result.node, result.why)
        return result

    @property
    def answering(self) -> list[str]:
        """Nodes that have answered in this part of the run and were not lost, in inventory order."""
        return [node.name for node in self.rack.nodes if node.name in self.answered - self.lost]

    def event(self, kind: EventKind, text: str, node: str | None = None) -> None:
        """Record an event of the present stage and step."""
        with self._lock:
            self.store.append(Kind.EVENT, Event(event=kind, text=text, node=node, stage=self.stage, step=self.step))

    def lose(self, node: str, why: str) -> None:
        """Record, once, that a node which had answered does not answer any longer."""
        with self._lock:
            if node in self.lost or node not in self.answered:
                return
            self.lost.add(node)
        self.event(EventKind.LOST, f"lost during {self.step or self.stage or 'the run'}: {why}", node)

    def find_lost(self) -> None:
        """Ask the nodes that have answered whether they still do; record those that do not, asked twice."""
        silent = [node for node, why in self.fleet.reachable(self.answering).items() if why is not None]
        for node, why in self.fleet.reachable(silent).items():
            if why is not None:
                self.lose(node, why)

    def outputs(self, *results: CommandResult) -> tuple[str, ...]:
        """sha256 names of the commands' outputs, for a measurement's ``raw``."""
        return tuple(name for result in results for name in redacted(result).outputs)

    def measured(self, measurement: Measurement) -> None:
        with self._lock:
            self.store.append(Kind.MEASUREMENT, measurement)

    def alive(self, nodes: list[str], say: Callable[[str], None]) -> list[str]:
        """Nodes that answer now; ``say`` gets a line for each of the others."""
        answers = self.fleet.reachable(nodes)
        for node, reason in answers.items():
            if reason is not None:
                say(f"{node}: {reason}")
        return [node for node, reason in answers.items() if reason is None]
