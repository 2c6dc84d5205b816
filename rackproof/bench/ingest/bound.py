"""The stage that bound a run of the input pipeline, from the run's own counters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from rackproof.bench.ingest.figures import Figures
from rackproof.bench.ingest.series import PORTS, RDMA, at
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.base import Figure
from rackproof.core.sizing.model import RUN_STAGES, StageName
from rackproof.core.throttles import limits_of
from rackproof.core.units import convert

BUSY: Final = 0.95
"""Least utilisation at which accelerators, processors or ports count as the binding stage."""
STARTING: Final = 0.25
"""Least share of the timed part before the first batch at which the start of the workers binds."""

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


def utilisation_of(legs: Sequence[Figures]) -> float:
    """Utilisation of all accelerators over the timed part, percent."""
    possible = sum(leg.part.window_s * float(leg.part.config["accelerators"]) for leg in legs)
    return 100 * sum(leg.part.busy_s for leg in legs) / possible


def bound_of(legs: Sequence[Figures], architecture: Architecture, storage: str, port_gbps: int | None = None) -> Bound:
    """The stage that bound a run. ``port_gbps``: as of ``lines_of``."""
    config = legs[0].part.config
    return bound_by(
        Counters(
            utilisation_of(legs) / 100,
            max(
                max(0.0, leg.part.pipeline("first_s") - float(config["warmup_s"])) / max(leg.part.window_s, 1e-9)
                for leg in legs
            ),
            sum(leg.part.pipeline("read_s") for leg in legs),
            sum(leg.part.pipeline("decode_s") for leg in legs),
            max(leg.mean_cpu for leg in legs),
            port_share(legs, lines_of(architecture, storage, port_gbps)),
        )
    )


class Lines(NamedTuple):
    """B/s that ports can carry; None where it is unknown."""

    node: float | None = None
    """One node towards the storage."""
    storage: float | None = None
    """All ports of the storage together."""


def lines_of(architecture: Architecture, storage: str, port_gbps: int | None = None) -> Lines:
    """Line rates of the sizing model times ``port_efficiency``, or less where ``scale.links`` limits the ports: limits
    count whole frames, as the counters of ports do.

    ``port_gbps``: the rate of the links with ``series``, in Gb/s of the published system.
    """
    of = architecture.storage[storage]
    if of.class_ == "local":
        return Lines()
    sizing = architecture.sizing if architecture.sizing and architecture.sizing.storage in (None, storage) else None
    node = servers = None
    if sizing is not None:
        if line := _bytes(sizing.port_rate):
            node = line * sizing.storage_ports * sizing.port_efficiency
        if sizing.unit.ports and sizing.unit.port_rate and (line := _bytes(sizing.unit.port_rate)):
            servers = line * sizing.unit.ports * sizing.unit.count * sizing.port_efficiency
    if shaped := limits_of(architecture, of.client_roles, port_gbps).ports:
        node = min(node or inf, *(rate / 8 for rate in shaped.values()))
    if of.server_role is not None and (shaped := limits_of(architecture, (of.server_role,), port_gbps).ports):
        servers = min(servers or inf, min(shaped.values()) / 8 * architecture.roles[of.server_role].count.min)
    return Lines(node, servers)


def port_share(legs: Sequence[Figures], lines: Lines) -> float | None:
    """How full the fullest ports were in the timed part, 0 to 1: those of a node, or all of the storage's together.
    None where no line is known."""
    rates = [_received(leg) for leg in legs]
    carried = ((max(rates), lines.node), (sum(rates), lines.storage))
    return max((rate / line for rate, line in carried if line), default=None)


def _received(leg: Figures) -> float:
    """B/s that a node's ports received in the timed part: RDMA devices count what passes the network stack by."""
    rows, begin_s = leg.part.series, float(leg.part.config["warmup_s"])
    end_s = begin_s + leg.part.window_s
    return max(at(rows, column, end_s) - at(rows, column, begin_s) for column in (PORTS, RDMA)) / leg.part.window_s


def _bytes(rate: Figure) -> float:
    """B/s; 0 where it is unknown."""
    return 0.0 if rate.value is None else convert(rate.value, rate.unit, "B/s")
