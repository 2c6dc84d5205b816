"""Changes of answers, and damages of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult
from rackproof.selftest.damage import ANY_ANSWER, DAMAGES
from rackproof.selftest.mutation import Change, cut
from rackproof.selftest.noise import at_another_moment

TEXT = "one 1\ntwo 1\nthree 3\n"
GOOD = CommandResult("n", "tool --x", 0, TEXT.encode())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"replace": ("1", "7")}, "one 7\ntwo 7\nthree 3\n"),
        ({"replace_once": ("1", "7")}, "one 7\ntwo 1\nthree 3\n"),
        ({"sub": (r"(\w+) 1", r"\1 9")}, "one 9\ntwo 9\nthree 3\n"),
        ({"sub": (r"(\w+) 1", r"\1 9", 1)}, "one 9\ntwo 1\nthree 3\n"),
        ({"drop_lines": "^t.o"}, "one 1\nthree 3\n"),
        ({"truncate": 0.4}, "one 1\ntw"),
        ({"truncate": 0.32}, "one 1"),
        ({"truncate": 0.0}, ""),
    ],
)
def test_edits_of_the_output(change: dict[str, Any], expected: str) -> None:
    assert Change(command="tool", **change)(GOOD).text == expected


def test_another_answer_replaces_what_it_names() -> None:
    lost = CommandResult("n", "tool --x", None, error="not in the recording")
    change = Change(command="tool", stdout="x\n")
    assert (change(GOOD).rc, change(GOOD).text) == (0, "x\n")
    assert (change(lost).rc, change(lost).text, change(lost).error) == (0, "x\n", None)
    ended = Change(command="tool", rc=3, stderr="no\n")(GOOD)
    assert (ended.rc, ended.text, ended.stderr) == (3, TEXT, b"no\n")
    gone = Change(command="tool", error="connection lost")(GOOD)
    assert (gone.rc, gone.error) == (None, "connection lost")


def test_bytes_that_are_no_text_survive_an_edit() -> None:
    odd = CommandResult("n", "tool", 0, b"\xff\xfe one\n")
    assert Change(command="tool", replace=("one", "two"))(odd).stdout == b"\xff\xfe two\n"


@given(st.text(max_size=200), st.floats(0, 1))
def test_what_is_cut_never_ends_with_a_line(text: str, share: float) -> None:
    left = cut(text, share)
    assert text.startswith(left)
    assert not left.endswith("\n")


def test_damages_are_told_apart_and_destroy_or_decorate() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES)
    answer = CommandResult("n", "tool", 0, b"a speed of 1.25 GB/s\nstatus 0\n")
    for damage in DAMAGES:
        assert damage.change(answer) != answer, damage.name
        assert CheckOutcome.UNMEASURED in damage.allowed or damage.name == "warnings-stderr"
        if damage.allowed == ANY_ANSWER:
            assert damage.words, f"{damage.name}: neither the outcome nor the message is judged"
            continue
        if answer.stdout not in damage.change(answer).stdout and damage.name != "decimal-commas":
            assert CheckOutcome.PASSED not in damage.allowed, damage.name
        else:
            assert damage.change(answer).rc is None or CheckOutcome.FAILED not in damage.allowed, damage.name


def test_commas_come_into_measured_numbers_only() -> None:
    commas = next(damage for damage in DAMAGES if damage.name == "decimal-commas")
    plain = CommandResult("n", "tool", 0, b"1.5 GB from 10.0.0.1, vers=4.2, fio-3.39, 1.2.3\n")
    assert commas.change(plain).stdout == b"1,5 GB from 10.0.0.1, vers=4.2, fio-3.39, 1.2.3\n"


def test_another_moment_is_the_same_for_the_same_seed_and_leaves_errors_alone() -> None:
    text = b"     rx_bytes: 100\n     rx_crc_errors: 0\n     rx_discards_phy: 3\n"
    answer = CommandResult("n", "ethtool -S rail0", 0, text)
    first, second = at_another_moment(answer, "1"), at_another_moment(answer, "2")
    assert first == at_another_moment(answer, "1")
    assert first != second
    assert first.text.splitlines()[1:] == text.decode().splitlines()[1:]
    assert int(first.text.split()[1]) >= 100


def test_keys_and_lists_whose_order_means_nothing_are_reordered() -> None:
    links = CommandResult("n", "ip -j addr show", 0, b'[{"a":1,"b":[1,2]},{"a":2,"b":[3,4]}]\n')
    moments = {at_another_moment(links, str(seed)).text for seed in range(20)}
    assert len(moments) > 2
    assert all(sorted(text) == sorted(next(iter(moments))) for text in moments)
    assert all("[1, 2]" in text and "[3, 4]" in text for text in moments)
