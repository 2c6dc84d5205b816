"""Group testing on simulated racks: jobs, names and clearances. ``benchmarks/schedule.py`` runs many more patterns."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.fault_search import MOST_JOBS, REPEATS, _Search, locate
from rackproof.core.group_testing import Fault, FaultKind, Job, Places, chunks

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from schedule import KINDS, Outcome, Sick, SimulatedRack, fault_of, places_of, table

RACK = places_of(232, 8)
SOLID = tuple(kind for kind in KINDS if kind != "intermittent")


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - patterns, no secrets


def searched(faults: list[Sick], places: Places = RACK, seed: int = 0) -> Outcome:
    rack = SimulatedRack(places, faults, seeded(seed))
    return Outcome(faults, locate(places, rack.run, seed))


def test_a_healthy_rack_takes_at_most_20_jobs_in_three_rounds() -> None:
    outcome = searched([])
    assert outcome.jobs <= 20
    assert len(outcome.result.rounds) == 3
    assert outcome.result.cleared == set(RACK.names)
    assert not outcome.result.faults


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", SOLID)
def test_one_fault_is_named_with_at_most_35_jobs(kind: str, seed: int) -> None:
    outcome = searched([fault_of(kind, RACK, seeded(seed))], seed=seed)
    assert outcome.jobs <= 35
    assert outcome.faults[0].shown
    assert not outcome.unnamed()
    assert not outcome.blamed()
    assert not outcome.result.unlocated
    assert not outcome.falsely_cleared()


def of_four(*faults: Fault) -> _Search:
    """A search of four nodes all of whose further jobs pass, after it has named these faults, each by a failed job."""
    search = _Search(Places(("a", "b", "c", "d")), lambda jobs: [True] * len(jobs), 0)
    search.faults += faults
    for fault in faults:
        nodes = fault.nodes if len(fault.nodes) > 1 else (*fault.nodes, "b")
        search.history.append((Job(frozenset(nodes), search.rails), False))
    return search


def test_a_link_of_a_sick_node_does_not_accuse_its_other_end() -> None:
    sick, link = Fault(FaultKind.NODE, ("d",), None, True), Fault(FaultKind.LINK, ("a", "b"))
    assert of_four(sick, link, Fault(FaultKind.LINK, ("a", "d"))).result().faults == (sick, link)
    both = of_four(link, Fault(FaultKind.LINK, ("a", "c"))).result().faults
    assert both == (Fault(FaultKind.NODE, ("a",), None, True),), "two links of a node that nothing else explains"


def test_a_name_without_a_job_that_only_it_explains_is_no_name() -> None:
    """Nor is one whose partners did not pass without it: then the set has no name, and none of it is cleared."""
    sick = Fault(FaultKind.NODE, ("d",))
    search = of_four(sick, Fault(FaultKind.NODE, ("b",)))
    search.history[0] = (Job(frozenset("db"), search.rails), False)
    result = search.result()
    assert [fault.nodes for fault in result.faults] == [("b",)]
    assert frozenset("d") in result.unlocated
    assert result.cleared == {"a", "c"}
    alone = _Search(Places(("a", "b", "c", "d")), lambda jobs: [False] * len(jobs), 0)
    alone.faults.append(sick)
    alone.history.append((Job(frozenset("abd"), alone.rails), False))
    assert not alone.result().faults


def test_a_link_with_a_failed_job_of_one_end_is_no_name() -> None:
    link = Fault(FaultKind.LINK, ("a", "b"))
    assert of_four(link).result().faults == (link,)
    search = of_four(link)
    search.history.append((Job(frozenset("ac"), search.rails), False))
    result = search.result()
    assert link not in result.faults
    assert frozenset("ab") in result.unlocated or "a" in {name for fault in result.faults for name in fault.nodes}
    assert result.cleared.isdisjoint("a")


def test_the_last_job_is_repeated_where_one_of_several_faults_is_intermittent() -> None:
    other = Fault(FaultKind.NODE, ("c",))
    pairs = [(other, Fault(FaultKind.NODE, ("d",), None, intermittent)) for intermittent in (False, True)]
    rounds = [len(of_four(*pair).result().rounds) for pair in pairs]
    assert rounds[1] == rounds[0] + REPEATS


def test_a_search_of_loose_faults_ends_where_nothing_is_left_to_explain() -> None:
    search = of_four()
    search._loose(frozenset({"a"}), search.rails)
    assert not search.faults
    assert not search.unlocated


def test_what_is_named() -> None:
    rail = searched([Sick("rail", frozenset({"gpu-077"}), 3)]).result.faults
    assert [(f.kind, f.nodes, f.rail, str(f)) for f in rail] == [
        (FaultKind.RAIL, ("gpu-077",), 3, "rail 3 of gpu-077")
    ]  # fmt: skip
    link = searched([Sick("link", frozenset({"gpu-077", "gpu-200"}))]).result
    assert [str(fault) for fault in link.faults] == ["between gpu-200 and gpu-077"]
    assert link.cleared.isdisjoint({"gpu-077", "gpu-200"})
    assert len(link.cleared) == 230
    unit = next(unit for unit in RACK.units() if "gpu-077" in unit)
    leaf = searched([Sick("leaf", frozenset(unit), 7)]).result.faults
    assert [(f.kind, f.nodes, f.rail) for f in leaf] == [(FaultKind.LEAF, unit, 7)]


def test_an_intermittent_node_is_named_where_it_shows() -> None:
    outcomes = [searched([Sick("intermittent", frozenset({"gpu-100"}), None, 0.7)], seed=seed) for seed in range(4)]
    assert all(outcome.faults[0].shown for outcome in outcomes)
    assert not any(outcome.unnamed() or outcome.blamed() for outcome in outcomes)
    assert "max" in next(iter(table(outcomes)))


def test_where_everything_fails_nothing_is_cleared() -> None:
    result = locate(places_of(24, 2), lambda jobs: [False] * len(jobs))
    assert not result.cleared
    assert len(result.history) <= MOST_JOBS


def test_small_racks_without_a_map() -> None:
    for count in range(2, 20):
        places = Places(tuple(f"n{k}" for k in range(count)))
        assert locate(places, lambda jobs: [True] * len(jobs)).cleared == set(places.names)
        assert "n1" not in locate(places, lambda jobs: ["n1" not in job.nodes for job in jobs]).cleared
    with pytest.raises(ValueError, match="two nodes"):
        locate(Places(("a",)), lambda jobs: [])


@given(st.integers(0, 10_000), st.lists(st.sampled_from(KINDS), max_size=4))
def test_no_pattern_clears_a_faulty_node(seed: int, kinds: list[str]) -> None:
    random, places = seeded(seed), places_of(40, 2)
    faults = [fault_of(kind, places, random) for kind in kinds]
    outcome = searched(faults, places, seed)
    assert not outcome.falsely_cleared()
    named = {name for fault in outcome.result.faults for name in fault.nodes}
    assert outcome.result.cleared.isdisjoint(named)


@given(st.integers(1, 300), st.integers(2, 12), st.booleans())
def test_rows_and_columns_contain_every_node_once(count: int, per_leaf: int, known: bool) -> None:
    names = tuple(f"n{k}" for k in range(count))
    leaves = {name: (f"leaf{k // per_leaf}",) for k, name in enumerate(names)} if known else {}
    places = Places(names, 1, leaves)
    rows = places.rows()
    for groups in (rows, places.columns(rows) if len(rows) > 1 else []):
        dealt = [name for group in groups for name in group]
        assert len(dealt) == len(set(dealt))


@given(st.lists(st.integers()), st.integers(1, 9))
def test_chunks_keep_order_and_everything(items: list[int], count: int) -> None:
    parts = chunks(items, count)
    assert [item for part in parts for item in part] == items
    assert len(parts) <= count
