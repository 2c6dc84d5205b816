"""Tests of what is refused, and of damaged outputs, as tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError


def error_of(error: type[Exception], function: Callable[..., object], *given: Any, **named: Any) -> str:
    """The error that a call raises; it is one line."""
    with pytest.raises(error) as raised:
        function(*given, **named)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def refuses(
    function: Callable[[Any], object],
    *cases: Any,
    error: type[Exception] | tuple[type[Exception], ...] = ParseError,
    says: str | None = None,
) -> Callable[[Any, str], None]:
    """A test that each input of a function raises the error.

    A case is an input and the reason, a regular expression; its name may come first. With ``says``, the reason of all,
    a case is an input.
    """
    whole = cases if says is None else [(case, says) for case in cases]
    params = [pytest.param(*case[-2:], id=case[0] if len(case) == 3 else None) for case in whole]

    @pytest.mark.parametrize(("given", "reason"), params)
    def test(given: Any, reason: str) -> None:
        with pytest.raises(error, match=reason or None):
            function(given)

    return test


def refuses_parts(*parsers: tuple[Callable[[str], Any], str], whole_lines: bool = False) -> Callable[..., None]:
    """A test that no part of an output is taken for one. ``whole_lines``: a part that ends with a line may be."""

    @pytest.mark.parametrize(("parse", "output"), parsers)
    def test(parse: Callable[[str], Any], output: str) -> None:
        for end in range(len(output) - (not whole_lines)):
            if whole_lines and output[:end].endswith("\n"):
                continue
            with pytest.raises(ParseError):
                parse(output[:end])

    return test


def survives_damage(*parsers: tuple[Callable[[str], Any], str]) -> Callable[..., None]:
    """A test that a damaged output is parsed, or raises ParseError."""

    @pytest.mark.parametrize(("parse", "output"), parsers)
    @given(data=st.data())
    def test(parse: Callable[[str], Any], output: str, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(output)))
        text = output[:at] + data.draw(st.text(max_size=20)) + output[data.draw(st.integers(at, len(output))) :]
        with suppress(ParseError):
            assert parse(text) is not None

    return test
