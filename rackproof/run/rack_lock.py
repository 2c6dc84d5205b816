"""The run lock of all nodes, held by a run that validates or measures while its connections are open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rackproof.configure.run_lock import LEFT_S, holder_here, left_in, refusal, take_script
from rackproof.core.rack import fold
from rackproof.errors import RunError
from rackproof.remote.fleet import Fleet

TAKE_TIMEOUT_S = 60.0
RELEASE_S = 30.0
"""Seconds until the connections of the run's own deploy, which held the lock, end on a slow node."""
LINE_S = 10.0
OPTION = "--take-over "


def take_rack(
    fleet: Fleet, nodes: Iterable[str], run: str, say: Callable[[str], None], take_over: str | None = None,
    wait_s: float = 0.0,
) -> None:  # fmt: skip
    """Take the run lock on all nodes. Raises RunError if another run holds one for longer than ``wait_s``.

    Waits up to ``LEFT_S`` for commands of an interrupted run that continue on a node, and names them every 10 s. A node
    that cannot be locked for another reason (no connection, no permission) is named and used without a lock.
    """
    script = take_script(holder_here(run), take_over, option=OPTION)
    began = time.monotonic()
    reported = 0.0
    waiting, reasons = list(nodes), dict[str, str]()
    while waiting:
        answers = fleet.run(dict.fromkeys(waiting, script), TAKE_TIMEOUT_S)
        refused = {name: answer for name, answer in answers.items() if not answer.ok}
        held = {name: line for name, a in refused.items() if (line := refusal(a.stderr.decode(errors="replace")))}
        reasons |= {name: answer.why for name, answer in refused.items() if name not in held}
        waited = time.monotonic() - began
        late = {n: line for n, line in held.items() if waited >= (LEFT_S if left_in(line) else wait_s)}
        if late:
            raise RunError(f"{fold(late)}: {next(iter(late.values()))}")
        continuing = {name: left for name, line in held.items() if (left := left_in(line))}
        if continuing and waited >= reported:
            reported = waited + LINE_S
            say(f"waiting for {fold(continuing)}: {next(iter(continuing.values()))}")
        waiting = list(held)
        if waiting:
            time.sleep(1)
    for reason in dict.fromkeys(reasons.values()):
        say(f"{fold(name for name, why in reasons.items() if why == reason)}: without a run lock: {reason}")
