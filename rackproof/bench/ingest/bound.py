"""The counters of a run by which its binding stage is named. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rackproof.bench.ingest.runs import Part
from rackproof.bench.ingest.series import PORTS, RDMA, at
from rackproof.bench.ingest.stage import Bound, Counters, bound_by
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.base import Figure
from rackproof.core.units import convert


class Leg(Protocol):
    """One node of a run."""

    @property
    def part(self) -> Part: ...

    @property
    def mean_cpu(self) -> float: ...


def utilisation_of(legs: Sequence[Leg]) -> float:
    """Utilisation of all accelerators over the timed part, percent."""
    possible = sum(leg.part.window_s * float(leg.part.config["accelerators"]) for leg in legs)
    return 100 * sum(leg.part.busy_s for leg in legs) / possible


def bound_of(legs: Sequence[Leg], architecture: Architecture, storage: str) -> Bound:
    """The stage that bound a run."""
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
            port_share(legs, architecture, storage),
        )
    )


def port_share(legs: Sequence[Leg], architecture: Architecture, storage: str) -> float | None:
    """How full the fullest ports were in the timed part, 0 to 1: those of a node, or all of the storage's together.

    Their rates are the sizing model's, of which ``port_efficiency`` reaches the application; None without them.
    """
    sizing = architecture.sizing
    if architecture.storage[storage].class_ == "local" or sizing is None or sizing.storage not in (None, storage):
        return None
    rates = [_received(leg) for leg in legs]
    shares = []
    if line := _bytes(sizing.port_rate):
        shares.append(max(rates) / (line * sizing.storage_ports * sizing.port_efficiency))
    if sizing.unit.ports and sizing.unit.port_rate and (line := _bytes(sizing.unit.port_rate)):
        shares.append(sum(rates) / (line * sizing.unit.ports * sizing.unit.count * sizing.port_efficiency))
    return max(shares, default=None)


def _received(leg: Leg) -> float:
    """B/s that a node's ports received in the timed part: RDMA devices count what passes the network stack by."""
    rows, begin_s = leg.part.series, float(leg.part.config["warmup_s"])
    end_s = begin_s + leg.part.window_s
    return max(at(rows, column, end_s) - at(rows, column, begin_s) for column in (PORTS, RDMA)) / leg.part.window_s


def _bytes(rate: Figure) -> float:
    """B/s; 0 where it is unknown."""
    return 0.0 if rate.value is None else convert(rate.value, rate.unit, "B/s")
