"""Clocks of nodes against each other, without a time server: what the majority contradicts is off. Pure.

The controller reads every node's clock over a connection and knows when it asked and when it had the answer, so that
the offset is known to within the round trip: a slow node gives a wide interval, and proves less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.core.evidence import CheckOutcome
from rackproof.core.rack import fold
from rackproof.core.wording import some

COMMAND: Final = "date +%s.%N # rackproof compares the clocks of all nodes"
"""Recorded as the command of the comparison of all nodes. Run on a node, it compares nothing."""
HEAD: Final = "seconds ahead of the controller, at least and at most"
CONTROLLER: Final = "the controller"
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Clock:
    """Bounds of an offset from the controller's clock, seconds; positive: ahead."""

    least_s: float
    most_s: float

    def against(self, other: Clock) -> Clock:
        return Clock(self.least_s - other.most_s, self.most_s - other.least_s)

    def within(self, limit_s: float) -> bool:
        """Surely at most ``limit_s`` off."""
        return -limit_s <= self.least_s and self.most_s <= limit_s

    def beyond(self, limit_s: float) -> bool:
        """Surely more than ``limit_s`` off."""
        return self.least_s > limit_s or self.most_s < -limit_s

    @property
    def text(self) -> str:
        """``0.598 s ahead of``, with the uncertainty where it matters."""
        middle, half = (self.least_s + self.most_s) / 2, (self.most_s - self.least_s) / 2
        return f"{abs(middle):.3f} ± {half:.3f} s {'ahead of' if middle > 0 else 'behind'}"


Clocks = Mapping[str, "Clock | str"]
"""By node; the reason where a clock was not read."""


def rendered(clocks: Clocks) -> str:
    """The answer to ``COMMAND``, the same for every node."""
    lines = [
        f"{name} {clock.least_s:.6f} {clock.most_s:.6f}" if isinstance(clock, Clock) else f"{name} not read: {clock}"
        for name, clock in clocks.items()
    ]
    return "".join(f"{line}\n" for line in (HEAD, *lines, f"{len(lines)} clocks"))


def compare(clocks: Clocks, node: str, limit_s: float) -> tuple[CheckOutcome, str]:
    """Whether the clock of ``node`` agrees with the others; ``limit_s``: how far a right clock may be off.

    Two right clocks may be twice as far apart. The controller is one clock among the others. FAILED where more than
    half of all clocks are surely further away, PASSED where more than half, its own among them, are surely not.
    """
    known = _known(clocks)
    own = known.get(node)
    if own is None:
        return CheckOutcome.UNMEASURED, f"its clock was not read: {clocks.get(node, 'no answer')}"
    others = {name: own.against(clock) for name, clock in known.items() if name != node}
    apart = {name: offset for name, offset in others.items() if offset.beyond(2 * limit_s)}
    agree = 1 + sum(offset.within(2 * limit_s) for offset in others.values())
    bound = f"expected at most {2 * limit_s:g} s between two clocks"
    if 2 * len(apart) > len(known):
        return CheckOutcome.FAILED, f"{bound}, actual {_apart(apart)}"
    if 2 * agree > len(known):
        return CheckOutcome.PASSED, ""
    if apart:
        return CheckOutcome.UNMEASURED, f"no majority of clocks tells which is right: {_apart(apart)}"
    half_s = (own.most_s - own.least_s) / 2
    return CheckOutcome.UNMEASURED, f"clocks were read too slowly: to within {half_s:.3f} s; {bound}"


def controller_is_off(clocks: Clocks, limit_s: float) -> str | None:
    """One sentence where the nodes agree with each other and contradict the controller."""
    known = _known(clocks)
    own = known.pop(CONTROLLER)
    if len(known) < 2 or not all(own.against(clock).beyond(2 * limit_s) for clock in known.values()):
        return None
    first, *others = known.values()
    if not all(first.against(other).within(2 * limit_s) for other in others):
        return None
    return f"this machine's clock is off: {own.against(first).text} {fold(known)}, whose clocks agree"


def _known(clocks: Clocks) -> dict[str, Clock]:
    nodes = {name: clock for name, clock in clocks.items() if isinstance(clock, Clock)}
    return {**nodes, CONTROLLER: Clock(0.0, 0.0)}


def _apart(apart: Mapping[str, Clock]) -> str:
    """``0.598 ± 0.004 s ahead of gpu-02, storage-01 and the controller``."""
    first = next(iter(apart.values()))
    nodes = [name for name in apart if name != CONTROLLER]
    return f"{first.text} {some([*nodes, *([CONTROLLER] if CONTROLLER in apart else [])], _SHOWN)}"
