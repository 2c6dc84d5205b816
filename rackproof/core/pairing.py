"""Schedules of node pairs: rounds in which no node is in two pairs. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def rounds(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every unordered pair exactly once, in as few rounds as possible (circle method).

    n nodes need n-1 rounds when n is even, and n when it is odd, with one idle node per round.
    """
    seats: list[str | None] = list(names)
    if len(seats) < 2:
        return []
    if len(seats) % 2:
        seats.append(None)
    order = {name: k for k, name in enumerate(names)}
    plan = []
    for _ in range(len(seats) - 1):
        pairs = []
        for a, b in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True):
            if a is not None and b is not None:
                pairs.append((a, b) if order[a] < order[b] else (b, a))
        plan.append(sorted(pairs, key=lambda pair: order[pair[0]]))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return plan


def each_once(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds in which every node is in one pair; of an odd number the last one is paired with the first node again."""
    schedule = rounds(names)[:1]
    paired = {name for pairs in schedule for pair in pairs for name in pair}
    return schedule + [[(schedule[0][0][0], name)] for name in names if schedule and name not in paired]
