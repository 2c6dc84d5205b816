"""A common moment on several nodes, by each node's own clock, whose offset the controller measures before."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rackproof.evidence.session import Session


def common_start(session: Session, nodes: Sequence[str], lead_s: float) -> tuple[dict[str, float], list[str]]:
    """The moment in ``lead_s``, in seconds since 1970 by each node's clock, and a line for each unread clock."""
    base_s = time.time() - time.monotonic()
    clocks = session.fleet.each(nodes, lambda connection: connection.clock(base_s), "its clock")
    unread = [f"{node}: its clock was not read: {why}" for node, why in clocks.items() if isinstance(why, str)]
    begin_s = time.time() + lead_s
    moments = {
        node: round(begin_s + (clock.least_s + clock.most_s) / 2, 3)
        for node, clock in clocks.items()
        if not isinstance(clock, str)
    }
    return moments, unread
