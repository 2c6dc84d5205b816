"""Processes, the time of processors, and times that a node prints."""

from __future__ import annotations

from rackproof.parse.accounts import parse_account_numbers
from rackproof.parse.answer import PART, parse_parts
from rackproof.parse.clocks import first_time, parse_beginning, time_of, times_in
from rackproof.parse.cpu import parse_pressure, parse_processor_times
from rackproof.parse.processes import parse_listening, parse_process, parse_process_ids, parse_thread_states
from rackproof.parse.slurm import job_of_step, step_in
from tests.unit.refusals import refuses, refuses_parts

PRESSURE = "some avg10=0.00 avg60=0.12 avg300=0.05 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
NUMBERS = "uid 998 gid 997\n"


def test_the_name_of_a_process_may_have_any_character() -> None:
    assert parse_process("7 (odd) (x) S 1 2 3") == ("odd) (x", ["S", "1", "2", "3"])


def test_states_of_a_programs_threads() -> None:
    assert parse_thread_states("S fio\nD fio\nR fio server\nT sh\n\n", "fio") == {"S", "D"}
    assert parse_thread_states("", "fio") == frozenset()


def test_sockets_that_listen_at_a_port() -> None:
    row = " 0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1\n"
    rows = [
        row.format(port=port, state=state, inode=at)
        for at, (port, state) in enumerate([(22, "0A"), (22, "01"), (80, "0A")])
    ]
    assert parse_listening("heading\n" + "".join(rows) + " 3: cut\n", {22}) == {"socket:[0]"}


def test_time_of_processors_and_their_pressure() -> None:
    assert parse_processor_times("stat", "  100 0 50 800 10 0 5 3 9 9") == [100, 0, 50, 800, 10, 0, 5, 3]
    assert parse_pressure("x", PRESSURE) == 1234


test_seven_times_are_refused = refuses(
    lambda text: parse_processor_times("stat", text),
    ("1 2 3 4 5 6 7", "expected eight"),
    ("1 2 3 4 5 6 7 x", "integer"),
)
test_another_pressure_is_refused = refuses(lambda text: parse_pressure("x", text), ("full total=7\n", "pressure"))


def test_times_are_alone_on_their_lines() -> None:
    text = "1795643857.332645890\nwarning 1795643858.000000000\n1795643859.500000000\n"
    assert times_in(text) == [1795643857.33264589, 1795643859.5]
    assert time_of("1795643857.3326458") is None
    assert parse_beginning("iperf3", text) == times_in(text)[0]
    assert first_time(b"Welcome\n1795643857.33") is None, "its last digits may be missing"
    assert first_time(b"Welcome\n1795643857.332645\r\n") == 1795643857.332645


test_a_tool_that_does_not_say_when_it_began = refuses(
    lambda text: parse_beginning("iperf3", text), ("", "when it began: ''"), ("now\n1795643857.332645890\n", "'now'")
)


def test_numbers_of_an_account() -> None:
    assert parse_account_numbers("account", NUMBERS) == (998, 997)


test_an_account_with_roots_rights_is_refused = refuses(
    lambda text: parse_account_numbers("account", text),
    ("uid 0 gid 997\n", "account: unreadable output: 'uid 0"), ("uid 998 gid 0\n", "unreadable"),
)  # fmt: skip
test_no_part_is_taken_for_a_whole = refuses_parts((lambda text: parse_account_numbers("account", text), NUMBERS))


def test_parts_have_an_exit_status_each() -> None:
    assert parse_parts(f"one\n{PART} 0\ntwo{PART} 3\nthree") == [("one\n", 0), ("two", 3)]
    assert parse_parts(f"one\n{PART} 1") == [], "its last digits may be missing"


def test_the_step_of_a_slurmstepd() -> None:
    assert (step_in("12 slurmstepd: [4711.batch]"), job_of_step("slurmstepd: [4711.batch] ")) == ("4711.batch", "4711")
    assert step_in("slurmstepd infinity") is job_of_step("slurmstepd infinity") is None


def test_process_ids() -> None:
    assert parse_process_ids("    5\n 4711\n") == ("5", "4711")
    assert parse_process_ids("") == ()


test_other_text_has_no_process_ids = refuses(
    parse_process_ids, ("    PID\n 47\n", "expected process ids, got 'PID'"), ("-1\n", "expected process ids")
)
