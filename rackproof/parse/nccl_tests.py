"""nccl-tests: the table of ``all_reduce_perf`` and its siblings, old (``error``) and new (``#wrong``) columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from rackproof.core.collective import OPS, busbw_factor
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, half_digit, integer, last_words, real, whole_lines

TOOL: Final = "nccl-tests"


@dataclass(frozen=True, slots=True)
class Timing:
    """One half of a row. Bandwidths are GB/s (10^9 B)."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int | None
    """Number of wrong elements; None where results were not checked (``N/A``) or an old version prints a deviation."""
    deviation: float | None
    """Largest deviation from the expected value, in the ``error`` column of versions before 2.13."""

    @property
    def checked(self) -> bool:
        return self.wrong is not None or self.deviation is not None


@dataclass(frozen=True, slots=True)
class Row:
    """One message size; sizes below one element per rank are printed, and stored, as 0."""

    bytes: int
    count: int
    dtype: str
    redop: str | None
    """None for operations that do not reduce."""
    root: int | None
    """None where the column is absent or -1: the operation has no root."""
    out_of_place: Timing
    in_place: Timing | None
    """None where the operation has no such half (``N/A``)."""

    @property
    def checked(self) -> bool:
        """The results were compared; an operation without an in-place half has ``N/A`` there."""
        if not self.out_of_place.checked:
            return False
        return self.in_place is None or self.in_place.checked or self.redop is None

    @property
    def wrong(self) -> int | None:
        """Wrong elements of both halves; None where neither counts them, or where one that was not checked leaves 0."""
        halves = (self.out_of_place, self.in_place)
        counts = [half.wrong for half in halves if half is not None and half.wrong is not None]
        return sum(counts) if counts and (any(counts) or self.checked) else None


@dataclass(frozen=True, slots=True)
class Options:
    """The test's options, as it prints them."""

    warmup: int
    iterations: int


@dataclass(frozen=True, slots=True)
class NcclTests:
    op: str | None
    """``all_reduce`` …; None when neither the output nor the caller names it."""
    ranks: int | None
    """Highest listed rank plus one; None without a list."""
    hosts: tuple[str, ...]
    """Hosts of the listed ranks, which may be fewer than ``ranks``."""
    rank_hosts: tuple[tuple[int, str], ...]
    """Listed ranks with their hosts, in the order of the output."""
    rank_groups: tuple[tuple[int, int], ...]
    """Listed ranks with their groups (``NCCL_TESTS_SPLIT``); 0 where the version prints none."""
    options: Options | None
    """None where the output begins after them."""
    rows: tuple[Row, ...]
    average_busbw_gb_per_s: float | None
    """From the footer; None when it is absent."""
    out_of_bounds: int | None
    """From the footer; None when it is absent, or 0 of results that were not all checked (the tool prints ``0 OK`` even
    then)."""
    failure: str | None
    """First line that reports a failure of CUDA, of a call of NCCL, or of the test."""
    warnings: tuple[str, ...]
    """Lines with ``NCCL WARN``. The test goes on after most of them, so they alone are no failure."""

    @property
    def complete(self) -> bool:
        """The output has the footer, so the test finished."""
        return self.average_busbw_gb_per_s is not None

    @property
    def checked(self) -> bool:
        """The test compared every result with the expected one."""
        rows = [row for row in self.rows if row.bytes]
        return bool(rows) and all(row.checked for row in rows)


