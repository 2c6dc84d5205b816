"""Measurements as tables: rows and columns; templates do the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.units import sign
from rackproof.core.verdict import Verdict
from rackproof.report.brevity import DETAILED
from rackproof.report.certificate import natural
from rackproof.report.findings import verdicts_about, worst
from rackproof.report.quantities import ABSENT, significant, size
from rackproof.report.schema import Certificate, MeasurementSummary
from rackproof.report.statements import fold_subjects, subject_text

T = TypeVar("T")

ROWS = 250
"""Maximum number of rows of one table with a finding, the worst; a line below the table counts the others."""

_SHORT = {
    "storage.read_bandwidth": "read",
    "storage.write_bandwidth": "write",
    "storage.random_read_iops": "random read",
    "storage.random_read_latency": "latency",
    "storage.random_read_bandwidth": "random read",
    "storage.shared_file_read_bandwidth": "read of one file",
    "storage.synced_write_iops": "write and fsync",
    "storage.small_file_read_bandwidth": "read of small files",
    "storage.shard_read_bandwidth": "read of shards",
    "storage.metadata_rate": "small files",
    "storage.gds_read_bandwidth": "read into GPU memory",
    "storage.connections_speedup": "several connections over one",
    "storage.rdma_over_tcp": "RDMA over TCP",
    "storage.mounts_speedup": "several mounts over one",
    "inference.latency_p99": "99th percentile of a request's latency",
    "mixed.accelerator_utilisation_loss": "points of utilisation that training loses beside inference",
    "mixed.inference_latency_loss": "growth of a request's 99th percentile beside training",
    "mixed.storage_beside_collectives_loss": "reads lost beside collectives",
    "mixed.collectives_beside_storage_loss": "collectives lost beside reads",
    "mixed.collectives_wrong_values": "wrong values of collectives beside reads",
    "checkpoint.write_bandwidth": "checkpoint, write",
    "checkpoint.read_bandwidth": "checkpoint, read",
    "storage.damaged_places": "damaged places",
    "storage.knee_outstanding": "knee, requests in flight",
    "storage.knee_utilisation": "knee, share of the highest rate",
    "link.rdma_write_bandwidth": "RDMA write",
    "link.rdma_write_latency": "RDMA latency",
    "link.rdma_write_bandwidth_both": "RDMA write, both ways",
    "link.rdma_read_latency": "RDMA read latency",
    "link.rdma_write_bandwidth_gpu": "RDMA write, GPU memory",
    "link.rdma_write_bandwidth_gpu_all_rails": "RDMA write, GPU memory, all rails at once",
    "link.rdma_read_latency_gpu": "RDMA read latency, GPU memory",
    "link.rdma_write_bandwidth_gpu_both": "RDMA write, GPU memory, both ways",
    "link.rdma_write_bandwidth_all_rails": "RDMA write, all rails at once",
    "link.rdma_write_bandwidth_both_all_rails": "RDMA write, all rails at once, both ways",
    "link.rdma_write_bandwidth_gpu_both_all_rails": "RDMA write, GPU memory, all rails at once, both ways",
    "link.rdma_read_latency_all_rails": "RDMA read latency, all rails at once",
    "link.rdma_read_latency_gpu_all_rails": "RDMA read latency, GPU memory, all rails at once",
    "link.tcp_bandwidth": "TCP",
    "link.tcp_bandwidth_to_storage": "TCP to storage",
    "link.tcp_retransmitted": "TCP sent again",
    "link.rdma_retries": "RDMA retries",
    "link.loss": "loss",
    "link.round_trip": "round trip",
    "collective.busbw": "bus",
    "collective.algbw": "algorithm",
    "collective.busbw_in_place": "bus, in place",
    "collective.wrong_values": "wrong values",
    "collective.rail_busbw": "bus of one rail",
    "collective.rail_wrong_values": "wrong values of one rail",
}


@dataclass(frozen=True, slots=True)
class Column:
    """``group`` is the heading above neighbouring columns that share it."""

    title: str
    unit: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """``status`` is the worst verdict on the number; None without a criterion."""

    text: str
    note: str = ""
    status: Status | None = None
    raw: tuple[str, ...] = ()
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """``remarks``: reasons of absent numbers."""

    title: str
    caption: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    omitted: str = ""
    """The phrase of ``limited`` about omitted rows."""

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """(title, number of columns) of the row above the column titles; empty without groups."""
        if not any(c.group for c in self.columns):
            return ()
        return tuple((title, len(list(run))) for title, run in groupby(c.group for c in self.columns))


def short_name(metric: str) -> str:
    return _SHORT.get(metric, metric)


def link_name(m: MeasurementSummary) -> str:
    """The test, with the storage to whose servers it ran."""
    return " ".join(filter(None, (short_name(m.metric), m.labels.get("storage"))))


def of_all_clients(measurements: Iterable[MeasurementSummary]) -> list[MeasurementSummary]:
    """Leaves out numbers of the rack with fewer clients than others of the same metric, storage and block size."""
    every = list(measurements)
    most: dict[tuple[str, ...], int] = {}
    for m in every:
        most[_same(m)] = max(most.get(_same(m), 0), len(m.members))
    return [m for m in every if "clients" not in m.labels or len(m.members) == most[_same(m)]]


def _same(m: MeasurementSummary) -> tuple[str, ...]:
    return m.metric, m.scope.value, m.labels.get("storage", ""), m.labels.get("block_bytes", "")


def storage_tables(certificate: Certificate) -> tuple[Table, ...]:
    """One table per storage: rows are clients and the rack, columns are metrics."""
    of_storage: dict[str, list[MeasurementSummary]] = {s.name: [] for s in certificate.architecture.storages}
    for m in of_all_clients(certificate.measurements):
        if m.metric.startswith("storage."):
            of_storage.setdefault(m.labels.get("storage", ""), []).append(m)
    storages = {s.name: s for s in certificate.architecture.storages}
    tables = []
    for name, group in of_storage.items():
        if not group:
            continue
        s = storages.get(name)
        about = [s.class_, s.fstype, f"over {s.transport.upper()}" if s.transport else "", s.mountpoint] if s else []
        tables.append(
            _matrix(certificate, group, name or "unnamed", ", ".join(a for a in about if a), "Client", _workload)
        )
    return tuple(tables)


def link_table(certificate: Certificate) -> Table | None:
    """Rows are pairs of nodes, columns are tests."""
    group = [m for m in certificate.measurements if m.metric.startswith("link.")]
    several_rails = len({m.labels.get("rail") for m in group}) > 1

    def column(m: MeasurementSummary) -> str:
        rail = m.labels.get("rail")
        return f"{link_name(m)}, rail {rail}" if several_rails and rail is not None else link_name(m)

    return _matrix(certificate, group, "Between nodes", "one row per pair", "Pair", column) if group else None


def collective_table(certificate: Certificate) -> Table | None:
    """Rows are message sizes, columns are operations."""
    group = [m for m in certificate.measurements if m.metric.startswith("collective.")]
    engines = {m.labels.get("engine") for m in group}

    def operation(m: MeasurementSummary) -> str:
        engine = f" ({m.labels.get('engine')})" if len(engines) > 1 else ""
        return f"{m.labels.get('op', 'operation')}{engine}"

    def column(m: MeasurementSummary) -> str:
        return short_name(m.metric)

    def row(m: MeasurementSummary) -> str:
        return bytes_text(m.labels.get("bytes", ""))

    if not group:
        return None
    group.sort(key=lambda m: (natural({"bytes": m.labels.get("bytes", "")}), m.labels.get("op", ""), m.metric))
    members = fold_subjects(name for m in group for name in m.members)
    caption = ", ".join([members, *(f"engine {e}" for e in engines if e and len(engines) == 1)])
    return _matrix(certificate, group, "Collective operations", caption, "Message", column, row, operation)


def other_table(certificate: Certificate) -> Table | None:
    """Measurements of all other families; rows are subjects."""
    families = ("storage.", "link.", "collective.")
    group = [m for m in certificate.measurements if not m.metric.startswith(families)]

    def column(m: MeasurementSummary) -> str:
        return ", ".join([short_name(m.metric), *(f"{k} {v}" for k, v in sorted(m.labels.items()))])

    return _matrix(certificate, group, "Other measurements", "", "Subject", column) if group else None


def _workload(m: MeasurementSummary) -> str:
    block = m.labels.get("block_bytes", "")
    # Latency has no block label: it is that of the random reads in the next column.
    return " ".join(part for part in (short_name(m.metric), bytes_text(block) if block else "") if part)


def bytes_text(text: str) -> str:
    return size(int(text)) if text.isdecimal() else text


def _matrix(
    certificate: Certificate,
    group: Sequence[MeasurementSummary],
    title: str,
    caption: str,
    corner: str,
    column: Callable[[MeasurementSummary], str],
    row: Callable[[MeasurementSummary], str] | None = None,
    over: Callable[[MeasurementSummary], str] = lambda m: "",
) -> Table:
    """Rows are subjects in the order of the inventory, or as ``row`` says. A cell shows all of its measurements."""
    by_subject = row is None
    row = row or (lambda m: m.subject)
    order = {metric: i for i, metric in enumerate(METRICS)}
    ordered = sorted(group, key=lambda m: (over(m), order.get(m.metric, len(order))))

    def place(m: MeasurementSummary) -> tuple[str, str, str]:
        return (over(m), column(m), m.unit)

    columns = list(dict.fromkeys(place(m) for m in ordered))
    cells: dict[str, dict[tuple[str, str, str], list[MeasurementSummary]]] = {}
    for m in group:
        cells.setdefault(row(m), {}).setdefault(place(m), []).append(m)
    names = list(cells)
    if by_subject:
        names.sort(key=_order(certificate.node_names))
    rows, remarks = [], []
    statuses: dict[str, Status | None] = {}
    about = verdicts_about(certificate)
    for name in names:
        line = []
        for key in columns:
            summaries = cells[name].get(key, [])
            line.append(_cell(summaries, about))
            heading = " ".join(part for part in key[:2] if part)
            remarks += [f"{subject_text(name)}, {heading}: {m.reason}" for m in summaries if m.median is None]
        rows.append(Row(subject_text(name), tuple(line)))
        statuses[subject_text(name)] = max((c.status for c in line if c.status), key=lambda s: s.rank, default=None)
    shown, omitted = limited(rows, lambda r: statuses[r.title])
    return Table(
        title=title,
        caption=", ".join(part for part in (caption, _sampling(group)) if part),
        corner=corner,
        columns=tuple(Column(name, sign(unit), above) for above, name, unit in columns),
        rows=tuple(shown),
        remarks=tuple(dict.fromkeys(remarks)),
        omitted=omitted,
    )


def _cell(summaries: Sequence[MeasurementSummary], about: Callable[[MeasurementSummary], list[Verdict]]) -> Cell:
    if not summaries:
        return Cell(ABSENT)
    return Cell(
        text="; ".join("unmeasured" if m.median is None else significant(m.median) for m in summaries),
        note="" if len(summaries) > 1 else _spread(summaries[0]),
        status=worst(v for m in summaries for v in about(m)),
        raw=tuple(dict.fromkeys(sha for m in summaries for sha in m.raw)),
        simulated=any(m.simulated for m in summaries),
    )


def _spread(m: MeasurementSummary) -> str:
    """Range of the samples: ``98.1 to 103``."""
    return f"{significant(min(m.samples))} to {significant(max(m.samples))}" if len(m.samples) > 1 else ""


def _sampling(group: Iterable[MeasurementSummary]) -> str:
    """Caption that explains numbers and small print."""
    counts = sorted({len(m.samples) for m in group if m.samples})
    if not counts or counts == [1]:
        return ""
    return f"median and range of {counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'} samples"


def _order(nodes: Sequence[str]) -> Callable[[str], tuple[bool, int, str]]:
    """Sort key: nodes in the order of the inventory, then pairs, the rack last."""
    position = {name: i for i, name in enumerate(nodes)}
    return lambda name: (name == Scope.RACK.value, position.get(name, len(position)), name)


def limited(rows: Sequence[T], status: Callable[[T], Status | None]) -> tuple[list[T], str]:
    """The worst ``DETAILED`` rows, or up to ``ROWS`` with a finding, in order, and a phrase about the others."""
    bad = sum(status(row) not in (None, Status.PASS) for row in rows)
    most = min(max(bad, DETAILED), ROWS)
    if len(rows) <= most:
        return list(rows), ""

    def rank(position: int) -> tuple[int, int]:
        row_status = status(rows[position])
        return (-(row_status.rank if row_status else 0), position)

    ranked = sorted(range(len(rows)), key=rank)
    phrase = f"{len(rows) - most} more rows, {bad - most if bad > most else 'none'} of them with a finding,"
    return [rows[i] for i in sorted(ranked[:most])], phrase
