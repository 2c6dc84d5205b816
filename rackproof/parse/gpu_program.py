"""Output of ``rackproof/bench/gpu/gpu_program.py``: one line of JSON, possibly between other text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Final

from rackproof.core.wording import exact
from rackproof.parse.jsondoc import Json, find_object

TOOL: Final = "GPU program"
FORMAT: Final = 1
PRODUCT, TRIAD = "product", "triad"
_BEGIN: Final = re.compile(r'(?=\{\s*"rackproof_gpu")')
_ARRAYS: Final = 3
"""Arrays of the triad a = b + q c: two are read, one is written (McCalpin, STREAM)."""
LEAST_BUSY: Final = 0.1
"""Least share of the requested time that a GPU must have computed: an H200 had 0.68 to 0.99, and a rate of moments is
that of a GPU below its power limit."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU."""

    asked: str
    """UUID that the process was bound to."""
    uuid: str | None
    """UUID that PyTorch reports; None for a version that does not."""
    name: str
    torch: str
    cuda: str
    best: tuple[int, int, int] | None
    """Rows, columns and inner side of the product with the highest rate; None for the triad."""
    samples: tuple[float, ...]
    """TFLOPS (10^12/s) of products, GB/s (10^9 B/s) of the triad; one per repetition."""
    wrong: int
    """Elements that differ from the reference or between repetitions."""


@dataclass(frozen=True, slots=True)
class GpuRun:
    what: str
    precision: str
    runs: int
    seconds: float
    """Requested time of a repetition."""
    sizes: tuple[int, ...]
    """Sides of the products; bytes of an array of the triad."""
    gpus: tuple[GpuFigures, ...]


def parse_gpu_run(output: str | bytes) -> GpuRun:
    """Raises ParseError where the line is absent, incomplete or contradicts itself."""
    document = find_object(TOOL, output, start=_BEGIN)
    if document.integer("rackproof_gpu") != FORMAT:
        document.refuse("rackproof_gpu", f"is not format {FORMAT}")
    what = document.string("what")
    if what not in (PRODUCT, TRIAD):
        document.refuse("what", f"is unknown: {what}")
    document.number("began")
    sizes = _integers(document, "sizes")
    run = GpuRun(
        what,
        document.string("precision"),
        document.integer("runs", minimum=1),
        document.number("seconds"),
        sizes,
        tuple(_figures(entry, what, sizes, document) for entry in document.children("gpus")),
    )
    if not run.gpus:
        document.refuse("gpus", "is empty")
    return run


def _figures(entry: Json, what: str, sizes: tuple[int, ...], document: Json) -> GpuFigures:
    best = _best(entry, sizes) if what == PRODUCT else None
    if best is not None:
        work = 2 * best[0] * best[1] * best[2] / 1e12
    else:
        held = entry.integer("bytes", minimum=1)
        if [held] != [size // 4 * 4 for size in sizes]:
            entry.refuse("bytes", f"is {held}, asked were {sizes}")
        work = _ARRAYS * held / 1e9
    entry.integer("checked", minimum=1)
    least_s = LEAST_BUSY * document.number("seconds")
    samples = tuple(_rate(sample, work, least_s) for sample in entry.children("samples"))
    if len(samples) != document.integer("runs"):
        entry.refuse("samples", f"has {len(samples)} of {document.integer('runs')} repetitions")
    return GpuFigures(
        asked=entry.string("asked"),
        uuid=entry.string("uuid") if entry.has("uuid") else None,
        name=entry.string("name"),
        torch=entry.string("torch"),
        cuda=entry.string("cuda"),
        best=best,
        samples=samples,
        wrong=entry.integer("wrong"),
    )


def _best(entry: Json, sides: tuple[int, ...]) -> tuple[int, int, int]:
    """The fastest of the shapes tried, which are all combinations of the sides."""
    rates: dict[tuple[int, ...], float] = {}
    rows = entry.values.get("tried")
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        if not isinstance(row, list) or len(row) != 4:
            entry.refuse(f"tried[{index}]", "is not a shape with its rate")
        numbers = Json(entry.tool, f"{entry.where}tried[{index}].", dict(zip("mnkr", row, strict=True)))
        rates[tuple(numbers.integer(side, minimum=1) for side in "mnk")] = numbers.number("r")
    if set(rates) != set(product(sides, repeat=3)):
        entry.refuse("tried", f"has {len(rates)} of {len(sides) ** 3} shapes")
    m, n, k = _integers(entry, "best")[:3] if len(_integers(entry, "best")) == 3 else (0, 0, 0)
    if rates.get((m, n, k)) != max(rates.values()):
        entry.refuse("best", "is not the fastest of the shapes tried")
    return m, n, k


def _rate(sample: Json, work: float, least_s: float) -> float:
    """``work`` a second, of one repetition that takes ``least_s`` or longer."""
    count, seconds = sample.integer("count", minimum=1), sample.number("seconds")
    if seconds <= 0 or seconds < least_s:
        sample.refuse("seconds", f"is {exact(seconds)}, expected {least_s:g} or more")
    return work * count / seconds


def _integers(entry: Json, key: str) -> tuple[int, ...]:
    values = entry.values.get(key)
    if not isinstance(values, list) or not values:
        entry.refuse(key, "is not a list of numbers")
    numbers = Json(entry.tool, f"{entry.where}{key}.", {str(index): value for index, value in enumerate(values)})
    return tuple(numbers.integer(name, minimum=1) for name in numbers.values)
