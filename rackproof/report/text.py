"""Make text from nodes safe to display: control and deceptive characters become visible."""

from __future__ import annotations

import codecs
import re

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: window titles, hyperlinks
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # the short ones
)
# Characters that reorder or hide their neighbours: harmless as markup, but they can mislead a reader.
_DECEPTIVE = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]")
_C1 = re.compile("[\x80-\x9f]")
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}

_BINARY_SHARE = 0.1
_HEX_BYTES = 256


def visible(text: str) -> str:
    """Remove escape sequences, show control characters as pictures (␀) and deceptive ones by number (⟨U+202E⟩)."""
    text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").translate(_PICTURES)
    return _DECEPTIVE.sub(_numbered, _C1.sub(_numbered, text))


def one_line(text: str) -> str:
    """``visible``, with line breaks and tabs as single spaces."""
    return " ".join(visible(text).split())


def decoded(data: bytes, whole: bool = True) -> str:
    """Program output for a page: UTF-8 with � for invalid bytes; binary data as a hex dump of its beginning.

    ``whole`` is False when ``data`` was cut: an incomplete character at the end is dropped.
    """
    if _is_binary(data):
        return _hex(data[:_HEX_BYTES])
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole)
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def _is_binary(data: bytes) -> bool:
    plain = sum(byte >= 0x20 or byte in b"\t\n\r\x1b\x08" for byte in data)
    return bool(data) and len(data) - plain > _BINARY_SHARE * len(data)


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        printable = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {printable}")
    return "\n".join(lines)


def _numbered(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"
