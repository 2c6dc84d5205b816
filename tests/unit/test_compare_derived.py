"""Criteria whose value is made of several numbers are compared by that value."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.compare import compare
from rackproof.core.comparison import Change, Comparison
from rackproof.core.derived import UNKNOWN_NOISE
from rackproof.report.comparison import lines
from tests.unit.judging import GPU, architecture, bar, criterion, measurement
from tests.unit.test_compare import reads, records, text_of

WAY: dict[str, Any] = {"metric": "storage.read_bandwidth", "where": {"storage": "nfs"}, "scope": "node"}


def fairness(**fields: Any) -> Any:
    bar = {"op": "ge", "value": 80, "unit": "percent"}
    return criterion(id="local.fairness", reduce="min_over_median", bar=bar, **fields)


def of_two(entry: Any, one: tuple[float, float], other: tuple[float, float]) -> Comparison:
    sides = [
        records(*(reads(value, node=node) for value, node in zip(s, GPU, strict=True))) for s in (one, other)
    ]  # fmt: skip
    return compare(architecture(entry), *sides)


def test_a_rack_that_is_slower_all_over_is_as_fair_as_before() -> None:
    comparison = of_two(fairness(), (100.0, 100.0), (80.0, 80.0))
    (value,) = comparison.values
    assert (value.id, value.change, value.before, value.after) == ("local.fairness", Change.SAME, 100.0, 100.0)
    (line,) = lines(comparison)
    assert (line.change, line.worst) == (Change.SAME, value)
    # each of them is named as slower all the same, but fairness is not
    text = text_of(comparison)
    assert "numbers without a criterion: 2 worse" in text
    assert comparison.exit_status == 1


def test_one_slow_node_is_less_fair() -> None:
    comparison = of_two(fairness(), (100.0, 100.0), (100.0, 50.0))
    (value,) = comparison.values
    assert (value.change, value.remark) == (Change.WORSE, UNKNOWN_NOISE)
    assert value.after == pytest.approx(100 * 50 / 75)
    assert value in comparison.regressions
    assert of_two(fairness(), (100.0, 50.0), (100.0, 100.0)).values[0].change is Change.BETTER


def test_a_small_spread_that_grows_a_little_is_the_same() -> None:
    bar = {"op": "le", "value": 20, "unit": "percent"}
    spread = criterion(id="local.spread", reduce="spread_over_median", bar=bar)
    assert of_two(spread, (100.0, 101.0), (100.0, 104.0)).values[0].change is Change.SAME
    assert of_two(spread, (100.0, 101.0), (100.0, 140.0)).values[0].change is Change.WORSE


def test_a_share_is_compared_as_a_share_with_the_scatter_of_its_samples() -> None:
    link = {"metric": "link.tcp_bandwidth", "where": {"rail": "0"}, "scope": "pair", "reduce": "median"}
    share = criterion(id="nfs.share", bar=bar("ge", 10, "percent", of=link))

    def side(read: float, wire: float) -> list[Any]:
        numbers = [reads(read, read, node=node) for node in GPU]
        of = measurement(GPU, wire, wire, metric="link.tcp_bandwidth", rail="0")
        return records(*numbers, of)

    def changes(*sides: list[Any]) -> set[tuple[Change, tuple[int, int]]]:
        return {(value.change, value.samples) for value in compare(architecture(share), *sides).values}

    assert changes(side(100.0, 4.0), side(80.0, 3.2)) == {(Change.SAME, (2, 2))}
    assert changes(side(100.0, 4.0), side(80.0, 4.0)) == {(Change.WORSE, (2, 2))}


def test_of_alternatives_the_one_that_was_judged_is_compared() -> None:
    """Also where the text of another one's bar begins like its own."""
    first, second = (
        {"metric": "link.tcp_bandwidth", "where": {"rail": rail}, "scope": "pair", "reduce": "median"} for rail in "01"
    )
    other = {**WAY, "pass": bar("ge", 80, "percent", tolerance_pct=5, of=second)}
    share = criterion(id="nfs.share", reduce="median", bar=bar("ge", 80, "percent", of=first), any_of=[other])
    of = measurement(GPU, 4.0, 4.0, metric="link.tcp_bandwidth", rail="1")
    side = records(*(reads(400.0, 400.0, node=node) for node in GPU), of)
    assert {value.samples for value in compare(architecture(share), side, side).values} == {(2, 2)}


def test_a_value_that_one_run_lacks_is_not_the_same() -> None:
    comparison = compare(architecture(fairness()), records(*(reads(50.0, node=n) for n in GPU)), records())
    (value,) = comparison.values
    assert (value.change, value.remark) == (Change.ONLY_A, "no value in B")
    assert comparison.exit_status == 2


def test_ids_stay_whole_on_a_narrow_terminal() -> None:
    long = criterion(id="shared.write.fairness.of-all-the-clients-there-are")
    comparison = compare(architecture(long), *(records(*(reads(v, node=n) for n in GPU)) for v in (100.0, 50.0)))
    for width in (40, 80, 100, 200):
        assert "shared.write.fairness.of-all-the-clients-there-are" in text_of(comparison, width=width)
    assert "2 PASS; gpu-01: −50 %, noise ±10 %" in text_of(comparison, width=80)
