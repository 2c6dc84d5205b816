from __future__ import annotations

from rackproof.parse.chrony import parse_chrony_sources, parse_chrony_tracking
from tests.unit.refusals import refuses

from . import tool_output

TRACKING = tool_output("chrony-tracking.csv")
SOURCES = tool_output("chrony-sources.csv")


def test_a_clock_that_follows_a_server() -> None:
    tracking = parse_chrony_tracking(TRACKING)
    assert tracking.synchronised
    assert (tracking.reference_id, tracking.reference, tracking.stratum) == ("7F000001", "127.0.0.1", 9)
    assert tracking.system_offset_s == -2.047e-6, "chronyc called this one fast of NTP time"
    assert (tracking.last_offset_s, tracking.rms_offset_s) == (3.5e-8, 4.62e-7)


def test_a_clock_that_is_its_own_reference() -> None:
    tracking = parse_chrony_tracking(tool_output("chrony-tracking-local.csv"))
    assert (tracking.synchronised, tracking.reference, tracking.stratum) == (True, "", 8)


def test_a_clock_that_follows_nothing_has_an_offset_of_0_and_is_not_synchronised() -> None:
    tracking = parse_chrony_tracking(tool_output("chrony-tracking-unsynchronised.csv"))
    assert tracking.system_offset_s == 0
    assert not tracking.synchronised


def test_sources() -> None:
    used, silent = parse_chrony_sources(SOURCES)
    assert (used.mode, used.state, used.name, used.stratum, used.reach) == ("^", "*", "127.0.0.1", 8, 255)
    assert used.offset_s == 2.03e-7
    assert (silent.state, silent.reach) == ("?", 0)


test_bad_tracking_raises_with_the_reason = refuses(
    parse_chrony_tracking,
    ("empty", "", "no output"),
    ("no daemon", tool_output("chrony-no-daemon.txt"), "506 Cannot talk to daemon"),
    ("sources", SOURCES, "unexpected line"),
    ("cut off", TRACKING[:-3], "cut off"),
    ("cut off at a comma", TRACKING[: TRACKING.rindex(",")] + "\n", "unexpected line"),
    ("twice", TRACKING * 2, "expected one line of tracking, got 2"),
    ("unknown leap status", TRACKING.replace("Normal", "Fine"), "expected a line of tracking"),
    ("offset is nan", TRACKING.replace("-0.000002047", "nan"), "system time is not a number"),
)


test_bad_sources_raise_with_the_reason = refuses(
    parse_chrony_sources,
    ("", "no output"),
    (tool_output("chrony-no-daemon.txt"), "506 Cannot talk to daemon"),
    (SOURCES.replace("^,*", "^*,x"), "expected a line about a source"),
    (SOURCES.replace("^,*", ",*"), "expected a line about a source"),
    (SOURCES.replace("377", "399"), "reach is not octal"),
    (SOURCES.rstrip()[:-2], "cut off"),
)
