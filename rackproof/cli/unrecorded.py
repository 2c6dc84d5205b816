"""Work on nodes outside a run: with the run lock, and without evidence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rackproof.architectures import LoadedArchitecture
from rackproof.bench.forecast import spaces
from rackproof.bench.leftovers import remove_files
from rackproof.bench.step import BenchContext
from rackproof.bench.user import TIDY
from rackproof.cli.terminal import say
from rackproof.core.rack import Rack
from rackproof.evidence.session import Session
from rackproof.evidence.store import EvidenceStore
from rackproof.remote.fleet import Fleet
from rackproof.run.rack_lock import take_rack

_ASK_S = 30.0


@contextmanager
def unrecorded(rack: Rack, loaded: LoadedArchitecture, run: str) -> Iterator[BenchContext]:
    """Connections to all nodes, with the run lock. Answers are not stored."""
    with TemporaryDirectory() as folder, EvidenceStore(Path(folder)) as store, Fleet(rack) as fleet:
        fleet.on_wait = lambda line: say(line, err=True)
        names = [node.name for node in rack.nodes]
        take_rack(fleet, names, run, say)
        try:
            yield BenchContext(Session(rack, loaded.model, fleet, store), say)
        finally:
            fleet.run(dict.fromkeys(names, TIDY), 20)


def clean(rack: Rack, loaded: LoadedArchitecture, profile: str) -> bool:
    """Remove the test files of a profile that an interrupted run has left. Prints a line for each that stays; returns
    True if none does."""
    storages = list(spaces(loaded.model, profile, rack))
    with unrecorded(rack, loaded, "bench --clean") as context:
        clients = dict.fromkeys(name for space in storages for name in space.clients)
        answers = context.session.run(dict.fromkeys(clients, "true"), _ASK_S)
        stay = [f"{node}: its files may stay: {answer.why}" for node, answer in answers.items() if not answer.ok]
        remove_files(context.session, storages, stay.append)
    for line in stay:
        say(line)
    return not stay
