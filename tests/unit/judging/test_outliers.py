"""Members that are far from their peers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Verdict
from tests.unit.judging import architecture, judged, measurement, run_info, verdicts

NAMES = tuple(f"gpu-{number:02d}" for number in range(1, 9))


def outlier(**fields: Any) -> dict[str, Any]:
    return {
        "id": "odd",
        "title": "None far from the others",
        "metric": "storage.read_bandwidth",
        "where": {"storage": "nfs"},
        "scope": "node",
        "rel_pct": 10,
        "source": "us",
        "reason": "Because it is so.",
        "hint": "Look at it.",
    } | fields


def made(**fields: Any) -> Architecture:
    gpu = {"count": 2, "model": "A", "memory_mib": None, "source": "us"}
    return architecture(outliers=[outlier(**fields)], gpu=gpu)


def of(values: list[float | None], checked: Architecture | None = None, **more: Any) -> dict[str, Verdict]:
    """None is a node without a number."""
    names = NAMES[: len(values)]
    taken = [measurement(name, value, **more) for name, value in zip(names, values, strict=True) if value is not None]
    return verdicts(judged(checked or made(), *taken, run=run_info(*names, "sto-01")), "odd")


def letters(by_subject: dict[str, Verdict]) -> str:
    return "".join(verdict.status.value[0] for verdict in by_subject.values())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # healthy links differ so little that the score alone would find outliers
        ([100.0, 100.1, 99.9, 100.0, 98.0], "PPPPP"),
        ([100.0, 101.0, 99.0, 100.5, 60.0], "PPPPF"),
        # the good side is no fault
        ([100.0, 101.0, 99.0, 100.5, 160.0], "PPPPP"),
        # far from the median, but so are all others: a dead one could hide among them
        ([20.0, 60.0, 100.0, 140.0, 180.0], "IIIII"),
        ([0.0, 60.0, 100.0, 140.0, 180.0, 100.0, 40.0], "IIIIIII"),
        ([65.0, 92.0, 100.0, 108.0, 135.0], "PPPPP"),
        # two of five
        ([100.0, 101.0, 99.0, 50.0, 60.0], "PPPFF"),
        # more than half are equal: no deviation, the floor decides
        ([100.0, 100.0, 100.0, 91.0, 89.0], "PPPPF"),
        ([100.0, 100.0, 100.0, 90.0, 100.0], "PPPPP"),
        # too few to tell
        ([100.0, 100.0, 100.0, 10.0], "UUUU"),
    ],
)
def test_who_is_odd(values: list[float | None], expected: str) -> None:
    assert letters(of(values)) == expected


def test_direction_follows_the_metric() -> None:
    checked = made(metric="storage.random_read_latency")
    values: list[float | None] = [100.0, 101.0, 99.0, 40.0, 200.0]
    more = {"metric": "storage.random_read_latency", "storage": "nfs", "block_bytes": "4096"}
    by_subject = of(values, checked, **more)
    assert letters(by_subject) == "PPPPF"
    assert by_subject["gpu-05"].bar == "≤ 110 µs"
    assert "(100 % above, z 67.5)" in by_subject["gpu-05"].message


def test_the_verdict_says_how_far_from_whom() -> None:
    verdict = of([100.0, 101.0, 99.0, 100.5, 60.0])["gpu-05"]
    assert verdict.message == (
        "expected ≥ 90 MB/s (10 % below the median of 5 nodes, 100 MB/s), actual 60 MB/s (40 % below, z 27); one sample"
    )
    assert (verdict.value, verdict.bar_value, verdict.ceiling) == (60.0, 90.0, 100.0)
    assert (verdict.ceiling_of, verdict.unit) == ("the median of 5 nodes", "MB/s")
    assert verdict.distance_pct == pytest.approx(-33.3, abs=0.1)
    assert (verdict.raw, verdict.samples) == (("raw-of-gpu-05",), (60.0,))


def test_a_large_spread_moves_the_limit_away_and_says_so() -> None:
    verdict = of([65.0, 92.0, 100.0, 108.0, 135.0])["gpu-01"]
    assert "z 3.5 below the median of 5 nodes" in verdict.message
    assert verdict.bar_value == pytest.approx(100 - 3.5 * 8 / 0.6745)


@pytest.mark.parametrize("metric", ["storage.read_bandwidth", "storage.random_read_latency"])
def test_peers_that_have_nothing_in_common_clear_no_member(metric: str) -> None:
    more = {"metric": metric, "storage": "nfs", "block_bytes": "4096"}
    by_subject = of([20.0, 60.0, 100.0, 140.0, 180.0], made(metric=metric), **more)
    unit, side = ("MB/s", "below") if metric == "storage.read_bandwidth" else ("µs", "above")
    for verdict in by_subject.values():
        assert verdict.status is Status.INVALID
        assert verdict.message == (
            f"peers scatter too much: z 3.5 {side} the median of 5 nodes, 100 {unit}, is 208 % away, more than 50 %"
        )
        assert verdict.bar_value is None


def test_a_wide_relative_limit_is_no_scatter() -> None:
    values: list[float | None] = [85.0, 90.0, 100.0, 111.0, 35.0]
    assert letters(of(values, made(rel_pct=60))) == "PPPPF"


def test_no_deviation_at_all_is_reported() -> None:
    verdict = of([100.0, 100.0, 100.0, 100.0, 80.0])["gpu-05"]
    assert verdict.status is Status.FAIL
    assert verdict.message.endswith(
        "; one sample; half of the members are equal, so the relative distance alone decides"
    )


class TestMissingPeers:
    def test_a_member_without_a_number_is_unmeasured_and_stops_no_other(self) -> None:
        assert letters(of([100.0, 101.0, 99.0, 100.5, 60.0, None])) == "PPPPFU"

    def test_too_few_with_a_number(self) -> None:
        by_subject = of([100.0, 101.0, 99.0, 60.0, None, None])
        assert letters(by_subject) == "UUUUUU"
        assert by_subject["gpu-04"].message == "4 of 6 nodes have a number, 5 are needed to identify an outlier"
        assert by_subject["gpu-04"].value == 60.0

    def test_no_member_passes_because_better_ones_are_missing(self) -> None:
        """With the two missing at 100, the two at 80 would be outliers."""
        everyone = [100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 80.0, 80.0]
        assert letters(of(list(everyone))) == "PPPPPPFF"
        by_subject = of([None, None, None, 100.0, 80.0, 80.0, 80.0, 100.0])
        assert letters(by_subject) == "UUUUUUUU"
        assert "3 of 8 nodes have no number and could make this one an outlier" in by_subject["gpu-05"].message
        # with the missing three at 90 the median is 90 and a limit by score is further away than half of it
        assert "3 of 8 nodes have no number and could make the peers scatter" in by_subject["gpu-04"].message

    def test_an_invalid_number_is_no_peer(self) -> None:
        assert letters(of([100.0, 101.0, 99.0, 100.5, 100.2, -1.0])) == "PPPPPI"


class TestStarvedPeers:
    def judged(self, values: list[float], starved: int, **more: Any) -> dict[str, Verdict]:
        """The first ``starved`` nodes are starved."""
        metric = more.get("metric", "storage.read_bandwidth")
        taken = [
            measurement(name, value, conditions={"steal_pct": 60.0} if number < starved else {}, **more)
            for number, (name, value) in enumerate(zip(NAMES, values, strict=False))
        ]
        run = run_info(*NAMES[: len(values)], "sto-01")
        return verdicts(judged(made(metric=metric), *taken, run=run), "odd")

    def test_a_median_that_starved_peers_lower_clears_no_other(self) -> None:
        values = [60.0, 60.0, 60.0, 60.0, 62.0, 100.0, 100.0, 100.0]
        assert letters(of(list(values))) == "PPPPPPPP"
        by_subject = self.judged(values, 4)
        assert letters(by_subject) == "PPPPIIII"
        verdict = by_subject["gpu-05"]
        assert verdict.message == "a node was starved: 10 % of its processors' time or more was stolen"
        assert verdict.raw == tuple(f"raw-of-{name}" for name in ("gpu-05", *NAMES[:4]))
        assert verdict.hint.startswith("Remove the cause, then measure again")

    def test_latencies_that_starved_peers_raise_clear_no_other(self) -> None:
        more = {"metric": "storage.random_read_latency", "storage": "nfs", "block_bytes": "4096"}
        assert letters(self.judged([200.0, 200.0, 200.0, 198.0, 100.0, 100.0], 3, **more)) == "PPPIII"

    def test_peers_that_agree_pass_beside_a_starved_one(self) -> None:
        assert letters(self.judged([60.0, 100.0, 101.0, 99.0, 100.5, 100.2], 1)) == "IPPPPP"
        assert letters(self.judged([99.5, 100.0, 101.0, 99.0, 100.5, 60.0], 1)) == "PPPPPF"

    def test_where_all_are_starved_alike_they_stay_passed(self) -> None:
        assert letters(self.judged([60.0, 60.0, 61.0, 60.0, 62.0], 5)) == "PPPPP"


def test_a_median_of_nought_is_invalid() -> None:
    assert letters(of([0.0, 0.0, 0.0, 10.0, 10.0])) == "IIIII"


def gpus(values: dict[str, tuple[float, ...]]) -> list[Measurement]:
    return [
        measurement(f"{name}/gpu{number}", value, metric="gpu.memory_bandwidth")
        for name, several in values.items()
        for number, value in enumerate(several)
    ]


def of_gpus(values: dict[str, tuple[float, ...]]) -> dict[str, Verdict]:
    checked = made(metric="gpu.memory_bandwidth", where={}, scope="gpu")
    return verdicts(judged(checked, *gpus(values), run=run_info(*NAMES[:5], "sto-01")), "odd")


def test_the_smallest_gpu_stands_for_its_node() -> None:
    by_subject = of_gpus(dict.fromkeys(NAMES[:4], (100.0, 101.0)) | {"gpu-05": (150.0, 70.0)})
    assert letters(by_subject) == "PPPPF"
    verdict = by_subject["gpu-05"]
    assert (verdict.subject, verdict.value) == ("gpu-05", 70.0)
    assert verdict.message.endswith("; gpu-05/gpu1, the worst of 2")
    assert verdict.raw == ("raw-of-gpu-05/gpu0", "raw-of-gpu-05/gpu1")
    assert verdict.statistic == "worst of the GPUs of a node, median of each"


def test_a_node_with_a_silent_gpu_is_unmeasured() -> None:
    by_subject = of_gpus(dict.fromkeys(NAMES[:4], (100.0, 101.0)) | {"gpu-05": (100.0,)})
    assert letters(by_subject) == "UUUUU"
    assert by_subject["gpu-05"].message.startswith("unmeasured on gpu-05/gpu1 (1 of 2): no measurement of")


def test_a_slow_pair_is_found_and_its_bad_end_blamed() -> None:
    checked = made(metric="link.tcp_bandwidth", where={"rail": 0}, scope="pair")
    taken = [
        measurement(pair, 40.0 if "gpu-03" in pair else 100.0, metric="link.tcp_bandwidth", rail="0")
        for pair in combinations(NAMES, 2)
    ]
    by_subject = verdicts(judged(checked, *taken, run=run_info(*NAMES, "sto-01")), "odd")
    assert set(by_subject) == set(NAMES)
    failed = {subject: v.blame for subject, v in by_subject.items() if v.status is Status.FAIL}
    assert failed == {"gpu-03": "gpu-03"}
    assert by_subject["gpu-03"].message.endswith("; 7 of 7 pairs, this one first")
    assert "the median of 28 pairs" in by_subject["gpu-01"].message


@pytest.mark.parametrize("scope", [Scope.NODE, Scope.PAIR])
def test_without_nodes_there_is_one_unmeasured_verdict(scope: Scope) -> None:
    metric = "storage.read_bandwidth" if scope is Scope.NODE else "link.tcp_bandwidth"
    checked = made(scope=scope.value, metric=metric, where={})
    result = judged(checked, run=run_info("sto-01"))
    (verdict,) = verdicts(result, "odd").values()
    assert (verdict.subject, verdict.status) == ("rack", Status.UNMEASURED)
    assert result.outcome is not Outcome.CERTIFIED
