"""Evidence of last year against a model that has learnt new keys since."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.judging.checks import _same

DECLARED = {"mtu": 9000, "ports": [{"name": "a", "later": True}], "later": True, "nothing": None}


@pytest.mark.parametrize(
    ("recorded", "stated", "same"),
    [
        ({"mtu": 9000, "ports": [{"name": "a"}], "nothing": None}, {"mtu": 9000, "ports": [{"name": "a"}]}, True),
        ({"mtu": 1500, "ports": [{"name": "a"}]}, {"mtu": 9000, "ports": [{"name": "a"}]}, False),
        # The file says the later key, so the evidence did not look at it.
        ({"mtu": 9000, "ports": [{"name": "a"}]}, {"mtu": 9000, "ports": [{"name": "a"}], "later": True}, False),
        ({"mtu": 9000, "ports": [{"name": "a"}]}, {"mtu": 9000, "ports": [{"name": "a", "later": True}]}, False),
        ({"mtu": 9000, "ports": []}, {"mtu": 9000, "ports": [{"name": "a"}]}, False),
        # A key that is no more, and that said something.
        ({"mtu": 9000, "ports": [{"name": "a"}], "gone": 1}, {"mtu": 9000, "ports": [{"name": "a"}]}, False),
        ({"mtu": 9000, "ports": [{"name": "a"}], "gone": None}, {"mtu": 9000, "ports": [{"name": "a"}]}, True),
    ],
)
def test_a_key_that_came_later_changes_nothing_unless_the_file_says_it(
    recorded: dict[str, Any], stated: dict[str, Any], same: bool
) -> None:
    assert _same(recorded, DECLARED, stated) is same
