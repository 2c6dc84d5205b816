from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse.mpi_collectives import parse_mpi_collectives
from tests.unit.refusals import refuses

from . import tool_output

TEXT = tool_output("mpi-all-reduce-4-ranks.txt")
LINE = next(line for line in TEXT.splitlines() if line.startswith("{"))


def test_the_line_is_found_between_warnings() -> None:
    result = parse_mpi_collectives(TEXT)
    assert (result.op, result.ranks, result.dtype) == ("all_reduce", 4, "float32")
    assert result.hosts == ("gpu-01", "gpu-01", "gpu-02", "gpu-02")
    small, large = result.points
    assert (small.bytes, large.bytes) == (1024, 1048576)
    raw = json.loads(LINE)["results"][1]
    assert (large.time_us, large.algbw_gb_per_s) == (raw["time_us"], raw["algbw_GBps"])
    assert large.busbw_gb_per_s == raw["busbw_GBps"] == pytest.approx(large.algbw_gb_per_s * 1.5)
    assert large.samples_us == tuple(raw["samples_us"])
    assert large.wrong == 0


def test_a_label_before_the_line_is_ignored() -> None:
    assert parse_mpi_collectives(f"[1,0]<stdout>: {LINE}\n") == parse_mpi_collectives(TEXT)


def edit(change: Callable[[dict[str, Any]], object]) -> str:
    value = json.loads(LINE)
    change(value)
    return json.dumps(value)


def first(value: dict[str, Any]) -> Any:
    return value["results"][0]


test_bad_output_raises_with_the_reason = refuses(
    parse_mpi_collectives,
    ("empty", "\n", "no output"),
    ("warnings only", TEXT.replace(LINE, ""), "no JSON document"),
    ("cut off", LINE[:-2], "cut off or damaged"),
    ("twice", f"{LINE}\n{LINE}\n", "more than one"),
    ("another format", edit(lambda d: d.update(rackproof_collectives=2)), "is not format 1"),
    ("another engine", edit(lambda d: d.update(engine="gloo")), "engine is not mpi"),
    ("unknown operation", edit(lambda d: d.update(op="all_reduce_perf")), "op is unknown"),
    ("no ranks", edit(lambda d: d.update(ranks=0)), "ranks is below 1"),
    ("no hosts", edit(lambda d: d.update(hosts=[])), "hosts names no host"),
    ("no results", edit(lambda d: d.update(results=[])), "results is empty"),
    ("time of 0", edit(lambda d: first(d).update(time_us=0)), "time_us is 0"),
    ("wrong is missing", edit(lambda d: first(d).pop("wrong")), "wrong is missing"),
    ("wrong is unknown", edit(lambda d: first(d).update(wrong=None)), "wrong is not an integer"),
    ("no samples", edit(lambda d: first(d).update(samples_us=[])), "samples_us is empty"),
    ("sample of 0", edit(lambda d: first(d).update(samples_us=[0.0, 804.0])), "samples_us is empty or"),
    ("sample is text", edit(lambda d: first(d).update(samples_us=["1"])), r"samples_us\.0 is not a number"),
    (
        "time outside its samples",
        edit(lambda d: first(d).update(samples_us=[1.0, 2.0])),
        "the mean of its samples is 1.5",
    ),
    ("time of the fastest sample", edit(lambda d: first(d)["samples_us"].append(9e6)), "the mean of its samples is"),
    ("algbw in MB/s", edit(lambda d: first(d).update(algbw_GBps=1.27)), "algbw_GBps is 1.27, but 1024 B"),
    ("busbw without factor", edit(lambda d: first(d).update(busbw_GBps=first(d)["algbw_GBps"])), "busbw_GBps is"),
    ("busbw of another number of ranks", edit(lambda d: d.update(ranks=64)), "busbw_GBps is"),
)
