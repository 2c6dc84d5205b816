"""The controller's own load."""

from __future__ import annotations

from pathlib import Path

from rackproof.core.rack import Node, Rack
from rackproof.remote.controller import Reading, conditions, others_pct, reading, runs_the_rack
from tests.unit.fakes import lab_rack


def test_machines_and_the_kit_itself_are_not_others() -> None:
    before = Reading(1000, 500, 300, 100, 0, 10.0)
    after = Reading(2000, 1400, 900, 150, 5_000_000, 20.0)
    assert others_pct(before, after) == 25.0
    assert conditions(before, after, True)["controller_others_pct"] == 25.0
    assert conditions(before, after, False)["controller_pressure_cpu_pct"] == 50.0
    assert "controller_others_pct" not in conditions(before, after, False)
    assert conditions(None, after, True) == {}


def test_times_of_virtual_machines_are_summed(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 0 50 800 10 0 5 0 0 0\ncpu0 1\n")
    (tmp_path / "uptime").write_text("100.5 3\n")
    for pid, name, times in ((1, "qemu-system-x86", "70 30"), (2, "fio", "9 9"), (3, "odd) (name", "1 1")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 4194304 1 0 0 0 {times} 0 0 20 0\n")
    seen = reading(True, tmp_path)
    assert seen is not None
    assert (seen.all, seen.busy, seen.machines, seen.pressure_us) == (965, 155, 100, None)
    assert reading(True, tmp_path / "none") is None
    other = reading(False, tmp_path)
    assert other is not None
    assert (other.busy, other.machines) == (155, 0), "of another rack no process is read"


def test_a_rack_of_machines_behind_the_loopback_runs_here() -> None:
    local = {"virtual": True, "ssh_hostname": "127.0.0.1"}
    assert runs_the_rack(Rack("a.py", (Node("a", (), local),)))
    assert not runs_the_rack(Rack("a.py", (Node("a", (), local), Node("b", (), {"ssh_hostname": "127.0.0.1"}))))
    assert not runs_the_rack(lab_rack())
