"""Wait until the processors of nodes and controller are free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from rackproof.core.load import LoadState
from rackproof.core.starvation import conditions_of, shortage
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.load import parse_state
from rackproof.remote import controller
from rackproof.remote.interrupt import STOPPING
from rackproof.shell import script

PAUSE_S = 10.0
TURNS: Final = 12
"""Maximum number of pauses. A longer load is permanent; numbers that fail under it are INVALID."""
STATE: Final = f"{script(__name__, 'state')}\nstate"
"""Command for ``parse_state``."""


def wait_for_processors(session: Session, nodes: Sequence[str], say: Callable[[str], None]) -> None:
    """Return when no machine is starved, or after ``TURNS`` pauses. ``say`` receives the cause after each pause."""
    ports = controller.ports_of_machines(session.rack)
    before, reading = _states(session, nodes), controller.reading(ports)
    for turn in range(1, TURNS + 1):
        if STOPPING.wait(PAUSE_S):
            return
        now, latest = _states(session, nodes), controller.reading(ports)
        cause = shortage(conditions_of(before, now, nodes) | controller.conditions(reading, latest, bool(ports)))
        if not cause:
            return
        say(f"waiting for {cause} ({turn * PAUSE_S:.0f} of {TURNS * PAUSE_S:.0f} s)")
        before, reading = now, latest


def _states(session: Session, nodes: Sequence[str]) -> dict[str, LoadState]:
    """States of the nodes that answer; they are not recorded, because nothing is measured."""
    states = {}
    for node, answer in session.fleet.run(dict.fromkeys(nodes, STATE), PAUSE_S).items():
        with suppress(ParseError):
            states[node] = parse_state(answer.stdout)
    return states
