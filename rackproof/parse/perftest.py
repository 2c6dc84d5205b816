"""perftest: ib_write_bw, ib_read_bw, ib_send_bw, their ``_lat`` siblings.

Client and server may write into one stream: all result rows after the first header count, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Generic, TypeVar

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError, Unreliable
from rackproof.parse.text import excerpt, half_digit, integer, last_words, real, whole_lines

TOOL: Final = "perftest"
Row = TypeVar("Row")


class BandwidthUnit(StrEnum):
    """Unit in the header.

    Old versions print ``MB/sec`` for 2^20 bytes (perftest divides by 0x100000); newer ones print the same number
    as ``MiB/sec``. ``Gb/sec`` (``--report_gbits``) is 10^9 bits.
    """

    MB = "MB/sec"
    MIB = "MiB/sec"
    GBIT = "Gb/sec"

    @property
    def bytes_per_s(self) -> float:
        return 125e6 if self is BandwidthUnit.GBIT else float(2**20)


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """One message size; ``average`` and ``peak`` in ``unit``, as printed."""

    bytes: int
    iterations: int
    unit: BandwidthUnit
    average: float
    peak: float | None
    """None where the test has no peak (by duration, ``--noPeak``) and prints 0."""
    msg_rate_mpps: float | None
    """Million messages a second."""

    @property
    def average_bits_per_s(self) -> float:
        return self.average * self.unit.bytes_per_s * 8


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One message size, microseconds; None where the test does not report it (by duration: only the average)."""

    bytes: int
    iterations: int
    average_us: float | None
    min_us: float | None
    max_us: float | None
    typical_us: float | None
    """The median."""
    p99_us: float | None
    p999_us: float | None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that the test prints; None where the output begins after them."""

    test: str | None
    """``RDMA_Write BW``, ``RDMA_Write Bidirectional BW``, ``Send Latency`` …"""
    device: str | None
    link_layer: str | None
    """Ethernet or IB."""
    mtu_bytes: int | None
    qps: int | None
    connection: str | None
    gid_index: int | None


@dataclass(frozen=True, slots=True)
class Report(Generic[Row]):
    conditions: Conditions
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The GPU whose memory a test sends from and receives into."""

    gpu: str
    """As the driver names it."""
    path: str
    """``DMA-BUF``, or ``peer memory`` for buffers that are registered by their address (nvidia-peermem)."""


def parse_gpu_memory(output: str) -> GpuMemory | None:
    """The GPU memory of a test with ``--use_cuda``; None for host memory.

    Raises ParseError for memory that may lie on the host (managed, allocated by the system), and for an unnamed GPU.
    """
    if not re.search(r"^allocated GPU buffer ", output, re.MULTILINE):
        return None
    kinds = sorted(set(re.findall(r" for type (CUDA_MEM_\w+)", output)) - {"CUDA_MEM_DEVICE"})
    if kinds:
        raise ParseError(TOOL, f"expected memory of the GPU, actual {', '.join(kinds)}")
    names = sorted(set(re.findall(r"^\[pid = \d+, dev = \d+\] device name = \[([^\]\n]+)\]$", output, re.MULTILINE)))
    if len(names) != 1:
        raise ParseError(TOOL, f"expected the name of one GPU, actual {len(names)}")
    shared = re.search(r"^using DMA-BUF for GPU buffer |^Calling ibv_reg_dmabuf_mr\(", output, re.MULTILINE)
    return GpuMemory(names[0], "DMA-BUF" if shared else "peer memory")


@lru_cache(maxsize=1024)
def parse_bandwidth(output: str | bytes) -> Report[BandwidthRow]:
    """Rows of a bandwidth test; each must agree with its own message rate.

    Raises Unreliable for a row that contradicts itself, e.g. iterations done and none a second.
    """
    lines = whole_lines(TOOL, output, closing=_RULE)
    conditions = _conditions(lines)
    bidirectional = "Bidirectional" in (conditions.test or "")
    rows = []
    for cells in _rows(lines, "BW average"):
        unit = _unit(next(column for column in cells if column.startswith("BW average")))
        rows.append(_bandwidth_row(cells, unit, bidirectional=bidirectional))
    return Report(conditions, tuple(rows))


@lru_cache(maxsize=1024)
def parse_latency(output: str | bytes) -> Report[LatencyRow]:
    """Rows of a latency test."""
    lines = whole_lines(TOOL, output, closing=_RULE)
    return Report(_conditions(lines), tuple(_latency_row(cells) for cells in _rows(lines, "t_avg")))


_RULE: Final = r" ?-{80,}"
_COLUMN: Final = re.compile(r"#\w+|tps average|(?:[\w.%]+ )?[\w.%]+\[[^\]\s]+\]")
_TITLE: Final = re.compile(r"^ *((?:\w+ )+(?:BW|Latency)) Test *$")
_PAIR: Final = re.compile(r"([A-Za-z][\w .*-]*?)\s*:\s*(\S+)(?=\s{2,}|\t|\s*$)")


_UNRELIABLE: Final = re.compile(
    r"Correlation coefficient|Can't produce a report|unreliable|inaccurate|not accurate|Failed to get (?:CPU|cycles)",
    re.IGNORECASE,
)


def complaint(output: str) -> str | None:
    """The first line in which perftest calls its figures unreliable: it cannot find the rate of the clock.

    A changing CPU frequency is no such line: perftest then uses the highest one.
    """
    return next((line.strip() for line in output.splitlines() if _UNRELIABLE.search(line)), None)


