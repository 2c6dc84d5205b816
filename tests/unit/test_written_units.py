"""Units of written machines, asked and read by the deploys' own code."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rackproof.configure import facts
from rackproof.configure.units import Unit, UnitState, plan_units
from rackproof.errors import SelfTestError
from rackproof.remote.written import read_written
from rackproof.remote.written_units import unit_table
from tests.unit.refusals import error_of

RACK = "architecture: a.yaml\nnodes:\n  gpu-01: {groups: [gpu]}\n  gpu-02: {groups: [gpu], like: gpu-01}\n"
UNITS = (
    Unit("chrony.service"),
    Unit("mnt-my\\x2ddata.mount", proof="test -e '/mnt/my data'"),
    Unit("nfs-server.service", proof="test -e /proc/fs/nfsd && true"),
)


def asked(units: tuple[Unit, ...], manager: tuple[str, ...] = ()) -> str:
    return "sh -c " + shlex.quote(facts.UnitStates().command(units, manager))


def test_whatever_units_are_asked_for_are_answered() -> None:
    table = unit_table({"chrony.*": "loaded active enabled", "nfs-*": "loaded inactive disabled"}, {}, ["x"])
    answer = facts.UnitStates().process(table.answer(asked(UNITS)).splitlines())
    assert answer is not None
    assert dict(answer.units) == {
        "chrony.service": UnitState("loaded", "active", "enabled", False),
        "mnt-my\\x2ddata.mount": UnitState("not-found", "inactive", "", False, proven=False),
        "nfs-server.service": UnitState("loaded", "inactive", "disabled", False, proven=False),
    }
    assert answer.pending == {"x"}


def test_a_unit_that_is_active_has_its_effect() -> None:
    table = unit_table({"*": "loaded active enabled"}, {"DefaultLimitMEMLOCK": "infinity"}, [])
    answer = facts.UnitStates().process(table.answer(asked(UNITS, ("DefaultLimitMEMLOCK",))).splitlines())
    assert answer is not None
    assert answer.manager == {"DefaultLimitMEMLOCK": "infinity"}
    assert not plan_units(UNITS, answer, {"DefaultLimitMEMLOCK": "infinity"})


def test_another_question_is_not_answered() -> None:
    with pytest.raises(ValueError, match="expected a question about units, actual cat /etc"):
        unit_table({}, {}, []).answer("cat /etc/passwd")


def test_a_written_node_answers_about_units(tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text(RACK)
    (tmp_path / "gpu-01").mkdir()
    (tmp_path / "gpu-01" / "u.yaml").write_text(
        '- {match: "--property=Id,LoadState", units: {"*": loaded active static}}\n'
    )
    result = read_written(tmp_path).answers["gpu-02"].run(asked(UNITS[:1]), 1.0)
    answer = facts.UnitStates().process(result.stdout.decode().splitlines())
    assert answer is not None
    assert answer.units["chrony.service"].file == "static"


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{match: x, units: {}, stdout: y}", "give only one of `file`, `stdout`, `units` and `packages`"),
        ("{match: x, pending: [a]}", "`manager` and `pending` belong to `units`"),
        ("{match: x, units: {a.service: active}}", "units.a.service: expected LOAD ACTIVE [FILE], actual 'active'"),
    ],
)
def test_an_invalid_answer_is_refused(tmp_path: Path, entry: str, complaint: str) -> None:
    (tmp_path / "rack.yaml").write_text(RACK)
    (tmp_path / "gpu-01").mkdir()
    (tmp_path / "gpu-01" / "u.yaml").write_text(f"- {entry}\n")
    assert complaint in error_of(SelfTestError, read_written, tmp_path)
