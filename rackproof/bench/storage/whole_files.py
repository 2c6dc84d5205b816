"""Steps that write and read whole files: their limits, and their measurements."""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.bench.step import reading_or_reason
from rackproof.bench.storage.client_runs import Clients
from rackproof.bench.storage.reader import NAME, read_storage
from rackproof.core.evidence import Measurement
from rackproof.core.rack import fold

SLOWEST = 1e6
"""B/s of the slowest client that is waited for, beside the margin of every run."""
TYPICAL = 20e6
"""B/s of a client for the estimate."""


def results(clients: Clients, places: list[Measurement]) -> Iterator[Measurement]:
    """The step's measurements; none has a number once a client is lost."""
    lost, raw = clients.lost, clients.outputs
    why = f"{fold(lost)} missing: {'; '.join(lost[node] for node in sorted(lost))}" if lost else ""
    read = read_storage(clients.answers, clients.session.architecture)
    for place in places:
        yield reading_or_reason(place, read, NAME, raw, why)
