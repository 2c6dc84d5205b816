"""How quantities grow with the rack."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Verdict
from tests.unit.judging import architecture, judged, measurement, run_info, verdicts

NAMES = tuple(f"gpu-{number:02d}" for number in range(1, 9))
RUN = run_info(*NAMES, "sto-01")


def curve(**fields: Any) -> dict[str, Any]:
    return {
        "id": "scaling",
        "title": "Growth",
        "metric": "storage.read_bandwidth",
        "where": {"storage": "nfs"},
        "over": "clients",
        "points": [1, 2, 4, 8],
        "baseline": 1,
        "efficiency_min": 0.9,
        "r2_min": 0.98,
        "no_negative_step": True,
        "source": "us",
        "reason": "Because it is so.",
        "hint": "Look at it.",
    } | fields


def made(**fields: Any) -> Architecture:
    return architecture(curves=[curve(**fields)])


def at(point: int, *samples: float, nodes: int | None = None, over: str = "clients", **more: Any) -> Measurement:
    metric = more.pop("metric", "storage.read_bandwidth")
    labels = {over: str(point)} | ({"storage": "nfs"} if metric.startswith("storage") else more.pop("labels"))
    return measurement(NAMES[: nodes or point], *samples, metric=metric, scope=Scope.RACK, **more, **labels)


def grown(values: dict[int, float]) -> list[Measurement]:
    return [at(point, value) for point, value in values.items()]


LINEAR = {1: 100.0, 2: 200.0, 4: 400.0, 8: 800.0}


def of(architecture: Architecture, *taken: Measurement) -> dict[str, Verdict]:
    """By what stands in brackets."""
    result = judged(architecture, *taken, run=RUN)
    ids = {v.id for v in result.verdicts if v.kind == "criterion"}
    return {id_.removeprefix("scaling[").removesuffix("]"): verdicts(result, id_)["rack"] for id_ in ids}


def statuses(by_id: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.status.value for name, verdict in by_id.items()}


ALL = ("efficiency@2", "efficiency@4", "efficiency@8", "r2", "steps")


def test_linear_growth_passes_everything() -> None:
    by_id = of(made(), *grown(LINEAR))
    assert statuses(by_id) == dict.fromkeys(ALL, "PASS")
    verdict = by_id["efficiency@8"]
    assert verdict.message == (
        "expected ≥ 0.9 of linear growth from 1 clients, actual 1 (800 MB/s of 800 MB/s at 8); one sample at each point"
    )
    assert (verdict.value, verdict.bar_value, verdict.unit) == (1.0, 0.9, "ratio")
    assert (verdict.measured, verdict.ceiling, verdict.measured_unit) == (800.0, 800.0, "MB/s")
    assert (verdict.samples, verdict.source, verdict.hint) == ((100.0, 800.0), "us", "Look at it.")
    assert verdict.raw == ("raw-of-gpu-01", f"raw-of-{'-'.join(NAMES)}")
    assert by_id["r2"].value == pytest.approx(1.0)
    assert by_id["steps"].value == 100.0


def test_what_flattens_is_named_where_it_does() -> None:
    by_id = of(made(r2_min=0.99), *grown(LINEAR | {8: 500.0}))
    assert statuses(by_id) == {
        "efficiency@2": "PASS",
        "efficiency@4": "PASS",
        "efficiency@8": "FAIL",
        "r2": "FAIL",
        "steps": "PASS",
    }
    assert by_id["efficiency@8"].value == 0.625
    assert by_id["efficiency@8"].distance_pct == pytest.approx(-30.6, abs=0.1)


def test_a_step_down_is_named() -> None:
    verdict = of(made(), *grown(LINEAR | {8: 390.0}))["steps"]
    assert (verdict.status, verdict.value) == (Status.FAIL, -2.5)
    assert verdict.message == (
        "expected no step down, actual 400 MB/s → 390 MB/s from 4 to 8 clients; one sample at each point"
    )


def test_another_baseline() -> None:
    """The rate of one client alone may be limited by the client."""
    by_id = of(made(baseline=4), *grown({1: 150.0, 2: 250.0, 4: 400.0, 8: 790.0}))
    assert {name for name in by_id if name.startswith("eff")} == {"efficiency@1", "efficiency@2", "efficiency@8"}
    assert by_id["efficiency@8"].value == pytest.approx(0.9875)


@pytest.mark.parametrize("missing", [2, 8])
def test_a_gap_leaves_the_line_and_the_steps_without_a_verdict(missing: int) -> None:
    by_id = of(made(), *grown({point: value for point, value in LINEAR.items() if point != missing}))
    unmeasured = {name for name, verdict in by_id.items() if verdict.status is Status.UNMEASURED}
    assert unmeasured == {f"efficiency@{missing}", "r2", "steps"}
    assert by_id["r2"].message == (
        f"unmeasured at {missing} clients: no measurement of storage.read_bandwidth[clients={missing},storage=nfs]"
    )


def test_without_the_baseline_there_is_no_efficiency() -> None:
    by_id = of(made(), *grown({point: value for point, value in LINEAR.items() if point != 1}))
    assert statuses(by_id) == dict.fromkeys(ALL, "UNMEASURED")


def test_nothing_measured_nothing_passed() -> None:
    result = judged(made(), run=RUN)
    assert result.outcome is Outcome.INCOMPLETE
    assert statuses(of(made())) == dict.fromkeys(ALL, "UNMEASURED")
    without_nodes = judged(made(), run=run_info("sto-01"))
    assert {v.message for v in without_nodes.verdicts if v.kind == "criterion"} == {
        "unmeasured at 1, 2 clients: no node in group gpu",
        "unmeasured at 1, 4 clients: no node in group gpu",
        "unmeasured at 1, 8 clients: no node in group gpu",
        "unmeasured at 1, 2, 4, 8 clients: no node in group gpu",
    }


def test_an_invalid_point_is_invalid() -> None:
    taken = [*(at(n, 100.0 * n, 100.0 * n) for n in (1, 2, 4)), at(8, 100.0, 900.0)]
    by_id = of(made(max_cv_pct=10, min_samples=2), *taken)
    assert statuses(by_id) == dict.fromkeys(ALL, "PASS") | dict.fromkeys(("efficiency@8", "r2", "steps"), "INVALID")


STEAL = {"steal_pct": 60.0}


@pytest.mark.parametrize(
    ("starved", "expected"),
    [
        ((1,), "IIIII"),  # the baseline
        ((2,), "PPPII"),
        ((1, 2, 4), "PPIII"),
        ((8,), "PPPPP"),  # too low at the end: growth is no better for it
        ((4, 8), "PPPPP"),
        ((1, 2, 4, 8), "PPPPP"),
    ],
)
def test_growth_after_a_starved_point_proves_nothing(starved: tuple[int, ...], expected: str) -> None:
    taken = [at(point, value, conditions=STEAL if point in starved else {}) for point, value in LINEAR.items()]
    by_id = statuses(of(made(), *taken))
    assert "".join(by_id[name][0] for name in ALL) == expected


def test_a_falling_line_is_no_growth_however_well_it_fits() -> None:
    verdict = of(made(), *grown({1: 800.0, 2: 700.0, 4: 500.0, 8: 100.0}))["r2"]
    assert verdict.value == pytest.approx(1.0)
    assert verdict.status is Status.FAIL
    assert "of a falling line" in verdict.message


def test_a_flat_line_has_no_fit_and_nothing_to_compare_with() -> None:
    by_id = of(made(), *grown(dict.fromkeys(LINEAR, 100.0)))
    assert by_id["r2"].status is Status.INVALID
    assert by_id["steps"].status is Status.PASS
    zero = of(made(), *grown(dict.fromkeys(LINEAR, 0.0)))
    assert {zero[name].status for name in ALL} == {Status.INVALID}


def test_two_points_are_no_line() -> None:
    checked = made()
    (entry,) = checked.curves
    checked = checked.model_copy(update={"curves": (entry.model_copy(update={"points": (1, 2)}),)})
    verdict = of(checked, *grown(LINEAR))["r2"]
    assert (verdict.status, verdict.message) == (Status.UNMEASURED, "expected 3 or more points, actual 2")


def test_only_what_is_asked_for_is_judged() -> None:
    assert set(of(made(efficiency_min=None, r2_min=None), *grown(LINEAR))) == {"steps"}


def test_two_measurements_of_one_point_are_two_answers() -> None:
    again = measurement(NAMES[4:6], 210.0, scope=Scope.RACK, storage="nfs", clients="2")
    verdict = of(made(), *grown(LINEAR), again)["efficiency@2"]
    assert verdict.status is Status.INVALID
    assert verdict.message.endswith(
        "several measurements fit: storage.read_bandwidth[clients=2,storage=nfs] on gpu-[01-02]; "
        "storage.read_bandwidth[clients=2,storage=nfs] on gpu-[05-06]"
    )


@pytest.mark.parametrize("point", [1, 4])
def test_a_point_of_nought_is_no_point(point: int) -> None:
    by_id = of(made(), *grown(LINEAR | {point: 0.0}))
    assert by_id["steps"].status is Status.INVALID
    assert by_id["r2"].status is Status.INVALID
    assert by_id["r2"].message.endswith("storage.read_bandwidth is 0, so no growth can be computed")


def test_more_than_twice_linear_growth_is_a_broken_baseline() -> None:
    by_id = of(made(), *grown(LINEAR | {1: 49.0}))
    assert {by_id[f"efficiency@{n}"].status for n in (2, 4, 8)} == {Status.INVALID}
    assert by_id["efficiency@8"].message == (
        "efficiency 2.04 (800 MB/s of 392 MB/s at 8), more than 2: the baseline, 1 clients, is broken"
    )
    assert of(made(), *grown(LINEAR | {1: 50.0}))["efficiency@8"].status is Status.PASS


def test_nodes_of_another_group_do_not_answer() -> None:
    foreign = measurement((*NAMES[:7], "sto-01"), 800.0, scope=Scope.RACK, storage="nfs", clients="8")
    assert of(made(), *grown({1: 100.0, 2: 200.0, 4: 400.0}), foreign)["efficiency@8"].status is Status.UNMEASURED


@pytest.mark.parametrize(
    ("over", "point", "nodes", "status"),
    [
        ("gpus", 16, 2, Status.PASS),
        ("gpus", 16, 4, Status.PASS),
        ("gpus", 16, 1, Status.INVALID),
        ("nodes", 2, 2, Status.PASS),
        ("nodes", 2, 4, Status.INVALID),
        ("nodes", 2, 1, Status.INVALID),
        ("clients", 2, 2, Status.PASS),
        ("clients", 2, 4, Status.INVALID),
        ("clients", 2, 1, Status.INVALID),
    ],
)
def test_the_label_must_agree_with_who_took_part(over: str, point: int, nodes: int, status: Status) -> None:
    first, last = (8, 16) if over == "gpus" else (1, 2)
    fields = {
        "metric": "ingest.samples_rate",
        "where": {},
        "over": over,
        "points": [first, last],
        "baseline": first,
        "r2_min": None,
        "no_negative_step": False,
    }
    more: dict[str, Any] = {"metric": "ingest.samples_rate", "labels": {}}
    if over == "clients":
        fields, more = fields | {"metric": "storage.read_bandwidth", "where": {"storage": "nfs"}}, {}
    gpu = {"count": 8, "model": "A", "memory_mib": None, "source": "us"}
    checked = architecture(curves=[curve(**fields)], gpu=gpu)
    taken = [
        at(first, 100.0, nodes=1, over=over, **dict(more)),
        at(last, 190.0, nodes=nodes, over=over, **dict(more)),
    ]
    assert of(checked, *taken)[f"efficiency@{point}"].status is status
