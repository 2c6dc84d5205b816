from __future__ import annotations

from itertools import pairwise

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Scope
from rackproof.core.status import Status
from rackproof.report.plots import (
    collective_plot,
    log_ticks,
    nice_ticks,
    rosette,
    scale_plots,
    storage_plots,
    summary_of,
)

from .sample import HEAD, Raw, architecture, measurements, passing, rejudged, sample


@pytest.mark.parametrize(
    ("top", "ticks"),
    [
        (0.0297, (0.0, 0.01, 0.02, 0.03)),
        (412.0, (0, 200, 400, 600)),
        (1.0, (0.0, 0.5, 1.0)),
        (0.0, (0.0, 1.0)),
        (350.0, (0, 100, 200, 300, 400)),
    ],
)
def test_ticks_are_round_and_reach_the_top(top: float, ticks: tuple[float, ...]) -> None:
    assert nice_ticks(top) == pytest.approx(ticks)
    assert nice_ticks(top)[-1] >= top


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (80.0, 900.0, (50, 100, 200, 500, 1000)),
        (0.08, 900.0, (0.01, 0.1, 1, 10, 100, 1000)),
        (100.0, 100.0, (100, 200)),
        (0.001, 0.002, (0.001, 0.002)),
    ],
)
def test_ticks_of_a_logarithmic_axis_hold_all_numbers(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


def test_bars_are_proportional_and_start_at_zero() -> None:
    read = storage_plots(sample()[0])[0]
    local = next(g for g in read.groups if g.title == "scratch")
    rdma = next(g for g in read.groups if g.title == "nfs-rdma")
    assert rdma.bars[0].width / local.bars[0].width == pytest.approx(19.86 / 412.4, rel=0.02)
    assert [b.name for b in local.bars] == ["gpu-01", "gpu-02", "rack"]


def test_bar_of_a_failure_says_so_and_knows_where_the_bar_is() -> None:
    read = storage_plots(sample()[0])[0]
    slow = next(g for g in read.groups if g.title == "nfs-rdma").bars[1]
    assert slow.status is Status.FAIL
    assert slow.tick is not None
    assert slow.tick > slow.width


def test_fairness_between_nodes_is_no_verdict_on_their_sum() -> None:
    certificate, _ = passing()
    rack = next(v for v in certificate.verdicts if v.id == "local-read-bandwidth").model_copy(
        update={"id": "fairness", "subject": "rack", "status": Status.FAIL}
    )
    criterion = {
        "id": "fairness", "title": "Slowest node", "metric": "storage.read_bandwidth", "scope": "node",
        "reduce": "min_over_median", "pass": {"op": "ge", "value": 0.4, "unit": "ratio"}, "source": "kit",
        "reason": "They are alike.", "hint": "Compare them.",
    }  # fmt: skip
    document = architecture().model_dump(by_alias=True) | {"criteria": [criterion]}
    named = rejudged(certificate, [rack], architecture=Architecture.model_validate(document))
    bars = next(g for g in storage_plots(named)[0].groups if g.title == "scratch").bars
    assert [(b.name, b.status, b.tick) for b in bars if b.name == "rack"] == [("rack", None, None)]


def test_absent_number_is_a_word_not_a_bar() -> None:
    write = storage_plots(sample()[0])[1]
    absent = next(g for g in write.groups if g.title == "cephfs").bars[1]
    assert (absent.value, absent.width) == ("unmeasured", 0.0)


def test_storage_without_any_number_is_named_beside_the_plot() -> None:
    numbers = [
        m.model_copy(update={"samples": (), "reason": "fio missing"}) if m.labels.get("storage") == "cephfs" else m
        for m in measurements(Raw())
    ]
    assert storage_plots(rejudged(passing()[0], [], measurements=numbers))[0].absent == ("cephfs",)


def test_nothing_measured_is_no_plot() -> None:
    numbers = [m.model_copy(update={"samples": (), "reason": "no"}) for m in measurements(Raw())]
    certificate = rejudged(passing()[0], [], measurements=numbers)
    assert storage_plots(certificate) == ()
    assert collective_plot(certificate) is None


def test_lines_on_a_logarithmic_axis() -> None:
    plot = collective_plot(sample()[0])
    assert plot is not None
    assert [line.name for line in plot.lines] == ["all_gather", "all_reduce", "alltoall"]
    xs = [x for x, _ in plot.lines[0].points]
    steps = [b - a for a, b in pairwise(xs)]
    assert max(steps) - min(steps) < 0.2
    assert all(plot.top <= y <= plot.bottom for line in plot.lines for _, y in line.points)
    assert plot.x_ticks[-1].text == "4\u00a0MiB"


def test_numbers_of_fewer_clients_are_a_curve_and_no_bar() -> None:
    rack = next(m for m in measurements(Raw()) if m.metric == "storage.read_bandwidth" and m.scope is Scope.RACK)
    one = rack.model_copy(update={"members": rack.members[:1], "labels": {**rack.labels, "clients": "1"}})
    whole = rack.model_copy(update={"labels": {**rack.labels, "clients": str(len(rack.members))}})
    certificate = rejudged(passing()[0], [], measurements=[one, whole])
    (curve,) = scale_plots(certificate)
    assert [tick.text for tick in curve.x_ticks] == ["1", str(len(rack.members))]
    (bars,) = storage_plots(certificate)
    assert [len(group.bars) for group in bars.groups] == [1]
    assert scale_plots(passing()[0]) == ()


def test_one_size_alone_is_still_a_plot() -> None:
    numbers = [m for m in measurements(Raw()) if m.labels.get("bytes") == "1024"]
    plot = collective_plot(rejudged(passing()[0], [], measurements=numbers))
    assert plot is not None
    assert [len(line.points) for line in plot.lines] == [1, 1, 1]


def test_every_picture_is_told_in_words() -> None:
    read = storage_plots(sample()[0])[0]
    assert summary_of(read).startswith("Read, 1\u00a0MiB blocks, in MB/s. scratch: gpu-01 412, gpu-02 397, rack 809;")


def test_rosette_follows_from_the_hash() -> None:
    assert rosette(HEAD) == rosette(HEAD)
    assert rosette(HEAD) != rosette("0" + HEAD[1:])
    assert rosette("") == rosette("0")
