"""Whether a data set that fits into a node's memory settles there, and how long that takes. Pure.

Every node reads the whole set again and again. By size and rate the storage gives its last byte when the pipeline has
read as many bytes as the set has. The storage counts by itself: a detector of caches that does not see this one would
not see a cache behind other figures either.
"""

from __future__ import annotations

from typing import Final

from rackproof.bench.ingest.runs import TOOL, Part
from rackproof.bench.ingest.series import MOUNTS, PIPELINE, growth, reached
from rackproof.parse import ParseError

METRIC: Final = "ingest.cache_settling_ratio"
LEG: Final = "settling"
QUIET: Final = 0.01
"""Share of the data set that storage may still give after it has settled: attributes, and what a node evicted."""
AGREE: Final = 0.03
"""Share of the data set by which two readings of one counter may differ."""
RESOLVED_S: Final = 3
"""Shortest first pass: counters are read once a second."""
PASSES: Final = 3
"""Passes, and multiples of the predicted time, after which a set that still causes reads does not settle."""


def ratio(part: Part, counted: int | None) -> float:
    """Time until the storage gave its last byte over the predicted one: 0 where a cache had the set before the run, the
    whole run's over the predicted one where storage is read to the end. Raises ParseError."""
    rows, dataset = part.series, part.answer.child("dataset")
    size = dataset.number("bytes", minimum=1.0)
    memory = part.answer.number("memory_bytes", minimum=1.0)
    if size >= memory:
        raise ParseError(TOOL, f"a data set of {size:.0f} B does not fit into the node's memory of {memory:.0f} B")
    if counted is None or any(row[MOUNTS] is None for row in rows):
        raise ParseError(TOOL, "no counter tells the bytes of the storage without headers")
    given, index = growth(rows, MOUNTS), dataset.number("index_bytes")
    if not -AGREE * size <= counted - given <= AGREE * size + index:
        raise ParseError(TOOL, f"the storage gave {counted} B by its state, {given:.0f} B by its series")
    predicted, end_s = reached(rows, PIPELINE, size), float(rows[-1][0] or 0.0)
    if predicted is None or predicted <= 0:
        raise ParseError(TOOL, "the data set was not read once; raise seconds of the job")
    if predicted < RESOLVED_S:
        raise ParseError(
            TOOL, f"the data set was read in {predicted:.1f} s, and counters once a second; {RESOLVED_S} s are needed"
        )
    settled = reached(rows, MOUNTS, given - QUIET * size) if given > QUIET * size else 0.0
    read = growth(rows, PIPELINE)
    last = reached(rows, PIPELINE, read - (1 - QUIET) * size)
    if settled is not None and last is not None and settled <= last:
        return settled / predicted  # a whole pass followed, without storage
    if read < PASSES * size or end_s < PASSES * predicted:
        raise ParseError(
            TOOL,
            f"the run reads the storage to its end; {read / size:.1f} passes in {end_s / predicted:.1f} times the"
            f" predicted time do not show that it never settles, {PASSES} of both would; raise seconds of the job",
        )
    return end_s / predicted
