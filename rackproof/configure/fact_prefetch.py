"""Prefetches facts: the first fact command of a node is sent together with those that the last run sent, in one round
trip.

Deploys call ``host.get_fact(facts.X, …)`` as usual. ``rackproof.remote.command_cache`` keeps the fact commands of the
last run of the same deploy, by kind of node. A prefetched answer is used only

* for exactly the same command with the same arguments (user, environment, folder);
* once, so that a loop that polls a node gets fresh answers; ``Kept`` answers may be used again;
* as long as only fact commands have run since, on all nodes of the run: a change of a server may change the answer of
  another node. Where the plan before has a change, nothing is prefetched beyond it;
* within ``AGE_S``, and in the same stage: answers of the planning stage are not used in the execution stage;
* when it is complete and its exit status is 0. Otherwise the command is run again on its own and fails as usual.

Only ssh connections prefetch. ``fact_prefetch = False`` in the inventory's data turns it off, and so does ``-vv``,
which prints the fact commands.
"""

from __future__ import annotations

import binascii
import hashlib
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

import rackproof
from rackproof.configure.operation import report_loss
from rackproof.core.evidence import CONNECTION_LOST
from rackproof.core.rack import Node
from rackproof.remote import batch, command_cache

AGE_S = 60.0
"""Seconds for which a prefetched answer may be used, counted from the end of its round trip."""
LIMIT_S = 20.0
"""Time limit of one prefetched command in seconds; ``command_timeout_s`` in the inventory overrides it. A command that
takes more than half of it is no longer prefetched, because the slowest command delays all answers."""
TIMEOUT_S = 900
"""Time limit in seconds of commands for which neither the operation nor the inventory sets ``_timeout``, so that a
frozen node does not stop the run. A package manager may take that long on a slow node."""
KEEPALIVE_S = 15
LOSS_S = 180
"""Seconds without any TCP acknowledgement after which a connection is lost: longer than a restart of a network service
or an adapter, a fifth of ``TIMEOUT_S``."""
SWITCH = "fact_prefetch"

END = "rackproof-end"
"""Last line of every complete answer."""

_PLAIN = {"_stdin": None, "_get_pty": False, "_success_exit_codes": [0], "_chdir": None, "_shell_executable": "sh"}
"""Default arguments of facts. Commands with other values are not prefetched."""


class Question(str):
    """A fact command: it changes nothing on a node."""

    __slots__ = ()


class Timely(Question):
    """A fact command whose answer must be fresh, such as the time: never prefetched."""

    __slots__ = ()


class Kept(Question):
    """A fact command of preflight. Its answer stays for the operation that needs it later, within the usual limits."""

    __slots__ = ()


class MayDisconnect(StringCommand):
    """A command whose caller handles a lost connection, which is not reported."""


class Aside(StringCommand):
    """A command that changes nothing that facts read: never prefetched, and prefetched answers stay valid after it."""


@dataclass
class _Run:
    """State shared by all nodes of one run."""

    cache: command_cache.CommandCache
    changes: int = 0
    """Starts and ends of commands that may change something, on all nodes."""
    executed: bool = False
    used: dict[str, dict[str, None]] = field(default_factory=dict)
    breaks: dict[str, set[str]] = field(default_factory=dict)
    """Fact commands of a node before which its plan has a change; of a run without a plan, those of the last one."""
    nodes: dict[str, Node] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)

    @contextmanager
    def change(self) -> Iterator[None]:
        self.changes += 1
        try:
            yield
        finally:
            self.changes += 1


@dataclass(frozen=True, slots=True)
class _Known:
    output: CommandOutput
    epoch: tuple[object, ...]
    arrived: float


