"""Output of a command together with its exit status.

A command whose exit status matters ends with ``; echo status $?``. This distinguishes a command that failed from a
node that did not respond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

STATUS: Final = "; echo status $?"
_TIMED_OUT: Final = (124, 137)
_NOT_RUN: Final = (126, 127)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and its exit status."""

    body: str
    status: int

    @property
    def lines(self) -> list[str]:
        return self.body.splitlines()

    @property
    def reason(self) -> str:
        """The last line, or the exit status where nothing was printed."""
        return ["", *self.body.strip().splitlines()][-1] or f"exit status {self.status}"

    @property
    def failure(self) -> str:
        """The exit status, and the last line."""
        status = f"exit status {self.status}"
        return status if self.reason == status else f"{status}: {self.reason}"

    @property
    def timed_out(self) -> bool:
        return self.status in _TIMED_OUT

    @property
    def not_run(self) -> bool:
        """The program does not exist or cannot be started."""
        return self.status in _NOT_RUN


def parse_answer(tool: str, output: str) -> Answer:
    """Output of a command that ends with ``STATUS``."""
    *body, last = whole_lines(tool, output)
    match = re.fullmatch(r"(.*?)status (\d{1,3})", last)  # follows a body without a final newline
    if match is None:
        raise ParseError(tool, f"the answer is cut off after {excerpt(last)}")
    return Answer("".join(f"{line}\n" for line in [*body, *([match[1]] if match[1] else [])]), int(match[2]))


def successful_answer(tool: str, output: str) -> Answer:
    """Output of a command that ends with ``STATUS`` and must have succeeded."""
    answer = parse_answer(tool, output)
    if answer.status != 0:
        raise ParseError(tool, f"exit status {answer.status}" + (f": {excerpt(answer.body)}" if answer.body else ""))
    return answer
