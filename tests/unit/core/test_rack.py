"""``Rack.select``: what patterns mean, in which order, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.rack import Node, Rack, fold
from rackproof.errors import InventoryError
from tests.unit.refusals import error_of

RACK = Rack(
    "inv.py",
    (
        Node("storage-01", ("storage",)),
        *(Node(f"gpu-{k:02d}", ("gpu", f"row{(k - 1) // 8 + 1}")) for k in range(1, 17)),
        Node("login", ("gpu-login",)),
    ),
)
ALL = "gpu-[01-16],login,storage-01"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ((), ALL),
        (("all",), ALL),
        (("*",), ALL),
        (("gpu-01",), "gpu-01"),
        (("gpu-[01-03,07]",), "gpu-[01-03,07]"),
        (("gpu-[14-16],storage",), "gpu-[14-16],storage-01"),
        (("gpu-0*",), "gpu-[01-09]"),
        (("gpu-1?", "login"), "gpu-[10-16],login"),
        (("gpu-[0-1]1",), "gpu-[01,11]"),
        (("gpu",), "gpu-[01-16]"),
        (("@row2",), "gpu-[09-16]"),
        (("row[1-2]",), "gpu-[01-16]"),
        (("gpu-login",), "login"),
        (("gpu!gpu-03",), "gpu-[01-02,04-16]"),
        (("gpu-[01-16]!gpu-[01-12]!gpu-16",), "gpu-[13-15]"),
        (("gpu,storage,!gpu-0*",), "gpu-[10-16],storage-01"),
        (("!gpu",), "login,storage-01"),
        (("^gpu", "!login"), "storage-01"),
        (("!gpu-03", "gpu-[01-04]"), "gpu-[01-02,04]"),
        (("gpu!gpu-03,gpu-03",), "gpu-[01-02,04-16]"),  # what is excluded stays excluded
        (("gpu&row2!gpu-09",), "gpu-[10-16]"),
        (("gpu-[01-10]&row2",), "gpu-[09-10]"),
        ((" gpu-01 , storage ! login",), "gpu-01,storage-01"),
    ],
)
def test_patterns(limit: tuple[str, ...], expected: str) -> None:
    assert fold(node.name for node in RACK.select(limit)) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("login-9", f"inv.py: 'login-9' matches no node; the rack has {ALL} (groups: all,gpu,"),
        ("cpu-*", "inv.py: 'cpu-*' matches no node"),
        ("!cpu", "inv.py: '!cpu': 'cpu' matches no node"),
        ("gpu-[15-18]", "inv.py: 'gpu-[15-18]': 'gpu-[17-18]' matches no node"),
        ("gpu-0[12]", "inv.py: 'gpu-0[12]': 'gpu-012' matches no node"),  # a node set, not a choice of characters
        ("gpu!gpu", "inv.py: 'gpu!gpu' selects no node"),
        ("storage&gpu", "inv.py: 'storage&gpu' selects no node"),
        ("gpu-[03-01]", "inv.py: 'gpu-[03-01]' is no node set: "),
        *((pattern, f"inv.py: '{pattern}' is no node set, such as gpu-[01-16]") for pattern in
          ("", ",", "gpu,", ",gpu", "&gpu", "gpu!", "gpu!!login", "gpu-[01-", "gpu]", "gpu,,login")),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_refused_in_one_line(pattern: str, message: str) -> None:
    patterns = ["gpu-01", pattern] if "selects" not in message else [pattern]
    assert error_of(InventoryError, RACK.select, patterns).startswith(message)


def test_a_name_that_is_no_host_name_means_itself() -> None:
    rack = Rack(
        "inv.py", (Node("@docker/debian:13", ("odd",)), Node("@local", ()), Node("a,b!c[", ()), Node("odd", ()))
    )
    for node in rack.nodes:
        assert rack.select([node.name]) == (node,)
    assert [node.name for node in rack.select(["@odd"])] == ["@docker/debian:13"]


names = st.from_regex(r"[a-z]{1,3}(-?[0-9]{1,3}){0,2}", fullmatch=True)
groups = st.sets(st.sampled_from(("G", "H", "I")))
racks = st.dictionaries(names, groups, min_size=1, max_size=12).map(
    lambda nodes: Rack("inv.py", tuple(Node(name, tuple(sorted(members))) for name, members in nodes.items()))
)


@given(st.data())
def test_a_folded_selection_selects_itself_in_inventory_order(data: st.DataObject) -> None:
    rack = data.draw(racks)
    nodes = data.draw(st.lists(st.sampled_from(rack.nodes), min_size=1, unique_by=id))
    expected = tuple(node for node in rack.nodes if node in nodes)
    assert rack.select([fold(node.name for node in nodes)]) == expected
    assert rack.select([node.name for node in nodes]) == expected
    assert rack.select([",".join(node.name for node in nodes)]) == expected


@given(st.data())
def test_exclusions_are_the_rest_wherever_they_stand(data: st.DataObject) -> None:
    rack = data.draw(racks)
    nodes = data.draw(st.lists(st.sampled_from(rack.nodes), min_size=1, unique_by=id))
    rest = tuple(node for node in rack.nodes if node not in nodes)
    pattern = fold(node.name for node in nodes)
    limits = ([f"!{part}" for part in pattern.split(",")] if "[" not in pattern else [f"!{n.name}" for n in nodes],)
    for limit in (*limits, ["all", *limits[0]], [*limits[0], "all"], ["all" + "".join(limits[0])]):
        if rest:
            assert rack.select(limit) == rest
        else:
            with pytest.raises(InventoryError, match="selects no node"):
                rack.select(limit)


@given(racks, st.lists(st.text("Gab-0123*?![],&^@ ", max_size=8), max_size=3))
def test_nothing_outside_the_rack_is_ever_selected_and_only_inventory_errors_are_raised(
    rack: Rack, limit: list[str]
) -> None:
    try:
        nodes = rack.select(limit)
    except InventoryError:
        return
    assert nodes
    assert [node for node in rack.nodes if node in nodes] == list(nodes)
