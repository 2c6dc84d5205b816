"""One run of fio on one client or on several at once, and the errors of clients without a result."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rackproof.bench.relay import Relay, socket_of
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.fio_launch import RUN, found_damage
from rackproof.bench.storage.fio_servers import FioServers
from rackproof.bench.user import USER, BenchUsers
from rackproof.errors import RemoteError
from rackproof.parse import ParseError, fio
from rackproof.parse.processes import parse_thread_states
from rackproof.remote.command import CommandResult

_SHOWN = 3
"""Maximum number of fio's lines in a reason."""
STATES = f"ps -L -u {USER} -o state=,comm="
"""State and program of every thread of the account that measures (ps(1))."""
_STATES_S = 30.0
_STANDING = {"T": "is stopped by a signal", "D": "waits for a request that the kernel has not ended"}


class FioClients:
    """Several clients run fio in client/server mode; the first one is the launcher. One client runs fio alone, since
    fio's server begins a job only a second after it was sent. The command removes the temporary job files."""

    def __init__(self, context: BenchContext) -> None:
        self._session, self._users, self._relay = context.session, BenchUsers.of(context), Relay.of(context)
        self._servers = FioServers.of(context)

    def unready(self, nodes: list[str]) -> dict[str, str]:
        """Prepare a run on these nodes, or on some of them. Returns the reasons of nodes that cannot run fio."""
        lost = self._users.ready(nodes)
        ready = [node for node in nodes if node not in lost]
        return lost | (self._servers.missing(ready) if len(ready) > 1 else {})

    def launch(self, nodes: Sequence[str], job: Callable[[str], str], limit_s: float) -> CommandResult:
        """Run fio, which ends with the connection to the launcher. ``job`` returns the job file of a node."""
        command = launch_command({node: job(node) for node in nodes})
        try:
            if len(nodes) > 1:
                self._relay.listen(nodes[0], nodes)
        except RemoteError as error:
            return self._session.record(CommandResult(nodes[0], command, None, error=error.reason))
        return self._session.run_on(nodes[0], command, limit_s, user=self._users[nodes[0]].prefix, hold=True)

    def lost(self, answer: CommandResult, nodes: Sequence[str]) -> dict[str, str]:
        """Why clients have no result, by node. If some no longer answer, or their fio stands still after its limit,
        only these are to blame."""
        if answer.rc is None:
            answers = self._session.fleet.reachable(nodes)
            dead = {name: f"{name}: lost during the measurement: {why}" for name, why in answers.items() if why}
            if blamed := dead or self._standing(answer, nodes):
                return blamed
        return failures(answer, addresses_of(nodes))

    def _standing(self, answer: CommandResult, nodes: Sequence[str]) -> dict[str, str]:
        """Clients whose fio still runs and does nothing, with the reason: the launcher waited for them."""
        lost = {}
        for node, asked in self._session.fleet.run(dict.fromkeys(nodes, STATES), _STATES_S).items():
            states = parse_thread_states(asked.text, "fio")
            if text := next((text for state, text in _STANDING.items() if state in states), ""):
                lost[node] = f"{node}: its fio {text}; {answer.why}"
        return lost


def addresses_of(nodes: Iterable[str]) -> dict[str, str]:
    """Nodes by the address that fio has for them: their socket on the launcher; a single node runs fio itself."""
    names = list(nodes)
    return {socket_of(node): node for node in names} if len(names) > 1 else dict.fromkeys([""], *names)


def launch_command(jobs: Mapping[str, str]) -> str:
    """Command that runs fio on all clients. ``jobs``: job file by node, at least one."""
    parts = [f'printf %s {shlex.quote(text)} > "$d/{node}.fio"' for node, text in jobs.items()]
    arguments = [
        (f"--client=sock:{address} " if address else "") + f'"$d/{node}.fio"'
        for address, node in addresses_of(jobs).items()
    ]
    return f"d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT && {' && '.join(parts)} && {RUN}{' '.join(arguments)}"


def failures(answer: CommandResult, clients: Mapping[str, str]) -> dict[str, str]:
    """Why clients have no result, by node. ``clients``: as of ``Launch``. The exit status takes precedence."""
    nodes = list(clients.values())
    lines = (*fio.complaints(answer.text), *fio.complaints(answer.stderr.decode(errors="replace")))
    messages = [replace(own, host=clients.get(own.host or "", own.host)) for own in lines]
    try:
        entries = {clients.get(entry.client or ""): entry for entry in fio.parse_fio(answer.stdout).jobs}
    except ParseError as error:
        why = answer.why if not answer.ok else f"unreadable output: {error}"
        own = {node: words for node in nodes if (words := _words(messages, node, nodes))}
        if own:
            status = "" if answer.ok else f" ({answer.why})"
            return {node: f"{node}: {_without_result(messages, node, nodes)}{status}" for node in nodes}
        launcher = [text for text in _of_launcher(messages) if text not in why]
        return dict.fromkeys(nodes, "; ".join([f"fio on {answer.node}: {why}", *launcher[:_SHOWN]]))
    lost = {}
    for node in nodes:
        entry, words = entries.get(node), _words(messages, node, nodes)
        if entry is None:
            lost[node] = f"{node}: {_without_result(messages, node, nodes)}"
        elif entry.error and not found_damage(entry):
            lost[node] = f"{node}: fio error {entry.error}" + (f": {words}" if words else "")
        elif words and not any(moved.io_bytes for moved in (entry.read, entry.write, entry.mixed) if moved is not None):
            lost[node] = f"{node}: fio moved no byte: {words}"
    if not lost and not answer.ok and not any(found_damage(entry) for entry in entries.values()):
        return dict.fromkeys(nodes, f"fio on {answer.node}: {answer.why}")
    return lost


_OTHER_VERSION = "client/server version mismatch"
"""Message of fio's launcher, which does not name the client."""


def _without_result(messages: Sequence[fio.Message], node: str, nodes: Sequence[str]) -> str:
    """Why a client has no result: its own messages, otherwise the launcher's."""
    if words := _words(messages, node, nodes):
        return f"fio: {words}"
    launcher = _of_launcher(messages)
    if mismatch := next((text for text in launcher if text.startswith(_OTHER_VERSION)), None):
        return f"fio: {mismatch}: install one version of fio on all clients"
    return "; ".join(["fio returned no result for it", *launcher[:_SHOWN]])


def _of_launcher(messages: Sequence[fio.Message]) -> list[str]:
    """The launcher's messages, not repeated."""
    return list(dict.fromkeys(message.text for message in messages if message.host is None))


def _words(messages: Sequence[fio.Message], node: str, nodes: Sequence[str]) -> str:
    """Messages of a node's fio, and of hosts whose name is not a node's."""
    named = {name.split(".")[0] for name in nodes}
    own = [
        message.text
        for message in messages
        if message.host is not None
        and (_short(message.host) == node.split(".")[0] or _short(message.host) not in named)
    ]
    return "; ".join(own[:_SHOWN])


def _short(host: str) -> str:
    return host.split(".")[0]
