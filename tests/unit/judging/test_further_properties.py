"""Properties of gates, conditions, levels, alternatives, curves, outliers and attribution for any evidence.

Relative tests compare members with each other, so that making one of them worse may clear another: there "a worse
sample" is about the member's own verdict.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Judgement, Verdict
from tests.unit.judging import architecture, bar, check, criterion, judged, measurement, run_info, verdicts

ORDER = [Status.PASS, Status.WARN, Status.FAIL]

NAMES = tuple(f"gpu-{number:02d}" for number in range(1, 7))
RUN = run_info(*NAMES, "sto-01")
POINTS = (1, 2, 4)
bandwidths = st.floats(min_value=0.5, max_value=200).map(lambda value: round(value, 3))
samples = st.lists(bandwidths, min_size=1, max_size=4)

ABOUT = {"title": "A title", "source": "us", "reason": "Because it is so.", "hint": "Look at it."}
NFS = {"metric": "storage.read_bandwidth", "where": {"storage": "nfs", "block_bytes": 1}}
LOCAL = {"metric": "storage.read_bandwidth", "where": {"storage": "local", "block_bytes": 1}}
BAR = {"op": "ge", "value": 50, "warn": 80, "unit": "MB/s"}
PAIR_BAR = {"op": "ge", "value": 50, "unit": "Gb/s"}
LINKS = {"port": {"title": "One port", "each": {"value": 1.4, "unit": "Gb/s", "source": "us"}}}
LEVELS = {"op": "ge", "levels": {"good": 30, "better": 60}, "unit": "MB/s"}

MADE = architecture(
    criterion(id="cold", **NFS, conditions={"cache": "cold", "ranks_min": 2}),
    criterion(id="counted", **NFS, gates=["byte_counters"]),
    criterion(id="level", **NFS, bar=LEVELS),
    criterion(id="ceiling", **NFS, ceiling={"link": "port"}, bar=BAR),
    criterion(id="line", **NFS, bar=bar("ge", 50, "percent", of={"link": "port"})),
    criterion(id="warm-up", **NFS, warmup=1, bar=BAR),
    criterion(id="spread", **NFS, reduce="spread_over_median", bar=bar("le", 1, "ratio")),
    criterion(id="either", **NFS, any_of=[{**LOCAL, "scope": "node", "pass": BAR}], bar=BAR),
    criterion(id="pairs", metric="link.tcp_bandwidth", where={"rail": 0}, scope="pair", bar=PAIR_BAR),
    criterion(id="gpus", metric="gpu.memory_bandwidth", where={}, scope="gpu", bar=BAR | {"unit": "MB/s"}),
    level="better",
    links=LINKS,
    gpu={"count": 1, "model": "A", "memory_mib": None, "source": "us"},
    checks={"gpu.count": "advisory", "gpu.model": "advisory"},
    curves=[
        {
            "id": "curve",
            **ABOUT,
            "metric": "storage.read_bandwidth",
            "where": {"storage": "nfs"},
            "over": "clients",
            "points": list(POINTS),
            "baseline": 1,
            "efficiency_min": 0.5,
            "r2_min": 0.5,
            "no_negative_step": True,
        }
    ],
    outliers=[
        {"id": "odd", **ABOUT, **NFS, "scope": "node", "rel_pct": 20},
        {
            "id": "odd-pair",
            **ABOUT,
            "metric": "link.tcp_bandwidth",
            "where": {"rail": 0},
            "scope": "pair",
            "rel_pct": 20,
        },
    ],
)

Drawn = dict[tuple[str, Any], list[float]]
PLACES: list[tuple[str, Any]] = [
    *(("nfs", name) for name in NAMES),
    *(("local", name) for name in NAMES),
    *(("gpu", name) for name in NAMES),
    *(("pair", pair) for pair in combinations(NAMES, 2)),
    *(("curve", point) for point in POINTS),
]


@st.composite
def drawn_evidence(draw: st.DrawFn) -> Drawn:
    """Numbers near each other with a few that are not, and gaps."""
    usual = draw(bandwidths)
    drawn: Drawn = {}
    for place in PLACES:
        kind = draw(st.sampled_from(("usual", "usual", "usual", "other", "none")))
        if kind != "none":
            drawn[place] = [usual, usual] if kind == "usual" else draw(samples)
    return drawn


def one(place: tuple[str, Any], values: list[float], factor: float = 1.0, prefix: str = "") -> Measurement:
    """In the metric's unit with another prefix, ``factor`` times as many of them."""
    kind, who = place
    values = [value * factor for value in values]
    match kind:
        case "pair":
            return measurement(who, *values, metric="link.tcp_bandwidth", rail="0", unit=f"{prefix or 'G'}b/s")
        case "gpu":
            return measurement(f"{who}/gpu0", *values, metric="gpu.memory_bandwidth", unit=f"{prefix or 'M'}B/s")
        case "curve":
            members, labels = NAMES[:who], {"storage": "nfs", "clients": str(who)}
            return measurement(members, *values, scope=Scope.RACK, unit=f"{prefix or 'M'}B/s", **labels)
    return measurement(
        who,
        *values,
        unit=f"{prefix or 'M'}B/s",
        conditions={"cache": "cold", "ranks": "4"},
        companions={"application_bytes": (1.0,) * len(values), "counter_bytes": (1.01,) * len(values)},
        storage=kind,
        block_bytes="1",
    )


def evidence(drawn: Drawn) -> list[Measurement]:
    return [one(place, values) for place, values in drawn.items()]


def by_key(judgement: Judgement) -> dict[tuple[str, str], Verdict]:
    verdicts = {(v.id, v.subject): v for v in judgement.verdicts if v.kind == "criterion"}
    assert len(verdicts) == sum(v.kind == "criterion" for v in judgement.verdicts)
    return verdicts


