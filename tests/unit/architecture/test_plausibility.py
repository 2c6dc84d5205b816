"""Bars that no link can reach, bars that nothing can miss, figures without a source, claims that nothing checks."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.plausibility import carried, ceiling_of
from tests.unit.judging import architecture, criterion, document

PORT = {"title": "One port", "count": 2, "each": {"value": 100, "unit": "Gb/s", "source": "us"}}
LINKS = {"port": PORT}


def wrong(*criteria: dict[str, Any], **fields: Any) -> list[str]:
    made = Architecture.model_validate(document(*criteria, **{"links": LINKS} | fields))
    return [f"{'.'.join(map(str, p.path))}: {p.message}" for p in problems(made)]


def bar(value: float, unit: str = "GB/s", **fields: Any) -> dict[str, Any]:
    return {"op": "ge", "value": value, "unit": unit} | fields


RANGE = {"op": "range", "low": 1, "high": 9, "unit": "GB/s"}


@pytest.mark.parametrize("value", [0.25, 12.5, 24.9, 25.0])
def test_a_bar_between_one_percent_and_the_link_is_plausible(value: float) -> None:
    assert wrong(criterion(ceiling={"link": "port"}, bar=bar(value))) == []


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (bar(26), "26 GB/s = 26000 MB/s is more than its link can carry (One port: 2 × 100 Gb/s = 25000 MB/s)"),
        (bar(201, "Gb/s"), "is more than its link can carry"),
        (bar(0.2), "0.2 GB/s = 200 MB/s is 0.8 % of what its link can carry"),
        (bar(20, warn=30), "pass.warn: 30 GB/s"),
        ({"op": "range", "low": 1, "high": 30, "unit": "GB/s"}, "pass.high: 30 GB/s"),
    ],
)
def test_an_implausible_bar_is_refused_with_the_arithmetic(made: dict[str, Any], message: str) -> None:
    complaints = wrong(criterion(ceiling={"link": "port"}, bar=made))
    assert len(complaints) == 1
    assert message in complaints[0]


def test_every_level_must_be_possible() -> None:
    levels = {"op": "ge", "unit": "GB/s", "levels": {"good": 4, "best": 40}}
    assert any(
        "levels.best: 40 GB/s" in text for text in wrong(criterion(ceiling={"link": "port"}, bar=levels), level="good")
    )


def test_more_than_one_link_and_a_reason() -> None:
    assert wrong(criterion(ceiling={"link": "port", "times": 1.5, "because": "Half is sent once."}, bar=bar(30))) == []
    made = architecture(criterion(ceiling={"link": "port", "times": 1.5}, bar=bar(30)), links=LINKS)
    ceiling = ceiling_of(made, made.criteria[0])
    assert ceiling is not None
    assert (ceiling.value, ceiling.unit) == (37500, "MB/s")
    assert ceiling.arithmetic == "One port: 1.5 × 2 × 100 Gb/s = 37500 MB/s"


@pytest.mark.parametrize(("share", "fine"), [(1, True), (96, True), (100, True), (101, False), (0.5, False)])
def test_a_share_of_a_link(share: float, fine: bool) -> None:
    complaints = wrong(criterion(bar=bar(share, "percent", of={"link": "port"})))
    assert (complaints == []) is fine, complaints


def test_the_fabric_bounds_what_is_measured_between_nodes() -> None:
    link = criterion(metric="link.tcp_bandwidth", where={"rail": 0}, scope="pair", bar=bar(120, "Gb/s"))
    fabric = {"kind": "roce", "mtu": 9000, "line_rate_gbps": 100}
    assert any("fabric.line_rate_gbps: 100 Gb/s" in text for text in wrong(link, fabric=fabric))
    assert wrong(link, fabric=fabric | {"line_rate_gbps": 200}) == []


def test_an_unpublished_rate_bounds_nothing() -> None:
    unknown = {**PORT, "each": {"value": None, "unit": "Gb/s", "source": "us", "note": "not in the data sheet"}}
    assert wrong(criterion(ceiling={"link": "port"}, bar=bar(5000)), links={"port": unknown}) == []
    assert carried(Architecture.model_validate(document(links={"port": unknown})).links["port"], 1, "MB/s") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"each": {"value": 3, "unit": "Gbit", "source": "us"}}, "unknown unit 'Gbit'"),
        ({"each": {"value": 3, "unit": "ms", "source": "us"}}, "expected a bandwidth, actual ms"),
        ({"each": {"value": 0, "unit": "Gb/s", "source": "us"}}, "expected more than 0, actual 0"),
        ({"each": {"value": -3, "unit": "Gb/s", "source": "us"}}, "expected 0 or more, actual -3"),
        ({"each": {"value": None, "unit": "Gb/s", "source": "us"}}, "is unpublished: say so in a note"),
        ({"each": {"value": 3, "unit": "Gb/s", "source": "them"}}, "unknown source 'them'"),
    ],
)
def test_a_figure_needs_a_unit_a_value_or_a_note_and_a_source(change: dict[str, Any], message: str) -> None:
    assert any(message in text for text in wrong(links={"port": PORT | change}))


def test_a_link_of_another_kind_or_none_is_no_ceiling() -> None:
    assert any("unknown link 'prot'" in text for text in wrong(criterion(ceiling={"link": "prot"})))
    iops = criterion(metric="storage.random_read_iops", ceiling={"link": "port"}, bar=bar(5, "kIOPS"))
    assert any("storage.random_read_iops is in 1/s, the link in Gb/s" in text for text in wrong(iops))


LATENCY = {"metric": "storage.random_read_latency", "where": {"storage": "nfs"}, "scope": "node"}


def alternative(made: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"metric": "storage.read_bandwidth", "where": {"storage": "nfs"}, "scope": "node", "pass": made} | fields]


class TestBarsThatCannotBeMissed:
    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (bar(0.2), "criteria.0.any_of.0.pass.value: 0.2 GB/s = 200 MB/s is 0.8 % of what its link can carry"),
            (bar(26), "criteria.0.any_of.0.pass.value: 26 GB/s = 26000 MB/s is more than its link can carry"),
            (bar(0.5, "percent", of={"link": "port"}), "criteria.0.any_of.0.pass.value: 0.5 % of a link cannot be"),
        ],
    )
    def test_an_alternative_is_bounded_like_the_criterion(self, made: dict[str, Any], message: str) -> None:
        complaints = wrong(criterion(ceiling={"link": "port"}, any_of=alternative(made), bar=bar(20)))
        assert len(complaints) == 1
        assert complaints[0].startswith(message)

    def test_a_plausible_alternative_and_one_of_another_kind(self) -> None:
        other = alternative({"op": "le", "value": 1, "unit": "ms"}, **LATENCY)
        for any_of in (alternative(bar(10)), other):
            assert wrong(criterion(ceiling={"link": "port"}, any_of=any_of, bar=bar(20))) == []

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"pass": bar(0)}, "pass.value: at least 0 cannot be missed"),
            (
                {"pass": {"op": "ge", "unit": "GB/s", "levels": {"none": 0, "good": 4}}},
                "pass.levels.none: at least 0 cannot be missed",
            ),
            ({"pass": bar(9, op="le")}, "pass.op: more is better for storage.read_bandwidth: use 'range'"),
            (
                {"pass": bar(90, "percent", op="le", of={"metric": "storage.write_bandwidth", "scope": "node"})},
                "pass.op: more is better for storage.read_bandwidth",
            ),
            (LATENCY | {"pass": bar(1, "us")}, "pass.op: less is better for storage.random_read_latency"),
            (
                {"reduce": "min_over_median", "pass": bar(0.9, "ratio", op="le")},
                "pass.op: 'le' with 'min_over_median' asks for unlike members; expected 'ge'",
            ),
            ({"reduce": "max_over_median", "pass": bar(0.9, "ratio")}, "pass.op: 'ge' with 'max_over_median'"),
            ({"reduce": "spread_over_median", "pass": bar(0.9, "ratio")}, "pass.op: 'ge' with 'spread_over_median'"),
            ({"statistic": "max", "pass": RANGE}, "statistic: 'range' is about the median or the mean, not 'max'"),
            ({"statistic": "p10", "pass": RANGE}, "statistic: 'range' is about the median or the mean, not 'p10'"),
            ({"reduce": "max", "pass": RANGE}, "reduce: 'range' is about each, their median or their sum, not 'max'"),
            ({"reduce": "min", "pass": RANGE}, "reduce: 'range' is about each, their median or their sum, not 'min'"),
            ({"statistic": "max", "pass": bar(9, op="eq")}, "statistic: 'max' of storage.read_bandwidth judges the"),
            ({"reduce": "max", "pass": bar(9, op="eq")}, "reduce: 'max' of storage.read_bandwidth judges only the"),
            (
                LATENCY | {"reduce": "min", "pass": bar(9, "us", op="eq")},
                "reduce: 'min' of storage.random_read_latency judges only the best member",
            ),
        ],
    )
    def test_refused(self, fields: dict[str, Any], message: str) -> None:
        level = {"level": "good"} if "levels" in fields["pass"] else {}
        complaints = wrong(criterion(**fields), **level)
        assert any(text.startswith(f"criteria.0.{message}") for text in complaints), complaints

    @pytest.mark.parametrize(
        "fields",
        [
            {"pass": RANGE},
            {"reduce": "sum", "statistic": "mean", "pass": RANGE},
            {"reduce": "min", "statistic": "min", "pass": bar(9, op="eq")},
            LATENCY | {"statistic": "max", "pass": bar(9, "us", op="eq")},
            LATENCY | {"reduce": "max", "pass": bar(0, "us", op="le")},
            {"reduce": "min_over_median", "pass": bar(0.9, "ratio")},
            {"reduce": "spread_over_median", "pass": bar(0.1, "ratio", op="le")},
        ],
    )
    def test_the_bad_end_may_be_judged(self, fields: dict[str, Any]) -> None:
        assert wrong(criterion(**fields)) == []


class TestScatterAndPeers:
    MESSAGE = "max_cv_pct: one sample has no scatter: min_samples is 1, expected 2 or more"

    def test_scatter_needs_two_samples(self) -> None:
        assert wrong(criterion(max_cv_pct=5)) == [f"criteria.0.{self.MESSAGE}"]
        assert wrong(criterion(max_cv_pct=5, min_samples=2)) == []
        assert wrong(criterion(any_of=alternative(bar(1), max_cv_pct=5))) == [f"criteria.0.any_of.0.{self.MESSAGE}"]

    def test_of_a_reference_too(self) -> None:
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node", "max_cv_pct": 5}
        share = {"pass": bar(90, "percent", of=of)}
        assert wrong(criterion(**share)) == [f"criteria.0.pass.of.{self.MESSAGE}"]
        assert wrong(criterion(min_samples=5, **share)) == []
        assert wrong(criterion(bar=bar(90, "percent", of=of | {"min_samples": 3}))) == []

    OUTLIER: ClassVar = {**{key: value for key, value in criterion(id="odd").items() if key != "pass"}, "rel_pct": 5}

    def test_of_an_outlier_too(self) -> None:
        assert wrong(outliers=[self.OUTLIER | {"max_cv_pct": 5}]) == [f"outliers.0.{self.MESSAGE}"]

    @pytest.mark.parametrize("fields", [{"min_peers": 4}, {"z": 10.5}, {"z": 0}])
    def test_an_outlier_that_could_not_be_found(self, fields: dict[str, Any]) -> None:
        assert wrong(outliers=[self.OUTLIER]) == []
        with pytest.raises(ValidationError, match=next(iter(fields))):
            wrong(outliers=[self.OUTLIER | fields])

    def test_a_label_that_stands_twice(self) -> None:
        assert wrong(criterion(where={"storage": ["nfs", "nfs"]})) == [
            "criteria.0.where.storage: 'nfs' is listed twice"
        ]


CLAIM = {"A1": {"says": "It reads fast.", "figure": "> 20 MB/s", "source": "us"}}


class TestClaims:
    def test_a_claim_that_a_criterion_names_is_checked(self) -> None:
        assert wrong(criterion(claim="A1"), claims=CLAIM) == []
        assert wrong(criterion(claim=["A1"]), claims=CLAIM) == []

    def test_a_claim_that_hardware_names_is_checked(self) -> None:
        cpu = {"gpu": {"expect": {"cpu": {"cores": 8, "source": "us", "claim": "A1"}}}}
        assert wrong(claims=CLAIM, roles=document()["roles"] | cpu) == []

    def test_a_claim_may_say_why_it_cannot_be(self) -> None:
        assert wrong(claims={"A1": CLAIM["A1"] | {"not_checkable": "An opinion."}}) == []

    def test_neither_is_refused(self) -> None:
        assert wrong(criterion(), claims=CLAIM) == [
            "claims.A1: no criterion or check names it: add one, or the reason under not_checkable"
        ]

    def test_both_is_refused(self) -> None:
        complaints = wrong(criterion(claim="A1"), claims={"A1": CLAIM["A1"] | {"not_checkable": "An opinion."}})
        assert complaints == ["claims.A1.not_checkable: criteria.0 checks it"]

    def test_an_unknown_claim_is_refused(self) -> None:
        assert any("unknown claim 'A2'" in text for text in wrong(criterion(claim=["A1", "A2"]), claims=CLAIM))


def entry(**fields: Any) -> dict[str, Any]:
    common = {k: v for k, v in criterion().items() if k not in ("pass", "scope", "where")}
    return common | {"id": "x"} | fields


def curve(**fields: Any) -> dict[str, Any]:
    return entry(over="clients", points=[1, 2, 4], baseline=1, efficiency_min=0.9, where={"storage": "nfs"}) | fields


class TestCurvesAndOutliers:
    def test_good_ones_are_accepted(self) -> None:
        assert wrong(curves=[curve()]) == []
        assert wrong(outliers=[entry(scope="node", where={"storage": "nfs"}, rel_pct=5)]) == []

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"baseline": 3}, "baseline: 3 is none of the points"),
            ({"points": [1, 4, 2]}, "points.2: expected more than 4, actual 2"),
            ({"points": [1, 2], "r2_min": 0.9}, "two points always fit a line"),
            ({"efficiency_min": None}, "has no requirement"),
            ({"over": "gpus"}, "has no label 'gpus'"),
            ({"metric": "storage.random_read_latency"}, "is measured for node, not for rack"),
            ({"source": "them"}, "unknown source 'them'"),
            ({"measure": "magic"}, "unknown recipe 'magic'"),
            ({"members": "login"}, "unknown role 'login'"),
        ],
    )
    def test_a_bad_curve_is_refused(self, fields: dict[str, Any], message: str) -> None:
        assert any(message in text for text in wrong(curves=[curve(**fields)])), wrong(curves=[curve(**fields)])

    def test_an_outlier_needs_peers_and_no_best_of(self) -> None:
        assert any("the rack has no peers" in text for text in wrong(outliers=[entry(scope="rack", rel_pct=5)]))
        best = entry(scope="node", rel_pct=5, statistic="max")
        assert any("'max' judges the best of several tries" in text for text in wrong(outliers=[best]))

    def test_ids_are_unique_over_all_lists(self) -> None:
        complaints = wrong(criterion(id="x"), curves=[curve()])
        assert any("'x' is another entry's id already, in criteria" in text for text in complaints)


class TestLevelsAndAlternatives:
    LEVELS: ClassVar[dict[str, Any]] = {"op": "ge", "unit": "MB/s", "levels": {"good": 10, "best": 40}}

    def test_a_level_must_be_chosen_and_known(self) -> None:
        assert wrong(criterion(bar=self.LEVELS), level="best") == []
        assert any("needs a level" in text for text in wrong(criterion(bar=self.LEVELS)))
        assert any("unknown level 'bad'" in text for text in wrong(criterion(bar=self.LEVELS), level="bad"))
        assert any("no bar has levels" in text for text in wrong(criterion(), level="best"))

    def test_levels_grow_more_demanding(self) -> None:
        falling = self.LEVELS | {"levels": {"good": 40, "best": 10}}
        assert any("expected more demanding than good" in t for t in wrong(criterion(bar=falling), level="best"))
        both = self.LEVELS | {"value": 3}
        assert any("levels say what must be reached" in t for t in wrong(criterion(bar=both), level="best"))

    def test_a_percentile_of_the_good_end_is_the_best_of_several_tries(self) -> None:
        assert any("'p99' with 'ge' judges the best" in text for text in wrong(criterion(statistic="p99")))
        assert wrong(criterion(statistic="p1")) == []
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node", "reduce": "each"}
        share = {"op": "ge", "value": 50, "unit": "percent", "of": of | {"statistic": "min"}}
        assert any("'min' takes a share of the worst" in text for text in wrong(criterion(bar=share)))
        assert any("'max' judges the best" in text for text in wrong(curves=[curve(statistic="max")]))

    def test_levels_of_an_alternative_need_one_too(self) -> None:
        other = {"metric": "storage.read_bandwidth", "where": {"storage": "nfs"}, "scope": "node", "pass": self.LEVELS}
        assert any(
            "criteria.0.any_of.0.pass.levels: needs a level" in text for text in wrong(criterion(any_of=[other]))
        )

    def test_an_alternative_is_checked_like_a_criterion(self) -> None:
        other = {"metric": "storage.random_read_iops", "where": {"storage": "nfs"}, "scope": "node"}
        assert wrong(criterion(any_of=[{**other, "pass": bar(10, "1/s")}])) == []
        complaints = wrong(criterion(any_of=[{**other, "pass": bar(10, "MB/s")}]))
        assert any("criteria.0.any_of.0.pass.unit" in text for text in complaints)


def test_gpus_of_no_role_are_not_checked_are_a_problem() -> None:
    gpu = {"count": 8, "model": "NVIDIA H200", "memory_mib": 143771}
    roles = {"compute": {"count": {"min": 1}}}
    assert any(problem.startswith("gpu: there is no role gpu") for problem in wrong(gpu=gpu, roles=roles))
    assert not [problem for problem in wrong(gpu=gpu | {"count": 0}, roles=roles) if problem.startswith("gpu: ")]
