"""Output of a command together with its exit status.

A command whose exit status matters ends with ``; echo status $?``. This distinguishes a command that failed from a
node that did not respond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.core.failure import NOT_FOUND, NOT_STARTED, failure, last_words
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, text_from, whole_lines

STATUS: Final = "; echo status $?"
_TIMED_OUT: Final = (124, 137)
_NOT_RUN: Final = (NOT_STARTED, NOT_FOUND)


PART: Final = "rackproof-status"
"""Several commands of one answer end with a line of it and their exit status each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Output of a command, and its exit status."""

    body: str
    status: int
    tool: str = ""
    words: str = ""
    """The error output, unless it is part of the body."""

    @property
    def lines(self) -> list[str]:
        return self.body.splitlines()

    @property
    def reason(self) -> str:
        """The last line of the outputs, or ``failure`` without any."""
        return last_words(self.words) or last_words(self.body) or self.failure

    @property
    def failure(self) -> str:
        """Why it failed: its words, and the exit status at the end."""
        return failure(self.tool or "the program", self.status, self.words, self.body)

    @property
    def printed(self) -> str:
        """The body. Raises ParseError, with the cause, where it is blank."""
        if not self.body.strip():
            raise ParseError(self.tool, self.failure if self.status else "no output")
        return self.body

    @property
    def timed_out(self) -> bool:
        return self.status in _TIMED_OUT

    @property
    def not_run(self) -> bool:
        """The program does not exist or cannot be started."""
        return self.status in _NOT_RUN


def parse_answer(tool: str, output: str, words: str = "") -> Answer:
    """Output of a command that ends with ``STATUS``, and its error output."""
    *body, last = whole_lines(tool, output)
    match = re.fullmatch(r"(.*?)status (\d{1,3})", last)  # follows a body without a final newline
    if match is None:
        raise ParseError(tool, f"the answer is cut off after {excerpt(last)}")
    return Answer(text_from([*body, *([match[1]] if match[1] else [])]), int(match[2]), tool, words)


def parse_parts(output: str) -> list[tuple[str, int]]:
    """Output and exit status of each command that ended with ``PART``; what follows the last one is left out."""
    words = re.split(rf"{PART} (\d+)\n", output)
    return [(text, int(status)) for text, status in zip(words[:-1:2], words[1::2], strict=True)]
