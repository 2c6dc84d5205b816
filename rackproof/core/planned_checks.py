"""Planned checks of a validation, recorded before it starts, so that a removed result is noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackproof.core.evidence import Frozen
from rackproof.core.grouping import grouped

Case = tuple[str, str, str]
"""Check, item (empty for a check without items) and node."""


class PlannedChecks(Frozen):
    """Checks, items and nodes of one validation."""

    nodes: tuple[tuple[str, ...], ...]
    """Distinct sets of nodes."""
    checks: tuple[tuple[str, str, int], ...]
    """Check, item, and index of its nodes in ``nodes``."""

    def cases(self) -> Iterator[Case]:
        """All cases. Raises IndexError for an invalid index."""
        for check, item, number in self.checks:
            for node in self.nodes[number]:
                yield check, item, node


def planned(cases: Iterable[Case]) -> PlannedChecks:
    """Group cases by their set of nodes: a large rack has the same checks on all nodes."""
    nodes_by_check = grouped(((check, item), node) for check, item, node in cases)
    sets: dict[tuple[str, ...], int] = {}
    checks = tuple(
        (check, item, sets.setdefault(tuple(names), len(sets))) for (check, item), names in nodes_by_check.items()
    )
    return PlannedChecks(nodes=tuple(sets), checks=checks)
