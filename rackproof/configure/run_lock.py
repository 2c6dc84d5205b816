"""One run at a time on a node: a converge and a rollback that interleave leave neither's result. Pure.

``/run/rackproof/run`` says which run works on the node, whose it is, from where and since when. Nobody has to remove
it: it counts for as long as the connection by which the run came is open (a process on the node, known by its id and
by when it began), so a run that was killed, failed or cut off holds nothing. Where no such process is found (a
connector that is not ssh) it counts for ``LIMIT_S`` after the run's last change. A boot ends it in any case. Who knows
that the other run is not at work takes the node from it by name: ``--data take_over=RUN``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell

LOCK_FILE: Final = "/run/rackproof/run"
LIMIT_S: Final = 7200
"""Seconds; longer than any single command of a deploy may take."""
WAIT_S: Final = 20
"""Seconds to wait for another run that is just looking at the file."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A run, and who to ask about it."""

    run: str
    who: str
    host: str
    """That the run was started on."""
    since: str = ""
    """As the node's clock has it; empty for one that has taken nothing yet."""

    @property
    def sentence(self) -> str:
        return f"run {self.run} of {self.who} on {self.host} works on this node since {self.since}"


def take_script(holder: Holder, take_over: str | None = None, file: str = LOCK_FILE) -> str:
    """Shell text that takes the node for a run, or ends the script with status 1 and one line that says who has it.

    A run takes it as often as it likes. ``take_over``: the run that it may be taken from.
    """
    words = (file, *(_plain(word) for word in (holder.run, holder.who, holder.host, take_over or "")))
    take = shell.script(__name__, "run_lock_take", rp_l_wait_s=WAIT_S)
    return f"{_functions()}\n{take}\nrp_lock {' '.join(map(shlex.quote, words))} || exit 1"


def held_command(file: str = LOCK_FILE) -> str:
    """Print one line, ``held RUN WHO HOST SINCE``, where a run works on the node. Takes nothing."""
    path = shlex.quote(file)
    return (
        f"{_functions()}\nif [ -r {path} ] && rp_lock_read {path}; then"
        ' echo "held $rp_l_run $rp_l_who $rp_l_from $rp_l_since"; fi; '
    )


def parse_held(lines: Sequence[str]) -> Holder | None:
    """Answer of ``held_command``. Raises ValueError on anything else."""
    if not lines:
        return None
    words = lines[0].split()
    if len(lines) != 1 or len(words) != 5 or words[0] != "held":
        raise ValueError(f"expected who holds the node, actual {' | '.join(lines)!r}")
    return Holder(*words[1:])


def _functions() -> str:
    return shell.script(__name__, "run_lock", rp_l_limit_s=LIMIT_S)


def _plain(word: str) -> str:
    """One word for a file of lines ``key=value``."""
    return re.sub(r"[^\w.@:+-]", "_", word, flags=re.ASCII)
