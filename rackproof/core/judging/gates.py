"""Plausibility gates that a measurement must pass before it is compared with a bar.

Every repetition must pass; only "no byte was read twice" applies to all repetitions together. A gate without recorded
numbers fails. ``evidence.Measurement`` defines the numbers and their units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rackproof.core.architecture import Curve, Gate, Quantity, Reference
from rackproof.core.judging.bars import number_text
from rackproof.core.wording import counted, exact

Companions = Mapping[str, tuple[float, ...]]

LITTLE_PCT = 5.0
"""Tolerance of rate × latency against requests in flight, %."""
COUNTER_PCT = 3.0
"""Tolerance of counters against the application's bytes, %."""
DATASET_TIMES_RAM = 5.0
"""Minimum ratio of data set to the clients' memory, for negligible caching."""
SERVED_PCT = 97.0
"""Minimum share of the clients' bytes that the servers' drives read, %; other programs only add to it."""
CACHED_PCT = 1.0
"""Limit of the data set cached at the start, % (exclusive)."""

_IMPLIED: Mapping[str, tuple[Gate, ...]] = {"storage.knee_outstanding": (Gate.LITTLES_LAW,)}
"""Gates that a metric has whether an entry names them or not: a knee among loads that were not as declared is none."""
_ROUNDING = 1e-9
_READ = "bytes_read"
_READ_SHARE = "bytes read over data set"


class _Rule(NamedTuple):
    numbers: tuple[str, ...]
    """Required numbers, one per repetition."""
    or_numbers: tuple[str, ...]
    """Alternative numbers; where both sets exist, passing with either suffices."""
    fault: Callable[[Mapping[str, float]], str | None]
    """Fault of one repetition."""


def gates_of(asks: Quantity | Curve | Reference) -> tuple[Gate, ...]:
    """Gates of an entry: those that its metric implies, and its own."""
    return tuple(dict.fromkeys((*_IMPLIED.get(asks.metric, ()), *asks.gates)))


def fault_of(gates: Iterable[Gate], companions: Companions, samples: int, warmup: int = 0) -> str | None:
    """Why the first failing gate fails, in one line; None: all pass.

    ``companions`` need one number per sample; the warm-up is skipped.
    """
    for gate in gates:
        rule = _RULES[gate]
        missing = [name for name in rule.numbers if name not in companions]
        if missing and not (rule.or_numbers and all(name in companions for name in rule.or_numbers)):
            instead = f" (nor {' and '.join(rule.or_numbers)})" if rule.or_numbers else ""
            return f"{gate} cannot be checked: {' and '.join(missing)} not recorded{instead}"
        names = [name for name in dict.fromkeys((*rule.numbers, *rule.or_numbers)) if name in companions]
        if why := _gate_fault(gate, rule, names, companions, samples, warmup):
            return why
    return None


def small_data_set(companions: Companions) -> str | None:
    """Size of a data set that the gate ``DATASET_SIZE``, if an entry asked for it, would not let pass by its size, and
    whether bytes were read again; None for a large set, and without the numbers."""
    names = ("dataset_bytes", "client_ram_bytes", "application_bytes")
    data, ram, read = (companions.get(name, ()) for name in names)
    if not data or not ram or not read or min(data) <= 0 or max(ram) <= 0:
        return None
    if (times := min(data) / max(ram)) >= DATASET_TIMES_RAM * (1 - _ROUNDING):
        return None
    again = "read more than once" if math.fsum(read) > min(data) * (1 + _ROUNDING) else "read once at most"
    return f"{number_text(times)} times the clients' memory, {again}"


def needed_companions(every: Iterable[Quantity | Curve | Reference]) -> frozenset[str]:
    """Names of the companions that several criteria need."""
    rules = [_RULES[gate] for asks in every for gate in gates_of(asks)]
    return frozenset(name for rule in rules for name in (*rule.numbers, *rule.or_numbers))


def _gate_fault(
    gate: Gate, rule: _Rule, names: Sequence[str], companions: Companions, samples: int, warmup: int
) -> str | None:
    for name in names:
        if len(companions[name]) != samples:
            actual = counted(len(companions[name]), f"number of {name}", f"numbers of {name}")
            return f"{gate} cannot be checked: {actual} for {counted(samples, 'sample')}"
    faults = []
    read = companions[_READ] if gate is Gate.DATASET_SIZE and _READ in names else ()
    for repetition in range(warmup, samples):
        numbers = {name: companions[name][repetition] for name in names}
        odd = [f"{name} is {value}" for name, value in numbers.items() if not math.isfinite(value) or value < 0]
        if read and not odd:
            numbers |= _read_share(read, companions["dataset_bytes"], numbers[_READ])
        if fault := (f"{odd[0]}, which is impossible" if odd else rule.fault(numbers)):
            faults.append((not odd, repetition, fault))
    if not faults:
        return None
    _, first, fault = min(faults)  # impossible numbers first: they explain other faults
    where = f" (sample {first + 1}, {len(faults)} of {samples - warmup})" if samples > 1 else ""
    return f"{gate}: {fault}{where}"


