"""Verdicts on pairs become verdicts on nodes."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.judging.attribution import attributed
from rackproof.core.judging.folding import FEWEST, folded
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, outcome_for
from tests.unit.judging import architecture, bar, criterion, judged, measurement, run_info, verdicts

NAMES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05")


def of_pair(a: str, b: str, status: Status, distance: float = 0.0, seq: int = 0) -> Verdict:
    return Verdict(
        id="x", kind="criterion", title="x", subject=f"{a}|{b}", status=status, required=True, message="m",
        distance_pct=distance, records=(seq,),
    )  # fmt: skip


def test_a_node_has_the_verdict_of_its_worst_pair() -> None:
    made = [of_pair(a, b, Status.PASS, 10.0 * int(a[-1]) + int(b[-1])) for a, b in combinations(NAMES, 2)]
    by_node = {verdict.subject: verdict for verdict in folded(made)}
    assert tuple(by_node) == NAMES
    assert by_node["gpu-04"].message == "gpu-01 ↔ gpu-04: m; the worst of 4 pairs"
    assert by_node["gpu-04"].distance_pct == 14.0


def test_a_pair_without_others_is_the_only_one() -> None:
    made = [of_pair("gpu-01", "gpu-02", Status.PASS), of_pair("gpu-03", "gpu-04", Status.UNMEASURED)]
    assert {v.message for v in folded(made)} == {
        "gpu-01 ↔ gpu-02: m; the only pair", "gpu-03 ↔ gpu-04: m; the only pair",
    }  # fmt: skip


def test_a_sick_node_fails_alone_and_its_partners_pass() -> None:
    link = {"metric": "link.tcp_bandwidth", "where": {"rail": 0}, "scope": "pair"}
    made = architecture(criterion(**link, bar=bar("ge", 5, "Gb/s")))
    taken = [
        measurement(pair, 1.0 if "gpu-02" in pair else 9.0, metric="link.tcp_bandwidth", rail="0")
        for pair in combinations(NAMES, 2)
    ]
    run = run_info(*NAMES, "sto-01")
    by_node = verdicts(judged(made, *taken, run=run))
    assert {name for name, verdict in by_node.items() if verdict.status is Status.FAIL} == {"gpu-02"}
    missing = verdicts(judged(made, *taken[1:], run=run))  # gpu-01|gpu-02
    assert missing["gpu-01"].status is Status.UNMEASURED
    assert missing["gpu-01"].message.startswith("gpu-01 ↔ gpu-02: no measurement of")
    assert missing["gpu-01"].message.endswith("; 1 of 4 pairs, this one first")


def test_a_node_whose_pairs_all_fail_by_others_is_not_shown_to_be_well() -> None:
    made = [
        of_pair(a, b, Status.FAIL).model_copy(update={"blame": a, "value": 1.0, "samples": (1.0,)})
        if b == "gpu-05"
        else of_pair(a, b, Status.PASS)
        for a, b in combinations(NAMES, 2)
    ]
    by_node = {verdict.subject: verdict for verdict in folded(made)}
    assert {name for name, verdict in by_node.items() if verdict.status is Status.FAIL} == {*NAMES[:4]}
    alone = by_node["gpu-05"]
    assert (alone.status, alone.value, alone.samples, alone.blame) == (Status.UNMEASURED, None, (), None)
    assert "each of its 4 pairs fails, and is blamed on the other node" in alone.message


def test_pairs_of_few_nodes_and_verdicts_on_the_rack_stay() -> None:
    few = [of_pair(a, b, Status.PASS) for a, b in combinations(NAMES[: FEWEST - 1], 2)]
    assert list(folded(few)) == few
    rack = [of_pair("gpu-01", "gpu-02", Status.PASS).model_copy(update={"subject": "rack"})]
    assert list(folded(rack)) == rack


STATUSES = st.sampled_from([*[Status.PASS] * 6, *Status])


@given(st.integers(2, 7), st.data())
def test_the_outcome_stays_and_no_pair_that_did_not_pass_is_lost(count: int, data: st.DataObject) -> None:
    names = [f"n{k}" for k in range(count)]
    pairs = list(combinations(names, 2))
    made = list(attributed(of_pair(a, b, data.draw(STATUSES), seq=k) for k, (a, b) in enumerate(pairs)))
    after = list(folded(made))
    assert outcome_for(after) is outcome_for(made)
    assert {v.status for v in after} <= {v.status for v in made}
    for verdict in made:
        ends = {verdict.blame} if verdict.blame in names else set(verdict.subject.split("|"))
        for of_end in (v for v in after if ends & set(v.subject.split("|"))) if count >= FEWEST else ():
            assert of_end.status.rank >= verdict.status.rank
