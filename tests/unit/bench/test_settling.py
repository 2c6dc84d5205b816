"""A data set that fits into memory ends there, and what looks alike does not count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.runs import TOOL
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.program_runs import configs_of
from rackproof.core.architecture import IngestJob
from rackproof.core.evidence import Scope
from rackproof.parse import ParseError
from tests.unit.bench import node_programs
from tests.unit.bench.test_ingest import JOB, NODES, POINT, Change, answers, place, profile, steps
from tests.unit.fakes import lab_rack, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(5)

SIZE = 100_000
"""Bytes of the data set, which the pipeline reads in four seconds, four times."""
Given = Callable[[int], float]
"""Bytes that storage has given by a second of the run."""


def cached(t: int) -> float:
    return min(25_000 * t, SIZE)


def settling(given: Given = cached, **changes: Any) -> Change:
    """Two nodes that read the whole set each; ``changes`` are those of gpu-02's document."""

    def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for node in NODES:
            configs[node] |= {"node": 0, "nodes": 1}
            own = documents[node]
            own["series"] = [[t, 100 * t, 200 * t, 0, 0, given(t), 25_000 * t] for t in range(17)]
            own["dataset"] |= {"bytes": SIZE}
            own["pipeline"]["bytes"] = 400_000.0
        documents["gpu-02"] |= changes

    return change


def ratio(change: Change, counted: int = SIZE + 100, node: str = "gpu-02") -> float:
    measurement = place("ingest.cache_settling_ratio", (node,), "settling")
    (sample,) = read_ingest(answers(change, counted=counted), virtual_rack())(measurement).samples
    return sample


def test_a_set_that_settles_after_its_first_pass() -> None:
    assert ratio(settling()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("given", "counted", "expected"),
    [
        (lambda t: 0, 100, 0.0),  # a cache had it before the run
        (lambda t: min(10_000 * t, SIZE), SIZE + 100, 2.5),
        (lambda t: 25_000 * t, 400_100, 4.0),  # something else takes the memory
        (lambda t: cached(t) + 2_000 * max(0, t - 4), 124_100, 4.0),
        (lambda t: cached(t) + 50 * max(0, t - 4), SIZE + 700, 1.0),  # attributes
    ],
)
def test_what_does_not_settle_in_time_is_far_from_one(given: Given, counted: int, expected: float) -> None:
    assert ratio(settling(given), counted) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("change", "counted", "why"),
    [
        (settling(memory_bytes=SIZE), SIZE + 100, "does not fit into the node's memory"),
        (settling(), 2 * SIZE, "the storage gave 200000 B by its state, 100000 B by its series"),
        (settling(series=[[t, t, 2 * t, 0, 0, None, 25_000 * t] for t in range(17)]), SIZE + 100, "no counter tells"),
        (settling(series=[[t, t, 2 * t, 0, 0, 5_000 * t, 5_000 * t] for t in range(17)]), 80_100, "not read once"),
        (settling(series=[[t, t, 2 * t, 0, 0, 25_000 * t, 25_000 * t] for t in range(9)]), 200_100,
         "2.0 passes in 2.0 times the predicted time"),
        (settling(series=[[t, t, 2 * t, 0, 0, cached(t), 25_000 * t] for t in range(7)]), SIZE + 100,
         "the run reads the storage to its end; 1.5 passes"),
        (settling(series=[[t, t, 2 * t, 0, 0, min(50_000 * t, SIZE), 50_000 * t] for t in range(9)]), SIZE + 100,
         "was read in 2.0 s, and counters once a second"),
        (lambda configs, documents: None, SIZE + 100, "expected the shares of 2 nodes, actual 2"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_show_it_gives_no_number(change: Change, counted: int, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        ratio(change, counted)


def test_shares_of_other_metrics_are_not_those_of_whole_sets() -> None:
    with pytest.raises(ParseError, match="expected the shares of 1 nodes"):
        read_ingest(answers(settling()), virtual_rack())(place("ingest.samples_rate"))


def test_passes_that_become_fast_are_no_settling() -> None:
    """Three quarters of each pass come from memory, a quarter from the storage to the end."""

    def fast(t: int) -> float:
        return 25_000 * t if t <= 4 else SIZE + 100_000 * (t - 4)

    series = [[t, t, 2 * t, 0, 0, cached(t) + 25_000 * max(0, t - 4), fast(t)] for t in range(9)]
    with pytest.raises(ParseError, match=r"5\.0 passes in 2\.0 times"):
        ratio(settling(series=series), 2 * SIZE + 100)


def test_a_job_that_settles_needs_seconds() -> None:
    with pytest.raises(ValueError, match="epochs have none"):
        IngestJob.model_validate({**JOB.model_dump(), "settle": True, "epochs": 2})
    with pytest.raises(ValueError, match="data is empty"):
        IngestJob.model_validate({**JOB.model_dump(), "data": []})


@pytest.fixture
def context(tmp_path: Path) -> Iterator[BenchContext]:
    """A node whose programs really run; its mount counts the first pass, then the page cache answers."""
    nodes, home = StorageNodes(virtual_rack()), tmp_path / "home"
    (tmp_path / "mount").mkdir()
    home.mkdir()

    def answer(node: str, command: str) -> Any:
        result = node_programs.answer(node, command, POINT, tmp_path / "mount", home)
        if result is None or not configs_of(command, TOOL):
            return result or nodes.answer(node, command)
        own = json.loads(result.stdout)
        if "error" not in own:
            for row in own["series"]:
                row[5] = min(row[6], own["dataset"]["bytes"])
            # A busy host takes the first reading of the series late.
            given = int(own["series"][-1][5] - own["series"][0][5]) + own["dataset"]["index_bytes"]
            nodes.moved.setdefault((node, POINT), [0, 0])[0] += given
        return replace(result, stdout=json.dumps(own).encode() + b"\n")

    with scripted(tmp_path / "run", answer, lab_rack(1)) as session:
        yield BenchContext(session, lambda line: None)


def test_every_node_reads_the_whole_set_until_it_settles(
    context: BenchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = {"settle": True, "data": (), "batch": 1, "slots": 1, "slowdown": 220.0, "seconds": 12}
    (step,) = steps(profile(train=JOB.model_copy(update=settling)), 1)
    assert [(one.metric, one.scope) for one in step.expects] == [("ingest.cache_settling_ratio", Scope.NODE)]
    for _ in node_programs.leads(monkeypatch):
        (measured,) = step.execute(context)
        if measured.samples:  # a busy host is late, or reads too little: no number
            break
    assert measured.samples, measured.reason
    assert 0.5 <= measured.samples[0] <= 2  # the published bar; a host that stalls between two readings blurs it
    assert measured.conditions["job"]["seconds"] == 12
