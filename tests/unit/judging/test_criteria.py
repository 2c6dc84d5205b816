"""Criteria: measured values against declared bars."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from rackproof.core.architecture import Reference, Statistic
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.ceilings import Whole
from rackproof.core.judging.members import Members
from rackproof.core.judging.numbers import Number, Numbers, Question
from rackproof.core.judging.select import Index, NeededConditions, NoNumber
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Judgement
from tests.unit.judging import GPU, NODES, architecture, bar, criterion, judged, measurement, run_info, verdicts

RACK = Scope.RACK
SHARE = {
    "op": "ge",
    "value": 60,
    "unit": "percent",
    "of": {"metric": "link.tcp_bandwidth", "where": {"rail": "0"}, "scope": "pair", "reduce": "median"},
}


def with_companions(companions: dict[str, tuple[float, ...]]) -> Measurement:
    return measurement(GPU, 0.9, metric="link.tcp_bandwidth", companions=companions, rail="0")


def link(gbps: float, *more: float, pair: tuple[str, str] = ("gpu-01", "gpu-02")) -> Any:
    return measurement(pair, gbps, *more, metric="link.tcp_bandwidth", rail="0")


def statuses(judgement: Judgement, id_: str = "nfs.read") -> dict[str, str]:
    return {subject: verdict.status.value for subject, verdict in verdicts(judgement, id_).items()}


class TestEveryMember:
    def test_each_node_of_the_group_has_its_own_verdict(self) -> None:
        result = judged(architecture(criterion()), measurement("gpu-01", 25.0), measurement("gpu-02", 15.0))
        assert statuses(result) == {"gpu-01": "PASS", "gpu-02": "FAIL"}
        assert result.outcome is Outcome.NOT_CERTIFIED
        passed, failed = verdicts(result).values()
        assert passed.message == "expected ≥ 20 MB/s, actual 25 MB/s; one sample"
        assert failed.message == "expected ≥ 20 MB/s, actual 15 MB/s; one sample"
        assert (failed.value, failed.unit, failed.bar, failed.bar_value) == (15.0, "MB/s", "≥ 20 MB/s", 20.0)
        assert failed.distance_pct == -25.0
        assert (failed.samples, failed.raw, failed.statistic) == ((15.0,), ("raw-of-gpu-02",), "median")
        assert (failed.source, failed.reason, failed.hint) == ("us", "Because it is so.", "Look at it.")
        assert (failed.metric, failed.labels) == ("storage.read_bandwidth", {"storage": "nfs"})
        assert failed.measured is failed.ceiling is None

    def test_a_node_without_a_measurement_is_unmeasured(self) -> None:
        result = judged(architecture(criterion()), measurement("gpu-01", 25.0))
        assert statuses(result) == {"gpu-01": "PASS", "gpu-02": "UNMEASURED"}
        verdict = verdicts(result)["gpu-02"]
        assert verdict.message == "no measurement of storage.read_bandwidth[storage=nfs]"
        assert verdict.value is None
        assert verdict.bar == "≥ 20 MB/s"
        assert result.outcome is Outcome.INCOMPLETE

    def test_the_benchmark_s_own_reason_is_given(self) -> None:
        result = judged(
            architecture(criterion()),
            measurement("gpu-01", 25.0),
            measurement("gpu-02", reason="fio: exit status 1: no space left"),
        )
        verdict = verdicts(result)["gpu-02"]
        assert (verdict.status, verdict.message) == (Status.UNMEASURED, "fio: exit status 1: no space left")
        assert verdict.raw == ("raw-of-gpu-02",)

    def test_a_reason_that_disproves_a_number_is_invalid(self) -> None:
        reason = "fio: 42 % of 1.2 GB that it read came from the client's memory: the mount counted 0.7 GB"
        served = measurement("gpu-02", reason=reason).model_copy(update={"invalid": True})
        result = judged(architecture(criterion()), measurement("gpu-01", 25.0), served)
        verdict = verdicts(result)["gpu-02"]
        assert (verdict.status, verdict.message) == (Status.INVALID, reason)
        assert result.outcome is Outcome.INCOMPLETE

    def test_samples_beside_a_reason_that_disproves_them_are_not_trusted(self) -> None:
        served = measurement("gpu-01", 25.0, reason="from memory").model_copy(update={"invalid": True})
        assert verdicts(judged(architecture(criterion()), served))["gpu-01"].status is Status.INVALID

    def test_a_reason_is_found_although_labels_were_not_known_yet(self) -> None:
        """A tool that did not start has no sizes."""
        made = architecture(
            criterion(
                metric="collective.busbw",
                where={"op": "all_reduce", "bytes": 1024},
                scope="rack",
                bar=bar("ge", 1, "GB/s"),
            )
        )
        failed = measurement(GPU, metric="collective.busbw", scope=RACK, op="all_reduce", reason="mpirun: rc 1")
        other = measurement(GPU, metric="collective.busbw", scope=RACK, op="alltoall", reason="not this one")
        assert verdicts(judged(made, other, failed))["rack"].message == "mpirun: rc 1"

    def test_samples_beside_a_reason_are_not_trusted(self) -> None:
        result = judged(architecture(criterion()), measurement("gpu-01", 25.0, reason="killed half way"))
        assert verdicts(result)["gpu-01"].message == "killed half way"
        assert verdicts(result)["gpu-01"].status is Status.UNMEASURED

    def test_other_storages_and_other_nodes_do_not_answer(self) -> None:
        other = measurement("gpu-01", 99.0, storage="local", block_bytes="4096")
        server = measurement("sto-01", 99.0)
        assert statuses(judged(architecture(criterion()), other, server)) == dict.fromkeys(GPU, "UNMEASURED")

    def test_a_group_without_nodes_is_one_unmeasured_verdict(self) -> None:
        result = judged(architecture(criterion()), run=run_info("sto-01"))
        (verdict,) = verdicts(result).values()
        assert (verdict.subject, verdict.status) == ("rack", Status.UNMEASURED)
        assert verdict.message == "no node in group gpu"

    def test_all_means_every_node_of_the_run(self) -> None:
        result = judged(architecture(criterion(members="all")))
        assert set(verdicts(result)) == set(NODES)

    def test_every_unordered_pair_has_a_verdict_in_either_direction(self) -> None:
        made = architecture(
            criterion(metric="link.tcp_bandwidth", where={"rail": 0}, scope="pair", bar=bar("ge", 1, "Gb/s"))
        )
        result = judged(
            made, link(2.0), link(2.0, pair=("gpu-03", "gpu-01")), run=run_info("gpu-01", "gpu-02", "gpu-03", "sto-01")
        )
        assert statuses(result) == {"gpu-01|gpu-02": "PASS", "gpu-01|gpu-03": "PASS", "gpu-02|gpu-03": "UNMEASURED"}
        (alone,) = verdicts(judged(made, run=run_info("gpu-01", "sto-01"))).values()
        assert (alone.status, alone.message) == (Status.UNMEASURED, "gpu-01 is the only node, a pair needs two")

    def test_a_list_of_labels_asks_for_one_verdict_each(self) -> None:
        made = architecture(criterion(where={"storage": ["nfs", "local"]}))
        result = judged(made, measurement("gpu-01", 25.0), measurement("gpu-02", 25.0))
        assert statuses(result, "nfs.read[nfs]") == dict.fromkeys(GPU, "PASS")
        assert statuses(result, "nfs.read[local]") == dict.fromkeys(GPU, "UNMEASURED")
        assert verdicts(result, "nfs.read[local]")["gpu-01"].labels == {"storage": "local"}


class TestTheRack:
    MADE = architecture(criterion(scope="rack"))

    def test_all_nodes_of_the_group_must_have_taken_part(self) -> None:
        result = judged(self.MADE, measurement(("gpu-01",), 99.0, scope=RACK))
        (verdict,) = verdicts(result).values()
        assert (verdict.subject, verdict.status) == ("rack", Status.UNMEASURED)
        assert verdict.message == "measured on 1 of 2 nodes; gpu-02 missing"

    @pytest.mark.parametrize("members", [GPU, GPU[::-1]])
    def test_the_order_of_nodes_does_not_matter(self, members: tuple[str, ...]) -> None:
        assert statuses(judged(self.MADE, measurement(members, 99.0, scope=RACK))) == {"rack": "PASS"}

    def test_a_sum_of_more_nodes_says_nothing_about_the_group(self) -> None:
        (verdict,) = verdicts(judged(self.MADE, measurement(NODES, 99.0, scope=RACK))).values()
        assert (verdict.status, verdict.message) == (
            Status.UNMEASURED, "measured only together with sto-01, expected gpu-[01-02] alone"
        )  # fmt: skip

    def test_a_measurement_of_exactly_the_group_counts(self) -> None:
        result = judged(self.MADE, measurement(NODES, 1.0, scope=RACK), measurement(GPU, 30.0, scope=RACK))
        assert verdicts(result)["rack"].value == 30.0

    def test_missing_nodes_are_folded(self) -> None:
        names = [f"gpu-{number:02d}" for number in range(1, 9)]
        result = judged(self.MADE, measurement(("gpu-01", "gpu-05"), 9.0, scope=RACK), run=run_info(*names, "sto-01"))
        assert verdicts(result)["rack"].message == "measured on 2 of 8 nodes; gpu-[02-04,06-08] missing"

    @pytest.mark.parametrize(
        ("members", "asked", "told", "status"),
        [
            (("gpu-02",), 1, 1, "PASS"),
            (("sto-01",), 1, 1, "UNMEASURED"),  # of another group
            (GPU, 1, 1, "INVALID"),  # more took part than it says
            (GPU, 2, 2, "PASS"),
            (("gpu-01",), 2, 2, "UNMEASURED"),
            (("gpu-01",), 2, 1, "UNMEASURED"),
            (GPU, 1, 2, "UNMEASURED"),
        ],
    )
    def test_a_number_of_fewer_nodes_is_of_so_many(
        self, members: tuple[str, ...], asked: int, told: int, status: str
    ) -> None:
        made = architecture(criterion(scope="rack", where={"storage": "nfs", "clients": asked}))
        number = measurement(members, 99.0, scope=RACK, storage="nfs", clients=str(told))
        assert statuses(judged(made, number)) == {"rack": status}


class TestSamples:
    def test_the_statistic_is_taken_over_all_samples(self) -> None:
        samples = (10.0, 50.0, 30.0, 20.0)
        for statistic, value in (("median", 25.0), ("mean", 27.5), ("min", 10.0)):
            result = judged(architecture(criterion(statistic=statistic)), measurement("gpu-01", *samples))
            verdict = verdicts(result)["gpu-01"]
            assert (verdict.value, verdict.samples, verdict.statistic) == (value, samples, statistic)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e16])
    def test_what_cannot_be_is_invalid(self, bad: float) -> None:
        verdict = verdicts(judged(architecture(criterion()), measurement("gpu-01", 30.0, bad)))["gpu-01"]
        assert (verdict.status, verdict.value, verdict.samples) == (Status.INVALID, None, ())
        assert verdict.message.startswith("a sample is ")

    def test_a_latency_of_nought_was_not_measured_but_a_rate_can_be_nought(self) -> None:
        latency = architecture(criterion(metric="storage.random_read_latency", bar=bar("le", 5, "ms")))
        result = judged(latency, measurement("gpu-01", 0.0, metric="storage.random_read_latency"))
        assert verdicts(result)["gpu-01"].status is Status.INVALID
        assert statuses(judged(architecture(criterion()), measurement("gpu-01", 0.0)))["gpu-01"] == "FAIL"

    def test_no_wrong_value_is_a_pass_and_one_is_not(self) -> None:
        made = architecture(
            criterion(
                metric="collective.wrong_values",
                where={"op": "all_reduce", "bytes": 1024},
                scope="rack",
                statistic="max",
                bar=bar("eq", 0, "1"),
            )
        )

        def of(*wrong: float) -> Any:
            labels = {"op": "all_reduce", "bytes": "1024", "engine": "mpi"}
            taken = measurement(GPU, *wrong, metric="collective.wrong_values", scope=RACK, **labels)
            return verdicts(judged(made, taken))["rack"]

        assert of(0.0, 0.0).status is Status.PASS
        assert of(0.0, 0.0).message == "expected = 0, actual 0; max of 2 samples"
        assert (of(0.0, 0.0, 1.0).status, of(0.0, 0.0, 1.0).message) == (
            Status.FAIL,
            "expected = 0, actual 1; max of 3 samples",
        )

    def test_too_few_samples_are_unmeasured(self) -> None:
        result = judged(architecture(criterion(min_samples=3)), measurement("gpu-01", 30.0, 31.0))
        verdict = verdicts(result)["gpu-01"]
        assert verdict.status is Status.UNMEASURED
        assert verdict.message == "expected 3 or more samples, actual 2"
        assert verdict.samples == (30.0, 31.0)

    def test_too_noisy_is_invalid_on_either_side_of_the_bar(self) -> None:
        made = architecture(criterion(max_cv_pct=20, min_samples=2))
        result = judged(made, measurement("gpu-01", 30.0, 60.0), measurement("gpu-02", 2.0, 6.0))
        for name in GPU:
            assert verdicts(result)[name].status is Status.INVALID
        verdict = verdicts(result)["gpu-01"]
        assert verdict.message == "2 samples scatter by 47.1 %, more than 20 %: 30, 60 MB/s"
        assert (verdict.value, verdict.samples) == (45.0, (30.0, 60.0))
        assert verdict.cv_pct == pytest.approx(47.14, abs=0.01)
        assert result.outcome is Outcome.INCOMPLETE

    def test_one_sample_says_nothing_about_scatter(self) -> None:
        made = architecture(criterion(max_cv_pct=20, min_samples=2))
        (entry,) = made.criteria
        made = made.model_copy(update={"criteria": (entry.model_copy(update={"min_samples": 1}),)})
        verdict = verdicts(judged(made, measurement("gpu-01", 30.0)))["gpu-01"]
        assert (verdict.status, verdict.value, verdict.samples) == (Status.UNMEASURED, 30.0, (30.0,))
        assert verdict.message == "scatter needs two samples or more, actual 1"

    def test_a_number_without_any_output_behind_it_is_invalid(self) -> None:
        taken = measurement("gpu-01", 30.0).model_copy(update={"raw": ()})
        verdict = verdicts(judged(architecture(criterion()), taken))["gpu-01"]
        assert (verdict.status, verdict.message) == (Status.INVALID, "the measurement refers to no raw output")

    @pytest.mark.parametrize(("value", "status"), [(101.9, Status.PASS), (102.1, Status.INVALID)])
    def test_no_share_exceeds_its_whole(self, value: float, status: Status) -> None:
        bar = {"op": "ge", "value": 90, "unit": "percent"}
        made = architecture(criterion(metric="ingest.cache_hits", where={}, bar=bar))
        verdict = verdicts(judged(made, measurement("gpu-01", value, metric="ingest.cache_hits")))["gpu-01"]
        assert verdict.status is status
        if status is Status.INVALID:
            assert verdict.message == "a sample is 102 %, which is impossible"

    @pytest.mark.parametrize(("value", "status"), [(99.0, Status.PASS), (102.1, Status.FAIL), (900.0, Status.FAIL)])
    def test_the_growth_of_a_time_may_exceed_its_whole(self, value: float, status: Status) -> None:
        loss, bar = "mixed.inference_latency_loss", {"op": "le", "value": 100, "unit": "percent"}
        made = architecture(criterion(metric=loss, where={}, scope="rack", bar=bar))
        taken = measurement(("gpu-01", "gpu-02"), value, metric=loss, scope=RACK)
        assert verdicts(judged(made, taken))["rack"].status is status

    def test_a_warning_says_from_where_on(self) -> None:
        made = architecture(criterion(bar=bar("ge", 20, "MB/s", warn=40)))
        result = judged(made, measurement("gpu-01", 30.0), measurement("gpu-02", 50.0))
        verdict = verdicts(result)["gpu-01"]
        assert verdict.status is Status.WARN
        assert verdict.message == "expected ≥ 20 MB/s, actual 30 MB/s; one sample; warns below 40 MB/s"
        assert result.outcome is Outcome.CERTIFIED

    def test_units_of_evidence_and_bar_may_differ(self) -> None:
        made = architecture(criterion(bar=bar("ge", 0.16, "Gb/s")))
        verdict = verdicts(judged(made, measurement("gpu-01", 0.025, unit="GB/s")))["gpu-01"]
        assert (verdict.status, verdict.unit) == (Status.PASS, "Gb/s")
        assert verdict.value == pytest.approx(0.2)
        assert verdict.samples == (pytest.approx(0.2),)

    @pytest.mark.parametrize("unit", ["us", "MBps", ""])
    def test_a_unit_that_is_not_the_metric_s_is_invalid(self, unit: str) -> None:
        taken = measurement("gpu-01", 30.0).model_copy(update={"unit": unit})
        verdict = verdicts(judged(architecture(criterion()), taken))["gpu-01"]
        assert verdict.status is Status.INVALID
        assert "unit" in verdict.message or "converted" in verdict.message

    def test_the_warm_up_is_dropped(self) -> None:
        made = architecture(criterion(warmup=2, min_samples=2, max_cv_pct=5))
        result = judged(made, measurement("gpu-01", 2.0, 90.0, 30.0, 31.0), measurement("gpu-02", 30.0, 30.0, 30.0))
        verdict = verdicts(result)["gpu-01"]
        assert (verdict.status, verdict.value, verdict.samples) == (Status.PASS, 30.5, (30.0, 31.0))
        assert verdict.message == "expected ≥ 20 MB/s, actual 30.5 MB/s; median of 2 samples"
        few = verdicts(result)["gpu-02"]
        assert few.status is Status.UNMEASURED
        assert few.message == "expected 2 or more samples after 2 of warm-up, actual 1"

    @pytest.mark.parametrize("count", [1, 2])
    def test_nothing_but_warm_up_is_no_number(self, count: int) -> None:
        verdict = verdicts(judged(architecture(criterion(warmup=2)), measurement("gpu-01", *[30.0] * count)))["gpu-01"]
        assert verdict.status is Status.UNMEASURED
        assert verdict.message == "expected 1 or more samples after 2 of warm-up, actual 0"

    def test_there_is_no_p99_of_five_samples(self) -> None:
        made = architecture(criterion(statistic="p1"))
        verdict = verdicts(judged(made, measurement("gpu-01", *[30.0] * 5)))["gpu-01"]
        assert (verdict.status, verdict.message) == (Status.UNMEASURED, "p1 needs 100 samples, actual 5")
        verdict = verdicts(judged(made, measurement("gpu-01", *[30.0] * 99, 10.0)))["gpu-01"]
        assert (verdict.status, verdict.value) == (Status.FAIL, 10.0)
        assert verdict.message == "expected ≥ 20 MB/s, actual 10 MB/s; p1 of 100 samples"


class TestSeveralMeasurements:
    def test_the_latest_with_samples_counts_and_replaces_by_name(self) -> None:
        made = architecture(criterion())
        result = judged(made, measurement("gpu-01", 90.0), measurement("gpu-01", 10.0))
        verdict = verdicts(result)["gpu-01"]
        assert (verdict.status, verdict.value) == (Status.FAIL, 10.0)
        assert verdict.message.endswith("; the latest of 2 measurements")

    def test_a_later_number_replaces_an_earlier_reason(self) -> None:
        result = judged(
            architecture(criterion()), measurement("gpu-01", reason="not reached"), measurement("gpu-01", 30.0)
        )
        assert verdicts(result)["gpu-01"].message == "expected ≥ 20 MB/s, actual 30 MB/s; one sample"

    def test_a_later_reason_replaces_a_reason_but_no_number(self) -> None:
        made = architecture(criterion())
        first, second = measurement("gpu-01", reason="first"), measurement("gpu-01", reason="second")
        assert verdicts(judged(made, first, second))["gpu-01"].message == "second"
        kept = verdicts(judged(made, measurement("gpu-01", 30.0), second))["gpu-01"]
        assert kept.status is Status.PASS
        assert kept.message == "expected ≥ 20 MB/s, actual 30 MB/s; one sample; a later attempt failed: second"
        again = verdicts(judged(made, measurement("gpu-01", 30.0), second, measurement("gpu-01", 31.0)))["gpu-01"]
        assert "attempt failed" not in again.message

    def test_a_later_failure_with_fewer_labels_is_reported(self) -> None:
        early = measurement("gpu-01", storage="nfs", reason="mount lost")
        for where in ({"storage": "nfs"}, {"storage": "nfs", "block_bytes": 1048576}):
            made = architecture(criterion(where=where))
            verdict = verdicts(judged(made, measurement("gpu-01", 30.0), early))["gpu-01"]
            assert verdict.message.endswith("; a later attempt failed: mount lost")
            assert "attempt" not in verdicts(judged(made, early, measurement("gpu-01", 30.0)))["gpu-01"].message

    def test_a_later_failure_of_the_rack_is_reported(self) -> None:
        made = architecture(criterion(scope="rack"))
        good, bad = measurement(GPU, 30.0, scope=RACK), measurement(NODES, scope=RACK, reason="a node went")
        assert verdicts(judged(made, good, bad))["rack"].message.endswith("; a later attempt failed: a node went")

    def test_two_answers_to_one_question_are_invalid(self) -> None:
        small = measurement("gpu-01", 5.0, storage="nfs", block_bytes="4096")
        for order in ((small, measurement("gpu-01", 30.0)), (measurement("gpu-01", 30.0), small)):
            verdict = verdicts(judged(architecture(criterion()), *order))["gpu-01"]
            assert verdict.status is Status.INVALID
            assert verdict.message == (
                "several measurements fit: "
                "storage.read_bandwidth[block_bytes=1048576,storage=nfs]; "
                "storage.read_bandwidth[block_bytes=4096,storage=nfs]"
            )

    def test_half_an_answer_is_not_taken_for_the_whole(self) -> None:
        """Two rails answer, one of them with a failure: the good rail must not speak for both."""
        made = architecture(criterion(metric="link.tcp_bandwidth", where={}, scope="pair", bar=bar("ge", 1, "Gb/s")))
        dead = measurement(GPU, metric="link.tcp_bandwidth", rail="1", reason="refused")
        assert verdicts(judged(made, link(9.0), dead))["gpu-01|gpu-02"].status is Status.INVALID


class TestShares:
    MADE = architecture(criterion(scope="rack", bar=SHARE))

    def test_a_share_shows_both_numbers(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement(GPU, 84.1, scope=RACK), link(0.944)))["rack"]
        assert verdict.status is Status.PASS
        assert verdict.message == (
            "expected ≥ 60 % of link.tcp_bandwidth[rail=0], actual 71.3 % (84.1 MB/s of 118 MB/s); one sample"
        )
        assert verdict.value == pytest.approx(71.27, abs=0.01)
        assert (verdict.unit, verdict.bar, verdict.bar_value) == ("percent", "≥ 60 %", 60.0)
        assert (verdict.measured, verdict.measured_unit) == (84.1, "MB/s")
        assert (verdict.ceiling, verdict.ceiling_unit) == (pytest.approx(118.0), "MB/s")
        assert verdict.ceiling_of == "link.tcp_bandwidth[rail=0]"
        assert verdict.raw == ("raw-of-gpu-01-gpu-02",)
        assert verdict.samples == (84.1,)

    def test_below_the_share_fails(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement(GPU, 50.0, scope=RACK), link(0.944)))["rack"]
        assert verdict.status is Status.FAIL
        assert verdict.distance_pct == pytest.approx(-29.4, abs=0.1)

    def test_a_missing_reference_is_named(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement(GPU, 84.1, scope=RACK)))["rack"]
        assert verdict.status is Status.UNMEASURED
        assert verdict.message == (
            "no reference for the share: link.tcp_bandwidth[rail=0]: unmeasured on gpu-01|gpu-02 (1 of 1): "
            "no measurement of link.tcp_bandwidth[rail=0]"
        )

    def test_one_pair_without_a_number_leaves_no_reference(self) -> None:
        run = run_info("gpu-01", "gpu-02", "gpu-03", "sto-01")
        taken = measurement(("gpu-01", "gpu-02", "gpu-03"), 84.1, scope=RACK)
        verdict = verdicts(judged(self.MADE, taken, link(0.9), link(0.9, pair=("gpu-01", "gpu-03")), run=run))["rack"]
        assert verdict.status is Status.UNMEASURED
        assert "unmeasured on gpu-02|gpu-03 (1 of 3)" in verdict.message

    @pytest.mark.parametrize("zero", [0.0, 5e-324])
    def test_a_reference_of_nought_is_invalid(self, zero: float) -> None:
        verdict = verdicts(judged(self.MADE, measurement(GPU, 84.1, scope=RACK), link(zero)))["rack"]
        assert verdict.status is Status.INVALID
        assert verdict.message == "no reference for the share: link.tcp_bandwidth[rail=0] is 0"

    def test_an_impossible_reference_is_invalid(self) -> None:
        verdict = verdicts(judged(self.MADE, measurement(GPU, 84.1, scope=RACK), link(math.nan)))["rack"]
        assert verdict.status is Status.INVALID

    def test_a_noisy_reference_is_invalid_where_its_scatter_is_limited(self) -> None:
        of = SHARE["of"] | {"max_cv_pct": 10, "min_samples": 2}  # type: ignore[operator]
        made = architecture(criterion(scope="rack", bar=SHARE | {"of": of}))
        taken = measurement(GPU, 84.1, scope=RACK)
        assert verdicts(judged(made, taken, link(0.5, 1.5)))["rack"].status is Status.INVALID
        assert verdicts(judged(self.MADE, taken, link(0.5, 1.5)))["rack"].status is Status.PASS

    @pytest.mark.parametrize(
        ("rates", "status"),
        [
            ((99.0, 0.94, 0.95), "PASS"),  # the warm-up is dropped
            ((99.0, 0.94), "UNMEASURED"),
            ((0.94, 0.5, 1.5), "INVALID"),
        ],
    )
    def test_a_reference_is_asked_on_the_terms_of_the_criterion(self, rates: tuple[float, ...], status: str) -> None:
        made = architecture(criterion(scope="rack", warmup=1, min_samples=2, max_cv_pct=10, bar=SHARE))
        taken = measurement(GPU, 84.1, 84.1, 84.1, scope=RACK)
        verdict = verdicts(judged(made, taken, link(*rates)))["rack"]
        assert verdict.status.value == status, verdict.message
        own = SHARE["of"] | {"warmup": 0, "min_samples": 1, "max_cv_pct": 200}  # type: ignore[operator]
        free = made.model_copy(
            update={
                "criteria": tuple(
                    entry.model_copy(
                        update={"pass_": entry.pass_.model_copy(update={"of": Reference.model_validate(own)})}
                    )
                    for entry in made.criteria
                )
            }
        )
        assert verdicts(judged(free, taken, link(*rates)))["rack"].status in (Status.PASS, Status.FAIL)

    def asked(self, reference: dict[str, Any], taken: Measurement) -> Number | NoNumber:
        of = Reference.model_validate(SHARE["of"] | reference)  # type: ignore[operator]
        made = architecture(criterion(scope="rack", bar=SHARE))
        wanted = NeededConditions(frozenset({"streams"}), frozenset({"application_bytes", "counter_bytes"}))
        numbers = Numbers(Index([taken], wanted), Members(made, run_info().nodes))
        asked = Question("storage.read_bandwidth", RACK, frozenset({("storage", "nfs")}), Statistic.MEDIAN)
        return Whole(made, of, made.criteria[0], GPU, numbers).number(GPU, asked)

    def test_a_reference_measured_otherwise_is_invalid(self) -> None:
        stated = link(0.9).model_copy(update={"conditions": {"streams": 1}})
        assert isinstance(self.asked({"conditions": {"streams": 1}}, stated), Number)
        for asks, taken in (({"streams": 8}, stated), ({"streams": 1}, link(0.9))):
            verdict = self.asked({"conditions": asks}, taken)
            assert isinstance(verdict, NoNumber)
            assert "measured under other conditions" in verdict.why

    def test_a_reference_that_does_not_prove_itself_is_invalid(self) -> None:
        counted = {"application_bytes": (100.0,), "counter_bytes": (101.0,)}
        assert isinstance(self.asked({"gates": ["byte_counters"]}, with_companions(counted)), Number)
        counted = {"application_bytes": (100.0,), "counter_bytes": (2.0,)}
        for taken in (with_companions(counted), link(0.9)):
            verdict = self.asked({"gates": ["byte_counters"]}, taken)
            assert isinstance(verdict, NoNumber)
            assert "byte_counters" in verdict.why

    def test_references_that_differ_in_the_kind_of_a_condition_are_not_mixed_up(self) -> None:
        """True and 1 are equal, and a condition that is the one is not the other."""
        made = architecture(criterion())
        taken = measurement("gpu-01", 30.0, conditions={"direct": True})
        numbers = Numbers(Index([taken], NeededConditions(frozenset({"direct"}))), Members(made, run_info().nodes))
        ask = Question("storage.read_bandwidth", Scope.NODE, frozenset({("storage", "nfs")}), Statistic.MEDIAN)
        answers = [numbers.remembering(replace(ask, conditions=(("direct", c),)))(["gpu-01"]) for c in (True, 1)]
        assert [type(number) for number in answers] == [Number, NoNumber]

    def test_references_on_the_rack_of_two_groups_are_not_mixed_up(self) -> None:
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "rack"}
        share = {"op": "ge", "value": 50, "unit": "percent", "of": of}
        made = architecture(
            criterion(id="a", scope="rack", bar=share), criterion(id="b", scope="rack", members="all", bar=share)
        )
        result = judged(
            made,
            measurement(NODES, 80.0, scope=RACK),
            measurement(GPU, 80.0, scope=RACK),
            measurement(GPU, 100.0, scope=RACK, storage="local"),
            measurement(NODES, 400.0, scope=RACK, storage="local"),
        )
        assert statuses(result, "a") == {"rack": "PASS"}
        assert statuses(result, "b") == {"rack": "FAIL"}

    def test_more_than_a_hundred_times_the_whole_is_invalid(self) -> None:
        for rate, status in ((0.009, Status.PASS), (0.006, Status.INVALID)):
            verdict = verdicts(judged(self.MADE, measurement(GPU, 84.1, scope=RACK), link(rate)))["rack"]
            assert verdict.status is status
        assert verdict.message == (
            "84.1 MB/s of 0.75 MB/s, link.tcp_bandwidth[rail=0]: more than 100 times the reference,"
            " so one of the two is wrong"
        )
        assert verdict.measured == 84.1

    def test_each_member_is_compared_with_its_own_reference(self) -> None:
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node", "reduce": "each"}
        made = architecture(criterion(bar=bar("ge", 0.5, "ratio", of=of)))
        result = judged(
            made,
            measurement("gpu-01", 40.0),
            measurement("gpu-02", 40.0),
            measurement("gpu-01", 50.0, storage="local", block_bytes="1"),
            measurement("gpu-02", 100.0, storage="local", block_bytes="1"),
        )
        assert statuses(result) == {"gpu-01": "PASS", "gpu-02": "FAIL"}
        assert verdicts(result)["gpu-02"].message == (
            "expected ≥ 0.5 of storage.read_bandwidth[storage=local], actual 0.4 (40 MB/s of 100 MB/s); one sample"
        )


class TestReducedMembers:
    def test_min_needs_every_member(self) -> None:
        made = architecture(criterion(reduce="min"))
        (verdict,) = verdicts(judged(made, measurement("gpu-01", 99.0))).values()
        assert (verdict.subject, verdict.status) == ("rack", Status.UNMEASURED)
        assert verdict.message == (
            "unmeasured on gpu-02 (1 of 2): no measurement of storage.read_bandwidth[storage=nfs]"
        )

    @pytest.mark.parametrize(("reduce", "value"), [("min", 10.0), ("median", 20.0), ("sum", 40.0)])
    def test_one_number_for_the_group(self, reduce: str, value: float) -> None:
        made = architecture(criterion(reduce=reduce))
        (verdict,) = verdicts(judged(made, measurement("gpu-01", 10.0), measurement("gpu-02", 30.0))).values()
        assert (verdict.value, verdict.samples) == (value, (10.0, 30.0))
        assert verdict.statistic == f"{reduce} of nodes, median of each"
        assert verdict.raw == ("raw-of-gpu-01", "raw-of-gpu-02")

    def test_one_invalid_member_spoils_the_group(self) -> None:
        made = architecture(criterion(reduce="sum"))
        (verdict,) = verdicts(judged(made, measurement("gpu-01", 10.0), measurement("gpu-02", -1.0))).values()
        assert verdict.status is Status.INVALID
        assert verdict.message == "invalid on gpu-02 (1 of 2): a sample is -1 MB/s, which is impossible"

    FAIR = architecture(criterion(reduce="min_over_median", bar=bar("ge", 0.5, "ratio")))

    def test_fairness_names_the_slowest(self) -> None:
        result = judged(
            self.FAIR,
            *(measurement(name, value) for name, value in (("gpu-01", 20.0), ("gpu-02", 8.0), ("gpu-03", 20.0))),
            run=run_info("gpu-01", "gpu-02", "gpu-03", "sto-01"),
        )
        verdict = verdicts(result)["rack"]
        assert verdict.status is Status.FAIL
        assert (
            verdict.message
            == "expected ≥ 0.5 of the median of nodes, actual 0.4 (gpu-02: 8 MB/s of 20 MB/s); one sample each"
        )
        assert (verdict.measured, verdict.ceiling, verdict.ceiling_of) == (8.0, 20.0, "the median of nodes")

    @pytest.mark.parametrize(
        ("values", "starved", "status"),
        [
            # the two starved ones may be able to give 20, of which the third is too small a share
            ((8.0, 8.0, 7.0), (0, 1), Status.INVALID),
            ((8.0, 8.0, 7.0), (0, 1, 2), Status.PASS),
            ((8.0, 8.0, 7.0), (2,), Status.PASS),
            ((8.0, 8.0, 7.0), (), Status.PASS),
            ((20.0, 20.0, 7.0), (2,), Status.INVALID),
        ],
    )
    def test_fairness_beside_starved_members(
        self, values: tuple[float, ...], starved: tuple[int, ...], status: Status
    ) -> None:
        names = ("gpu-01", "gpu-02", "gpu-03")
        taken = [
            measurement(name, value, conditions={"steal_pct": 60.0} if number in starved else {})
            for number, (name, value) in enumerate(zip(names, values, strict=True))
        ]
        verdict = verdicts(judged(self.FAIR, *taken, run=run_info(*names, "sto-01")))["rack"]
        assert verdict.status is status
        assert "was starved" in verdict.message or status is Status.PASS

    def test_the_spread_names_both_ends(self) -> None:
        bar = {"op": "le", "value": 50, "unit": "percent"}
        made = architecture(criterion(reduce="spread_over_median", bar=bar))
        names = ("gpu-01", "gpu-02", "gpu-03")
        taken = [measurement(name, value) for name, value in zip(names, (20.0, 8.0, 24.0), strict=True)]
        verdict = verdicts(judged(made, *taken, run=run_info(*names, "sto-01")))["rack"]
        assert (verdict.status, verdict.value, verdict.measured) == (Status.FAIL, 80.0, 16.0)
        assert verdict.message == (
            "expected ≤ 50 % of the median of nodes, actual 80 %"
            " (gpu-02 8 MB/s, gpu-03 24 MB/s: 16 MB/s of 20 MB/s); one sample each"
        )

    @pytest.mark.parametrize("reduce", ["median", "min", "max"])
    def test_a_share_of_a_group_of_one_is_no_share(self, reduce: str) -> None:
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "nfs"}, "scope": "node", "reduce": reduce}
        made = architecture(criterion(bar=bar("ge", 90, "percent", of=of)))
        taken = [measurement(name, 20.0) for name in GPU]
        assert {v.status for v in verdicts(judged(made, *taken)).values()} == {Status.PASS}
        alone = verdicts(judged(made, taken[0], run=run_info("gpu-01", "sto-01")))["gpu-01"]
        assert alone.status is Status.UNMEASURED
        assert alone.message.endswith(": a comparison between members needs at least two of them")

    def test_a_share_of_another_quantity_of_one_node_is_one(self) -> None:
        of = {"metric": "storage.read_bandwidth", "where": {"storage": "local"}, "scope": "node", "reduce": "median"}
        made = architecture(criterion(bar=bar("ge", 90, "percent", of=of)))
        both = [measurement("gpu-01", 20.0), measurement("gpu-01", 21.0, storage="local", block_bytes="1")]
        alone = verdicts(judged(made, *both, run=run_info("gpu-01", "sto-01")))["gpu-01"]
        assert alone.status is Status.PASS

    def test_differing_numbers_of_samples_are_reported(self) -> None:
        made = architecture(criterion(reduce="min"))
        result = judged(made, measurement("gpu-01", 30.0), measurement("gpu-02", 30.0, 31.0, 32.0))
        assert verdicts(result)["rack"].message.endswith("; 1 to 3 samples each")

    def test_fairness_of_one_is_unmeasured_and_of_nothing_invalid(self) -> None:
        (alone,) = verdicts(judged(self.FAIR, measurement("gpu-01", 20.0), run=run_info("gpu-01", "sto-01"))).values()
        assert alone.status is Status.UNMEASURED
        assert "at least two" in alone.message
        (nought,) = verdicts(judged(self.FAIR, measurement("gpu-01", 0.0), measurement("gpu-02", 0.0))).values()
        assert nought.status is Status.INVALID


class TestTheWhole:
    def test_advisory_criteria_do_not_decide(self) -> None:
        made = architecture(criterion(), criterion(id="nice", severity="advisory", where={"storage": "local"}))
        result = judged(made, measurement("gpu-01", 30.0), measurement("gpu-02", 30.0))
        assert {v.required for v in verdicts(result, "nice").values()} == {False}
        assert set(statuses(result, "nice").values()) == {"UNMEASURED"}
        assert result.outcome is Outcome.CERTIFIED

    def test_simulated_measurements_are_marked(self) -> None:
        taken = measurement("gpu-01", 30.0).model_copy(update={"simulated": True})
        result = judged(architecture(criterion()), taken, measurement("gpu-02", 30.0))
        assert [v.simulated for v in verdicts(result).values()] == [True, False]

    @pytest.mark.parametrize("scope", ["gpu", "node"])
    def test_gpu_numbers_of_nodes_that_replay_their_gpus_are_simulated(self, scope: str) -> None:
        """Whatever the measurement says."""
        members = Members(
            architecture(criterion()), run_info("gpu-01", "gpu-02", "sto-01", simulated=("gpu-01",)).nodes
        )
        name = {"gpu": "{}/gpu0", "node": "{}"}[scope]
        taken = [measurement(name.format(n), 90.0, metric="gpu.utilisation", scope=Scope(scope)) for n in GPU]
        numbers = Numbers(Index(taken), members)
        ask = Question("gpu.utilisation", Scope(scope), frozenset(), Statistic.MEDIAN)
        assert [numbers.ask(ask, (name.format(n),)).simulated for n in GPU] == [True, False]

    def test_other_numbers_of_such_nodes_are_not(self) -> None:
        run = run_info("gpu-01", "gpu-02", "sto-01", simulated=GPU)
        assert not verdicts(judged(architecture(criterion()), measurement("gpu-01", 30.0), run=run))["gpu-01"].simulated

    def test_a_simulated_reference_marks_the_share(self) -> None:
        made = architecture(criterion(scope="rack", bar=SHARE))
        taken = measurement(GPU, 84.1, scope=RACK), link(0.9).model_copy(update={"simulated": True})
        assert verdicts(judged(made, *taken))["rack"].simulated

    def test_verdicts_are_sorted_and_survive_being_written(self) -> None:
        made = architecture(
            criterion(id="z"), criterion(id="a"), criterion(id="n", where={"storage": ["nfs", "local"]})
        )
        result = judged(made, measurement("gpu-02", 30.0, 80.0), measurement("gpu-01", math.nan))
        keys = [(v.kind, v.id, v.subject) for v in result.verdicts]
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys)
        text = result.model_dump_json()
        assert '"schema":"rackproof.verdicts/v2"' in text
        assert Judgement.model_validate_json(text) == result

    def test_one_kind_alone_has_an_outcome_of_its_own(self) -> None:
        result = judged(architecture(criterion()), measurement("gpu-01", 1.0), measurement("gpu-02", 1.0))
        assert result.outcome is Outcome.NOT_CERTIFIED
        assert result.restricted_to("check").outcome is Outcome.PASSED
        assert {v.kind for v in result.restricted_to("criterion").verdicts} == {"criterion"}
        assert result.restricted_to("criterion").outcome is Outcome.NOT_CERTIFIED
