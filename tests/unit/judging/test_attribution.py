"""Whose fault a failing pair is."""

from __future__ import annotations

from itertools import combinations

import pytest

from rackproof.core.judging.attribution import BETWEEN, UNDETERMINED, attributed
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from tests.unit.judging import architecture, bar, criterion, judged, measurement, run_info, verdicts


def blames(
    nodes: str, failed: str, unknown: str = "", warned: str = "", cleared: str = "", faulty: str = ""
) -> dict[str, str | None]:
    """Blamed parts, from pairs named by two letters; those that are not named pass.

    ``cleared``, ``faulty``: nodes that group testing cleared, or names.
    """
    named = {
        **dict.fromkeys(failed.split(), Status.FAIL),
        **dict.fromkeys(unknown.split(), Status.UNMEASURED),
        **dict.fromkeys(warned.split(), Status.WARN),
    }
    made = [
        Verdict(
            id="x",
            kind="criterion",
            title="x",
            subject=f"{a}|{b}",
            status=named.get(a + b, Status.PASS),
            required=True,
            message="m",
        )
        for a, b in combinations(nodes, 2)
    ]
    after = list(attributed(made, cleared, faulty))
    assert [v.subject for v in after] == [v.subject for v in made]
    assert [v.status for v in after] == [v.status for v in made]
    assert all(v.blame is None and v.message == "m" for v in after if v.status is not Status.FAIL)
    return {v.subject.replace("|", ""): v.blame for v in after if v.status is Status.FAIL}


@pytest.mark.parametrize(
    ("failed", "cleared", "faulty", "expected"),
    [
        ("ab", "a", "b", {"ab": "b"}),
        ("ab", "b", "a", {"ab": "a"}),
        ("ab", "a", "", {"ab": UNDETERMINED}),  # group testing says nothing about b
        ("ab", "", "b", {"ab": UNDETERMINED}),
        ("ab", "", "ab", {"ab": UNDETERMINED}),
        ("ab", "ab", "", {"ab": UNDETERMINED}),
    ],
)
def test_group_testing_decides_on_a_pair_that_no_other_pair_explains(
    failed: str, cleared: str, faulty: str, expected: dict[str, str]
) -> None:
    """As with two nodes, where each has one pair only."""
    assert blames("ab", failed, cleared=cleared, faulty=faulty) == expected


def test_pairs_that_pass_count_more_than_group_testing() -> None:
    assert blames("abc", "ab", cleared="a", faulty="b") == {"ab": BETWEEN}


@pytest.mark.parametrize(
    ("nodes", "failed", "expected"),
    [
        # two nodes: either of them, or the cable
        ("ab", "ab", {"ab": UNDETERMINED}),
        # one bad node of three
        ("abc", "ac bc", {"ac": "c", "bc": "c"}),
        # one bad cable of three
        ("abc", "ab", {"ab": BETWEEN}),
        # three that all fail
        ("abc", "ab ac bc", dict.fromkeys(("ab", "ac", "bc"), UNDETERMINED)),
        # one bad node of five
        ("abcde", "ac bc cd ce", {"ac": "c", "bc": "c", "cd": "c", "ce": "c"}),
        # one bad cable of five
        ("abcde", "bd", {"bd": BETWEEN}),
        # two bad nodes of five: their own pair says nothing
        (
            "abcde",
            "ad bd cd ae be ce de",
            {"ad": "d", "bd": "d", "cd": "d", "ae": "e", "be": "e", "ce": "e", "de": UNDETERMINED},
        ),
        # two bad cables at one node that passes with others
        ("abcde", "ab ac", {"ab": BETWEEN, "ac": BETWEEN}),
        # two halves that do not reach each other
        ("abcd", "ac ad bc bd", dict.fromkeys(("ac", "ad", "bc", "bd"), BETWEEN)),
    ],
)
def test_blame(nodes: str, failed: str, expected: dict[str, str]) -> None:
    assert blames(nodes, failed) == expected


def test_a_second_witness_must_have_measured() -> None:
    """c fails against a only; that b would fail too is not known."""
    assert blames("abc", "ac", unknown="bc") == {"ac": UNDETERMINED}


def test_without_a_known_good_partner_no_node_is_blamed() -> None:
    assert blames("abcd", "ac bc", unknown="ab ad bd cd") == {"ac": UNDETERMINED, "bc": UNDETERMINED}


def test_a_warning_is_good_enough_to_be_known_good() -> None:
    assert blames("abc", "ac bc", warned="ab") == {"ac": "c", "bc": "c"}


def test_the_judge_says_whom_it_blames_and_after_which_test() -> None:
    made = architecture(
        criterion(metric="link.tcp_bandwidth", where={"rail": 0}, scope="pair", bar=bar("ge", 5, "Gb/s"))
    )
    names = ("gpu-01", "gpu-02", "gpu-03")
    taken = [
        measurement(pair, 1.0 if "gpu-02" in pair else 9.0, metric="link.tcp_bandwidth", rail="0")
        for pair in combinations(names, 2)
    ]
    by_subject = verdicts(judged(made, *taken, run=run_info(*names, "sto-01")))
    assert by_subject["gpu-01|gpu-02"].blame == "gpu-02"
    assert by_subject["gpu-01|gpu-02"].message == (
        "expected ≥ 5 Gb/s, actual 1 Gb/s; one sample; "
        "blamed on gpu-02: it fails against gpu-03 too, and both partners pass with others"
    )
    assert by_subject["gpu-01|gpu-03"].blame is None
    alone = verdicts(judged(made, *taken[:1]))["gpu-01|gpu-02"]
    assert (alone.blame, alone.message.endswith("; pair, undetermined")) == (UNDETERMINED, True)
