"""Key figures for the top of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from rackproof.core.evidence import Scope
from rackproof.core.grouping import grouped
from rackproof.core.metrics import METRICS
from rackproof.report.quantities import quantity, size
from rackproof.report.schema import Certificate, MeasurementSummary
from rackproof.report.statements import subject_text
from rackproof.report.tables import bytes_text, link_name, of_all_clients, short_name


@dataclass(frozen=True, slots=True)
class Figure:
    label: str
    value: str
    note: str
    raw: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    title: str
    caption: str
    rows: tuple[Figure, ...]


def key_figures(certificate: Certificate) -> tuple[Figures, ...]:
    """The rack's figures of each storage, the slowest pair of each link test, the peak of each collective."""
    measured = [m for m in certificate.measurements if m.median is not None]
    blocks = [_storage(s.name, s.class_, certificate.measurements) for s in certificate.architecture.storages]
    blocks += [_links(measured), _collectives(measured)]
    return tuple(block for block in blocks if block.rows)


def _storage(name: str, class_: str, measurements: Iterable[MeasurementSummary]) -> Figures:
    series = grouped(
        ((m.metric, m.unit, m.labels.get("op", ""), m.labels.get("block_bytes", "")), m)
        for m in of_all_clients(measurements)
        if m.metric.startswith("storage.") and m.labels.get("storage") == name
    )
    order = {metric: i for i, metric in enumerate(METRICS)}
    keys = sorted(series, key=lambda key: (order.get(key[0], len(order)), *key[:3], key[3].zfill(20)))
    names = {key: " ".join(filter(None, (short_name(key[0]), key[2]))) for key in keys}
    alike = Counter(names.values())
    rows = (
        _of_rack(series[key], f"{text} {bytes_text(key[3])}" if key[3] and alike[text] > 1 else text)
        for key, text in names.items()
    )
    return Figures(name, class_ if class_ != name else "", tuple(filter(None, rows)))


def _of_rack(group: Iterable[MeasurementSummary], label: str) -> Figure | None:
    """The rack's number; without one the median of the measured clients, with their count."""
    group = list(group)
    for m in group:
        if m.scope is Scope.RACK and m.median is not None:
            return Figure(label, quantity(m.median, m.unit), "", m.raw)
    clients = [m for m in group if m.scope is Scope.NODE]
    values = [m.median for m in clients if m.median is not None]
    if not values:
        return None
    note = "median client" if len(values) == len(clients) else f"{len(values)} of {len(clients)} clients"
    return Figure(label, quantity(median(values), clients[0].unit), note, clients[0].raw if len(values) == 1 else ())


def _links(measured: Iterable[MeasurementSummary]) -> Figures:
    rows = []
    links = grouped(((m.metric, link_name(m)), m) for m in measured if m.metric.startswith("link."))
    for (metric, name), group in sorted(links.items()):
        higher_is_better = metric not in METRICS or METRICS[metric].higher_is_better
        slowest = (min if higher_is_better else max)(group, key=lambda m: m.median or 0.0)
        note = subject_text(slowest.subject) if len({m.subject for m in group}) > 1 else ""
        rows.append(Figure(name, quantity(slowest.median, slowest.unit), note, slowest.raw))
    return Figures("links", "slowest pair", tuple(rows))


def _collectives(measured: Iterable[MeasurementSummary]) -> Figures:
    busbw = [m for m in measured if m.metric == "collective.busbw"]
    rows = []
    for (op, unit), group in sorted(grouped(((m.labels.get("op", "operation"), m.unit), m) for m in busbw).items()):
        peak = max(group, key=lambda m: m.median or 0.0)
        count = peak.labels.get("bytes", "")
        rows.append(
            Figure(op, quantity(peak.median, unit), f"at {size(int(count))}" if count.isdecimal() else "", peak.raw)
        )
    return Figures("collectives", "peak bus bandwidth", tuple(rows))
