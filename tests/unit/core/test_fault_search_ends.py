"""A search that learns nothing new ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rackproof.core.fault_search import locate
from rackproof.core.group_testing import Job, Places

LINKS = (frozenset({"n002", "n006"}), frozenset({"n007", "n008"}))


@pytest.mark.parametrize("count", [9, 12, 16])
def test_two_links_and_a_rail_of_one_end_do_not_keep_a_search_going(count: int) -> None:
    """No job is left to run, and one that failed has no named fault: its nodes stay unlocated."""
    names = tuple(f"n{number:03d}" for number in range(count))
    leaves = {name: (f"l{k // 8}-0", f"l{k // 8}-1") for k, name in enumerate(names)}
    racks = {name: f"r{k // 8}" for k, name in enumerate(names)}

    def run(jobs: Sequence[Job]) -> list[bool]:
        return [
            not any(link <= job.nodes for link in LINKS) and not ("n006" in job.nodes and 1 in job.rails)
            for job in jobs
        ]

    result = locate(Places(names, 2, leaves, racks), run)
    faulty = {"n002", "n006", "n007", "n008"}
    assert {name for fault in result.faults for name in fault.nodes} <= faulty
    assert not any(link <= result.cleared for link in LINKS)
    assert "n006" not in result.cleared
