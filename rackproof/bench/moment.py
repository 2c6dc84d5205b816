"""Common start of programs on several nodes: the controller reads all clocks, then gives each node a start time."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rackproof.bench.user import HOME, BenchUsers
from rackproof.core.rack import fold
from rackproof.evidence.session import Session
from rackproof.remote.command import CommandResult, script_or_program
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.ssh import Connection
from rackproof.shell import script

LEAD_S: Final = 3.0
"""Minimum seconds from the reading of the clocks to the start; within them every node gets the start time."""
NODE_S: Final = 0.02
"""More lead for each node."""
BUSY: Final = 2.0
"""The lead is at least this multiple of the time that the reading of the clocks took: nodes may be busy."""
CLOCK_S: Final = 0.5
"""Maximum width of a clock offset's interval, seconds: rates of several nodes must cover the same time."""
TYPICAL_S: Final = 15.0
"""A usual time from the start of programs to the common moment, for estimates."""
_NOT_YET: Final = 3
_ASK_S: Final = 60.0


class CommonStart:
    """One common start of programs, which find its keys in their configuration."""

    def __init__(self, session: Session, users: BenchUsers, jobs: Sequence[str], ready_s: float) -> None:
        """``ready_s``: seconds within which the programs of all nodes have to be ready."""
        self.session, self.users, self.jobs, self.ready_s = session, users, jobs, ready_s
        self.file = f"{HOME}/start-{uuid.uuid4().hex[:12]}"

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of ``start_node.py``."""
        return {"start_file": self.file, "start_limit_s": self.ready_s + _ASK_S}

    @property
    def limit_s(self) -> float:
        """Longest time in seconds from the start of programs to the common moment."""
        return self.ready_s + 2 * _ASK_S

    def run(self, commands: Mapping[str, str], limit_s: float) -> tuple[dict[str, CommandResult], str]:
        """Run one command a node, all from one moment as soon as all are ready; results are recorded.

        ``limit_s``: a command has so many seconds more than the longest time to the start. Returns the results, and
        why there was no common start; that is empty where the programs' own answers say it.
        """
        ended: dict[str, CommandResult] = {}
        over = threading.Event()

        def run(connection: Connection) -> CommandResult:
            name = connection.node.name
            ended[name] = connection.run(commands[name], self.limit_s + limit_s, hold=True)
            return ended[name]

        programs = ", ".join(dict.fromkeys(script_or_program(command) for command in commands.values()))
        pool = ThreadPoolExecutor(max_workers=1)
        try:
            starting = pool.submit(self._start, list(commands), ended, over)
            results = self.session.fleet.each(commands, run, programs, parallel=len(commands))
            recorded = {node: self.session.record(result) for node, result in results.items()}
            over.set()
            return recorded, "interrupted" if STOPPING.is_set() else starting.result()
        finally:  # after an interrupt a node may not answer
            over.set()
            pool.shutdown(wait=not STOPPING.is_set(), cancel_futures=True)

    def _start(self, nodes: Sequence[str], ended: Mapping[str, CommandResult], over: threading.Event) -> str:
        """Tell the nodes the moment, or why there is none. Returns the reason if no program has one."""
        try:
            fault, why = self._await_ready(nodes, ended, over)
            told: dict[str, float] = {}
            if not fault and not why and not self._is_over(over):
                told, unread = moments(self.session, nodes)
                why = "; ".join(unread)
        except Exception:
            self._tell(dict.fromkeys(nodes, "not started: an error of the controller"))
            raise
        if self._is_over(over):
            return ""
        refused = f"not started: {fault or why}"
        untold = self._tell({node: refused if fault or why else f"{told[node]:.3f}" for node in nodes})
        return why or ("" if fault else untold)

    def _await_ready(
        self, nodes: Sequence[str], ended: Mapping[str, CommandResult], over: threading.Event
    ) -> tuple[str, str]:
        """Wait for all programs. Returns why one of them ended, and why the others were not waited for."""
        command = script(__name__, "ready", *self.jobs, start=self.file)
        waiting, until_s = list(nodes), time.monotonic() + self.ready_s
        while waiting and not self._is_over(over):
            answers = self._ask(waiting, lambda node: command)
            for node, answer in answers.items():
                if answer.rc in (0, _NOT_YET) and (text := answer.text.strip()):
                    return f"{node}: {'; '.join(text.splitlines())}", ""
                if not answer.ok and answer.rc != _NOT_YET:
                    return "", f"{node}: {answer.why}"
            if failed := [result for result in list(ended.values()) if not result.ok]:
                return f"{failed[0].node}: {failed[0].why}", ""
            waiting = [node for node in waiting if answers[node].rc == _NOT_YET]
            if waiting and time.monotonic() > until_s:
                return "", f"{fold(waiting)}: its program was not ready within {self.ready_s:g} s (start_s)"
        return "", ""

    @staticmethod
    def _is_over(over: threading.Event) -> bool:
        """Whether all programs have ended, or the run is being interrupted."""
        return over.is_set() or STOPPING.is_set()

    def _tell(self, texts: Mapping[str, str]) -> str:
        """Write the start file of each node, on the record. Returns why a node was not told."""
        answers = self._ask(list(texts), lambda node: script(__name__, "start", start=self.file, told=texts[node]))
        for answer in answers.values():
            self.session.record(answer)
        return "; ".join(f"{node}: did not get the start time: {a.why}" for node, a in answers.items() if not a.ok)

    def _ask(self, nodes: Sequence[str], command: Callable[[str], str]) -> dict[str, CommandResult]:
        """Run a command as the account that measures: the files are its own."""

        def ask(connection: Connection) -> CommandResult:
            name = connection.node.name
            return connection.run(command(name), _ASK_S, user=self.users[name].prefix)

        return self.session.fleet.each(nodes, ask, "the common start", parallel=len(nodes))


def moments(session: Session, nodes: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """The common moment in seconds since 1970 by each node's clock, and a line for each unread clock."""
    began_s = time.monotonic()
    base_s = time.time() - began_s
    clocks = session.fleet.each(nodes, lambda connection: connection.clock(base_s), "its clock", parallel=len(nodes))
    begin_s = time.time() + max(LEAD_S, BUSY * (time.monotonic() - began_s)) + NODE_S * len(nodes)
    own, unread = {}, []
    for node, clock in clocks.items():
        if isinstance(clock, str):
            unread.append(f"{node}: its clock was not read: {clock}")
        elif clock.most_s - clock.least_s > CLOCK_S:
            unread.append(f"{node}: its clock is known to {clock.most_s - clock.least_s:.1f} s only: the node is busy")
        else:
            own[node] = round(begin_s + (clock.least_s + clock.most_s) / 2, 3)
    return own, unread
