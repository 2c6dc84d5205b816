from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.nccl_tests import Options, parse_nccl_tests
from tests.unit.refusals import refuses

from . import tool_output

NEW = tool_output("nccl-all-reduce-16gpu.txt")


def test_new_layout() -> None:
    result = parse_nccl_tests(NEW)
    assert (result.op, result.ranks, result.hosts) == ("all_reduce", 16, ("gpu-01", "gpu-02"))
    assert [row.bytes for row in result.rows] == [8, 1048576, 67108864, 1073741824, 17179869184]
    last = result.rows[-1]
    assert (last.count, last.dtype, last.redop, last.root) == (4294967296, "float", "sum", None)
    assert (last.out_of_place.time_us, last.out_of_place.algbw_gb_per_s) == (67151.0, 255.84)
    assert (last.out_of_place.busbw_gb_per_s, last.in_place.busbw_gb_per_s) == (479.70, 484.54)
    assert (last.out_of_place.wrong, last.out_of_place.deviation) == (0, None)
    assert (result.average_busbw_gb_per_s, result.out_of_bounds, result.failure) == (191.317, 0, None)
    assert result.complete
    assert result.checked


def test_wrong_results_are_counted() -> None:
    result = parse_nccl_tests(tool_output("nccl-all-reduce-wrong.txt"))
    assert result.rows[1].out_of_place.wrong == 1_000_000
    assert result.out_of_bounds == 2


def test_old_layout_prints_a_deviation_instead_of_a_count() -> None:
    result = parse_nccl_tests(tool_output("nccl-old-error-column.txt"), "all_reduce")
    assert (result.ranks, result.hosts) == (2, ("gpu-01",))
    row = result.rows[1]
    assert (row.out_of_place.wrong, row.out_of_place.deviation) == (None, 1e-6)
    assert result.checked
    assert result.out_of_bounds == 0


def test_results_that_were_not_checked_are_not_ok_although_the_footer_says_so() -> None:
    result = parse_nccl_tests(tool_output("nccl-unchecked.txt"))
    assert result.rows[0].in_place.wrong is None
    assert not result.checked
    assert result.out_of_bounds is None
    assert result.complete


@pytest.mark.parametrize(("halves", "wrong"), [("N/A 0", None), ("0 N/A", None), ("N/A 7", 7), ("7 N/A", 7)])
def test_one_half_that_was_not_checked_is_not_right_because_of_the_other(halves: str, wrong: int | None) -> None:
    first, second = halves.split()
    row = next(line for line in NEW.splitlines() if line.lstrip().startswith("67108864 "))
    cells = row.split()
    cells[8], cells[12] = first, second
    result = parse_nccl_tests(NEW.replace(row, " ".join(cells)))
    assert [one.wrong for one in result.rows] == [0, 0, wrong, 0, 0]
    assert (result.checked, result.out_of_bounds) == (False, None)


def test_a_footer_that_counts_wrong_values_counts_although_a_half_was_not_checked() -> None:
    unchecked = tool_output("nccl-unchecked.txt").replace(
        "Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"
    )
    result = parse_nccl_tests(unchecked)
    assert (result.checked, result.out_of_bounds) == (False, 3)


def test_labels_of_srun_and_a_missing_footer() -> None:
    result = parse_nccl_tests(tool_output("nccl-labelled-no-footer.txt"), op="all_reduce")
    assert len(result.rows) == 5
    assert (result.ranks, result.hosts) == (None, ())
    assert result.average_busbw_gb_per_s is None
    assert not result.complete


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "[prterun-gpu-01-4711@1,0]<stdout>: ", " 0: "])
def test_labels_of_launchers_are_stripped(label: str) -> None:
    labelled = "".join(f"{label}{line}\n" for line in NEW.splitlines())
    assert parse_nccl_tests(labelled) == parse_nccl_tests(NEW)


def test_rows_of_size_0_are_kept() -> None:
    result = parse_nccl_tests(tool_output("nccl-all-gather-zero-sizes.txt"), op="all_gather")
    assert [row.bytes for row in result.rows] == [0, 0, 256, 8388608]
    assert result.rows[0].redop is None
    assert result.checked


def test_timestamps_make_two_more_words() -> None:
    assert parse_nccl_tests(tool_output("nccl-timestamps.txt")).rows[0].in_place.time_us == 60.6


def test_a_list_of_ranks_that_was_cut_still_gives_their_number() -> None:
    lines = [line for line in NEW.splitlines() if "Rank" not in line or "Rank 15" in line]
    result = parse_nccl_tests("\n".join(lines) + "\n")
    assert (result.ranks, result.hosts) == (16, ("gpu-02",))