def _read_share(read: Sequence[float], dataset: Sequence[float], in_repetition: float) -> dict[str, float]:
    """Bytes that all repetitions read, over the smallest data set. Includes the warm-up, which fills caches.

    Infinite where a number is invalid, or where the repetition itself read nothing.
    """
    sound = in_repetition > 0 and all(math.isfinite(number) and number >= 0 for number in read)
    smallest = min(dataset)
    return {_READ_SHARE: math.fsum(read) / smallest if sound and smallest > 0 else math.inf}


def _littles_law(numbers: Mapping[str, float]) -> str | None:
    if not numbers["outstanding"]:
        return "no request was ever in flight"
    ratio = numbers["iops"] * numbers["latency_s"] / numbers["outstanding"]
    return _off(ratio, LITTLE_PCT, "iops × latency / outstanding")


def _byte_counters(numbers: Mapping[str, float]) -> str | None:
    if not numbers["application_bytes"]:
        return "the application moved no byte"
    return _off(numbers["counter_bytes"] / numbers["application_bytes"], COUNTER_PCT, "counter / application bytes")


def _dataset_size(numbers: Mapping[str, float]) -> str | None:
    dataset = numbers["dataset_bytes"]
    if not dataset:
        return "the data set is empty"
    share, ram = numbers.get(_READ_SHARE, math.inf), numbers.get("client_ram_bytes")
    if share <= 1 + _ROUNDING:
        return None
    if ram is None:
        actual = f"{number_text(share, 1.0)} times its size was read" if math.isfinite(share) else "unknown"
        return f"expected every byte of the data set read at most once in all repetitions together, actual {actual}"
    if not ram:
        return "the clients' memory is 0, which is impossible"
    if dataset >= ram * DATASET_TIMES_RAM * (1 - _ROUNDING):
        return None
    times = number_text(dataset / ram, DATASET_TIMES_RAM)
    return f"expected a data set of ≥ {exact(DATASET_TIMES_RAM)} times the clients' memory, actual {times} times"


def _cold_cache(numbers: Mapping[str, float]) -> str | None:
    if not numbers["dataset_bytes"]:
        return "the data set is empty"
    cached = 100 * numbers["cached_bytes_start"] / numbers["dataset_bytes"]
    if cached < CACHED_PCT:
        return None
    return f"expected < {CACHED_PCT:g} % of the data set cached at the start, actual {number_text(cached)} %"


def _server_drives(numbers: Mapping[str, float]) -> str | None:
    if not numbers["clients_read_bytes"]:
        return "the clients read no byte"
    share = 100 * numbers["server_drives_bytes"] / numbers["clients_read_bytes"]
    if share >= SERVED_PCT * (1 - _ROUNDING):
        return None
    return (
        f"expected ≥ {SERVED_PCT:g} % of what the clients read from the servers' drives, actual"
        f" {number_text(share, SERVED_PCT)} %: the servers' memory answered the rest"
    )


def _off(ratio: float, limit_pct: float, what: str) -> str | None:
    """Fault of a ratio that is not 1 within ``limit_pct``, bounds included; None: it is."""
    if abs(ratio - 1) * 100 <= limit_pct * (1 + _ROUNDING):
        return None
    edge = 1 + math.copysign(limit_pct / 100, ratio - 1)
    return f"expected {what} = 1 within {limit_pct:g} %, actual {number_text(ratio, edge)}"


_RULES: dict[Gate, _Rule] = {
    Gate.LITTLES_LAW: _Rule(("iops", "latency_s", "outstanding"), (), _littles_law),
    Gate.BYTE_COUNTERS: _Rule(("application_bytes", "counter_bytes"), (), _byte_counters),
    Gate.DATASET_SIZE: _Rule(("dataset_bytes", "client_ram_bytes"), ("dataset_bytes", "bytes_read"), _dataset_size),
    Gate.COLD_CACHE: _Rule(("dataset_bytes", "cached_bytes_start"), (), _cold_cache),
    Gate.SERVER_DRIVES: _Rule(("clients_read_bytes", "server_drives_bytes"), (), _server_drives),
}
