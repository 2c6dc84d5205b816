"""Drives and ports of a storage server, as one command prints them."""

from __future__ import annotations

from pathlib import Path

from rackproof.bench.storage.commands import AFTER, BEFORE, server_state, state_of
from rackproof.parse.server_state import parse_server_state
from tests.unit.refusals import refuses, refuses_parts
from tests.unit.shell import sh

PORTS = "/sys/class/net/eth0/statistics/rx_bytes:1000\n/sys/class/net/eth0/statistics/tx_bytes:5000\nstatus 1\n"
STATE = (
    "-- drives\nsda 10 0 2048 3 20 0 4096 5 0 6 7 0 0 0 0 0 0\nnvme0n1 10 0 8 3 20 0 4096 5 0 6 7\n"
    f"-- ports\n{PORTS}-- end\n"
)


def test_drives_and_ports() -> None:
    state = parse_server_state(STATE)
    assert state.drives == {"sda": 1048576, "nvme0n1": 4096}
    assert state.ports.kernel.written == 5000


def test_a_drive_with_several_ways_counts_once() -> None:
    """The drive itself counts nothing on kernels before 6.5."""
    row = " 10 0 {} 3 20 0 4096 5 0 6 7\n"
    for drive, expected in ((0, 300), (300, 300)):
        rows = f"nvme0c0n1{row.format(100)}nvme0c1n1{row.format(200)}nvme0n1{row.format(drive)}"
        assert parse_server_state(f"-- drives\n{rows}-- ports\n{PORTS}-- end\n").drives == {"nvme0n1": expected * 512}


test_an_unreadable_state_raises_with_the_reason = refuses(
    parse_server_state,
    ("", "no output"),
    (STATE.replace("sda 10 0 2048", "sda 10 0 many"), "counter of a drive is not an integer"),
    (STATE.replace(" 0 6 7\n", "\n"), "expected a drive and its counters, got 'nvme0n1 10"),
    (f"-- drives\n-- ports\n{PORTS}-- end\n", "the server shows no drive"),
    (STATE.replace(PORTS, ""), "no output"),
    (STATE.replace(PORTS, "status 1\n"), "no output"),
    (STATE.replace("status 1\n", ""), "cut off"),
)
test_no_part_of_a_state_is_taken_for_one = refuses_parts((parse_server_state, STATE))


def test_the_command_lists_drives_of_hardware_alone(tmp_path: Path) -> None:
    stat = "10 0 2048 3 20 0 4096 5 0 6 7\n"
    for name, hardware in (("sda", True), ("md0", False), ("loop0", False)):
        (tmp_path / "block" / name / ("device" if hardware else "md")).mkdir(parents=True)
        (tmp_path / "block" / name / "stat").write_text(stat)
    port = tmp_path / "class/net/eth0"
    (port / "device").mkdir(parents=True)
    (port / "statistics").mkdir()
    for way, count in (("rx", 1), ("tx", 7)):
        (port / "statistics" / f"{way}_bytes").write_text(f"{count}\n")
    text = sh(server_state(BEFORE).replace("/sys/", f"{tmp_path}/")).stdout
    state = parse_server_state(text)
    assert (state.drives, state.ports.kernel.written) == ({"sda": 1048576}, 7)


def test_the_command_is_not_that_of_a_client() -> None:
    assert server_state(BEFORE) != server_state(AFTER)
    assert state_of(server_state(BEFORE)) is None
