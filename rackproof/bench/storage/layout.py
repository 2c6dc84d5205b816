"""Files of the storage benchmarks, written completely before they are read.

With fio's default ``fallocate=native`` a file has its full size at once, and reads of unwritten blocks reach no drive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.bench.storage.commands import own_folders
from rackproof.bench.storage.fio_clients import FioClients, addresses_of
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import Layout, render_layout
from rackproof.core.wording import scaled
from rackproof.parse import fio
from rackproof.remote.command import CommandResult

FIRST_S = 30
"""Time limit of the first attempt, which completes small files; its rate predicts the time for large ones."""
LIMIT_S = 2 * 3600
"""Maximum time to write the files; a slower storage is not measured."""
SLACK = 3.0
"""Time limit divided by the predicted time."""
MARGIN_S = 120.0
SUFFIX = "-layout"
"""Suffix of the job's name, after the storage's."""

Folders = Callable[[str], tuple[str, ...]]
"""A node's directories, one per mount."""


class Layouts(OncePerStage):
    """Files that were written in this stage, once per storage, client and directory."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._clients = FioClients(context)
        self._answers: dict[str, list[CommandResult]] = {}
        self._written: set[tuple[str, str]] = set()

    def answers(self, name: str) -> list[CommandResult]:
        """Answers of all runs that wrote a storage's files in this stage."""
        return list(self._answers.get(name, ()))

    def missing(self, nodes: Sequence[str], folders: Folders) -> list[str]:
        """Nodes without complete files in their folders."""
        return [node for node in nodes if _place(node, folders) not in self._written]

    def spend(self, nodes: Iterable[str], folders: Folders) -> None:
        """The files have got another content: the next step that needs them writes them again."""
        self._written -= {_place(node, folders) for node in nodes}

    def write(self, name: str, storage: Storage, layout: Layout, nodes: list[str], folders: Folders) -> dict[str, str]:
        """Write the missing files. Returns the reasons of failures by node."""
        missing = self.missing(nodes, folders)
        if not missing:
            return {}
        users = BenchUsers.of(self._context)
        lost = users.ready(missing)
        wanted = {node: own_folders(storage, folders(node), users[node]) for node in missing if node not in lost}
        made = self._session.run(wanted, 120)
        lost |= {node: f"{node}: {answer.why}" for node, answer in made.items() if not answer.ok}
        lost |= self._clients.unready([node for node in missing if node not in lost])
        limit: int | None = FIRST_S
        seconds: float = FIRST_S + MARGIN_S
        while waiting := [node for node in self.missing(missing, folders) if node not in lost]:

            def job(node: str, limit: int | None = limit) -> str:
                return render_layout(f"{name}{SUFFIX}", layout, ":".join(folders(node)), limit_s=limit)

            answer = self._clients.launch(waiting, job, seconds)
            self._answers.setdefault(name, []).append(answer)
            failed = self._clients.lost(answer, waiting)
            lost |= failed
            if failed:
                continue
            rates = self._rates(answer, waiting, layout)
            self._written |= {_place(node, folders) for node, rate in rates.items() if rate is None}
            self._say(name, layout, answer, len(waiting) - len(self.missing(waiting, folders)))
            slow = {node: rate for node, rate in rates.items() if rate is not None}
            for node, rate in slow.items():
                if limit is None:
                    lost[node] = f"{node}: fio ended before its files of {layout.bytes} B were written completely"
                elif layout.bytes > rate * LIMIT_S:
                    lost[node] = f"{node}: {too_slow(layout, rate)}"
            if limit is not None and slow:
                slowest = min((rate for node, rate in slow.items() if node not in lost and rate), default=1.0)
                limit, seconds = None, SLACK * layout.bytes / slowest + MARGIN_S
        return lost

    def _rates(self, answer: CommandResult, nodes: list[str], layout: Layout) -> dict[str, float | None]:
        """B/s by client; None for a client with complete files."""
        by_address = addresses_of(nodes)
        rates: dict[str, float | None] = {}
        for entry in fio.parse_fio(answer.stdout).jobs:
            node = by_address.get(entry.client or "")
            if node is None or entry.write is None:
                continue
            complete = entry.write.io_bytes == layout.bytes
            rates[node] = None if complete else entry.write.io_bytes / max(entry.write.runtime_ms / 1000, 1.0)
        return {node: rates.get(node, 0.0) for node in nodes}

    def _say(self, name: str, layout: Layout, answer: CommandResult, done: int) -> None:
        if done:
            size = f"{scaled(layout.bytes, 'B')} on each of {done} clients"
            self._context.say(f"{name}: files written completely, {size}, in {answer.elapsed_s:.0f} s")


def _place(node: str, folders: Folders) -> tuple[str, str]:
    return node, ":".join(folders(node))


def too_slow(layout: Layout, rate: float) -> str:
    """Reason for files that were not written; ``rate`` in B/s."""
    return (
        f"its files were not written: {scaled(layout.bytes, 'B')} at {scaled(rate, 'B/s')} "
        f"take longer than the limit of {LIMIT_S / 60:.0f} min"
    )
