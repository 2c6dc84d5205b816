"""The two tables of varying values must agree: one varies them, the other ignores them."""

from __future__ import annotations

from rackproof.remote.noise import quiet
from rackproof.selftest.noise import SHUFFLED_LINES, at_another_moment
from tests.unit.validation.checking import subjects


def test_what_varies_on_a_healthy_rack_is_no_difference_between_two_recordings() -> None:
    varied = 0
    for subject in subjects():
        for node, several in subject.healthy.items():
            for command in {command for seen in several for command in seen.commands}:
                before = subject.answers(node).read(command)
                if before.text.lstrip()[:1] in ("[", "{") or any(words in command for words in SHUFFLED_LINES):
                    continue  # in another order
                after = at_another_moment(before, "another")
                varied += after != before
                assert quiet(command, after.text) == quiet(command, before.text), command
    assert varied > 20
