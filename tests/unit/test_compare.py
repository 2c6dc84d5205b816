"""Two runs side by side: the core of ``rackproof compare``, and how it is shown."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rackproof.core.compare import compare
from rackproof.core.comparison import Change, Comparison, NumberChange
from rackproof.core.evidence import CheckResult, Measurement, Record, RunInfo, Scope
from rackproof.core.noise import ONE_SAMPLE_PCT, THRESHOLD_PCT, noise_between
from rackproof.core.status import Status
from rackproof.errors import RunError
from rackproof.report.comparison import lines, show, to_json
from tests.unit.judging import GPU, NODES, architecture, bar, check, criterion, measurement, run_info, whole

pytestmark = pytest.mark.few(10)

READ = criterion(id="nfs.read")
LATENCY = criterion(
    id="nfs.latency", metric="storage.random_read_latency", severity="advisory", bar=bar("le", 900, "us")
)
ARCH = architecture(READ, LATENCY)
LATENCIES: dict[str, Any] = {"metric": "storage.random_read_latency"}


def records(*bodies: Measurement | CheckResult, run: RunInfo | None = None) -> list[Record]:
    """A run without gaps, and ``bodies``."""
    return whole(ARCH, *bodies, run=run)


def reads(*samples: float, node: str = GPU[0], **fields: Any) -> Measurement:
    return measurement(node, *samples, **fields)


def both(
    one: Iterable[Measurement | CheckResult], other: Iterable[Measurement | CheckResult], **options: Any
) -> Comparison:
    return compare(ARCH, records(*one), records(*other), **options)


def only(comparison: Comparison) -> NumberChange:
    (number,) = comparison.numbers
    return number


READS = [reads(100.0, node=node) for node in GPU]
"""Bar of the criterion of ``READ``."""


class TestNoise:
    def test_one_sample_on_a_side_widens_the_threshold_and_says_so(self) -> None:
        assert noise_between([100], [80], 100) == (ONE_SAMPLE_PCT, "one sample on each side, noise unknown")
        assert noise_between([100], [80, 80], 100) == (ONE_SAMPLE_PCT, "one sample in A, its noise unknown")
        assert noise_between([100, 100], [80], 100) == (ONE_SAMPLE_PCT, "one sample in B, its noise unknown")
        assert noise_between([100, 100], [80, 80], 100) == (THRESHOLD_PCT, "")

    def test_the_users_threshold_replaces_both(self) -> None:
        assert noise_between([100], [80], 100, 25).width == 25
        assert noise_between([100, 100], [80, 80], 100, 0).width == 0

    def test_scatter_is_the_interval_of_the_difference(self) -> None:
        # both sides scatter with a standard deviation of 10; t for 2 degrees of freedom is 4.303
        samples = [100 - 50**0.5, 100 + 50**0.5]
        assert noise_between(samples, samples, 100, 0).width == pytest.approx(4.303 * 10)

    def test_more_samples_make_it_narrower(self) -> None:
        widths = [noise_between([90, 110] * n, [90, 110] * n, 100, 0).width for n in (1, 2, 5, 20, 100)]
        assert widths == sorted(widths, reverse=True)
        assert widths[-1] < 4

    def test_the_side_with_scatter_lends_it_to_the_other(self) -> None:
        assert noise_between([100], [80, 100, 120], 100).width > ONE_SAMPLE_PCT


class TestNumbers:
    @pytest.mark.parametrize(
        ("before", "after", "change"),
        [
            ((100.0, 100.0), (94.0, 94.0), Change.WORSE),
            ((100.0, 100.0), (95.0, 95.0), Change.SAME),
            ((100.0, 100.0), (106.0, 106.0), Change.BETTER),
            ((100.0,), (91.0,), Change.SAME),
            ((100.0,), (89.0,), Change.WORSE),
            ((80.0, 120.0), (70.0, 110.0), Change.SAME),
            ((99.0, 100.0, 101.0, 100.0), (89.0, 90.0, 91.0, 90.0), Change.WORSE),
        ],
    )
    def test_of_a_bandwidth_less_is_worse(
        self, before: Sequence[float], after: Sequence[float], change: Change
    ) -> None:
        number = only(both([reads(*before)], [reads(*after)]))
        assert number.change is change
        assert number.criteria == ("nfs.read",)
        assert number.required
        assert number.samples == (len(before), len(after))

    def test_of_a_latency_more_is_worse(self) -> None:
        number = only(both([reads(100.0, 100.0, **LATENCIES)], [reads(120.0, 120.0, **LATENCIES)]))
        assert (number.change, number.change_pct, number.gain_pct, number.noise_pct) == (Change.WORSE, 20.0, -20.0, 5.0)
        assert not number.required

    def test_percent_are_of_the_first_and_noise_is_of_the_better_one(self) -> None:
        number = only(both([reads(100.0, 100.0)], [reads(200.0, 200.0)]))
        assert (number.change_pct, number.gain_pct, number.noise_pct) == (100.0, 100.0, 10.0)

    def test_units_are_converted(self) -> None:
        number = only(both([reads(100.0)], [reads(0.1, unit="GB/s")]))
        assert (number.change, number.unit, number.before, number.after) == (Change.SAME, "MB/s", 100.0, 100.0)

    def test_a_unit_of_something_else_is_not_comparable(self) -> None:
        comparison = both([reads(100.0)], [reads(100.0, unit="us")])
        assert (only(comparison).change, only(comparison).remark) == (
            Change.NOT_COMPARABLE,
            "B: us cannot be converted to MB/s",
        )
        assert comparison.exit_status == 2

    @pytest.mark.parametrize("impossible", [-1.0, 0.0])
    def test_impossible_samples_are_not_comparable(self, impossible: float) -> None:
        number = only(both([reads(100.0, **LATENCIES)], [reads(impossible, **LATENCIES)]))
        assert number.change is Change.NOT_COMPARABLE
        assert "which is impossible" in number.remark

    def test_an_unknown_metric_is_not_comparable(self) -> None:
        old = reads(100.0).model_copy(update={"metric": "storage.cheer"})
        number = only(both([old], [old]))
        assert number.change is Change.NOT_COMPARABLE
        assert "unknown metric 'storage.cheer'" in number.remark

    def test_a_simulated_number_is_not_compared_with_a_real_one(self) -> None:
        number = only(both([reads(100.0)], [reads(100.0).model_copy(update={"simulated": True})]))
        assert (number.change, number.remark) == (Change.NOT_COMPARABLE, "simulated in B only")

    def test_wrong_values_that_appear_are_worse_without_any_percent(self) -> None:
        labels = {"op": "all_reduce", "bytes": "1024"}
        one, other = (
            measurement(GPU, count, metric="collective.wrong_values", scope=Scope.RACK, **labels) for count in (0, 3)
        )
        comparison = both([one], [other])
        assert (only(comparison).change, only(comparison).change_pct, only(comparison).gain_pct) == (
            Change.WORSE,
            None,
            None,
        )
        assert only(both([other], [one])).change is Change.BETTER
        assert (only(both([one], [one])).change, only(both([one], [one])).change_pct) == (Change.SAME, 0.0)

    def test_a_number_of_one_run_only_is_listed_on_its_side(self) -> None:
        gone = both([reads(100.0)], [])
        assert (only(gone).change, only(gone).after) == (Change.ONLY_A, None)
        assert only(gone).remark == "no number in B: not in the evidence"
        failed = only(both([reads(reason="fio: exit status 1")], [reads(100.0)]))
        assert (failed.change, failed.remark) == (Change.ONLY_B, "no number in A: fio: exit status 1")
        neither = only(both([reads(reason="no fio")], [reads(reason="timeout")]))
        assert neither.change is Change.NOT_COMPARABLE
        assert neither.remark == "no number in A: no fio; in B: timeout"

    def test_the_latest_number_counts_and_a_gap_replaces_none(self) -> None:
        number = only(both([reads(50.0), reads(100.0), reads(reason="cut off")], [reads(100.0)]))
        assert (number.change, number.before) == (Change.SAME, 100.0)

    def test_a_pair_has_no_direction_and_a_rack_is_who_took_part(self) -> None:
        link: dict[str, Any] = {"metric": "link.tcp_bandwidth", "rail": "0"}
        there, back = (measurement(pair, 10.0, **link) for pair in (GPU, GPU[::-1]))
        assert only(both([there], [back])).change is Change.SAME
        whole, part = (measurement(who, 10.0, scope=Scope.RACK) for who in (GPU, GPU[:1]))
        assert {number.change for number in both([whole], [part]).numbers} == {Change.ONLY_A, Change.ONLY_B}

    def test_different_conditions_are_listed_without_the_runs_folders(self) -> None:
        runs = [run_info().model_copy(update={"run": name}) for name in ("20260101-lab", "20260202-lab")]
        sides = [
            records(
                reads(100.0, conditions={"command": f"fio /var/tmp/{run.run}/x", "workload": {"runtime_s": seconds}}),
                run=run,
            )
            for run, seconds in zip(runs, (5, 60), strict=True)
        ]
        assert only(compare(ARCH, *sides)).otherwise == ("workload.runtime_s: 5, then 60",)
        assert only(compare(ARCH, sides[0], sides[0])).otherwise == ()

    def test_the_users_threshold_decides(self) -> None:
        sides = [reads(100.0)], [reads(70.0)]
        assert only(both(*sides, threshold_pct=35)).change is Change.SAME
        assert only(both(*sides, threshold_pct=25)).change is Change.WORSE


badge = partial(check, name="site.badge")
"""A check that no run must have."""


class TestVerdicts:
    @pytest.mark.parametrize(
        ("before", "after", "change", "status"),
        [
            ("passed", "failed", Change.WORSE, 1),
            ("failed", "passed", Change.BETTER, 0),
            ("failed", "failed", Change.SAME, 0),
            ("passed", "passed", Change.SAME, 0),
            ("passed", "unmeasured", Change.LOST, 2),
            ("failed", "unmeasured", Change.LOST, 2),
            ("unmeasured", "passed", Change.FOUND, 0),
            ("unmeasured", "failed", Change.FOUND, 1),
            ("unmeasured", "unmeasured", Change.NOT_COMPARABLE, 2),
        ],
    )
    def test_a_check_of_both_runs(self, before: str, after: str, change: Change, status: int) -> None:
        sides = (records(badge(GPU[0], outcome=outcome), *READS) for outcome in (before, after))
        comparison = compare(architecture(READ), *sides)
        (verdict,) = (verdict for verdict in comparison.verdicts if verdict.id == "site.badge")
        assert (verdict.change, comparison.exit_status) == (change, status)

    def test_an_advisory_check_that_fails_now_is_shown_but_decides_nothing(self) -> None:
        comparison = compare(
            architecture(READ),
            records(badge(GPU[0], required=False), *READS),
            records(badge(GPU[0], required=False, outcome="failed"), *READS),
        )
        assert [v.change for v in comparison.verdicts if v.id == "site.badge"] == [Change.WORSE]
        assert comparison.exit_status == 0
        assert "worse  site.badge (advisory) on gpu-01: PASS, then FAIL" in text_of(comparison)

    def test_a_check_that_vanished_is_not_the_same(self) -> None:
        comparison = compare(architecture(), records(badge(GPU[0])), records())
        assert [v.change for v in comparison.verdicts if v.id == "site.badge"] == [Change.ONLY_A]
        assert comparison.exit_status == 2

    @pytest.mark.parametrize(("outcome", "status"), [("passed", 0), ("failed", 2), ("unmeasured", 2)])
    def test_a_new_check_that_fails_is_neither_a_regression_nor_a_success(self, outcome: str, status: int) -> None:
        comparison = compare(architecture(READ), records(*READS), records(badge(GPU[0], outcome=outcome), *READS))
        assert [v.change for v in comparison.verdicts if v.id == "site.badge"] == [Change.ONLY_B]
        assert comparison.exit_status == status

    def test_a_criterion_that_is_not_met_any_more_is_a_regression_within_noise_too(self) -> None:
        whole = [reads(20.5, node=node) for node in GPU], [reads(19.9, node=node) for node in GPU]
        comparison = compare(architecture(READ), records(*whole[0]), records(*whole[1]))
        assert {number.change for number in comparison.numbers} == {Change.SAME}
        assert [(v.before, v.after) for v in comparison.verdicts if v.id == "nfs.read"] == [
            (Status.PASS, Status.FAIL)
        ] * 2
        assert comparison.exit_status == 1

    def test_nodes_that_come_and_go_are_named(self) -> None:
        before, after = run_info(*NODES), run_info("gpu-02", "gpu-03", "sto-01")
        comparison = compare(architecture(), records(run=before), records(run=after))
        assert (comparison.nodes_gone, comparison.nodes_new) == (("gpu-01",), ("gpu-03",))
        assert comparison.exit_status == 2
        assert {"gone: gpu-01", "new: gpu-03"} <= set(text_of(comparison).splitlines())

    def test_differences_of_the_runs_are_listed(self) -> None:
        other = run_info(simulated=("gpu-01",)).model_copy(
            update={"profile": "full", "architecture": "large", "architecture_sha256": "1" * 64}
        )
        assert compare(architecture(), records(), records(run=other)).differences == (
            "made for: small, then large",
            "architecture sha256: 000000000000, then 111111111111",
            "profile: lab, then full",
            "gpu-01 simulated_gpus: false, then true",
        )

    def test_a_folder_that_is_no_run_is_refused(self) -> None:
        with pytest.raises(RunError, match="no run record"):
            compare(ARCH, records(), [])


# Properties

values = st.floats(0.5, 2000, allow_nan=False)
samples = st.lists(values, max_size=4)
outcomes = st.sampled_from(("passed", "failed", "unmeasured"))
sides = st.fixed_dictionaries(
    {},
    optional={
        **{(metric, node): samples for metric in ("storage.read_bandwidth", LATENCIES["metric"]) for node in GPU},
        **{("check", node): outcomes for node in NODES},
    },
)
SWAPPED = {
    Change.WORSE: Change.BETTER,
    Change.BETTER: Change.WORSE,
    Change.ONLY_A: Change.ONLY_B,
    Change.ONLY_B: Change.ONLY_A,
    Change.LOST: Change.FOUND,
    Change.FOUND: Change.LOST,
    Change.SAME: Change.SAME,
    Change.NOT_COMPARABLE: Change.NOT_COMPARABLE,
}


def drawn(side: dict[tuple[str, str], Any]) -> list[Measurement | CheckResult]:
    return [
        check(node, outcome=value) if what == "check" else measurement(node, *value, metric=what)
        for (what, node), value in side.items()
    ]


@given(side=sides)
def test_a_run_has_no_regression_against_itself(side: dict[tuple[str, str], Any]) -> None:
    comparison = both(drawn(side), drawn(side))
    assert comparison.regressions == ()
    assert {item.change for item in comparison.items} <= {Change.SAME, Change.NOT_COMPARABLE}
    assert comparison.exit_status in (0, 2)
    assert comparison.differences == ()


@given(one=sides, other=sides, threshold=st.sampled_from([None, 0.0, 3.0]))
def test_swapping_the_runs_swaps_better_and_worse(
    one: dict[tuple[str, str], Any], other: dict[tuple[str, str], Any], threshold: float | None
) -> None:
    there = both(drawn(one), drawn(other), threshold_pct=threshold)
    back = both(drawn(other), drawn(one), threshold_pct=threshold)
    assert [SWAPPED[item.change] for item in there.items] == [item.change for item in back.items]
    for number, mirrored in zip(there.numbers, back.numbers, strict=True):
        assert (number.before, number.after) == (mirrored.after, mirrored.before)
        if number.gain_pct:
            assert (number.gain_pct > 0) == (mirrored.gain_pct is not None and mirrored.gain_pct < 0)


@given(one=sides, other=sides, data=st.data())
def test_the_order_of_the_evidence_does_not_matter(
    one: dict[tuple[str, str], Any], other: dict[tuple[str, str], Any], data: st.DataObject
) -> None:
    first = to_json(both(drawn(one), drawn(other)))
    mixed = [data.draw(st.permutations(drawn(side))) for side in (one, other)]
    assert first == to_json(both(*mixed))


@given(one=sides, other=sides)
def test_the_same_means_a_number_on_both_sides(
    one: dict[tuple[str, str], Any], other: dict[tuple[str, str], Any]
) -> None:
    comparison = both(drawn(one), drawn(other))
    for number in comparison.numbers:
        if number.change in (Change.SAME, Change.BETTER, Change.WORSE):
            assert number.before is not None
            assert number.after is not None
            assert min(number.samples) > 0
        if min(number.samples) == 1 and number.change in (Change.SAME, Change.BETTER, Change.WORSE):
            assert "noise unknown" in number.remark
    for verdict in comparison.verdicts:
        if verdict.change is Change.SAME:
            assert verdict.before in (Status.PASS, Status.WARN, Status.FAIL)
            assert verdict.before is verdict.after
    if comparison.exit_status == 0:
        assert not [
            v for v in comparison.verdicts if v.required and v.after in (None, Status.UNMEASURED, Status.INVALID)
        ]


@given(first=st.lists(values, min_size=1, max_size=6), factor=st.floats(0.01, 0.5))
def test_a_number_that_collapsed_without_scatter_is_always_worse(first: list[float], factor: float) -> None:
    level = max(first)
    before = [level] * len(first)
    assert only(both([reads(*before)], [reads(*(value * factor for value in before))])).change is Change.WORSE


# How it is shown


def text_of(comparison: Comparison, everything: bool = False, encoding: str = "utf-8", width: int = 130) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(comparison, Console(file=stream, width=width), everything)
    stream.seek(0)
    return stream.read()


def example() -> Comparison:
    before = [reads(100.0, 101.0, node=node) for node in GPU] + [reads(500.0, node=node, **LATENCIES) for node in GPU]
    after = [reads(100.0, 101.0), reads(10.0, 11.0, node=GPU[1]), reads(100.0, **LATENCIES)]
    other = measurement(GPU, 7.0, metric="collective.busbw", scope=Scope.RACK, op="all_reduce", bytes="1024")
    return both([*before, other], [*after, other.model_copy(update={"samples": (5.0,)})])


def test_a_line_for_each_criterion_with_its_worst_member_first() -> None:
    shown = lines(example())
    assert [(line.id, line.change, line.subject) for line in shown] == [
        ("nfs.read", Change.WORSE, "gpu-02"),
        ("nfs.latency", Change.LOST, "gpu-02"),
    ]
    text = text_of(example())
    rows = [re.split(" {2,}", line.strip()) for line in text.splitlines()]
    assert ["worse", "nfs.read", "2 PASS, then 1 PASS, 1 FAIL", "gpu-02", "−89.6 %", "±5 %"] in rows
    assert "collective.busbw[bytes=1024,op=all_reduce] on rack: 7 GB/s, then 5 GB/s (−28.6 %" in text
    assert "REGRESSION: 2 numbers worse beyond noise, 1 verdict worse" in text
    assert "1 of 2 numbers have one sample per run; their noise is unknown" in text


def test_variants_of_a_criterion_are_one_line() -> None:
    arch = architecture(criterion(where={"storage": ["nfs", "local"]}))
    sides = [
        records(*(reads(value, storage=storage, block_bytes="4096") for storage in ("local", "nfs")))
        for value in (100.0, 50.0)
    ]
    (line,) = lines(compare(arch, *sides))
    assert (line.id, line.subject, len(line.verdicts)) == ("nfs.read", "gpu-01 storage=local", 4)


def test_all_numbers_are_listed_on_demand() -> None:
    gone = "only in A  storage.random_read_latency[block_bytes=1048576,storage=nfs] on gpu-02: 500 µs, then –"
    assert gone not in text_of(example(), width=220)
    text = text_of(example(), everything=True, width=220)
    assert f"{gone}: no number in B: not in the evidence" in text
    assert re.search(r"same  storage.read_bandwidth\S+ on gpu-01: (\S+ MB/s), then \1 \(0, noise ±5 %\)", text)


def test_output_of_a_node_is_printed_without_markup_and_escape_sequences() -> None:
    comparison = compare(
        architecture(), records(check(GPU[0])), records(check(GPU[0], outcome="failed", message="[red]\x1b[2J"))
    )
    text = text_of(comparison)
    assert "FAIL: [red]" in text
    assert "\x1b" not in text


def test_a_terminal_without_the_signs_gets_others() -> None:
    assert "nfs.read" in text_of(example(), encoding="ascii")


def test_json_is_versioned_and_sorted_and_agrees_with_the_exit_status() -> None:
    comparison = example()
    document = json.loads(to_json(comparison))
    assert document["schema"] == "rackproof.comparison/v1"
    assert list(document) == sorted(document)
    assert (document["exit_status"], document["regressions"]) == (1, 3)
    assert document["criteria"][0]["worst"]["subject"] == "gpu-02"
    assert document["counts"]["numbers"] == {"worse": 2, "better": 1, "same": 1, "only in A": 1}


def test_nothing_in_common_is_incomplete() -> None:
    comparison = compare(
        architecture(), records(run=run_info("gpu-01", "sto-01")), records(run=run_info("gpu-02", "sto-02"))
    )
    assert comparison.exit_status == 2
    assert "INCOMPLETE: no regression found" in text_of(comparison)
