"""Documents of the kit's programs on nodes."""

from __future__ import annotations

from functools import partial

from rackproof.parse.node_programs import parse_document, parse_documents
from tests.unit.refusals import refuses, refuses_parts, survives_damage

ONE = '{"rackproof_x": 1, "job": "a"}\n'
TEXT = f'warning\n{{"other": 1}}\n{ONE}{{"rackproof_x": 1, "error": "gone"}}\n'
read = partial(parse_document, "x_node.py", mark="rackproof_x")


def every(text: str) -> list[dict[str, object]]:
    return parse_documents("x_node.py", text.encode(), "rackproof_x")


def test_documents_are_those_with_the_mark() -> None:
    assert read(f"warning\n{ONE}") == {"rackproof_x": 1, "job": "a"}
    assert every(TEXT) == [{"rackproof_x": 1, "job": "a"}, {"rackproof_x": 1, "error": "gone"}]
    assert every("") == every("warning\n") == []


test_what_is_no_single_document_is_refused = refuses(
    read,
    ("", "no output"),
    ("Killed\n", "no JSON document"),
    (ONE + ONE, "more than one"),
    ('{"other": 1}\n', "no JSON"),
)
test_a_line_that_is_cut_off_is_refused = refuses(
    every, (ONE[:-3], "its answer is cut off or damaged"), (f"{ONE}{{\n", "cut off"), ('{"a":' * 9999, "cut off")
)
test_no_part_of_a_document_is_taken_for_one = refuses_parts((read, ONE))
test_damage_is_survived = survives_damage((read, ONE), (every, TEXT))
