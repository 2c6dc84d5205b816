from __future__ import annotations

import pytest

from rackproof.configure.units import SystemState, Unit, UnitState, parse_states, plan_units

RUNNING = UnitState("loaded", "active", "enabled", need_reload=False)


def system(pending: tuple[str, ...] = (), manager: dict[str, str] | None = None, **units: UnitState) -> SystemState:
    return SystemState({f"{name}.service": state for name, state in units.items()}, frozenset(pending), manager or {})


def test_a_running_enabled_unit_needs_nothing() -> None:
    assert not plan_units([Unit("a.service")], system(a=RUNNING))


@pytest.mark.parametrize(
    ("unit", "state", "expected"),
    [
        (
            Unit("a.service"),
            UnitState("loaded", "inactive", "disabled", False),
            ["enable a.service", "start a.service"],
        ),
        (Unit("a.service"), UnitState("loaded", "failed", "enabled", False), ["start a.service"]),
        (Unit("a.service"), UnitState("not-found", "inactive", "", False), ["enable a", "start a"]),
        (
            Unit("a.service"),
            UnitState("masked", "inactive", "masked", False),
            ["unmask", "enable", "unit files changed", "start"],
        ),
        (Unit("a.service", enabled=None), UnitState("loaded", "inactive", "static", False), ["start a.service"]),
        (Unit("a.service", running=None), UnitState("loaded", "inactive", "disabled", False), ["enable a.service"]),
        (Unit("a.service", enabled=False, running=False), RUNNING, ["disable a.service", "stop a.service"]),
        (Unit("a.service", masked=True), RUNNING, ["mask a.service", "unit files changed", "stop a.service"]),
        (Unit("a.service", masked=True), UnitState("masked", "inactive", "masked", False), []),
        (Unit("a.service", enabled=False, running=False), UnitState("not-found", "inactive", "", False), []),
    ],
)
def test_reasons_follow_from_the_difference(unit: Unit, state: UnitState, expected: list[str]) -> None:
    reasons = plan_units([unit], system(a=state)).reasons
    assert len(reasons) == len(expected)
    assert all(reason.startswith(start) for reason, start in zip(reasons, expected, strict=True))


def test_a_mark_restarts_a_unit_and_is_taken_away_after_it() -> None:
    plan = plan_units([Unit("a.service")], system(("restart:a.service",), a=RUNNING))
    assert plan.reasons == ("restart a.service: its configuration changed",)
    assert plan.script.index("systemctl restart -- a.service") < plan.script.index("rm -f -- /run/rackproof")


@pytest.mark.parametrize("mark", ["restart:a.service", "reload:a.service"])
def test_what_is_starting_without_its_configuration_is_not_waited_for(mark: str) -> None:
    starting = UnitState("loaded", "activating", "enabled", need_reload=False)
    assert plan_units([Unit("a.service")], system((mark,), a=starting)).reasons == ("restart a.service",)
    assert plan_units([Unit("a.service")], system(a=starting)).reasons == ("start a.service",)


def test_restart_makes_a_reload_superfluous() -> None:
    plan = plan_units([Unit("a.service")], system(("restart:a.service", "reload:a.service"), a=RUNNING))
    assert "reload -- a.service" not in plan.script
    assert "/run/rackproof/pending/reload:a.service" in plan.script


def test_a_mark_of_another_unit_is_left_for_its_own_operation() -> None:
    assert not plan_units([Unit("a.service")], system(("restart:b.service",), a=RUNNING))


def test_active_without_effect_is_restarted_and_proven_afterwards() -> None:
    unit = Unit("a.service", proof="test -e /sys/module/x")
    plan = plan_units([unit], system(a=UnitState("loaded", "active", "enabled", False, proven=False)))
    assert plan.reasons == ("restart a.service: active without effect",)
    assert "until { test -e /sys/module/x; }" in plan.script
    assert not plan_units([unit], system(a=UnitState("loaded", "active", "enabled", False, proven=True)))


def test_changed_unit_files_are_read_before_anything_is_started() -> None:
    state = UnitState("loaded", "inactive", "enabled", need_reload=True)
    plan = plan_units([Unit("a.service")], system(a=state))
    assert plan.script.index("daemon-reload") < plan.script.index("systemctl start")
    assert plan_units([Unit("a.service")], system(("daemon-reload",), a=RUNNING)).reasons == ("unit files changed",)


def test_systemd_reads_its_units_once_whatever_changed() -> None:
    units = [Unit("a.service"), Unit("b.service"), Unit("c.timer", enabled=None, running=None, masked=True)]
    off = UnitState("loaded", "inactive", "disabled", need_reload=True)
    state = SystemState({"a.service": off, "b.service": off, "c.timer": off}, frozenset({"daemon-reload"}), {})
    script = plan_units(units, state).script
    assert script.count("daemon-reload --") + script.count("systemctl daemon-reload") == 1
    assert "systemctl enable --no-reload -- a.service b.service" in script
    script = plan_units(units, state, {"DefaultLimitMEMLOCK": "infinity"}).script
    assert "systemctl daemon-reexec" in script
    assert "systemctl daemon-reload" not in script


def test_enabling_reads_the_units_once_else_systemd_wants_it_of_every_unit() -> None:
    state = UnitState("loaded", "active", "disabled", need_reload=False)
    lines = plan_units([Unit("a.service")], system(a=state)).script.splitlines()
    assert lines[1] == "systemctl enable --no-reload -- a.service"
    assert lines.count("systemctl daemon-reload") == 1


def test_a_masked_unit_that_is_declared_off_stays_masked() -> None:
    state = UnitState("masked", "inactive", "masked", need_reload=False)
    assert not plan_units([Unit("a.service", enabled=False, running=False)], system(a=state))


def test_manager_defaults_are_compared_with_what_is_in_force() -> None:
    wanted = {"DefaultLimitMEMLOCK": "infinity"}
    assert plan_units([], system(manager={"DefaultLimitMEMLOCK": "8388608"}), wanted).reasons == ("manager defaults",)
    assert not plan_units([], system(manager={"DefaultLimitMEMLOCK": "infinity"}), wanted)


ANSWER = """\
chrony.service
mnt-nfs\\x2dtcp.mount
--
Id=chrony.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no

Id=mnt-nfs\\x2dtcp.mount
LoadState=not-found
ActiveState=inactive
UnitFileState=
NeedDaemonReload=no
--
daemon-reload
restart:mnt-nfs\\x2dtcp.mount
--
DefaultLimitMEMLOCK=infinity
--
chrony.service 1"""


def test_answer_is_read_under_the_names_that_were_asked_for() -> None:
    state = parse_states(ANSWER.replace("Id=chrony", "Id=chronyd").splitlines())
    assert state.units["chrony.service"] == UnitState("loaded", "active", "enabled", False, proven=False)
    assert state.units["mnt-nfs\\x2dtcp.mount"].load == "not-found"
    assert state.pending == {"daemon-reload", "restart:mnt-nfs\\x2dtcp.mount"}
    assert state.manager == {"DefaultLimitMEMLOCK": "infinity"}


@pytest.mark.parametrize("cut", [3, 8, 14, 17, 19])
def test_a_cut_off_answer_is_no_answer(cut: int) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_states(ANSWER.splitlines()[:cut])
