"""One run of fio on several clients at once: what is launched, and which client failed with which words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from rackproof.bench.fio_servers import PORT, FioServers
from rackproof.bench.step import BenchContext
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult

_SHOWN = 3
"""Lines of fio's own words in a reason."""


class FioClients:
    """fio in client/server mode. The first client launches; its command removes its temporary job files."""

    def __init__(self, context: BenchContext) -> None:
        self._session = context.session
        self.servers = FioServers.of(context)

    def launch(self, nodes: Sequence[str], job: Callable[[str], str], limit_s: float) -> CommandResult:
        """``job`` gives the job file of a node."""
        jobs = {node: (self.servers.address(node), job(node)) for node in nodes}
        return self._session.run_on(nodes[0], launch_command(jobs), limit_s)

    def lost(self, answer: CommandResult, nodes: Sequence[str]) -> dict[str, str]:
        """Why clients have no result, by node. Where clients do not answer any longer, the fault is theirs alone."""
        if answer.rc is None:
            answers = self._session.fleet.reachable(nodes)
            dead = {name: f"{name}: lost during the measurement: {why}" for name, why in answers.items() if why}
            if dead:
                return dead
        return failures(answer, {self.servers.address(node): node for node in nodes})


def launch_command(jobs: Mapping[str, tuple[str, str]]) -> str:
    """``jobs`` are address and job file of each client, by node."""
    parts = [f'printf %s {shlex.quote(text)} > "$d/{node}.fio"' for node, (_, text) in jobs.items()]
    arguments = [f'--client={address},{PORT} "$d/{node}.fio"' for node, (address, _) in jobs.items()]
    run = f"fio --eta=never --output-format=json {' '.join(arguments)}"
    return f"d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT && {' && '.join(parts)} && {run}"


def failures(answer: CommandResult, clients: Mapping[str, str]) -> dict[str, str]:
    """Why clients have no result, by node; ``clients`` are nodes by address. The exit status counts first."""
    nodes = list(clients.values())
    said = fio.complaints(answer.text)
    try:
        entries = {clients.get(entry.client or ""): entry for entry in fio.parse_fio(answer.stdout).jobs}
    except ParseError as error:
        why = answer.why if not answer.ok else f"unreadable output: {error}"
        own = {node: words for node in nodes if (words := _words(said, node, nodes))}
        if own and answer.ok:
            return {node: f"{node}: fio: {own[node]}" if node in own else f"{node}: {_NOTHING}" for node in nodes}
        return dict.fromkeys(nodes, f"fio on {answer.node}: {why}")
    lost = {}
    for node in nodes:
        entry, words = entries.get(node), _words(said, node, nodes)
        if entry is None:
            lost[node] = f"{node}: fio: {words}" if words else f"{node}: {_NOTHING}"
        elif entry.error:
            lost[node] = f"{node}: fio error {entry.error}" + (f": {words}" if words else "")
    if not lost and not answer.ok:
        return dict.fromkeys(nodes, f"fio on {answer.node}: {answer.why}")
    return lost


_NOTHING = "fio returned no result for it"


def _words(messages: Sequence[fio.Message], node: str, nodes: Sequence[str]) -> str:
    """What the fio of a node said. Words of a host that no node is named after are everybody's."""
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
