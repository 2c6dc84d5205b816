"""Text from files and nodes, safe to display: control characters and deceptive ones become visible."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: window titles, hyperlinks
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # the short ones
)
# Characters that reorder or hide their neighbours can mislead a reader.
_DECEPTIVE = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]")
_C1 = re.compile("[\x80-\x9f]")
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}

SHOWN = 2000
"""Characters of a line on the terminal and in run.log."""


def visible(text: str) -> str:
    """Remove escape sequences, show control characters as pictures (␀) and deceptive ones by number (⟨U+202E⟩)."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").translate(_PICTURES)
    return _DECEPTIVE.sub(_numbered, _C1.sub(_numbered, text))


def one_line(text: str) -> str:
    """``visible``, with line breaks and tabs as single spaces."""
    return " ".join(visible(text).split())


def shown(text: str, limit: int = SHOWN) -> str:
    """A line for terminal and log: ``visible``, line ends as ␊, cut to ``limit`` characters."""
    line = visible(text[: 4 * limit]).replace("\n", "␊")
    left = len(line) - limit + max(0, len(text) - 4 * limit)
    return line if left <= 0 else f"{line[:limit]}… ({left} more characters)"


def _numbered(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"
