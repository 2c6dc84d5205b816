"""Several ways of meeting one criterion."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.evidence import Measurement, Scope
from rackproof.core.status import Outcome, Status
from tests.unit.judging import GPU, architecture, criterion, judged, measurement, run_info, verdicts


def way(storage: Any = "local", value: float = 20, scope: str = "node", **fields: Any) -> dict[str, Any]:
    """Reading another storage instead."""
    return {
        "metric": "storage.read_bandwidth",
        "where": {"storage": storage},
        "scope": scope,
        "pass": {"op": "ge", "value": value, "warn": value + 10, "unit": "MB/s"},
    } | fields


def own(value: float | None, *more: float) -> list[Measurement]:
    return [] if value is None else [measurement(name, value, *more) for name in GPU]


def other(value: float | None, *more: float) -> list[Measurement]:
    if value is None:
        return []
    return [measurement(name, value, *more, storage="local", block_bytes="1") for name in GPU]


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (30.0, 1.0, "PASS"),
        (1.0, 35.0, "PASS"),
        (30.0, None, "PASS"),
        (1.0, 25.0, "WARN"),
        (None, 25.0, "WARN"),
        (1.0, 1.0, "FAIL"),
        (1.0, None, "UNMEASURED"),
        (None, 1.0, "UNMEASURED"),
        (None, None, "UNMEASURED"),
        (1.0, -1.0, "INVALID"),
        (-1.0, None, "UNMEASURED"),
    ],
)
def test_one_suffices_and_nothing_has_failed_while_one_is_not_known(
    first: float | None, second: float | None, status: str
) -> None:
    made = architecture(criterion(any_of=[way()]))
    by_subject = verdicts(judged(made, *own(first), *other(second)))
    assert {v.status.value for v in by_subject.values()} == {status}


def test_the_message_shows_all_ways_and_the_verdict_the_one_that_decides() -> None:
    made = architecture(criterion(any_of=[way(value=30)]))
    verdict = verdicts(judged(made, *own(1.0), *other(50.0, 60.0)))["gpu-02"]
    assert verdict.message == (
        "one of 2 suffices: "
        "storage.read_bandwidth[storage=nfs]: FAIL, expected ≥ 20 MB/s, actual 1 MB/s; one sample; "
        "storage.read_bandwidth[storage=local]: PASS, expected ≥ 30 MB/s, actual 55 MB/s; median of 2 samples"
    )
    assert (verdict.id, verdict.subject, verdict.value, verdict.bar) == ("nfs.read", "gpu-02", 55.0, "≥ 30 MB/s")
    assert (verdict.labels, verdict.samples) == ({"storage": "local"}, (50.0, 60.0))


def test_a_way_that_is_about_the_rack_speaks_for_every_node() -> None:
    made = architecture(criterion(any_of=[way("nfs", 50, "rack")]))
    whole = measurement(GPU, 99.0, scope=Scope.RACK, storage="nfs", block_bytes="1")
    result = judged(made, *own(1.0), whole)
    assert {v.status for v in verdicts(result).values()} == {Status.PASS}
    assert result.outcome is Outcome.CERTIFIED


def test_a_way_that_is_about_every_node_must_hold_for_all_of_them() -> None:
    made = architecture(criterion(scope="rack", any_of=[way()]))
    good, bad = other(90.0)[:1], [measurement("gpu-02", 1.0, storage="local", block_bytes="1")]
    slow = measurement(GPU, 1.0, scope=Scope.RACK, storage="nfs", block_bytes="1")
    assert verdicts(judged(made, slow, *good, *bad))["rack"].status is Status.FAIL
    assert verdicts(judged(made, slow, *good))["rack"].status is Status.UNMEASURED
    assert verdicts(judged(made, slow, *other(90.0)))["rack"].status is Status.PASS


def test_of_a_way_on_pairs_all_pairs_of_the_node_count() -> None:
    fast = {"op": "ge", "value": 5, "unit": "Gb/s"}
    pairs = {"metric": "link.tcp_bandwidth", "where": {"rail": "0"}, "scope": "pair", "pass": fast}
    made = architecture(criterion(any_of=[pairs]))
    link = measurement(GPU, 9.0, metric="link.tcp_bandwidth", rail="0")
    assert {v.status for v in verdicts(judged(made, *own(1.0), link)).values()} == {Status.PASS}
    assert {v.status for v in verdicts(judged(made, *own(1.0))).values()} == {Status.UNMEASURED}


def test_listed_labels_go_together() -> None:
    made = architecture(
        criterion(
            where={"storage": "nfs", "block_bytes": [1, 2]},
            any_of=[way(where={"storage": "local", "block_bytes": [1, 2]})],
        )
    )
    taken = [measurement(name, 90.0, storage="local", block_bytes="2") for name in GPU]
    result = judged(made, *taken)
    assert {v.status for v in verdicts(result, "nfs.read[1]").values()} == {Status.UNMEASURED}
    assert {v.status for v in verdicts(result, "nfs.read[2]").values()} == {Status.PASS}


def test_of_labels_that_only_the_way_lists_all_are_meant() -> None:
    made = architecture(criterion(any_of=[way(where={"storage": "local", "block_bytes": [1, 2]})]))
    both = [measurement(name, 90.0, storage="local", block_bytes=size) for name in GPU for size in ("1", "2")]
    assert {v.status for v in verdicts(judged(made, *own(1.0), *both)).values()} == {Status.PASS}
    assert {v.status for v in verdicts(judged(made, *own(1.0), *both[::2])).values()} == {Status.UNMEASURED}


def test_a_rack_without_nodes_meets_nothing_in_any_way() -> None:
    made = architecture(criterion(any_of=[way(), way("nfs", 50, "rack")]))
    (verdict,) = verdicts(judged(made, run=run_info("sto-01"))).values()
    assert (verdict.status, verdict.subject) == (Status.UNMEASURED, "rack")
