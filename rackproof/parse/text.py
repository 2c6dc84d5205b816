"""Strict reading of text: decoding, whole lines, plain decimal numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from rackproof.core.wording import exact, shortened
from rackproof.parse.errors import ParseError

ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Colours and movements of the cursor on a terminal."""
UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REAL: Final = re.compile(r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?")


def text_of(tool: str, output: str | bytes) -> str:
    """The output as text with ``\\n`` line ends (a pseudo-terminal prints ``\\r\\n``); never blank."""
    if isinstance(output, bytes):
        try:
            output = output.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ParseError(tool, f"output is not UTF-8 (byte {error.start})") from None
    if "\0" in output:
        raise ParseError(tool, "output contains NUL characters")
    if not output.strip():
        raise ParseError(tool, "no output")
    return output.replace("\r\n", "\n")


def text_from(lines: Iterable[str]) -> str:
    """Text of whole lines, each closed by a newline."""
    return "".join(f"{line}\n" for line in lines)


def whole_lines(tool: str, output: str | bytes, *, closing: str | None = None) -> list[str]:
    """Lines without their ends.

    A last line without a newline may be cut off (``vers=4`` instead of ``vers=4.2``) and raises ParseError, unless it
    matches ``closing``, a regular expression of lines whose end proves that they are complete.
    """
    text = text_of(tool, output)
    if text.endswith("\n"):
        return text[:-1].split("\n")
    lines = text.split("\n")
    if closing is None or not re.fullmatch(closing, lines[-1]):
        raise ParseError(tool, f"last line is cut off (no newline after {excerpt(lines[-1])})")
    return lines


def ended_lines(tool: str, output: str | bytes, end: str) -> list[str]:
    """Whole lines before the last one, which is the marker of a complete answer."""
    *lines, last = whole_lines(tool, output)
    if last != end:
        raise ParseError(tool, f"the answer is cut off after {excerpt(last)}")
    return lines


def marked_lines(tool: str, output: str | bytes, mark: str, end: str) -> list[str]:
    """Lines between the first one and the last one, which mark a whole answer of the kit's own script."""
    lines = whole_lines(tool, output)
    if lines[0] != mark or lines[-1] != end:
        raise ParseError(tool, f"expected a whole answer, it ends with {excerpt(lines[-1])}")
    return lines[1:-1]


def matched(tool: str, pattern: str | re.Pattern[str], text: str, what: str) -> re.Match[str]:
    """The match of the whole text. Raises ParseError, ``expected WHAT``, without one."""
    match = re.fullmatch(pattern, text)
    if match is None:
        raise ParseError(tool, f"expected {what}, got {excerpt(text)}")
    return match


def integer(tool: str, what: str, token: str, *, minimum: int | None = 0) -> int:
    """Plain decimal integer; ``minimum=None`` allows any."""
    if not _INTEGER.fullmatch(token):
        raise ParseError(tool, f"{what} is not an integer: {excerpt(token)}")
    value = int(token)
    if minimum is not None and value < minimum:
        raise ParseError(tool, f"{what} is {value}, below {minimum}")
    return value


def real(tool: str, what: str, token: str, *, minimum: float | None = 0.0) -> float:
    """Plain finite decimal number; ``nan`` and ``inf`` are refused."""
    if not _REAL.fullmatch(token):
        raise ParseError(tool, f"{what} is not a number: {excerpt(token)}")
    value = float(token)
    if not math.isfinite(value):
        raise ParseError(tool, f"{what} is not finite: {excerpt(token)}")
    if minimum is not None and value < minimum:
        raise ParseError(tool, f"{what} is {exact(value)}, below {exact(minimum)}")
    return value


def half_digit(token: str) -> float:
    """Half a unit of the last printed digit: the rounding error of the printed number."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(0.5 * 10.0 ** (int(exponent or "0") - decimals))


def version_begins(version: str | None, prefix: str) -> bool:
    """``24.11.1`` begins with 24.11 and not with 24.1; an unknown version with nothing."""
    return version is not None and re.match(rf"{re.escape(prefix)}(?![0-9])", version) is not None


def version_numbers(tool: str, version: str) -> tuple[int, ...]:
    """``28.39.1002`` as comparable numbers. Raises ParseError for anything else."""
    matched(tool, r"\d+(?:\.\d+)*", version, "a version")
    return tuple(map(int, version.split(".")))


def excerpt(text: str, limit: int = 80) -> str:
    """A shortened excerpt of output, quoted, for error messages."""
    return repr(shortened(" ".join(text.split()), limit))


def last_words(text: str) -> str:
    """The last readable line, which usually has the error."""
    lines = [line for line in text.splitlines() if any(c.isalnum() for c in line)]
    return excerpt(lines[-1], 140) if lines else "nothing readable"


def first_words(text: str) -> str:
    """The first line where it is words rather than a document; empty otherwise."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return excerpt(line, 140) if line[:1].isalnum() else ""


def processor_list(tool: str, text: str) -> frozenset[int]:
    """``0-55,112-167``; empty for an empty text."""
    numbers: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ParseError(tool, f"expected a list of processors, got {excerpt(text)}")
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(numbers)
