from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError
from rackproof.parse.routes import Route, Rule, parse_routes, parse_rules

RULES = (
    '[{"priority":32766,"src":"all","table":"main"},{"priority":1100,"src":"10.0.0.1","table":"100"},'
    '{"priority":1101,"src":"10.0.1.0","srclen":24,"table":"101"}]\n'
)
ROUTES = (
    '[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},'
    '{"dst":"10.0.0.0/16","dev":"rail0","table":"100","scope":"link","prefsrc":"10.0.0.1","flags":[]},'
    '{"type":"unreachable","dst":"10.9.0.0/16","table":"100","flags":[]},'
    '{"dst":"10.8.0.0/16","table":"100","nexthops":[{"gateway":"10.0.0.2","dev":"rail0","weight":1},'
    '{"gateway":"10.0.1.2","dev":"rail1","weight":1}]}]\n'
)


def test_rules_come_in_the_order_in_which_the_kernel_looks() -> None:
    assert parse_rules(RULES) == (
        Rule(1100, "10.0.0.1", "100"),
        Rule(1101, "10.0.1.0/24", "101"),
        Rule(32766, "all", "main"),
    )


def test_routes_without_a_table_are_of_the_main_one_and_each_hop_is_one() -> None:
    assert parse_routes(ROUTES) == (
        Route("default", "eth0", "main"),
        Route("10.0.0.0/16", "rail0", "100"),
        Route("10.9.0.0/16", None, "100"),
        Route("10.8.0.0/16", "rail0", "100"),
        Route("10.8.0.0/16", "rail1", "100"),
    )


@pytest.mark.parametrize("output", ["", "[]\n", "Error: cut off\n", '[{"src":"all"}]\n', RULES[:-20], RULES + RULES])
def test_no_rules_are_no_answer(output: str) -> None:
    with pytest.raises(ParseError):
        parse_rules(output)


@given(st.text(max_size=60))
def test_anything_else_is_refused(output: str) -> None:
    with contextlib.suppress(ParseError):
        assert all(rule.source for rule in parse_rules(output))
