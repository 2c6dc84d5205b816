"""Comparison of two states at a node, and what starves it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.evidence import CheckOutcome
from rackproof.core.load import SUBJECTS, KernelLog, Limits, LoadState, Trouble, compare, limits_of, subjects_for
from rackproof.core.starvation import OTHERS, READY, STEAL, conditions_of, figures, starved
from tests.unit.fakes import virtual_rack

LOG = KernelLog(0.0, 9.5)
LIMITS = Limits({"fatal": 0, "corrected": 10, "media_errors": 0}, 0.1, frozenset())
STATE = LoadState(
    boot_id="1f2e3d4c", uptime_s=(100.0, 100.1), clock_s=1e9, processors=4, cpu=(0, 40_000), running=0,
    pressure_us={"cpu": 0}, mounts={"/": "/dev/vda ext4 rw"}, log=LOG, counters={"pcie": {}, "memory": {}},
)  # fmt: skip
names = st.sampled_from(["a fatal", "b fatal", "mc0 corrected", "mc1 corrected", "p discards", "nvme0 media_errors"])
counters = st.dictionaries(names, st.integers(0, 10**9))


def later(state: LoadState, seconds: float = 10.0) -> LoadState:
    first, second = state.uptime_s
    stolen, jiffies = state.cpu
    return replace(
        state, uptime_s=(first + seconds, second + seconds), clock_s=state.clock_s + seconds,
        cpu=(stolen, jiffies + int(seconds * 100 * state.processors)),
    )  # fmt: skip


@given(counters, st.sampled_from(sorted(SUBJECTS)), st.floats(0.1, 1e6))
def test_a_look_that_only_ages_finds_nothing(known: dict[str, int], subject: str, seconds: float) -> None:
    state = replace(STATE, counters={subject: known})
    assert compare(subject, state, later(state, seconds), LIMITS).outcome is CheckOutcome.PASSED


@given(counters, counters)
def test_counters_are_judged_by_their_difference(old: dict[str, int], new: dict[str, int]) -> None:
    before, after = replace(STATE, counters={"ports": old}), later(replace(STATE, counters={"ports": new}))
    fell = any(name in new and new[name] < value for name, value in old.items())
    gone = {name.split()[0] for name in old} - {name.split()[0] for name in new}
    both = old.keys() & new.keys()
    limits = {name: LIMITS.counters.get(name.split()[-1], 10**10) for name in (*old, *new)}
    beyond = any(new[name] - old[name] > limits[name] for name in both)
    unknown = old.keys() != new.keys()
    outcome = compare("ports", before, after, LIMITS).outcome
    assert (outcome is CheckOutcome.FAILED) == (fell or bool(gone) or beyond)
    assert (outcome is CheckOutcome.PASSED) == (not (fell or gone or beyond or unknown))


@pytest.mark.parametrize(("new", "outcome"), [(0, CheckOutcome.PASSED), (1, CheckOutcome.FAILED)])
def test_counters_that_begin_anew_count_from_zero(new: int, outcome: CheckOutcome) -> None:
    old = {"g sw_power_cap µs slower": 81234567, "g ecc fatal": 2}
    before = replace(STATE, counters={"gpus": old})
    after = later(replace(STATE, counters={"gpus": {"g sw_power_cap µs slower": 12, "g ecc fatal": new}}))
    assert compare("gpus", before, after, LIMITS).outcome is CheckOutcome.FAILED
    finding = compare("gpus", before, after, LIMITS._replace(anew=frozenset({"gpus"})))
    assert finding.outcome is outcome
    assert ("g ecc fatal 0 → 1" in finding.message) == (new > 0)


@given(st.sampled_from(sorted(SUBJECTS)), st.booleans())
def test_without_a_look_nothing_is_passed(subject: str, early: bool) -> None:
    states = (None, STATE) if early else (STATE, None)
    assert compare(subject, *states, LIMITS).outcome is CheckOutcome.UNMEASURED


@given(st.sampled_from(sorted(SUBJECTS)))
def test_a_restart_is_the_boots_failure_and_hides_the_rest(subject: str) -> None:
    outcome = compare(subject, STATE, replace(later(STATE), boot_id="2f2e3d4c"), LIMITS).outcome
    assert outcome is (CheckOutcome.FAILED if subject == "boot" else CheckOutcome.UNMEASURED)


@given(st.floats(-5, 5), st.floats(0, 2), st.floats(0, 2))
def test_a_clock_that_was_set_is_found_and_a_slow_look_is_not_blamed(step: float, first: float, second: float) -> None:
    """``first`` and ``second``: seconds that the states took, in which the clock was read at any time."""
    before = replace(STATE, uptime_s=(100.0, 100.0 + first), clock_s=1e9 + first / 2)
    after = replace(STATE, uptime_s=(200.0, 200.0 + second), clock_s=1e9 + 100 + second / 3 + step)
    failed = compare("clock", before, after, LIMITS).outcome is CheckOutcome.FAILED
    assert not (failed and abs(step) <= 0.1)
    assert failed or abs(step) <= 0.1 + first + second + 1e-6


def test_subjects_of_simulated_gpus_and_of_appliances() -> None:
    architecture = virtual_rack()
    assert "gpus" not in subjects_for(architecture, ("gpu",), simulated_gpus=True)
    assert "gpus" in subjects_for(architecture, ("gpu",), simulated_gpus=False)
    roles = {name: role.model_copy(update={"managed": False}) for name, role in architecture.roles.items()}
    assert not subjects_for(architecture.model_copy(update={"roles": roles}), ("storage",), simulated_gpus=False)


def test_events_of_slow_machines_fail_only_where_the_architecture_names_them() -> None:
    slow, fault = Trouble(1.0, "soft_lockup", "", True), Trouble(1.0, "io_error", "")
    named, unnamed = LIMITS._replace(events=frozenset({"io_error"})), LIMITS
    assert (named.fails(slow), named.fails(fault), unnamed.fails(slow), unnamed.fails(fault)) == (
        False, True, False, True,
    )  # fmt: skip
    assert LIMITS._replace(events=frozenset({"soft_lockup"})).fails(slow)


def test_the_offset_of_a_virtual_machines_clock_is_not_judged_under_load() -> None:
    architecture = virtual_rack()
    before, after = replace(STATE, offset_s=0.0), replace(later(STATE), offset_s=30.0)
    for virtual, outcome in ((True, CheckOutcome.PASSED), (False, CheckOutcome.FAILED)):
        assert compare("clock", before, after, limits_of(architecture, ("gpu",), virtual)).outcome is outcome


@pytest.mark.parametrize(
    ("was", "now", "outcome"),
    [
        (None, None, CheckOutcome.PASSED),
        (0.0, None, CheckOutcome.UNMEASURED),
        (None, 30.0, CheckOutcome.UNMEASURED),
        (None, 0.01, CheckOutcome.PASSED),
        (30.0, 31.0, CheckOutcome.PASSED),
    ],
)
def test_an_offset_that_only_one_look_knows_is_no_difference(
    was: float | None, now: float | None, outcome: CheckOutcome
) -> None:
    assert (
        compare("clock", replace(STATE, offset_s=was), replace(later(STATE), offset_s=now), LIMITS).outcome is outcome
    )


@given(st.dictionaries(names, st.integers(1, 10**9)), st.dictionaries(names, st.integers(1, 10**9)))
def test_counters_that_are_printed_above_zero_only_are_0_without_a_line(
    old: dict[str, int], new: dict[str, int]
) -> None:
    before, after = replace(STATE, counters={"pcie": old}), later(replace(STATE, counters={"pcie": new}))
    lost = any(name not in new or new[name] < value for name, value in old.items())
    beyond = any(
        value - old.get(name, 0) > LIMITS.counters.get(name.split()[-1], 10**10) for name, value in new.items()
    )
    failed = compare("pcie", before, after, LIMITS).outcome is CheckOutcome.FAILED
    assert failed == (lost or beyond)


def test_unreadable_after_a_step_is_not_gone() -> None:
    after = replace(later(STATE), mounts={}, unread={"mounts": "unreadable: x"})
    assert compare("mounts", STATE, after, LIMITS) == (CheckOutcome.UNMEASURED, "unreadable: x")
    assert compare("mounts", STATE, replace(after, unread={}), LIMITS).outcome is CheckOutcome.FAILED


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ({"g state": "a", "h state": "a"}, {"g state": "a", "h state": "b"}, CheckOutcome.FAILED),
        ({"g state": "a"}, {"g state": "a", "g mode": "b"}, CheckOutcome.UNMEASURED),
        ({"g state": "a", "g mode": "b"}, {"g state": "a"}, CheckOutcome.UNMEASURED),
        ({"g state": "a"}, {"g state": "a"}, CheckOutcome.PASSED),
    ],
)
def test_a_state_that_changed_fails_and_one_that_one_look_knows_is_unknown(
    old: dict[str, str], new: dict[str, str], outcome: CheckOutcome
) -> None:
    before, after = replace(STATE, states={"gpus": old}), later(replace(STATE, states={"gpus": new}))
    assert compare("gpus", before, after, LIMITS).outcome is outcome


def test_what_a_device_reports_of_itself_fails_once_it_is_new() -> None:
    sick = replace(later(STATE), complaints={"gpus": ("GPU 0: a reset is required",)})
    assert "a reset is required" in compare("gpus", STATE, sick, LIMITS).message
    assert compare("gpus", sick, later(sick), LIMITS).outcome is CheckOutcome.PASSED


# starvation


@given(st.integers(0, 4000), st.integers(0, 100), st.integers(1, 64))
def test_figures_are_shares(steal: int, running: int, processors: int) -> None:
    before = replace(STATE, running=running, processors=processors)
    after = replace(later(STATE), cpu=(steal, 44_000))
    values = figures(before, after)
    assert values[STEAL] == pytest.approx(100 * steal / 4000, abs=0.01)
    assert bool(starved(conditions_of({"n": before}, {"n": after}, ["n"]))) == (
        values[STEAL] >= 10 or values[READY] > 1
    )


def test_the_worst_node_is_named_and_others_are_not_looked_at() -> None:
    bad = replace(later(STATE), cpu=(2000, 44_000))
    before, after = dict.fromkeys("abc", STATE), {"a": later(STATE), "b": bad, "c": bad}
    assert starved(conditions_of(before, after, ["a", "b"])).startswith("b was starved")
    assert not starved(conditions_of(before, after, ["a"]))
    assert not conditions_of(before, after, ["d"])


def test_others_on_the_controller_starve_its_virtual_machines() -> None:
    assert "the controller" in starved({OTHERS: 10.0})
    assert not starved({OTHERS: 9.9})
    assert not starved({})