_EMPTY_COMMENT: Final = r"(?:.*: ?)?#"
_LABEL: Final = re.compile(r"^(?:\s*\d+: ?|\[[^\]\s]*\]<std(?:out|err)>: ?)")
"""Line prefix of ``srun --label`` and ``mpirun --tag-output``."""
_RANK: Final = re.compile(r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s")
_STARTING: Final = re.compile(r"#\s*Collective test starting:\s*(?:\S*/)?(\w+?)(?:_perf)?\s*$")
_AVERAGE: Final = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
_BOUNDS: Final = re.compile(r"#\s*Out of bounds values\s*:\s*(\S+)")
_FAILURE: Final = re.compile(r"Test (?:NCCL |CUDA )?failure|Test failed", re.IGNORECASE)
_OPTIONS: Final = re.compile(
    r"# nThread \d+ nGpus \d+ minBytes \d{1,18} maxBytes \d{1,18} step: \d{1,18}\((?:factor|bytes)\)"
    r" warmup iters: (\d{1,9}) iters: (\d{1,9})(?: agg iters: \d+)? validation: \d+"
)
_TIMING: Final = ("time", "algbw", "busbw")


def parse_nccl_tests(output: str | bytes, op: str | None = None) -> NcclTests:
    """Read one table. ``op`` names the operation where the output does not; it must not contradict the output.

    Each row must be consistent: algbw with size and time and, where operation and ranks are known, busbw with algbw,
    within what the printed digits allow.
    """
    lines = [_LABEL.sub("", line) for line in whole_lines(TOOL, output, closing=_EMPTY_COMMENT)]
    named = _first(_STARTING, lines)
    if named and op and named != op:
        raise ParseError(TOOL, f"expected {op}, actual {named}")
    op = named or op
    listed = [match for line in lines if (match := _RANK.match(line))]
    rank_hosts = tuple((int(match[1]), match[3]) for match in listed)
    rank_groups = tuple((int(match[1]), int(match[2] or 0)) for match in listed)
    ranks = max((rank for rank, _ in rank_hosts), default=-1) + 1 or None
    together = _in_first_group(rank_groups, ranks)
    rows = _rows(lines, busbw_factor(op, together) if op in OPS and together else None)
    average, bounds = _first(_AVERAGE, lines), _first(_BOUNDS, lines)
    result = NcclTests(
        op=op,
        ranks=ranks,
        hosts=tuple(dict.fromkeys(host for _, host in rank_hosts)),
        rank_hosts=rank_hosts,
        rank_groups=rank_groups,
        options=next((Options(*map(int, match.groups())) for line in lines if (match := _OPTIONS.match(line))), None),
        rows=rows,
        average_busbw_gb_per_s=real(TOOL, "average bus bandwidth", average) if average else None,
        out_of_bounds=None,
        failure=next((line.strip() for line in lines if _FAILURE.search(line)), None),
        warnings=tuple(line.strip() for line in lines if "NCCL WARN" in line),
    )
    count = 0 if bounds is None else integer(TOOL, "out of bounds values", bounds)
    return replace(result, out_of_bounds=count) if count or (bounds and result.checked) else result


def _in_first_group(rank_groups: tuple[tuple[int, int], ...], ranks: int | None) -> int | None:
    """Ranks of rank 0's group, whose bandwidth the table shows; all of them where the list is not complete."""
    groups = dict(rank_groups)
    if ranks is None or len(groups) != ranks:
        return ranks
    return sum(group == groups[0] for group in groups.values())


def _first(pattern: re.Pattern[str], lines: list[str]) -> str | None:
    return next((match[1] for line in lines if (match := pattern.match(line))), None)


def _rows(lines: list[str], factor: float | None) -> tuple[Row, ...]:
    columns: list[str] = []
    rows: list[Row] = []
    for line in lines:
        tokens = line.split()
        if tokens[:3] == ["#", "size", "count"]:
            if columns:
                raise ParseError(TOOL, "more than one table")
            columns = _columns(tokens[1:])
        elif columns and len(tokens) > 1 and tokens[0].isdigit() and tokens[1].isdigit():
            rows.append(_row(columns, tokens, line, factor))
    if not rows:
        what = "no row below the header" if columns else "no table"
        raise ParseError(TOOL, f"{what}; the output ends with {last_words(chr(10).join(lines))}")
    return tuple(rows)


def _columns(titles: list[str]) -> list[str]:
    """Unique column titles: those of the in-place half end with a quote mark."""
    columns: list[str] = []
    for title in titles:
        columns.append(title if title not in columns else title + "'")
    if "cputime" in columns:
        raise ParseError(TOOL, "table shows CPU time (-C), not the time of the operation")
    missing = {"size", "count", "type", *_TIMING, *(f"{name}'" for name in _TIMING)} - set(columns)
    if missing or len(set(columns)) != len(columns):
        raise ParseError(TOOL, f"unknown table: {excerpt(' '.join(titles))}")
    return columns


def _row(columns: list[str], tokens: list[str], line: str, factor: float | None) -> Row:
    if columns[-1] == "timestamp":  # date and time: two words
        columns, tokens = columns[:-1], tokens[:-2]
    if "redop" in columns and len(tokens) == len(columns) - 1:
        place = columns.index("redop")
        if re.fullmatch(r"-?\d+", tokens[place]):  # the root follows at once: alltoall of some versions has a blank
            tokens.insert(place, "none")
    if len(tokens) != len(columns):
        raise ParseError(TOOL, f"{len(tokens)} cells below {len(columns)} columns: {excerpt(line)}")
    cells = dict(zip(columns, tokens, strict=True))
    size = integer(TOOL, "size", cells["size"])
    redop, root = cells.get("redop"), integer(TOOL, "root", cells.get("root", "-1"), minimum=-1)
    return Row(
        bytes=size,
        count=integer(TOOL, "count", cells["count"]),
        dtype=cells["type"],
        redop=None if redop in (None, "none") else redop,
        root=None if root < 0 else root,
        out_of_place=_timing(cells, "", size, factor),
        in_place=None if all(cells[f"{name}'"] == "N/A" for name in _TIMING) else _timing(cells, "'", size, factor),
    )


def _timing(cells: dict[str, str], half: str, size: int, factor: float | None) -> Timing:
    time_token, alg_token, bus_token = (cells[name + half] for name in _TIMING)
    time = real(TOOL, "time", time_token)
    algbw, busbw = real(TOOL, "algbw", alg_token), real(TOOL, "busbw", bus_token)
    if size:
        if time == 0:
            raise ParseError(TOOL, f"time of {size} B is 0")
        expected = size / time / 1e3  # B/µs = MB/s
        slack = expected * (half_digit(time_token) / time + 0.005) + half_digit(alg_token)
        if abs(algbw - expected) > slack:
            raise ParseError(TOOL, f"algbw {alg_token} GB/s of {size} B contradicts {time_token} us")
    if factor is not None:
        slack = factor * half_digit(alg_token) + half_digit(bus_token) + 0.005 * busbw
        if abs(busbw - algbw * factor) > slack:
            raise ParseError(TOOL, f"busbw {bus_token} GB/s of {size} B contradicts algbw {alg_token} GB/s")
    wrong, deviation = cells.get(f"#wrong{half}", "N/A"), cells.get(f"error{half}", "N/A")
    return Timing(
        time_us=time,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=busbw,
        wrong=None if wrong == "N/A" else round(real(TOOL, "#wrong", wrong)),
        deviation=None if deviation == "N/A" else real(TOOL, "error", deviation),
    )
