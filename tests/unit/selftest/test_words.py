"""One unknown word in an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.selftest.table import complaints
from rackproof.selftest.words import UNKNOWN, variants
from tests.unit.selftest.small import FAULT, tried

READS_STATE = """
    from rackproof.parse import ParseError
    from rackproof.validation import check, expect, read

    @check("port.count", reads="system", protects="A test.", hint="None.")
    def test_ports(host):
        text = read(host, "state --ports")
        if not text.startswith("state: ") or not text[7:].strip() or not text.endswith("\\n") or len(text.split()) != 2:
            raise ParseError("state", "no state of ports")
        if %s:
            raise AssertionError("expected up, actual " + text.split()[1])
"""
DOWN = FAULT.replace("{command: count, replace: [ports 8, ports 7]}", "{command: state, replace: [up, down]}").replace(
    "expected 8, actual 7", "expected up, actual down"
)
ACCEPTED = """
accepted:
  - {damage: unknown-word, command: state, place: "^state: up$", reason: "The state has two words in this test."}
"""


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("State: Active\n", ["State: Active"]),
        ("port 3 is up (no fault)\n", ["port 3 is up", "port 3 is up (no"]),
        ("a=yes b=\"no\" c=7 d='x y'\nup: 3\n", ["a=yes", 'a=yes b="no', 'a=yes b="no" c=7 d=\'x y']),
        ('[{"n": "lo", "up": true, "k": "N/A", "v": 7}]\n', ['0.n "lo"', "0.up true"]),
        ("<?xml version='1.0' ?>\n<log><a>Not Active</a><b>N/A</b><c>3</c></log>\n", ["<a>Not Active"]),
        ("".join(f"cpu{number} enabled\n" for number in range(9)), ["cpu0 enabled", "cpu4 enabled", "cpu8 enabled"]),
    ],
)
def test_words_are_values_and_states(text: str, labels: list[str]) -> None:
    tries = list(variants(text))
    assert [variant.label.rpartition("<log>")[2] for variant in tries] == labels
    assert all(variant.text.count(UNKNOWN) == 1 for variant in tries)


def test_a_closed_list_of_bad_words_is_found(tmp_path: Path) -> None:
    answers = '- {match: state, stdout: "state: up\\n"}\n'
    assert tried(tmp_path / "open", READS_STATE % 'text != "state: up\\n"', DOWN, answers).good
    closed = tried(tmp_path / "closed", READS_STATE % 'text == "state: down\\n"', DOWN, answers)
    assert not closed.good
    assert any(
        "unknown-word on small: port.count: state --ports: at 'state: up'" in line for line in complaints(closed)
    )


def test_a_listed_word_is_accepted_while_it_is_needed(tmp_path: Path) -> None:
    answers = '- {match: state, stdout: "state: up\\n"}\n'
    for name, condition in (("closed", 'text == "state: down\\n"'), ("open", 'text != "state: up\\n"')):
        folder = tmp_path / name / "tests" / "faults" / "partial"
        folder.mkdir(parents=True)
        (folder / "accepted.yaml").write_text(ACCEPTED)
        detection = tried(tmp_path / name, READS_STATE % condition, DOWN, answers)
        assert [line for line in complaints(detection) if "unknown-word" in line] == []
        assert bool(detection.needless) == (name == "open")
