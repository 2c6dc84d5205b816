"""The stage that bound a run of the input pipeline, from the run's own counters. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from rackproof.core.sizing.model import RUN_STAGES, StageName

BUSY: Final = 0.95
"""Utilisation of accelerators, processors or ports from which on they are what binds."""
STARTING: Final = 0.25
"""Share of the timed part before the first batch from which on the start of the workers binds."""

ACCELERATOR, DECODE = RUN_STAGES[StageName.GPU], RUN_STAGES[StageName.CPU]
NETWORK, STORAGE = RUN_STAGES[StageName.NETWORK], RUN_STAGES[StageName.BANDWIDTH]
START: Final = "start of workers"


class Counters(NamedTuple):
    """Sums over all nodes of one run, and the highest of a node where it says so."""

    utilisation: float
    """Utilisation of the accelerators, 0 to 1."""
    first_share: float
    """Longest time to a worker's first batch, without the warm-up, over the timed part."""
    read_s: float
    """Time that workers waited for reads, seconds."""
    decode_s: float
    """Time that workers decoded and cropped, seconds."""
    cpu: float
    """Highest mean utilisation of a node's processors, 0 to 1."""
    port: float | None
    """Highest mean utilisation of a node's ports, 0 to 1; None where their rate is unknown."""


class Bound(NamedTuple):
    stage: str
    because: str


def bound_by(counters: Counters) -> Bound:
    """The binding stage. Accelerators that hardly wait bind; else the stage in which workers spend most of their time:
    decoding, or reading, which is the network's where a port is full."""
    if counters.utilisation >= BUSY:
        return Bound(ACCELERATOR, f"accelerators were busy {counters.utilisation:.0%} of the time")
    if counters.first_share >= STARTING:
        return Bound(START, f"the first batch of a worker came after {counters.first_share:.0%} of the timed part")
    working = counters.read_s + counters.decode_s
    if not working:
        return Bound(ACCELERATOR, "nothing was read or decoded")
    reading = counters.read_s / working
    if reading < 0.5:
        return Bound(DECODE, f"workers decoded {1 - reading:.0%} of their time, processors {counters.cpu:.0%} busy")
    if counters.port is not None and counters.port >= BUSY:
        return Bound(NETWORK, f"workers read {reading:.0%} of their time, a port {counters.port:.0%} full")
    return Bound(STORAGE, f"workers read {reading:.0%} of their time, no port full")
