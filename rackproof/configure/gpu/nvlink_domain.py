"""Whether the NVLink domains that the inventory declares are those that the GPUs report. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.parse.nvlink_domain import Domain


def domain_problem(
    node: str, declared: Mapping[str, str | None], reported: Mapping[str, frozenset[Domain] | None]
) -> str | None:
    """Why this node's declared domain is not that of its GPUs, compared with the other nodes that answer.

    IMEX connects nodes of two racks over TCP as well; jobs then fail when they import memory. ``declared``: domain of
    every GPU node, None for the only one; ``reported``: None for a node that does not answer, empty without a driver.
    """
    own = reported.get(node)
    if not own:
        return None
    if len(own) > 1:
        return f"the GPUs of {node} are in several NVLink domains: {_shown(own)}"
    for other, domain in declared.items():
        theirs = reported.get(other)
        if other == node or not theirs or (domain == declared[node]) == (theirs == own):
            continue
        if domain == declared[node]:
            return (
                f"one domain is declared for {node} and {other}, their GPUs are in {_shown(own)} and {_shown(theirs)}"
            )
        return f"{node} is declared in {declared[node]} and {other} in {domain}, their GPUs are both in {_shown(own)}"
    return None


def _shown(domains: frozenset[Domain]) -> str:
    """As the GPU operator's label nvidia.com/gpu.clique has it."""
    return ", ".join(f"{uuid}.{clique}" for uuid, clique in sorted(domains))
