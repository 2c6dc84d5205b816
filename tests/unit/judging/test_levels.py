"""Bars of several levels, shares of what a link carries, and what no link can carry."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from tests.unit.judging import GPU, architecture, criterion, judged, measurement, run_info, verdicts

LEVELS = {"good": 20, "better": 40, "best": 80}
LINKS = {
    "port": {"title": "One port", "each": {"value": 1, "unit": "Gb/s", "source": "us"}},
    "pair": {"title": "Two ports", "count": 2, "each": {"value": 1, "unit": "Gb/s", "source": "us"}},
    "secret": {"title": "A link", "each": {"value": None, "unit": "Gb/s", "source": "us", "note": "unpublished"}},
}

FABRIC = {"kind": "soft-roce", "mtu": 9000, "line_rate_gbps": 100}
PAIRS: dict[str, Any] = {
    "metric": "link.tcp_bandwidth",
    "where": {},
    "scope": "pair",
    "pass": {"op": "ge", "value": 50, "unit": "Gb/s"},
}


def of_level(level: str, value: float, **bar: Any) -> Verdict:
    fields = {"op": "ge", "levels": LEVELS, "unit": "MB/s"} | bar
    made = architecture(criterion(bar=fields), level=level)
    return verdicts(judged(made, measurement("gpu-01", value)))["gpu-01"]


@pytest.mark.parametrize(
    ("level", "value", "status", "reached"),
    [
        ("good", 19.0, "FAIL", None),
        ("good", 20.0, "PASS", "good"),
        ("good", 79.0, "PASS", "better"),
        ("better", 39.0, "FAIL", "good"),
        ("better", 40.0, "PASS", "better"),
        ("best", 200.0, "PASS", "best"),
    ],
)
def test_the_level_of_the_architecture_decides_and_the_highest_is_named(
    level: str, value: float, status: str, reached: str | None
) -> None:
    verdict = of_level(level, value)
    assert (verdict.status.value, verdict.level, verdict.bar_value) == (status, reached, LEVELS[level])
    assert verdict.bar == f"≥ {LEVELS[level]} MB/s ({level})"
    assert f"; reaches {reached or 'no level'}" in verdict.message


def test_levels_of_a_latency_fall() -> None:
    made = architecture(
        criterion(
            metric="storage.random_read_latency", bar={"op": "le", "levels": {"good": 10, "best": 1}, "unit": "ms"}
        ),
        level="good",
    )
    taken = [
        measurement(name, value, metric="storage.random_read_latency", storage="nfs", block_bytes="4096")
        for name, value in zip(GPU, (5000.0, 500.0), strict=True)
    ]
    assert [v.level for v in verdicts(judged(made, *taken)).values()] == ["good", "best"]


def test_without_a_number_no_level_is_reached() -> None:
    made = architecture(criterion(bar={"op": "ge", "levels": LEVELS, "unit": "MB/s"}), level="best")
    for verdict in verdicts(judged(made)).values():
        assert (verdict.status, verdict.level, verdict.bar_value) == (Status.UNMEASURED, None, 80)


def of_link(link: str, times: float = 1.0) -> Architecture:
    bar = {"op": "ge", "value": 80, "unit": "percent", "of": {"link": link, "times": times}}
    return architecture(criterion(bar=bar), links=LINKS)


@pytest.mark.parametrize(
    ("link", "times", "value", "status", "ceiling"),
    [
        ("port", 1, 100.0, "PASS", 125.0),
        ("port", 1, 99.0, "FAIL", 125.0),
        ("pair", 1, 199.0, "FAIL", 250.0),
        ("pair", 2, 400.0, "PASS", 500.0),
        ("port", 1, 127.0, "PASS", 125.0),
    ],
)
def test_a_share_of_what_a_link_carries(link: str, times: float, value: float, status: str, ceiling: float) -> None:
    verdict = verdicts(judged(of_link(link, times), measurement("gpu-01", value)))["gpu-01"]
    assert verdict.status.value == status
    assert (verdict.ceiling, verdict.ceiling_unit) == (pytest.approx(ceiling), "MB/s")
    assert verdict.value == pytest.approx(100 * value / ceiling)


def test_the_message_says_what_the_link_is() -> None:
    verdict = verdicts(judged(of_link("pair", 2), measurement("gpu-01", 390.0)))["gpu-01"]
    assert verdict.message == (
        "expected ≥ 80 % of link pair (4 × 1 Gb/s), actual 78 % (390 MB/s of 500 MB/s); one sample"
    )
    assert verdict.raw == ("raw-of-gpu-01",)


def test_a_link_with_an_unpublished_rate_has_no_shares() -> None:
    verdict = verdicts(judged(of_link("secret"), measurement("gpu-01", 390.0)))["gpu-01"]
    assert verdict.status is Status.UNMEASURED
    assert verdict.message == "no reference for the share: link secret: its rate is not published"


def test_a_number_beyond_its_link_is_invalid() -> None:
    verdict = verdicts(judged(of_link("port"), measurement("gpu-01", 128.0)))["gpu-01"]
    assert verdict.status is Status.INVALID
    assert verdict.message == "faster than its link can carry: 128 MB/s of 125 MB/s, link port (1 Gb/s)"
    assert (verdict.measured, verdict.samples) == (128.0, (128.0,))


class TestTheCeilingOfAnAbsoluteBar:
    MADE = architecture(criterion(ceiling={"link": "port"}), links=LINKS)

    def pair(self, value: float, **fields: Any) -> Verdict:
        made = architecture(criterion(**PAIRS | fields), fabric=FABRIC, links=LINKS)
        (verdict,) = verdicts(judged(made, measurement(GPU, value, metric="link.tcp_bandwidth", rail="0"))).values()
        return verdict

    @pytest.mark.parametrize(("value", "status"), [(90.0, Status.PASS), (101.9, Status.PASS), (102.1, Status.INVALID)])
    def test_a_link_without_a_ceiling_carries_the_line_rate(self, value: float, status: Status) -> None:
        verdict = self.pair(value)
        assert verdict.status is status
        assert (verdict.ceiling, verdict.ceiling_unit) == (100.0, "Gb/s")
        assert verdict.ceiling_of == "fabric.line_rate_gbps (100 Gb/s)"
        if status is Status.INVALID:
            assert verdict.message == (
                "faster than its link can carry: 102 Gb/s of 100 Gb/s, fabric.line_rate_gbps (100 Gb/s)"
            )

    def test_the_line_rate_is_each_member_s(self) -> None:
        assert self.pair(99.0, reduce="sum").status is Status.PASS
        assert self.pair(500.0, reduce="sum").status is Status.INVALID

    def test_a_ceiling_of_its_own_stands_before_the_line_rate(self) -> None:
        bar = {"op": "ge", "value": 0.5, "unit": "Gb/s"}
        assert self.pair(90.0, ceiling={"link": "port"}, bar=bar).status is Status.INVALID

    def test_numbers_that_are_compared_with_each_other_are_bound_too(self) -> None:
        bar = {"op": "le", "value": 50, "unit": "percent"}
        fields = PAIRS | {"pass": bar, "reduce": "spread_over_median"}
        made = architecture(criterion(**fields), fabric=FABRIC)
        run = run_info("gpu-01", "gpu-02", "gpu-03", "sto-01")
        for value, status in ((90.0, Status.PASS), (120.0, Status.INVALID)):
            taken = [
                measurement(pair, value, metric="link.tcp_bandwidth", rail="0")
                for pair in combinations(("gpu-01", "gpu-02", "gpu-03"), 2)
            ]
            assert verdicts(judged(made, *taken, run=run))["rack"].status is status

    def test_alternatives_are_bound_by_the_ceiling_of_the_criterion(self) -> None:
        local = {
            "metric": "storage.read_bandwidth",
            "where": {"storage": "local"},
            "scope": "node",
            "pass": {"op": "ge", "value": 20, "unit": "MB/s"},
        }
        made = architecture(criterion(ceiling={"link": "port"}, any_of=[local]), links=LINKS)
        for value, status in ((120.0, Status.PASS), (130.0, Status.INVALID)):
            taken = [measurement(name, value, storage="local", block_bytes="1") for name in GPU]
            by_subject = verdicts(judged(made, *(measurement(name, 1.0) for name in GPU), *taken))
            assert {v.status for v in by_subject.values()} == {status}

    def test_alternatives_of_another_dimension_are_not(self) -> None:
        rate = {
            "metric": "storage.random_read_iops",
            "where": {"storage": "nfs"},
            "scope": "node",
            "pass": {"op": "ge", "value": 1000, "unit": "1/s"},
        }
        made = architecture(criterion(ceiling={"link": "port"}, any_of=[rate]), links=LINKS)
        taken = [measurement(name, 9e6, metric="storage.random_read_iops") for name in GPU]
        assert {v.status for v in verdicts(judged(made, *taken)).values()} == {Status.PASS}

    def test_it_is_shown(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement("gpu-01", 30.0)))["gpu-01"]
        assert (verdict.status, verdict.ceiling, verdict.ceiling_unit) == (Status.PASS, pytest.approx(125.0), "MB/s")
        assert verdict.ceiling_of == "link port (1 Gb/s)"
        assert verdict.measured is None

    def test_it_is_shown_without_a_number_too(self) -> None:
        assert verdicts(judged(self.MADE))["gpu-01"].ceiling == pytest.approx(125.0)

    def test_one_impossible_sample_is_enough(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement("gpu-01", 30.0, 30.0, 200.0)))["gpu-01"]
        assert verdict.status is Status.INVALID
        assert verdict.message.startswith("faster than its link can carry: 200 MB/s of 125 MB/s")

    def test_of_a_sum_the_sum_is_compared(self) -> None:
        made = architecture(criterion(reduce="sum", ceiling={"link": "port", "times": 2}), links=LINKS)
        few = judged(made, measurement("gpu-01", 130.0), measurement("gpu-02", 110.0))
        many = judged(made, measurement("gpu-01", 130.0), measurement("gpu-02", 130.0))
        assert verdicts(few)["rack"].status is Status.PASS
        assert verdicts(many)["rack"].status is Status.INVALID

    def test_an_unpublished_one_limits_nothing(self) -> None:
        made = architecture(criterion(ceiling={"link": "secret"}), links=LINKS)
        verdict = verdicts(judged(made, measurement("gpu-01", 1e6)))["gpu-01"]
        assert (verdict.status, verdict.ceiling) == (Status.PASS, None)


def test_what_a_site_has_changed_is_shown() -> None:
    made = architecture(criterion())
    (entry,) = made.criteria
    changed = entry.model_copy(update={"published": "≥ 40 MB/s", "changed": "old disks", "claim": ("A1",)})
    made = made.model_copy(update={"criteria": (changed,)})
    for verdict in verdicts(judged(made, measurement("gpu-01", 30.0))).values():
        assert (verdict.published, verdict.changed, verdict.claim) == ("≥ 40 MB/s", "old disks", ("A1",))
