"""Reads a node's clock over an open connection, by asking for it line by line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rackproof.core.clocks import Clock
from rackproof.parse.clocks import first_time

READ: Final = (
    "exec $(command -v bash || echo sh) -c "
    "'while read -r line; do echo \"${EPOCHREALTIME:-$(date +%s.%N)}\"; done'"
)  # fmt: skip
"""Prints the time for each input line. bash 5 needs no ``date``, which takes 0.1 s to start on an emulated node."""
TRIES: Final = 10
GOOD_S: Final = 0.02
"""A round trip that is short enough; a busy node is asked until ``LIMIT_S``."""
LIMIT_S: Final = 5.0


def measured(
    write: Callable[[bytes], object], read: Callable[[], bytes], stopping: Callable[[], bool], base_s: float
) -> Clock | str:
    """Offset of the node's clock by the fastest of ``TRIES`` or more round trips, or why it is unknown.

    ``read`` waits for output: empty output is the end, TimeoutError means no answer. ``base_s`` is the controller's
    clock at 0 of ``time.monotonic``: setting that clock during the measurement changes nothing.
    """
    began, best, tries = time.monotonic(), None, 0
    while (tries := tries + 1) <= TRIES or (best is not None and best[0] > GOOD_S):
        if stopping() or time.monotonic() > began + LIMIT_S:
            break
        before = time.monotonic()
        try:
            write(b"\n")
            stamp_s = _stamp(read)
        except TimeoutError:
            break
        after = time.monotonic()
        if stamp_s is None:
            return "its shell shows no time"
        if best is None or after - before < best[0]:
            best = after - before, Clock(stamp_s - base_s - after, stamp_s - base_s - before)
    return best[1] if best is not None else f"no answer within {LIMIT_S:g} s"


def _stamp(read: Callable[[], bytes]) -> float | None:
    """The next line with a time, after the lines of a login shell; None at the end."""
    text = b""
    while (stamp_s := first_time(text)) is None:
        if not (part := read()):
            return None
        text += part
    return stamp_s
