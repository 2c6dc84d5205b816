from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.chrony import parse_chrony_sources, parse_chrony_tracking

from . import tool_output

TRACKING = tool_output("chrony-tracking.csv")
SOURCES = tool_output("chrony-sources.csv")


def test_a_clock_that_follows_a_server() -> None:
    tracking = parse_chrony_tracking(TRACKING)
    assert tracking.synchronised
    assert (tracking.reference_id, tracking.reference, tracking.stratum) == ("7F000001", "127.0.0.1", 9)
    assert tracking.system_offset_s == -2.047e-6, "chronyc called this one fast of NTP time"
    assert (tracking.last_offset_s, tracking.rms_offset_s) == (3.5e-8, 4.62e-7)
    assert (tracking.frequency_ppm, tracking.root_delay_s, tracking.update_interval_s) == (-0.004, 5.871e-6, 1.0)


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
    assert (used.last_rx_s, used.offset_s, used.error_s) == (0, 2.03e-7, 4.195e-6)
    assert (silent.state, silent.reach, silent.last_rx_s) == ("?", 0, None)


BAD_TRACKING: list[tuple[str, str, str]] = [
    ("empty", "", "no output"),
    ("no daemon", tool_output("chrony-no-daemon.txt"), "506 Cannot talk to daemon"),
    ("sources", SOURCES, "unexpected line"),
    ("cut off", TRACKING[:-3], "cut off"),
    ("cut off at a comma", TRACKING[: TRACKING.rindex(",")] + "\n", "unexpected line"),
    ("twice", TRACKING * 2, "expected one line of tracking, got 2"),
    ("unknown leap status", TRACKING.replace("Normal", "Fine"), "expected a line of tracking"),
    ("offset is nan", TRACKING.replace("-0.000002047", "nan"), "system time is not a number"),
]


@pytest.mark.parametrize(
    ("output", "reason"), [case[1:] for case in BAD_TRACKING], ids=[case[0] for case in BAD_TRACKING]
)
def test_bad_tracking_raises_with_the_reason(output: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_chrony_tracking(output)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no output"),
        (tool_output("chrony-no-daemon.txt"), "506 Cannot talk to daemon"),
        (SOURCES.replace("^,*", "^*,x"), "expected a line about a source"),
        (SOURCES.replace("^,*", ",*"), "expected a line about a source"),
        (SOURCES.replace("377", "399"), "reach is not octal"),
        (SOURCES.rstrip()[:-2], "cut off"),
    ],
)
def test_bad_sources_raise_with_the_reason(output: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_chrony_sources(output)