class FactPrefetch:
    """Wraps the connector of a node: prefetches facts, counts changes, sets time limits."""

    def __init__(self, connector: BaseConnector, state: State, host: Host, run: _Run) -> None:
        self.connector = connector
        self.round_trips = 0
        """Round trips to the node."""
        self._state = state
        self._host = host
        self._run = run
        self._known: dict[tuple[str, str], _Known] = {}
        self._asked: dict[object, set[str]] = {}
        self._lock = BoundedSemaphore(1)
        self._window = sys.maxsize
        self._planned = 0
        self._seen: int | None = None
        self._together = run.nodes[host.name].data.get(SWITCH) is not False
        _notice_loss(connector)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connector, name)

    def connect(self) -> None:
        with self._run.change():
            self.connector.connect()
            _notice_loss(self.connector)

    def disconnect(self) -> None:
        disconnect = getattr(self.connector, "disconnect", None)
        if disconnect:
            disconnect()
        _left(self._run, self._state, self._host.name)

    def put_file(self, *arguments: Any, **more: Any) -> bool:
        with self._run.change():
            return self.connector.put_file(*arguments, **more)

    def get_file(self, *arguments: Any, **more: Any) -> bool:
        if not any(more.get(name) for name in ("_sudo", "_su_user", "_doas", "_dzdo")):
            return self.connector.get_file(*arguments, **more)
        with self._run.change():  # by way of a copy
            return self.connector.get_file(*arguments, **more)

    def rsync(self, *arguments: Any, **more: Any) -> Any:
        with self._run.change():
            return self.connector.rsync(*arguments, **more)

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        shown = {"print_output": print_output, "print_input": print_input}
        arguments["_timeout"] = arguments.get("_timeout") or TIMEOUT_S
        if isinstance(command, Aside | Timely):
            self.round_trips += 1
            return self._on_node(command, **shown, **arguments)
        if not isinstance(command, Question):
            self.round_trips += 1
            with self._run.change():
                return self._on_node(command, **shown, **arguments)
        with self._lock:
            self._notice_plan(str(command))
            self._run.used.setdefault(self._host.name, {})[str(command)] = None
            self._run.open.add(self._host.name)
            if self._together and not (print_output or print_input or _alone(arguments)):
                output = self._take(command, arguments) or self._fetch(command, arguments)
                if output is not None:
                    return True, output
            self.round_trips += 1
            began = time.monotonic()
            try:
                return self._on_node(command, **shown, **arguments)
            finally:
                if time.monotonic() - began > LIMIT_S / 2:
                    self._run.slow.add(str(command))

    def _on_node(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """Raises SSHException when the connection is lost; pyinfra shows its text with the name of the node."""
        try:
            status, output = self.connector.run_shell_command(command, **arguments)
        except (OSError, EOFError, SSHException) as error:
            if _lost(self.connector):
                raise self._loss(command) from error
            raise
        if not status and _lost(self.connector):
            raise self._loss(command)
        return status, output

    def _loss(self, command: StringCommand) -> SSHException:
        if not isinstance(command, MayDisconnect):
            report_loss(self._state, self._host)
        return SSHException(CONNECTION_LOST)

    def _epoch(self) -> tuple[object, ...]:
        """Identifies the state that answers describe; answers of another epoch are outdated."""
        planned = self._state.check_for_changes
        return self._run.changes, self._state.current_stage if planned else None

    def _waiting(self, command: str, arguments: Mapping[str, Any]) -> _Known | None:
        key = _key(command, arguments)
        return self._known.get(key) if isinstance(command, Kept) else self._known.pop(key, None)

    def _take(self, command: str, arguments: Mapping[str, Any]) -> CommandOutput | None:
        known = self._waiting(command, arguments)
        self._asked.setdefault(self._state.current_stage, set()).add(str(command))
        return known.output if known and self._valid(known) else None

    def _valid(self, known: _Known | None) -> bool:
        return known is not None and known.epoch == self._epoch() and time.monotonic() - known.arrived <= AGE_S

    def _fetch(self, command: str, arguments: dict[str, Any]) -> CommandOutput | None:
        """Run the command together with those expected after it. None: the command must be run on its own."""
        commands = self._expected(command, arguments)
        longest = batch.longest_limit_s(arguments["_timeout"], len(commands))
        limit = min(float(self._host.data.get("command_timeout_s") or LIMIT_S), longest)
        if len(commands) < 2 or longest < LIMIT_S:
            return None
        epoch = self._epoch()
        self.round_trips += 1
        logger.debug("%s: prefetching %d facts", self._host.name, len(commands))
        script = batch.script(commands, limit).decode()
        status, command_output = self._on_node(StringCommand("sh -s | base64"), **{**arguments, "_stdin": script})
        arrived = time.monotonic()
        answer = _decoded(command_output.stdout_lines) if status else b""
        self._known = {key: known for key, known in self._known.items() if self._valid(known)}
        for result in batch.unpack(self._host.name, commands, limit, answer):
            if result.elapsed_s > limit / 2:
                self._run.slow.add(result.command)
            output = _output(result.stdout, result.stderr) if result.rc == 0 else None
            if output is not None:
                self._known[_key(result.command, arguments)] = _Known(output, epoch, arrived)
        waiting = self._waiting(command, arguments)
        return waiting.output if waiting else None

    def _notice_plan(self, command: str) -> None:
        """Note a break when the plan has a change since the last fact command."""
        if self._state.is_executing:
            self._run.executed = True
        elif self._state.check_for_changes:
            planned = self._state.get_meta_for_host(self._host).ops_change
            if planned != self._planned:
                self._run.breaks.setdefault(self._host.name, set()).add(command)
            self._planned = planned

    def _expected(self, command: str, arguments: Mapping[str, Any]) -> list[str]:
        """The command, and those that the last run sent to nodes of this kind after it and that have no answer yet.

        A change makes prefetched answers useless. So the list ends where the plan has the next change. After a change
        that is not planned the window shrinks to one, and doubles with every round trip without one.
        """
        planning = self._state.check_for_changes and not self._state.is_executing
        breaks = set[str]() if planning else self._run.breaks.get(self._host.name, set[str]())
        if self._seen is not None:
            expected = self._seen == self._run.changes or command in breaks
            self._window = min(2 * self._window, sys.maxsize) if expected else 1
        self._seen = self._run.changes
        listed = self._run.cache.commands(self._run.nodes[self._host.name])
        if not self._state.is_executing:  # what comes after the first change is asked again then
            listed = tuple(takewhile(lambda question: question not in breaks, listed))
        done = self._asked[self._state.current_stage]
        missing = (
            question
            for question in listed
            if question not in done and not self._valid(self._known.get(_key(question, arguments)))
        )
        after = takewhile(lambda question: question not in breaks, missing)
        return [str(command), *islice(after, self._window - 1)]


_runs: WeakKeyDictionary[State, _Run] = WeakKeyDictionary()


def prefetch_facts(state: State, host: Host) -> None:
    """Enable prefetching for this run. Later calls return at once."""
    if state in _runs:
        return
    run = _runs[state] = _Run(command_cache.load(_subject()))
    if run.cache.note:
        logger.debug(run.cache.note)
    for other in host.inventory:
        # All nodes at once: changes count for the whole run, also on nodes that no fact was read from yet.
        groups = tuple(group for group in other.groups if group != "all")
        data = other.data.dict()  # type: ignore[no-untyped-call]  # pyinfra has no types here
        node = run.nodes[other.name] = Node(other.name, groups, data)
        if not state.check_for_changes:
            run.breaks[node.name] = run.cache.breaks_of(node)
        if isinstance(other.connector, SSHConnector):
            other.connector = cast(BaseConnector, FactPrefetch(other.connector, state, other, run))


def _notice_loss(connector: BaseConnector) -> None:
    """Detect a node that reboots or loses its network during a command, before the time limit of the command."""
    transport = _transport(connector)
    if transport is None or not transport.is_active():  # a node that was never reached has an inactive one
        return
    transport.set_keepalive(KEEPALIVE_S)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is None or not hasattr(transport.sock, "setsockopt"):  # behind a jump host it is a channel
        return
    with suppress(OSError):  # closed in the meantime: the next command of this node fails
        transport.sock.setsockopt(socket.IPPROTO_TCP, option, LOSS_S * 1000)


def _transport(connector: BaseConnector) -> Any:
    client = getattr(connector, "client", None)
    return client.get_transport() if client else None


def _lost(connector: BaseConnector) -> bool:
    transport = _transport(connector)
    return transport is not None and not transport.is_active()


def _subject() -> str:
    """Key of the command cache: version of the kit, inventory and deploy files of the command line."""
    files = [str(Path(word).resolve()) for word in sys.argv[1:] if word.endswith(".py")]
    return hashlib.sha256("\0".join(["fact_prefetch/1", rackproof.__version__, *files]).encode()).hexdigest()


def _left(run: _Run, state: State, name: str) -> None:
    """After the last node has disconnected, save the fact commands for the next run."""
    run.open.discard(name)
    if run.open or not run.used:
        return
    failed = {host.name for host in state.failed_hosts}
    used = {
        name: tuple(command for command in asked if command not in run.slow)
        for name, asked in run.used.items()
        if name not in failed
    }
    before = dict(run.cache.kinds), dict(run.cache.nodes), dict(run.cache.breaks)
    run.cache.remember(run.nodes.values(), used, {} if run.executed else run.breaks)
    if (run.cache.kinds, run.cache.nodes, run.cache.breaks) != before:
        run.cache.save()
        if run.cache.note:
            logger.debug(run.cache.note)


def _alone(arguments: Mapping[str, Any]) -> bool:
    return any((arguments.get(name) or plain) != plain for name, plain in _PLAIN.items())


def _key(command: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Time limits do not matter: an answer that is there needs none."""
    return str(command), repr(sorted((name, value) for name, value in arguments.items() if name != "_timeout"))


def _decoded(lines: list[str]) -> bytes:
    try:
        return binascii.a2b_base64("".join(lines))
    except ValueError:
        return b""


def _output(stdout: bytes, stderr: bytes) -> CommandOutput | None:
    """The output as pyinfra splits it into lines; None when it is incomplete or not UTF-8."""
    try:
        lines = _lines(stdout)
        if not lines or lines[-1] != END:
            return None
        return CommandOutput(
            [*(OutputLine("stdout", line) for line in lines), *(OutputLine("stderr", line) for line in _lines(stderr))]
        )
    except UnicodeDecodeError:
        return None


def _lines(data: bytes) -> list[str]:
    lines = data.decode().split("\n")
    return lines[:-1] if lines[-1] == "" else lines
