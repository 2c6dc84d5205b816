"""A common moment on several nodes, by each node's own clock, whose offset the controller measures before."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rackproof.bench.user import HOME, BenchUsers
from rackproof.core.rack import fold
from rackproof.errors import RemoteError
from rackproof.evidence.session import Session
from rackproof.remote.command import CommandResult, script_or_program
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.ssh import Connection
from rackproof.shell import script

PROGRAM: Final = "start_node.py"
"""Beside each program that starts with others."""
LEAD_S: Final = 3.0
"""From the reading of the clocks to the start; every node is told of it in this time."""
NODE_S: Final = 0.02
"""More lead for each node."""
TYPICAL_S: Final = 15.0
"""A usual time from the start of programs to the common moment, for estimates."""
_NOT_YET: Final = 3
_ASK_S: Final = 60.0


class CommonStart:
    """One common start of programs, which find its keys in their configuration."""

    def __init__(self, session: Session, users: BenchUsers, jobs: Sequence[str], ready_s: float) -> None:
        """``ready_s``: seconds within which the programs of all nodes have to be ready."""
        self.session, self.users, self.jobs, self.ready_s = session, users, jobs, ready_s
        self.name = f"start-{uuid.uuid4().hex[:12]}"

    @property
    def config(self) -> dict[str, Any]:
        """What ``start_node.py`` reads."""
        return {"start_file": f"{HOME}/{self.name}", "start_limit_s": self.ready_s + _ASK_S}

    @property
    def limit_s(self) -> float:
        """Longest time in seconds from the start of programs to the common moment."""
        return self.ready_s + 2 * _ASK_S

    def run(self, commands: Mapping[str, str], limit_s: float) -> tuple[dict[str, CommandResult], str]:
        """Run one command a node, all from one moment as soon as all are ready; results are recorded.

        ``limit_s``: seconds of a command after its start. Returns the results, and why there was no common start
        where no program tells it.
        """
        ended: dict[str, CommandResult] = {}
        over = threading.Event()

        def run(connection: Connection) -> CommandResult:
            name = connection.node.name
            ended[name] = connection.run(commands[name], self.limit_s + limit_s)
            return ended[name]

        programs = ", ".join(dict.fromkeys(script_or_program(command) for command in commands.values()))
        with ThreadPoolExecutor(max_workers=1) as pool:
            starting = pool.submit(self._start, list(commands), ended, over)
            try:
                results = self.session.fleet.each(commands, run, programs)
            finally:
                over.set()
        return {node: self.session.record(result) for node, result in results.items()}, starting.result()

    def _start(self, nodes: Sequence[str], ended: Mapping[str, CommandResult], over: threading.Event) -> str:
        """Tell the nodes the moment, or why there is none. Returns the reason where no program has one."""
        fault, why = self._await_ready(nodes, ended, over)
        moments: dict[str, float] = {}
        if not fault and not why:
            moments, unread = _moments(self.session, nodes, LEAD_S + NODE_S * len(nodes))
            why = "; ".join(unread)
        stop = f"not started: {fault or why}"
        texts = {node: stop if fault or why else f"{moments[node]:.3f}" for node in nodes}
        try:
            self.users.write(self.name, {node: text.encode() for node, text in texts.items()})
        except RemoteError as error:
            return why or str(error)
        return why

    def _await_ready(
        self, nodes: Sequence[str], ended: Mapping[str, CommandResult], over: threading.Event
    ) -> tuple[str, str]:
        """Wait for all programs. Returns why one of them ended, and why the others were not waited for."""
        command = script(__name__, "ready", *self.jobs, start=f"{HOME}/{self.name}")
        waiting, until_s = list(nodes), time.monotonic() + self.ready_s
        while waiting and not over.is_set() and not STOPPING.is_set():
            answers = self.session.fleet.run(dict.fromkeys(waiting, command), _ASK_S)
            for node, answer in answers.items():
                if answer.ok and answer.text:
                    return f"{node}: {answer.text}", ""
                if not answer.ok and answer.rc != _NOT_YET:
                    return "", f"{node}: {answer.why}"
            if failed := [result for result in ended.values() if not result.ok]:
                return f"{failed[0].node}: {failed[0].why}", ""
            waiting = [node for node in waiting if answers[node].rc == _NOT_YET]
            if waiting and time.monotonic() > until_s:
                return "", f"{fold(waiting)}: not ready within {self.ready_s:g} s; raise start_s"
        return "", ""


def _moments(session: Session, nodes: Sequence[str], lead_s: float) -> tuple[dict[str, float], list[str]]:
    """The moment in ``lead_s``, in seconds since 1970 by each node's clock, and a line for each unread clock."""
    base_s = time.time() - time.monotonic()
    clocks = session.fleet.each(nodes, lambda connection: connection.clock(base_s), "its clock")
    unread = [f"{node}: its clock was not read: {why}" for node, why in clocks.items() if isinstance(why, str)]
    begin_s = time.time() + lead_s
    moments = {
        node: round(begin_s + (clock.least_s + clock.most_s) / 2, 3)
        for node, clock in clocks.items()
        if not isinstance(clock, str)
    }
    return moments, unread
