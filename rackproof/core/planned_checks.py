"""What a validation is going to ask, recorded before it asks: a result that is removed later is missed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackproof.core.evidence import Frozen

Case = tuple[str, str, str]
"""Check, item (empty for a check without items) and node."""


class PlannedChecks(Frozen):
    """Checks, items and nodes of one validation."""

    nodes: tuple[tuple[str, ...], ...]
    """Sets of nodes that checks share."""
    checks: tuple[tuple[str, str, int], ...]
    """Check, item and the position of its nodes in ``nodes``."""

    def cases(self) -> Iterator[Case]:
        """Raises IndexError where a check names nodes that are not there."""
        for check, item, number in self.checks:
            for node in self.nodes[number]:
                yield check, item, node


def planned(cases: Iterable[Case]) -> PlannedChecks:
    """A rack of a thousand nodes has the same hundreds of checks on every node; each set of nodes is kept once."""
    asked: dict[tuple[str, str], list[str]] = {}
    for check, item, node in cases:
        asked.setdefault((check, item), []).append(node)
    sets: dict[tuple[str, ...], int] = {}
    checks = tuple((check, item, sets.setdefault(tuple(names), len(sets))) for (check, item), names in asked.items())
    return PlannedChecks(nodes=tuple(sets), checks=checks)
