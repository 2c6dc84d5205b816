from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.text import half_digit, integer, last_words, real, text_of, whole_lines
from tests.unit.refusals import refuses

test_text_that_says_nothing_readable_is_refused = refuses(
    lambda output: text_of("tool", output), "", "  \n\t\n", b"", b"\n", b"\xff\xfe", "a\0b\n", says=""
)


def test_lines_of_a_terminal_lose_their_carriage_returns() -> None:
    assert whole_lines("tool", b"one\r\ntwo\r\n") == ["one", "two"]


def test_a_last_line_without_newline_is_refused_unless_its_end_shows_that_it_is_whole() -> None:
    with pytest.raises(ParseError, match="cut off"):
        whole_lines("tool", "speed: 40\nstate: u")
    assert whole_lines("tool", "speed: 40\nstate: up", closing="state: (?:up|down)") == ["speed: 40", "state: up"]
    with pytest.raises(ParseError, match="cut off"):
        whole_lines("tool", "speed: 40\nstate: u", closing="state: (?:up|down)")


test_integer_refuses_what_is_no_plain_integer = refuses(
    lambda token: integer("tool", "count", token), "", "x", "1.0", "1_000", "٣", "²", "--1", "9" * 30, " 1", says=""
)


@pytest.mark.parametrize("token", ["", "nan", "inf", "-inf", "1e999", "0x10", "1_0.0", "1.", ".5", "N/A", "1,5"])
def test_real_refuses_what_is_no_plain_finite_number(token: str) -> None:
    with pytest.raises(ParseError):
        real("tool", "value", token)


def test_numbers_below_the_minimum_are_refused() -> None:
    assert real("tool", "offset", "-1.5e-3", minimum=None) == -0.0015
    with pytest.raises(ParseError, match="below 0"):
        real("tool", "value", "-1.5")
    with pytest.raises(ParseError, match="below 1"):
        integer("tool", "count", "0", minimum=1)


@pytest.mark.parametrize(("token", "error"), [("12", 0.5), ("12.30", 0.005), ("1.2e+08", 5e6), ("0.000267", 5e-7)])
def test_half_digit_is_half_of_the_last_printed_place(token: str, error: float) -> None:
    assert half_digit(token) == pytest.approx(error)


def test_a_reason_is_one_short_printable_line() -> None:
    error = ParseError("tool", "first\nsecond\x1b[31m " + "x" * 500)
    assert error.tool == "tool"
    assert error.reason.isprintable()
    assert len(error.reason) <= 240
    assert str(error).startswith("tool: first second")
    assert isinstance(error, ValueError)


def test_last_words_skip_rules_and_blank_lines() -> None:
    assert last_words("Couldn't connect to 10.0.0.1:18515\n-----\n\n") == repr("Couldn't connect to 10.0.0.1:18515")


def test_a_remembered_parser_reads_a_text_once_and_refuses_it_again() -> None:
    read = []

    @remembered(2)
    def parse(text: str) -> int:
        read.append(text)
        return integer("tool", "number", text)

    assert [parse("7"), parse("7")] == [7, 7]
    for _ in range(2):
        with pytest.raises(ParseError, match="number is not an integer: 'x'"):
            parse("x")
    assert read == ["7", "x"]
