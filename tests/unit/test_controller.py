"""The controller's own load."""

from __future__ import annotations

from pathlib import Path

from rackproof.core.rack import Node, Rack
from rackproof.remote.controller import Reading, conditions, others_pct, ports_of_machines, reading
from tests.unit.fakes import lab_rack


def test_machines_and_the_kit_itself_are_not_others() -> None:
    before = Reading(1000, 500, 300, 100, 0, 10.0)
    after = Reading(2000, 1400, 900, 150, 5_000_000, 20.0)
    assert others_pct(before, after) == 25.0
    assert conditions(before, after, True)["controller_others_pct"] == 25.0
    assert conditions(before, after, False)["controller_pressure_cpu_pct"] == 50.0
    assert "controller_others_pct" not in conditions(before, after, False)
    assert conditions(None, after, True) == {}


def processes(root: Path, *machines: tuple[int, str, str, str]) -> Path:
    """A /proc with processes (pid, name, times, socket), and a listening socket ``7`` at port 2201."""
    (root / "net").mkdir(parents=True)
    (root / "stat").write_text("cpu  100 0 50 800 10 0 5 0 0 0\ncpu0 1\n")
    (root / "uptime").write_text("100.5 3\n")
    row = "0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1\n"
    listening = row.format(port=2201, state="0A", inode=7) + row.format(port=2301, state="0A", inode=8)
    (root / "net/tcp").write_text("heading\n" + listening + row.format(port=2201, state="01", inode=9))
    for pid, name, times, socket in machines:
        (root / str(pid) / "fd").mkdir(parents=True)
        (root / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 4194304 1 0 0 0 {times} 0 0 20 0\n")
        (root / str(pid) / "fd/3").symlink_to(f"socket:[{socket}]")
    return root


PORTS = frozenset({2201})


def test_times_of_virtual_machines_are_summed(tmp_path: Path) -> None:
    root = processes(tmp_path, (1, "qemu-system-x86", "70 30", "7"), (2, "fio", "9 9", "7"), (3, "odd) (x", "1 1", "7"))
    seen = reading(PORTS, root)
    assert seen is not None
    assert (seen.all, seen.busy, seen.machines, seen.pressure_us) == (965, 155, 100, None)
    assert reading(PORTS, tmp_path / "none") is None
    other = reading(frozenset(), root)
    assert other is not None
    assert (other.busy, other.machines) == (155, 0), "of another rack no process is read"


def test_machines_of_another_rack_are_other_programs(tmp_path: Path) -> None:
    own, foreign = (1, "qemu-system-x86", "70 30", "7"), (2, "qemu-system-x86", "500 0", "8")
    connected = (4, "qemu-system-x86", "900 0", "9")
    seen = reading(PORTS, processes(tmp_path / "a", own, foreign, connected))
    assert seen is not None
    assert seen.machines == 100
    behind = reading(PORTS, processes(tmp_path / "b", foreign, (3, "passt", "9 9", "7")))
    assert behind is not None
    assert behind.machines == 500


def test_a_rack_of_machines_behind_the_loopback_runs_here() -> None:
    local = {"virtual": True, "ssh_hostname": "127.0.0.1", "ssh_port": 2201}
    assert ports_of_machines(Rack("a.py", (Node("a", (), local),))) == PORTS
    assert not ports_of_machines(Rack("a.py", (Node("a", (), local), Node("b", (), {"ssh_hostname": "127.0.0.1"}))))
    assert not ports_of_machines(lab_rack())
    assert not ports_of_machines(Rack("a.py", ()))