@given(drawn=drawn_evidence())
def test_scope_comes_from_the_architecture_alone(drawn: Drawn) -> None:
    verdicts = by_key(judged(MADE, *evidence(drawn), run=RUN))
    assert set(verdicts) == set(by_key(judged(MADE, run=RUN)))
    for verdict in verdicts.values():
        if verdict.status in ORDER:
            assert verdict.value is not None
            assert verdict.samples
            assert verdict.raw
        assert verdict.bar
        assert verdict.source == "us"
        assert verdict.hint
        assert verdict.message
        assert (verdict.blame is not None) == (verdict.status is Status.FAIL and verdict.id in ("pairs", "odd-pair"))


@given(drawn=drawn_evidence())
def test_verdicts_are_what_their_model_says_and_survive_being_written(drawn: Drawn) -> None:
    """The judge does not validate its own verdicts."""
    result = judged(MADE, *evidence(drawn), run=RUN)
    text = result.model_dump_json()
    assert Judgement.model_validate_json(text) == result
    for verdict in result.verdicts:
        assert Verdict.model_validate(verdict.model_dump(), strict=True).model_dump_json() == verdict.model_dump_json()
        assert list(verdict.model_dump()) == list(Verdict.model_fields)


def test_without_evidence_everything_is_unmeasured() -> None:
    verdicts = by_key(judged(MADE, run=RUN))
    assert {verdict.status for verdict in verdicts.values()} == {Status.UNMEASURED}
    without_nodes = by_key(judged(MADE, run=run_info("sto-01")))
    assert {verdict.status for verdict in without_nodes.values()} == {Status.UNMEASURED}


@given(drawn=drawn_evidence(), data=st.data())
def test_removing_evidence_never_makes_a_pass(drawn: Drawn, data: Any) -> None:
    gone = set(data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=12)))
    before = judged(MADE, *evidence(drawn), run=RUN)
    after = judged(MADE, *evidence({place: v for place, v in drawn.items() if place not in gone}), run=RUN)
    old = by_key(before)
    for key, verdict in by_key(after).items():
        if verdict.status is Status.PASS:
            assert old[key].status is Status.PASS, (old[key], verdict)
        if verdict.status is Status.WARN:
            assert old[key].status in (Status.PASS, Status.WARN), (old[key], verdict)
    if after.outcome is Outcome.CERTIFIED:
        assert before.outcome is Outcome.CERTIFIED


@given(drawn=drawn_evidence(), what=st.sampled_from(["conditions", "companions"]))
def test_removing_what_a_measurement_says_of_itself_never_makes_a_pass(drawn: Drawn, what: str) -> None:
    whole = evidence(drawn)
    bare = [taken.model_copy(update={what: {}}) for taken in whole]
    old = by_key(judged(MADE, *whole, run=RUN))
    for key, verdict in by_key(judged(MADE, *bare, run=RUN)).items():
        if verdict.status is Status.PASS:
            assert old[key].status is Status.PASS


@given(drawn=drawn_evidence(), data=st.data())
def test_the_order_of_the_evidence_does_not_matter(drawn: Drawn, data: Any) -> None:
    whole, checks = evidence(drawn), [check(name) for name in NAMES]
    first = judge(MADE, RUN, whole, checks).model_dump_json()
    assert first == judge(MADE, RUN, whole, checks).model_dump_json()
    assert first == judge(MADE, RUN, data.draw(st.permutations(whole)), checks).model_dump_json()


@given(drawn=drawn_evidence())
def test_the_unit_of_the_evidence_does_not_matter(drawn: Drawn) -> None:
    """The usual unit, and the next one below."""
    other = [one(place, v, 1e3, "M" if place[0] == "pair" else "k") for place, v in drawn.items()]
    old = by_key(judged(MADE, *evidence(drawn), run=RUN))
    new = by_key(judged(MADE, *other, run=RUN))
    assert {key: (v.status, v.blame, v.level) for key, v in old.items()} == {
        key: (v.status, v.blame, v.level) for key, v in new.items()
    }


OWN = ("level", "ceiling", "line", "warm-up", "either", "odd")
"""Verdicts on one member by its own samples."""


@given(drawn=drawn_evidence(), factor=st.floats(0, 1))
def test_a_worse_sample_never_improves_a_verdict(drawn: Drawn, factor: float) -> None:
    place = ("nfs", NAMES[0])
    values = drawn.setdefault(place, [60.0, 61.0])
    worse = drawn | {place: [*values, min(values) * factor]}
    old, new = (by_key(judged(MADE, *evidence(d), run=RUN)) for d in (drawn, worse))
    for id_ in OWN:
        before, after = old[id_, NAMES[0]], new[id_, NAMES[0]]
        if before.status in ORDER and after.status in ORDER:
            assert ORDER.index(after.status) >= ORDER.index(before.status), (before, after)
        elif id_ not in ("warm-up", "odd"):
            # one sample alone may have been the warm-up; who comes nearer to the peers makes them scatter less;
            # an INVALID number stays one
            assert after.status is before.status or after.status not in (Status.PASS, Status.WARN)


@given(value=bandwidths, best=st.sampled_from(["good", "better"]))
def test_the_level_reached_agrees_with_the_verdict(value: float, best: str) -> None:
    levels: dict[str, float] = {"good": 30, "better": 60}
    made: Architecture = architecture(criterion(bar=LEVELS), level=best)
    verdict = verdicts(judged(made, measurement("gpu-01", value)))["gpu-01"]
    reached = [name for name, limit in levels.items() if value >= limit]
    assert verdict.level == (reached[-1] if reached else None)
    assert (verdict.status is Status.PASS) == (best in reached)
