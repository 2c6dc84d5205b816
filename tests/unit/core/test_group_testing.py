"""Group testing on simulated racks: jobs, names and clearances. ``benchmarks/schedule.py`` runs many more patterns."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.fault_beliefs import Beliefs, likelihood
from rackproof.core.fault_hidden import HIDDEN_JOBS, Hidden
from rackproof.core.fault_jobs import MOST_JOBS, Jobs
from rackproof.core.fault_search import REPEATS, Search, locate
from rackproof.core.fault_solid import Solid
from rackproof.core.group_testing import Fault, FaultKind, Job, Places, chunks

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from schedule import KINDS, Outcome, Sick, SimulatedRack, fault_of, least_jobs, places_of, table

pytestmark = pytest.mark.few(13)

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


@pytest.mark.parametrize(
    ("seed", "ends"), [(1616, (187, 189)), (2901, (7, 13)), (6786, (83, 93)), (6956, (55, 57)), (7126, (161, 177))]
)
def test_no_link_of_the_simulations_table_takes_more_than_35_jobs(seed: int, ends: tuple[int, int]) -> None:
    """Those that take most: both ends are in one row, one column and several halves of the suspects."""
    link = Sick("link", frozenset(f"gpu-{number:03d}" for number in ends))
    outcome = searched([link], seed=seed)
    assert outcome.jobs <= 35
    assert not outcome.unnamed()
    assert not outcome.blamed()


@pytest.mark.parametrize("other", [2, 3, 5, 40, 70, 200])
def test_a_link_takes_as_few_jobs_between_neighbours_as_across_the_rack(other: int) -> None:
    """Within one row and column, one row, and two rows of one and of both halves."""
    jobs = []
    for seed in range(3):
        outcome = searched([Sick("link", frozenset({RACK.names[0], RACK.names[other]}))], seed=seed)
        assert not outcome.unnamed()
        assert not outcome.blamed()
        jobs.append(outcome.jobs)
    assert max(jobs) <= 36, "ends of one row may take one job more than the bar of 35"


def test_single_rows_that_fail_are_found_by_halving_four_of_them() -> None:
    """The good half's nodes are partners, so that no job runs beside that tells nothing."""
    for node in (0, 90, 130, 231):
        jobs = Jobs(RACK, SimulatedRack(RACK, [Sick("node", frozenset({RACK.names[node]}))], seeded(1)).run, 0)
        (row,) = Search(jobs)._failing_rows()
        assert RACK.names[node] in row
        assert jobs.rounds == [2, 2]
    healthy = Jobs(RACK, SimulatedRack(RACK, [], seeded(1)).run, 0)
    assert Search(healthy)._failing_rows() == []
    every = Jobs(RACK, lambda jobs: [False] * len(jobs), 0)
    assert sorted(Search(every)._failing_rows()) == sorted(RACK.rows())


def test_halves_that_both_pass_are_no_solid_fault() -> None:
    jobs = Jobs(RACK, SimulatedRack(RACK, [Sick("link", frozenset(RACK.names[:2]))], seeded(1)).run, 0)
    group, base = list(RACK.names[:2]), list(RACK.names[2:])
    assert Solid(jobs)._isolate(group, base, jobs.rails) is None
    assert jobs.rounds == [2]


def of_four(*faults: Fault, passing: bool = True) -> Search:
    """A search of four nodes all of whose further jobs pass, after it has named these faults, each by a failed job."""
    jobs = Jobs(Places(("a", "b", "c", "d")), lambda jobs: [passing] * len(jobs), 0)
    jobs.faults += faults
    for fault in faults:
        nodes = fault.nodes if len(fault.nodes) > 1 else (*fault.nodes, "b")
        jobs.record(Job(frozenset(nodes), jobs.rails), False)
    return Search(jobs)


def test_a_link_of_a_sick_node_does_not_accuse_its_other_end() -> None:
    sick, link = Fault(FaultKind.NODE, ("d",), None, True), Fault(FaultKind.LINK, ("a", "b"))
    assert of_four(sick, link, Fault(FaultKind.LINK, ("a", "d"))).result().faults == (sick, link)
    both = of_four(link, Fault(FaultKind.LINK, ("a", "c"))).result().faults
    assert both == (Fault(FaultKind.NODE, ("a",), None, True),), "two links of a node that nothing else explains"


