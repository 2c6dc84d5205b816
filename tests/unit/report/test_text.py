from __future__ import annotations

import pytest

from rackproof.core.visible import one_line, visible
from rackproof.report.text import decoded


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bplain", "plain"),
        ("nul\x00 bell\x07", "nul␀ bell␇"),
        ("a\u202egnp.exe", "a⟨U+202E⟩gnp.exe"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("c1\x9b31m", "c1⟨U+009B⟩31m"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("crlf\r\n", "crlf\n"),
    ],
)
def test_what_is_shown_is_what_is_there(raw: str, shown: str) -> None:
    assert visible(raw) == shown


def test_one_line_has_one_line() -> None:
    assert one_line("a\n\n  b\tc\r\nd") == "a b c d"


def test_not_utf8_is_marked_not_lost() -> None:
    assert decoded(b"caf\xe9 ok") == "caf\ufffd ok"


def test_half_a_character_at_a_cut_is_dropped() -> None:
    data = "µs" * 10
    assert decoded(data.encode()[:-2], complete=False) == ("µs" * 10)[:-2]
    assert decoded(data.encode()[:-2], complete=True).endswith("\ufffd")


def test_progress_bars_become_lines() -> None:
    assert decoded(b"10%\r50%\r100%\n") == "10%\n50%\n100%\n"


def test_binary_becomes_a_hex_dump() -> None:
    dump = decoded(bytes(range(256)) * 8)
    assert dump.startswith("00000000  00 01 02 03")
    assert dump.count("\n") == 15
