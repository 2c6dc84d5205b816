"""Searches for the knee on the page, also without a knee or without a fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rackproof.core.evidence import Measurement, Scope
from rackproof.core.knee import fit_scalability
from rackproof.report.knee import knee_plots, load_tables
from rackproof.report.page import render_page
from rackproof.report.schema import Certificate

from .browser import Page
from .sample import Raw, measurements, passing, rejudged

LOADS = (1, 2, 4, 8, 16, 32)
KNEE = {"load": 5.0, "rate": 700.0, "between": [4, 8]}
NO_KNEE = "not reached: the number is a lower bound"


def rate_of(n: float) -> float:
    return 100 * n / (1 + 0.05 * (n - 1) + 0.002 * n * (n - 1))


def closed(number: int = 1, loads: Iterable[int] = LOADS, knee: object = KNEE, slowest_us: float = 0.0) -> Any:
    """A search of two clients, as the benchmark records it."""
    steps = [
        {"load": load, "outstanding": 2 * load, "rate": round(rate_of(2 * load), 3), "p50_us": 100.0 * load}
        | {"p99_us": 300.0 * load, "p99.9_us": slowest_us}
        for load in loads
    ]
    curve = {"search": number, "steps": steps, "peak_rate": max(step["rate"] for step in steps), "knee": knee}
    law = fit_scalability([(step["outstanding"], step["rate"]) for step in steps])
    return curve | ({"scalability": law.figures} if law else {})


def arrivals(number: int = 1) -> Any:
    steps = [
        {"load": load, "rate": 9.0 * load, "p50_us": 100.0, "p99_us": 300.0 / (1.01 - load / 100)}
        for load in (5, 28, 52, 100)
    ]
    knee = {"load": 47.5, "rate": 430.0, "between": [28, 52]}
    return {"search": number, "steps": steps, "peak_rate": 900.0, "knee": knee}


def measured(metric: str, curves: list[Any], samples: Iterable[float]) -> Measurement:
    labels = {"storage": "nfs-tcp", "block_bytes": "4096"}
    update = {"metric": f"storage.knee_{metric}", "labels": labels, "scope": Scope.RACK, "samples": tuple(samples)}
    return measurements(Raw())[0].model_copy(update=update | {"unit": "1", "conditions": {"curves": curves}})


def judged(*numbers: Measurement) -> Certificate:
    return rejudged(passing()[0], [], measurements=numbers)


def cells(certificate: Certificate) -> list[list[tuple[str, str]]]:
    """Cells of each search in both tables."""
    tables = load_tables(certificate)
    assert all(len(row.cells) == len(table.columns) for table in tables for row in table.rows)
    assert all(column.unit for table in tables for column in table.columns)
    rows = zip(*(table.rows for table in tables), strict=True)
    return [[(cell.text, cell.note) for row in own for cell in row.cells] for own in rows]


def remarks(certificate: Certificate) -> str:
    return " ".join(remark for table in load_tables(certificate) for remark in table.remarks)


def test_percentiles_and_rates_are_plotted_against_load_with_the_knee_and_the_peak() -> None:
    numbers = measured("outstanding", [closed()], [10.0]), measured("utilisation", [arrivals()], [47.8])
    latency, rate, open_loop = knee_plots(judged(*numbers))
    assert latency.title == "nfs-tcp: latency against requests in flight"
    assert [line.name for line in latency.lines] == ["p50", "p99"]  # a percentile of 0 was not reported
    assert [tick.text for tick in latency.x_ticks] == ["2", "4", "8", "16", "32", "64"]
    assert [mark.text for mark in latency.marks] == ["knee 10"]
    assert latency.x_ticks[2].at < latency.marks[0].x < latency.x_ticks[3].at
    assert (rate.unit, [line.name for line in rate.lines]) == ("requests/s", ["measured", "scalability law"])
    assert rate.lines[0].points == rate.lines[1].points
    assert [mark.text for mark in rate.marks] == ["highest rate at 16"]
    assert open_loop.title == "nfs-tcp: latency against the rate of random arrivals"
    assert open_loop.across == "arrivals in % of the highest rate, 900 requests/s; latency on a logarithmic axis"
    assert [tick.text for tick in open_loop.x_ticks] == ["0", "20", "40", "60", "80", "100"]
    assert [mark.text for mark in open_loop.marks] == ["knee 430 requests/s"]
    assert open_loop.x_ticks[2].at < open_loop.marks[0].x < open_loop.x_ticks[3].at


def test_large_numbers_have_a_larger_unit() -> None:
    curve = closed(slowest_us=2e6)
    for step in curve["steps"]:
        step["rate"] *= 1000
    curve["peak_rate"] *= 1000
    latency, rate = knee_plots(judged(measured("outstanding", [curve], [10.0])))
    assert (latency.unit, latency.y_ticks[-1].text) == ("ms", "10\u202f000")
    assert rate.unit == "1000 requests/s"
    assert all(len(tick.text) < 5 for tick in rate.y_ticks)


def test_the_peak_and_the_fit_have_their_place_interval_and_unit() -> None:
    numbers = measured("outstanding", [closed()], [10.0]), measured("utilisation", [arrivals()], [47.8])
    (row,) = cells(judged(*numbers))
    assert row[:5] == [(text, "") for text in ("10", "717", "16", "430", "47.8")]
    one, contention, coherency, at, deviation = row[5:]
    assert one == ("100", "100 to 100")
    assert contention == ("5.00", "5.00 to 5.00")
    assert coherency == ("0.200", "0.200 to 0.200")
    assert at == ("21.8", "")
    assert float(deviation[0]) < 0.01
    assert "95 % confidence interval" in remarks(judged(*numbers))


def test_a_search_without_a_knee_says_so_and_its_number_is_a_lower_bound() -> None:
    certificate = judged(measured("outstanding", [closed(knee=NO_KNEE)], [64.0]))
    latency, _ = knee_plots(certificate)
    assert latency.title.endswith("in flight, no knee")
    assert latency.marks == ()
    assert cells(certificate)[0][0] == ("above 64", "")


@pytest.mark.parametrize(
    ("loads", "why"),
    [
        ((1, 2, 4, 4), "the search has 3 loads, and a fit needs 5"),
        ((1,), "the search has 1 load, and a fit needs 5"),
        (LOADS, "the measured rates do not determine the rate of one request in flight"),
    ],
)
def test_no_fit_has_a_reason_and_no_numbers(loads: tuple[int, ...], why: str) -> None:
    curve = closed(loads=loads)
    curve.pop("scalability", None)
    certificate = judged(measured("outstanding", [curve], [10.0]))
    assert cells(certificate)[0][3:] == [("–", "")] * 5
    assert f"nfs-tcp: no fit, because {why}." in remarks(certificate)
    assert [line.name for line in knee_plots(certificate)[1].lines] == ["measured"]


def test_a_coefficient_that_was_left_out_has_no_interval_and_a_limit_no_maximum() -> None:
    curve = closed()
    curve["scalability"] |= {"coherency": [0.0, 0.0, 0.0], "peak": None}
    row = cells(judged(measured("outstanding", [curve], [10.0])))[0]
    assert row[5:7] == [("0", "below 0, left out"), ("–", "no maximum")]


def test_a_maximum_beyond_the_loads_is_called_so() -> None:
    curve = closed()
    curve["scalability"] |= {"peak": 900.0}
    assert cells(judged(measured("outstanding", [curve], [10.0])))[0][6] == ("900", "above the loads measured")


def test_every_search_has_a_row_and_the_first_one_the_plots() -> None:
    searches = measured("outstanding", [closed(), closed(2, knee=NO_KNEE)], [10.0, 64.0])
    certificate = judged(searches, measured("utilisation", [arrivals(), arrivals(2)], [47.8, 51.0]))
    for table in load_tables(certificate):
        assert [row.title for row in table.rows] == ["nfs-tcp, search 1", "nfs-tcp, search 2"]
    assert [row[0][0] for row in cells(certificate)] == ["10", "above 64"]
    assert [row[4][0] for row in cells(certificate)] == ["47.8", "51"]
    assert [plot.title.rpartition(", ")[2] for plot in knee_plots(certificate)] == ["search 1"] * 3


def test_the_page_has_the_plots_and_the_table() -> None:
    numbers = measured("outstanding", [closed()], [10.0]), measured("utilisation", [arrivals()], [47.8])
    page = Page(render_page(judged(*numbers), {}))
    assert page.problems == []
    for text in ("knee 430 requests/s", "highest rate at 16", "Fit of the Universal Scalability Law", "5.00 to 5.00"):
        assert text in page.text
    labels = [attrs["aria-label"] for tag, attrs in page.elements if tag == "svg" and "aria-label" in attrs]
    assert "nfs-tcp: latency against requests in flight, in µs: p50, p99, knee 10." in labels


def test_a_run_without_a_search_has_neither_plots_nor_table() -> None:
    lost = measured("outstanding", [], []).model_copy(update={"reason": "gpu-02 missing", "conditions": {}})
    for certificate in (passing()[0], judged(lost)):
        assert knee_plots(certificate) == ()
        assert load_tables(certificate) == ()