def test_a_name_without_a_job_that_only_it_explains_is_no_name() -> None:
    """Nor is one whose partners did not pass without it: then the set has no name, and none of it is cleared."""
    sick = Fault(FaultKind.NODE, ("d",))
    search = of_four(sick, Fault(FaultKind.NODE, ("b",)))
    search.jobs.history[0] = (Job(frozenset("db"), search.jobs.rails), False)
    result = search.result()
    assert [fault.nodes for fault in result.faults] == [("b",)]
    assert frozenset("d") in result.unlocated
    assert result.cleared == {"a", "c"}
    alone = of_four(passing=False)
    alone.jobs.faults.append(sick)
    alone.jobs.record(Job(frozenset("abd"), alone.jobs.rails), False)
    assert not alone.result().faults


def test_a_link_with_a_failed_job_of_one_end_is_no_name() -> None:
    link = Fault(FaultKind.LINK, ("a", "b"))
    assert of_four(link).result().faults == (link,)
    search = of_four(link)
    search.jobs.record(Job(frozenset("ac"), search.jobs.rails), False)
    result = search.result()
    assert link not in result.faults
    assert frozenset("ab") in result.unlocated or "a" in {name for fault in result.faults for name in fault.nodes}
    assert result.cleared.isdisjoint("a")


@pytest.mark.parametrize(("others", "repeats"), [((), REPEATS[0]), ((Fault(FaultKind.NODE, ("c",)),), REPEATS[1])])
def test_the_last_job_is_repeated_where_a_fault_is_intermittent(others: tuple[Fault, ...], repeats: int) -> None:
    """Another one may have passed it, likelier so beside several faults."""
    sick = [Fault(FaultKind.NODE, ("d",), None, intermittent) for intermittent in (False, True)]
    rounds = [len(of_four(*others, fault).result().rounds) for fault in sick]
    assert rounds[1] == rounds[0] + repeats


def test_a_search_of_a_hidden_fault_that_does_not_show_again_ends() -> None:
    jobs = Jobs(RACK, lambda jobs: [True] * len(jobs), 0)
    failed = Job(frozenset(RACK.names), jobs.rails)
    jobs.record(failed, False)
    assert not Hidden(jobs, failed).search()
    assert not jobs.faults
    assert len(jobs.history) <= HIDDEN_JOBS + 1


def beliefs(*jobs: tuple[str, bool], load: float = 0.0) -> Beliefs:
    """Beliefs about nodes a to h."""
    made = Beliefs(8)
    for nodes, ok in jobs:
        made.add(sum(1 << "abcdefgh".index(name) for name in nodes), ok, load)
    return made


def test_beliefs_follow_the_answers() -> None:
    every = 0xFF
    link = beliefs(("abcdefgh", False), ("ab", False), *[("acdefgh", True), ("bcdefgh", True)] * 6)
    guess = link.best(0b11)
    assert guess.nodes == (0, 1)
    assert guess.share > 0.99
    assert link.link(0, 1) > 0
    assert beliefs(("ab", True)).link(0, 1) == 0, "a pair that passed together has no faulty link"
    sick = beliefs(("abcdefgh", False), ("ab", False), ("ac", False), ("bc", True), ("defgh", True))
    assert sick.best(every).nodes == (0,)
    loaded = beliefs(("abcdefgh", False), ("ab", False), ("ac", False), load=1.0)
    loaded.add(0b1001, True, 0.2)
    loaded.add(0b10001, True, 0.2)
    assert loaded.best(every) == (((0,), loaded.best(every).share, True))


def test_a_node_that_failed_and_passed_is_likelier_than_one_that_always_passed_or_a_rare_share() -> None:
    assert likelihood(0, 0) == 1
    assert likelihood(3, 3) < likelihood(3, 1) < likelihood(3, 0) < 1
    assert likelihood(200, 150) > 0


INTERMITTENT_BAR = 55
"""Most jobs with one intermittent node or rail. One node of the simulation's table takes 51."""


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_an_intermittent_node_is_no_link(share: float) -> None:
    outcomes = [searched([Sick("intermittent", frozenset({"gpu-100"}), None, share)], seed=seed) for seed in range(12)]
    assert max(outcome.jobs for outcome in outcomes) <= INTERMITTENT_BAR
    assert not any(outcome.blamed() for outcome in outcomes)
    assert not any(fault.kind is FaultKind.LINK for outcome in outcomes for fault in outcome.result.faults)


