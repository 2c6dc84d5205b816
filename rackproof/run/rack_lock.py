"""The run lock of all nodes, held by a run that validates or measures as long as its connections are open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rackproof.configure.run_lock import holder_here, refusal, take_script
from rackproof.core.rack import fold
from rackproof.errors import RunError
from rackproof.remote.ssh import Fleet

TAKE_TIMEOUT_S = 60.0
RELEASE_S = 30.0
"""Limit for the end of the connections of a run's own deploy, which held the lock, on a slow node."""
OPTION = "--take-over "


def take_rack(
    fleet: Fleet, nodes: Iterable[str], run: str, say: Callable[[str], None], take_over: str | None = None,
    wait_s: float = 0.0,
) -> None:  # fmt: skip
    """Take the run lock on all nodes. Raises RunError where another run holds one for longer than ``wait_s``.

    A node that cannot be locked for another reason (no connection, no permission) is named and left without a lock.
    """
    script = take_script(holder_here(run), take_over, option=OPTION)
    deadline = time.monotonic() + wait_s
    waiting, reasons = list(nodes), dict[str, str]()
    while waiting:
        answers = fleet.run(dict.fromkeys(waiting, script), TAKE_TIMEOUT_S)
        refused = {name: answer for name, answer in answers.items() if not answer.ok}
        held = {name: line for name, a in refused.items() if (line := refusal(a.stderr.decode(errors="replace")))}
        reasons |= {name: answer.why for name, answer in refused.items() if name not in held}
        if held and time.monotonic() >= deadline:
            raise RunError(f"{fold(held)}: {next(iter(held.values()))}")
        waiting = list(held)
        if waiting:
            time.sleep(1)
    for reason in dict.fromkeys(reasons.values()):
        say(f"{fold(name for name, why in reasons.items() if why == reason)}: without a run lock: {reason}")
