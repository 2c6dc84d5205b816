from __future__ import annotations

import pytest

from rackproof.parse import ParseError, Unreliable
from rackproof.parse.perftest import BandwidthUnit, complaint, parse_bandwidth, parse_latency
from tests.unit.refusals import refuses

from . import tool_output

GBITS = tool_output("perftest-write-bw-gbits.txt")
LATENCY = tool_output("perftest-write-lat.txt")


def test_a_warning_between_header_and_row_is_no_row() -> None:
    report = parse_bandwidth(GBITS)
    (row,) = report.rows
    assert (row.bytes, row.iterations, row.unit) == (65536, 5000, BandwidthUnit.GBIT)
    assert (row.peak, row.average, row.msg_rate_mpps) == (197.44, 195.48, 0.37285)
    assert row.average_bits_per_s == pytest.approx(195.48e9)


def test_conditions_come_from_the_block_above() -> None:
    conditions = parse_bandwidth(GBITS).conditions
    assert (conditions.test, conditions.device, conditions.link_layer) == ("RDMA_Write BW", "rdma0", "Ethernet")
    assert (conditions.mtu_bytes, conditions.qps, conditions.connection, conditions.gid_index) == (4096, 1, "RC", 1)


def test_all_sizes_in_one_table() -> None:
    report = parse_bandwidth(tool_output("perftest-write-bw-mib-all-sizes.txt"))
    assert [row.bytes for row in report.rows] == [2, 4096, 8388608]
    assert {row.unit for row in report.rows} == {BandwidthUnit.MIB}


def test_mb_of_old_versions_are_two_to_the_twenty_bytes() -> None:
    rows = parse_bandwidth(tool_output("perftest-write-bw-both-sides.txt")).rows
    assert len(rows) == 2, "client and server printed into one stream"
    assert rows[0].unit is BandwidthUnit.MB
    assert rows[0].average_bits_per_s == pytest.approx(65536 * 0.166427e6 * 8, rel=1e-4)


def test_a_test_by_duration_keeps_no_peak() -> None:
    (row,) = parse_bandwidth(tool_output("perftest-write-bw-duration-slow.txt")).rows
    assert row.peak is None
    assert row.average == 16.25


def test_old_bidirectional_tests_count_both_directions_in_the_bandwidth_only() -> None:
    text = tool_output("perftest-write-bw-bidirectional.txt")
    assert parse_bandwidth(text).rows[0].average == pytest.approx(387.97, abs=0.01)
    with pytest.raises(ParseError, match="contradicts"):
        parse_bandwidth(text.replace("Bidirectional ", ""))


def test_latency_row() -> None:
    (row,) = parse_latency(LATENCY).rows
    assert (row.bytes, row.iterations) == (2, 1000)
    assert (row.min_us, row.typical_us, row.average_us, row.max_us) == (1.54, 1.58, 1.61, 9.13)
    assert (row.p99_us, row.p999_us) == (1.75, 3.02)


def test_latency_by_duration_has_an_average_only() -> None:
    (row,) = parse_latency(tool_output("perftest-write-lat-duration.txt")).rows
    assert row.average_us == 1.63
    assert row.typical_us is None
    assert row.p99_us is None


HEADER = next(line for line in GBITS.splitlines() if "#bytes" in line)
ROW = next(line for line in GBITS.splitlines() if line.startswith(" 65536"))

test_bad_bandwidth_output_raises_with_the_reason = refuses(
    parse_bandwidth,
    ("empty", "", "no output"),
    ("no connection", "Couldn't connect to 10.77.0.10:18515\n", "no result table; .*Couldn't connect"),
    ("header only", GBITS[: GBITS.index(ROW)], "no result below the header"),
    ("row cut off", GBITS[: GBITS.index(ROW) + len(ROW) - 3], "last line is cut off"),
    ("cell missing", GBITS.replace(ROW, ROW.rsplit(maxsplit=1)[0]), "4 cells below 5 columns"),
    ("cell too much", GBITS.replace(ROW, ROW + " 1"), "6 cells below 5 columns"),
    ("infinite", GBITS.replace("195.48", "inf"), "is not a number"),
    ("negative", GBITS.replace("195.48", "-195.48"), "below 0"),
    ("another unit", GBITS.replace("Gb/sec", "Tb/sec"), "unknown unit"),
    ("units exchanged", GBITS.replace("Gb/sec", "MB/sec"), "contradicts"),
    ("digit lost", GBITS.replace("195.48", "19.548"), "contradicts"),
    ("no message", GBITS.replace(" 65536", " 0"), "below 1"),
    ("latency table", LATENCY, "no column BW average"),
)


test_bad_latency_output_raises_with_the_reason = refuses(
    parse_latency,
    ("bandwidth table", GBITS, "no column t_avg"),
    ("typical is 0", LATENCY.replace("1.58", "0.00"), "t_typical is 0"),
    ("average is 0", LATENCY.replace("1.61", "0.00"), "t_avg is 0"),
    ("minimum above the maximum", LATENCY.replace("1.54", "99.9"), "contradict each other"),
    ("average below the minimum", LATENCY.replace("1.61", "0.01"), "contradict each other"),
    ("average above the maximum", LATENCY.replace("1.61", "9999.0"), "contradict each other"),
    ("cut off", LATENCY[: LATENCY.index("9.13")], "cut off"),
)


SLOW = tool_output("perftest-write-bw-duration-slow.txt")
"""65536 B, 1300 iterations, 16.25 MB/sec, 0.000260 Mpps."""


def test_iterations_done_and_none_a_second_is_no_bandwidth() -> None:
    nothing = SLOW.replace("16.25", "0.00").replace("0.000260", "0.000000")
    with pytest.raises(Unreliable, match=r"1300 iterations of 65536 B done, and BW average\[MB/sec\] 0.00"):
        parse_bandwidth(nothing)


@pytest.mark.parametrize("word", ["inf", "nan", "-nan", "INF"])
def test_an_infinite_latency_is_no_latency(word: str) -> None:
    with pytest.raises(Unreliable, match="1000 iterations done, and t_avg is"):
        parse_latency(LATENCY.replace("1.61", word))


@pytest.mark.parametrize(
    ("line", "unreliable"),
    [
        ("Correlation coefficient r^2: 0.525272 < 0.9", True),
        ("Can't produce a report", True),
        ("Conflicting CPU frequency values detected: 1000.0 != 3304.7. CPU Frequency is not max.", False),
        (" WARNING: BW peak won't be measured in this run.", False),
    ],
)
def test_what_the_tool_says_of_its_own_figures(line: str, unreliable: bool) -> None:
    assert (complaint(f"first\n{line}\nlast\n") == line.strip()) is unreliable
