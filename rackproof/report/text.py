"""Output of programs for a page, and any text for a terminal."""

from __future__ import annotations

import codecs

from rackproof.core.visible import one_line, visible

_BINARY_SHARE = 0.1
_CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r\x1b\x08"))
_HEX_BYTES = 256
_ASCII = str.maketrans({"≥": ">=", "≤": "<=", "↔": "<->", "·": ".", "–": "-", "−": "-", "×": "x", "µ": "u", "…": "..."})


class Encoder:
    """Text as one line in the terminal's encoding; characters that it lacks are replaced."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    def __call__(self, text: str) -> str:
        text = one_line(text)
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            text = text.translate(_ASCII).encode(self._encoding, "replace").decode(self._encoding)
        return text


def decoded(data: bytes, complete: bool = True) -> str:
    """Program output for a page: UTF-8 with � for invalid bytes; a hex dump of the beginning for binary data.

    ``complete`` is False for truncated ``data``: an incomplete character at its end is dropped.
    """
    if _is_binary(data):
        return _hex(data[:_HEX_BYTES])
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=complete)
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def _is_binary(data: bytes) -> bool:
    plain = data.translate(None, delete=_CONTROL)
    return len(data) - len(plain) > _BINARY_SHARE * len(data)


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        printable = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {printable}")
    return "\n".join(lines)