def _rows(lines: list[str], needed: str) -> Iterator[dict[str, str]]:
    """Cells by column title. Only lines that begin with a number are rows; warnings may be between them."""
    columns: list[str] = []
    count = 0
    for line in lines:
        if line.lstrip().startswith("#bytes"):
            columns = _COLUMN.findall(line)
            if not any(column.startswith(needed) for column in columns):
                raise ParseError(TOOL, f"table has no column {needed}: {excerpt(line)}")
            continue
        cells = line.split()
        if not columns or not cells or not cells[0].isdigit():
            continue
        if len(cells) != len(columns):
            raise ParseError(TOOL, f"{len(cells)} cells below {len(columns)} columns: {excerpt(line)}")
        count += 1
        yield dict(zip(columns, cells, strict=True))
    if not count:
        what = "no result table" if not columns else "no result below the header"
        raise ParseError(TOOL, f"{what}; the output ends with {last_words(chr(10).join(lines))}")


def _unit(column: str) -> BandwidthUnit:
    label = column[column.index("[") + 1 : -1]
    try:
        return BandwidthUnit(label)
    except ValueError:
        raise ParseError(TOOL, f"unknown unit of bandwidth {label!r}") from None


def _bandwidth_row(cells: dict[str, str], unit: BandwidthUnit, *, bidirectional: bool) -> BandwidthRow:
    average, peak = f"BW average[{unit}]", f"BW peak[{unit}]"
    rate = cells.get("MsgRate[Mpps]")
    for column in ("#iterations", average, peak):
        if column not in cells:
            raise ParseError(TOOL, f"table has no column {column}")
    row = BandwidthRow(
        bytes=integer(TOOL, "#bytes", cells["#bytes"], minimum=1),
        iterations=integer(TOOL, "#iterations", cells["#iterations"], minimum=1),
        unit=unit,
        average=real(TOOL, average, cells[average]),
        peak=real(TOOL, peak, cells[peak]) or None,
        msg_rate_mpps=real(TOOL, "MsgRate", rate) if rate is not None else None,
    )
    if row.average == 0:
        raise Unreliable(TOOL, f"{row.iterations} iterations of {row.bytes} B done, and {average} {cells[average]}")
    if rate is not None:
        _check(row, half_digit(cells[average]), half_digit(rate), bidirectional=bidirectional)
    return row


def _check(row: BandwidthRow, average_error: float, rate_error: float, *, bidirectional: bool) -> None:
    """Raises ParseError where the bandwidth is not message size times rate: a wrong unit or a damaged number."""
    if row.msg_rate_mpps is None:
        return
    # Old versions count both directions of a bidirectional test in the bandwidth but only one in the rate.
    for directions in (1, 2) if bidirectional else (1,):
        scale = directions * row.bytes * 1e6 / row.unit.bytes_per_s
        expected, slack = row.msg_rate_mpps * scale, rate_error * scale
        if abs(row.average - expected) <= 0.01 * expected + slack + average_error:
            return
    raise Unreliable(
        TOOL, f"{exact(row.average)} {row.unit} of {row.bytes} B messages contradicts {exact(row.msg_rate_mpps)} Mpps"
    )


def _latency_row(cells: dict[str, str]) -> LatencyRow:
    def us(name: str) -> float | None:
        token = cells.get(f"{name}[usec]")
        if token is not None and token.lower().lstrip("+-") in ("inf", "nan"):
            raise Unreliable(TOOL, f"{cells['#iterations']} iterations done, and {name} is {token}")
        return None if token is None else real(TOOL, name, token)

    if "#iterations" not in cells:
        raise ParseError(TOOL, "table has no column #iterations")
    row = LatencyRow(
        bytes=integer(TOOL, "#bytes", cells["#bytes"], minimum=1),
        iterations=integer(TOOL, "#iterations", cells["#iterations"], minimum=1),
        average_us=us("t_avg"),
        min_us=us("t_min"),
        max_us=us("t_max"),
        typical_us=us("t_typical"),
        p99_us=us("99% percentile"),
        p999_us=us("99.9% percentile"),
    )
    for name, value in (("t_avg", row.average_us), ("t_typical", row.typical_us)):
        if value == 0:
            raise Unreliable(TOOL, f"{row.iterations} iterations done, and {name} is 0")
    ascending = [v for v in (row.min_us, row.typical_us, row.p99_us, row.p999_us, row.max_us) if v is not None]
    average = [v for v in (row.min_us, row.average_us, row.max_us) if v is not None]
    if row.average_us is None or ascending != sorted(ascending) or average != sorted(average):
        raise Unreliable(TOOL, f"latencies of {row.bytes} B contradict each other")
    return row


def _conditions(lines: list[str]) -> Conditions:
    pairs: dict[str, str] = {}
    test: str | None = None
    for line in lines:
        if test is None and (title := _TITLE.match(line)):
            test = title[1]
        for key, value in _PAIR.findall(line):
            pairs.setdefault(key.strip(), value)
    mtu = pairs.get("Mtu", "").removesuffix("[B]")
    return Conditions(
        test=test,
        device=pairs.get("Device"),
        link_layer=pairs.get("Link type"),
        mtu_bytes=int(mtu) if _is_number(mtu) else None,
        qps=int(pairs["Number of qps"]) if _is_number(pairs.get("Number of qps", "")) else None,
        connection=pairs.get("Connection type"),
        gid_index=int(pairs["GID index"]) if _is_number(pairs.get("GID index", "")) else None,
    )


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,9}", text))