def test_an_intermittent_rail_is_named_where_it_shows() -> None:
    outcomes = [searched([fault_of("intermittent rail", RACK, seeded(seed))], seed=seed) for seed in range(12)]
    assert max(outcome.jobs for outcome in outcomes) <= INTERMITTENT_BAR
    assert any(outcome.faults[0].shown for outcome in outcomes)
    assert not any(outcome.unnamed() or outcome.blamed() for outcome in outcomes)


def test_an_intermittent_link_blames_no_other_node_and_is_not_cleared() -> None:
    """Most have no name: a pair that has passed together counts as sound."""
    outcomes = [searched([fault_of("intermittent link", RACK, seeded(seed))], seed=seed) for seed in range(6)]
    shown = [outcome for outcome in outcomes if outcome.faults[0].shown]
    assert shown
    for outcome in outcomes:
        assert not outcome.blamed()
        assert outcome.jobs < MOST_JOBS
    assert not any(outcome.faults[0].nodes <= outcome.result.cleared for outcome in shown)
    assert any("intermittent link" in line for line in table(outcomes))


def test_an_intermittent_node_among_the_good_partners_does_not_end_the_search() -> None:
    """Halves of the suspects fail with it whatever they contain; the hidden fault is searched first."""
    faults = [
        Sick("load", frozenset({"gpu-130"})),
        Sick("link", frozenset({"gpu-101", "gpu-157"})),
        Sick("intermittent", frozenset({"gpu-026"}), None, 0.83),
        Sick("intermittent", frozenset({"gpu-127"}), None, 0.69),
    ]
    for seed in range(3):
        outcome = searched(faults, seed=seed)
        assert not outcome.unnamed()
        assert not outcome.blamed()
        assert outcome.jobs < MOST_JOBS


@pytest.mark.parametrize("seed", [17, 59, 61])
def test_an_intermittent_partner_does_not_blame_the_rails_of_a_leaf_switchs_nodes(seed: int) -> None:
    """It passes when rows are screened, and is a partner then."""
    unit = next(unit for unit in RACK.units() if "gpu-097" in unit)
    faults = [Sick("leaf", frozenset(unit), 4), Sick("intermittent", frozenset({"gpu-031"}), None, 0.8)]
    outcome = searched(faults, seed=seed)
    assert not outcome.unnamed()
    assert not outcome.blamed()
    assert outcome.jobs < 150


def test_what_is_named() -> None:
    rail = searched([Sick("rail", frozenset({"gpu-077"}), 3)]).result.faults
    assert [(f.kind, f.nodes, f.rail, str(f)) for f in rail] == [
        (FaultKind.RAIL, ("gpu-077",), 3, "rail 3 of gpu-077")
    ]  # fmt: skip
    link = searched([Sick("link", frozenset({"gpu-077", "gpu-200"}))]).result
    assert [str(fault) for fault in link.faults] == ["between gpu-077 and gpu-200"]
    assert link.cleared.isdisjoint({"gpu-077", "gpu-200"})
    assert len(link.cleared) == 230
    unit = next(unit for unit in RACK.units() if "gpu-077" in unit)
    leaf = searched([Sick("leaf", frozenset(unit), 7)]).result.faults
    assert [(f.kind, f.nodes, f.rail) for f in leaf] == [(FaultKind.LEAF, unit, 7)]


def test_an_intermittent_node_is_named_where_it_shows() -> None:
    outcomes = [searched([Sick("intermittent", frozenset({"gpu-100"}), None, 0.7)], seed=seed) for seed in range(4)]
    assert all(outcome.faults[0].shown for outcome in outcomes)
    assert not any(outcome.unnamed() or outcome.blamed() for outcome in outcomes)
    lines = list(table(outcomes))
    assert "<= 35" in lines[0]
    assert any("share 0.65-0.8, least 17-13" in line for line in lines)


def test_the_least_number_of_jobs_is_the_capacity_of_what_they_tell() -> None:
    assert least_jobs(0.5, 232) == pytest.approx(24.41, abs=0.01), "log2(1.25) bits a job"
    assert least_jobs(0.999999, 256) == pytest.approx(8, abs=0.01), "a node that always fails: one bit a job"


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
