"""Input of a validation: rack, architecture, and the readers of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from _pytest.outcomes import OutcomeException

from rackproof.architectures import architecture_of
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Rack
from rackproof.core.starvation import starved
from rackproof.errors import EvidenceWriteError, InventoryError
from rackproof.evidence.recordings import read_recordings
from rackproof.inventory import load_rack
from rackproof.remote import command_cache, controller
from rackproof.remote.collect import COMMAND_TIMEOUT_S, Gathering, Question, RecordingReader, gather
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import Fleet
from rackproof.remote.testinfra_backend import host_of
from rackproof.validation.evaluate import Case, call, ending, result_of
from rackproof.validation.selection import EVERYTHING, Selection, refuse_malformed, tags_of

End = TypeVar("End", CheckResult, CheckOutcome)


@dataclass
class Context:
    """Readers of all nodes of a rack. ``fleet`` is None for recordings."""

    rack: Rack
    arch: Architecture
    readers: dict[str, RecordingReader]
    fleet: Fleet | None = None
    selection: Selection = EVERYTHING
    owned: bool = False
    """The fleet belongs to this context and is closed with it."""
    starved: str = ""
    """Why machines were starved during the validation; empty if they were not, or if unknown."""
    _gathering: Gathering | None = None
    _cache: command_cache.CommandCache | None = None

    def given(self, case: Case) -> dict[str, Any]:
        """Arguments of a check, by name."""
        # A new host for each call: testinfra's hosts cache readings, and a check that reads from the cache only would
        # record no evidence.
        host = host_of(case.node.name, self.readers[case.node.name])
        return {"host": host, "node": case.node, "rack": self.rack, "arch": self.arch, "item": case.item}

    def evaluate(self, function: Callable[..., None], case: Case) -> CheckResult:
        """Run a check outside of pytest and return its result."""
        return self._tried(
            function, case, lambda error, results: result_of(case, self.arch, error, results, self.starved)
        )

    def outcome(self, function: Callable[..., None], case: Case) -> CheckOutcome:
        """Run a check outside of pytest and return its outcome."""
        return self._tried(function, case, lambda error, results: ending(case, error, results, self.starved)[0])

    def _tried(
        self, function: Callable[..., None], case: Case, end: Callable[[BaseException | None, list[CommandResult]], End]
    ) -> End:
        with self.readers[case.node.name].tracing() as results:
            try:
                call(function, self.given(case))
            except EvidenceWriteError:
                raise
            except (Exception, OutcomeException, SystemExit) as error:  # pytest.skip and pytest.fail raise the second
                # The error is not returned: its frames would keep it alive until a garbage collection.
                return end(error, results)
            return end(None, results)

    def gather(self, questions: dict[str, list[Question]], subject: str = "") -> None:
        """Prefetch the commands that the questions need. ``subject`` is their cache key; see command_cache.subject_of.

        With a subject, the commands of the last run are sent at once.
        """
        if self.fleet is None:
            return
        self._cache = command_cache.load(subject) if subject else None
        kinds = {node.name: command_cache.kind_of(node) for node in self.rack.nodes}
        remembered = {n.name: self._cache.commands(n) for n in self.rack.nodes} if self._cache else {}
        ports = controller.ports_of_machines(self.rack)
        before = controller.reading(ports)
        self._gathering = gather(self.fleet, self.readers, questions, kinds=kinds, remembered=remembered)
        self.starved = starved(controller.conditions(before, controller.reading(ports), bool(ports)))

    def remember(self) -> None:
        """Save the commands that were read, for the next run."""
        if self._cache is not None:
            used = {name: list(reader.used) for name, reader in self.readers.items() if reader.lost is None}
            self._cache.remember(self.rack.nodes, used)
            self._cache.save()

    def reading(self) -> list[str]:
        """Lines for the terminal: number of commands and round trips, and the command cache's note."""
        readers = self.readers.values()
        commands, misses = sum(len(r.used) for r in readers), sum(r.misses for r in readers)
        trips = self._gathering.trips if self._gathering is not None else 0
        times = "1 round trip" if trips == 1 else f"{trips} round trips"
        note = self._cache.note if self._cache is not None else ""
        line = f"{commands} commands, {times} per node, {misses} not prefetched"
        return [line, note] if note else [line]

    def close(self) -> None:
        if self.owned and self.fleet is not None:
            self.fleet.close()


def live_context(
    rack: Rack,
    arch: Architecture,
    fleet: Fleet,
    on_result: Callable[[CommandResult], object] = lambda result: None,
) -> Context:
    """Context that reads live nodes over the fleet's connections. ``command_timeout_s`` is an input of a node."""
    readers = {
        node.name: RecordingReader(
            node.name,
            fleet[node.name],
            timeout_s=node.data.get("command_timeout_s", COMMAND_TIMEOUT_S),
            on_result=on_result,
        )
        for node in rack.nodes
    }
    return Context(rack, arch, readers, fleet)


def open_context(inventory: str | None, architecture: str | None, recordings: str | None) -> Context:
    """A context from the command line: an inventory, recordings (a folder of files, or a run), or both.

    Raises InventoryError, ArchitectureError or RunError, one line each.
    """
    rack = load_rack(inventory) if inventory else None
    if recordings:
        read = read_recordings(Path(recordings))
        # A run records only names and groups of its nodes; an inventory adds their data.
        rack = rack or Rack(recordings, tuple(recording.node for recording in read))
        results = {recording.node.name: recording.results.values() for recording in read}
        readers = {node.name: RecordingReader(node.name, known=results.get(node.name, ())) for node in rack.nodes}
        return Context(rack, architecture_of(rack, architecture).model, readers)
    if rack is None:
        raise InventoryError("no inventory given: --inventory inventories/lab.py")
    context = live_context(rack, architecture_of(rack, architecture).model, Fleet(rack))
    context.owned = True
    return context


def selected(rack: Rack, limit: Sequence[str], tags: str | None, expression: str | None) -> Selection:
    """Nodes and checks that a user's ``--limit``, ``--tags`` and ``-k`` select. Raises InventoryError, RunError."""
    refuse_malformed(expression or "")
    nodes = frozenset(node.name for node in rack.select(limit)) if limit else None
    return Selection(",".join(limit), nodes, tags_of(tags or ""), expression or "")
