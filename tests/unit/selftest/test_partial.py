"""Partial answers: one entry fewer, one value N/A."""

from __future__ import annotations

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.selftest.partial import Edits, document_of, judged, others, sampled

LINES = "cpu0 performance\ncpu1 performance\ncpu2 performance\nend of 3\n"
JSON = '{"gpus": [{"id": 0, "ecc": "on"}, {"id": 1, "ecc": "on"}]}\nstatus 0\n'
XML = "<?xml version='1.0' ?>\n<!DOCTYPE log SYSTEM 'x'>\n<log><gpu><n>1</n><e>N/A</e></gpu><gpu><n>2</n></gpu></log>"


@pytest.mark.parametrize("text", [LINES, JSON, XML])
def test_every_value_and_entry_can_be_taken_away(text: str) -> None:
    document = document_of(text)
    for place in document.places():
        missing = document.rendered({place.path: "N/A"})
        assert missing.count("N/A") == text.count("N/A") + (place.text != "N/A")
        for entry in place.entries:
            assert len(document.rendered({entry: None})) < len(document.rendered({place.path: "N/A"}))
    assert document.rendered({}).split() == document_of(document.rendered({})).rendered({}).split()


def test_entries_of_documents_are_elements_and_those_around_them() -> None:
    place = next(place for place in document_of(JSON).places() if place.label == 'gpus.1.ecc "on"')
    assert document_of(JSON).rendered({place.entries[1]: None}) == '{"gpus": [{"id": 0, "ecc": "on"}]}\nstatus 0\n'
    first = next(iter(document_of(XML).places()))
    assert "<log><gpu><n>2</n></gpu></log>" in document_of(XML).rendered({first.entries[1]: None})


def test_places_of_one_class_are_sampled_and_absent_values_are_left_out() -> None:
    many = document_of("".join(f"cpu{number} performance\n" for number in range(100)))
    assert [place.label for place in sampled(many)] == ["cpu0 performance", "cpu50 performance", "cpu99 performance"]
    assert [place.label for place in sampled(document_of(XML))] == ["gpu/n 2"]


def test_other_values_keep_the_form() -> None:
    assert others("32.0 GT/s") == ("0 GT/s", "9876543 GT/s")
    assert others("Enabled") == ("Disabled", "Xyzzy")
    assert others('"PASS"') == ('"Fail"', '"Xyzzy"')
    assert others("Not Active")[0] == "Active"


def test_judged_places_are_those_that_can_fail() -> None:
    document = document_of(LINES)

    def outcome(edits: Edits, line: int) -> CheckOutcome:
        lines = document.rendered(edits).splitlines()
        if lines[-1] != "end of 3":
            return CheckOutcome.UNMEASURED
        return CheckOutcome.PASSED if lines[line].split()[1] == "performance" else CheckOutcome.FAILED

    of_each = judged(list(document.places()), outcome, 3)
    assert [[place.label for place in places] for places in of_each] == [[f"cpu{n} performance"] for n in range(3)]