def test_a_reported_failure_is_kept() -> None:
    line = "gpu-01: Test NCCL failure common.cu:1005 'remote process exited or there was a network error'"
    cut = NEW[: NEW.index("  1073741824")]
    result = parse_nccl_tests(f"{cut}{line}\n")
    assert result.failure == line
    assert not result.complete


ROW = next(line for line in NEW.splitlines() if line.startswith("    67108864"))
TABLE = NEW[NEW.index("#       size") :]

test_bad_output_raises_with_the_reason = refuses(
    parse_nccl_tests,
    ("empty", "", "no output"),
    ("launcher only", "mpirun was unable to launch the specified application\n", "no table; .*unable to launch"),
    ("header only", NEW[: NEW.index("           8 ")], "no row below the header"),
    ("row cut off", NEW[: NEW.index(ROW) + 60], "last line is cut off"),
    ("row shortened", NEW.replace(ROW, ROW[:60]), "cells below 13 columns"),
    ("message inside a row", NEW.replace(ROW, ROW[:60] + " gpu-01:1:2 [0] NCCL INFO x"), "cells below 13 columns"),
    ("two tables", NEW + TABLE, "more than one table"),
    ("unknown columns", NEW.replace("busbw", "bandwidth"), "unknown table"),
    ("processor time", NEW.replace("   time", "cputime"), "CPU time"),
    ("nan", NEW.replace("337.89", "   nan"), "busbw is not a number"),
    ("time of 0", NEW.replace(" 372.40", "   0.00"), "time of 67108864 B is 0"),
    ("digit lost in time", NEW.replace(" 372.40", " 37.240"), "contradicts 37.240 us"),
    ("digit lost in busbw", NEW.replace("337.89", "37.89 "), "contradicts algbw"),
    ("odd count of wrong", NEW.replace(ROW, ROW[:-1] + "x"), "#wrong is not a number"),
    ("average is nan", NEW.replace("191.317", "-nan"), "average bus bandwidth is not a number"),
)


def test_the_output_of_another_operation_is_refused() -> None:
    with pytest.raises(ParseError, match="expected all_gather, actual all_reduce"):
        parse_nccl_tests(NEW, op="all_gather")
    with pytest.raises(ParseError, match="contradicts algbw"):
        parse_nccl_tests(tool_output("nccl-old-error-column.txt"), op="all_gather")


ALLTOALL = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
#  Rank  0 Group  0 Pid  40100 on     gpu-01 device  0 [0000:18:00] NVIDIA H200
#  Rank  1 Group  0 Pid  40101 on     gpu-02 device  0 [0000:18:00] NVIDIA H200
#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        131072     float              -1    61.20   17.13    8.57       0    60.60   17.30    8.65     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 8.6
"""  # noqa: E501  (as the tool prints it)


def test_an_alltoall_table_with_a_blank_operation_is_read() -> None:
    result = parse_nccl_tests(ALLTOALL, "alltoall")
    (row,) = result.rows
    assert (row.bytes, row.dtype, row.redop, row.root, row.wrong) == (1048576, "float", None, None, 0)
    assert row.out_of_place.busbw_gb_per_s == 8.57
    assert result.checked, "an in-place half that the operation does not check"
    assert result.out_of_bounds == 0


def test_a_row_that_lacks_another_cell_is_not_taken_for_one() -> None:
    row = next(line for line in NEW.splitlines() if line.lstrip().startswith("1048576"))
    with pytest.raises(ParseError, match="12 cells below 13 columns"):
        parse_nccl_tests(NEW.replace(row, row.rsplit(maxsplit=1)[0]))


def test_a_half_without_numbers_is_no_half() -> None:
    halved = ALLTOALL.replace("60.60   17.30    8.65     N/A", "N/A     N/A     N/A     N/A")
    assert parse_nccl_tests(halved, "alltoall").rows[0].in_place is None


def test_a_warning_of_nccl_is_no_failure() -> None:
    line = "gpu-01:4711:4711 [0] NCCL WARN NET/IB : GPU Direct RDMA is disabled"
    result = parse_nccl_tests(f"{line}\n{NEW}")
    assert result.failure is None
    assert result.warnings == (line,)


def test_what_the_test_was_told_and_where_its_ranks_ran() -> None:
    result = parse_nccl_tests(ALLTOALL, "alltoall")
    assert result.options == Options(warmup=1, iterations=20)
    assert result.rank_hosts == ((0, "gpu-01"), (1, "gpu-02"))
