"""Run lock: one run at a time on a node, so that a deploy and a rollback do not interleave. Pure.

``/run/rackproof/run`` names the run that holds the node, its user, the host that it was started on and its start time.
The lock needs no removal: it is valid as long as the ssh connection of the run is open (a process on the node,
identified by its id and start time), so a run that was killed or lost its connection holds nothing. For connectors
other than ssh it is valid for ``LIMIT_S`` after the last change of the run. A reboot always ends it. A command that an
interrupted run left on the node keeps it until the command has ended; a new run waits for that.
``--data take_over=RUN`` takes a node from a run that is known to be dead.
"""

from __future__ import annotations

import getpass
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell

LOCK_FILE: Final = "/run/rackproof/run"
LIMIT_S: Final = 7200
"""Seconds; longer than the time limit of any single command of a deploy."""
WAIT_S: Final = 20
"""Seconds to wait while another run reads or writes the file."""


LEFT_S: Final = 1800.0
"""Seconds to wait for a command that an interrupted run left: half an hour, the longest installation on slow media."""
_LEFT = r"(run \S+ of \S+ on \S+ has ended and left a command that still runs \(process \d+\)), so "
_REFUSED = re.compile(rf"run \S+ of \S+ on \S+ works on this node since |{_LEFT}")


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds a node, or wants to."""

    run: str
    who: str
    """User name."""
    host: str
    """Host that the run was started on."""
    since: str = ""
    """Time by the node's clock; empty when the run holds nothing yet."""

    @property
    def sentence(self) -> str:
        return f"run {self.run} of {self.who} on {self.host} works on this node since {self.since}"


def holder_here(run: str) -> Holder:
    """This user on this machine, with a run."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        who = "unknown"
    return Holder(run, who, socket.gethostname())


def take_script(
    holder: Holder, take_over: str | None = None, file: str = LOCK_FILE, option: str = "--data take_over="
) -> str:
    """Shell text that takes the lock, or ends the script with status 1 and one line that names the holder.

    A run may take the lock repeatedly. ``take_over``: a run that the lock may be taken from; ``option`` is how the user
    says so, without the run's name.
    """
    words = (file, *(_plain(word) for word in (holder.run, holder.who, holder.host, take_over or "")))
    take = shell.script(__name__, "run_lock_take", rp_l_wait_s=WAIT_S, rp_l_option=option)
    return f"{_functions()}\n{take}\nrp_lock {' '.join(map(shlex.quote, words))} || exit 1"


def refusal(stderr: str) -> str | None:
    """The line of ``take_script`` that names the holder of the lock; None where it failed for another reason."""
    return next((line for line in stderr.splitlines() if _REFUSED.match(line)), None)


def left_in(line: str) -> str | None:
    """The command that an interrupted run left and that will end by itself, if a line of ``take_script`` names one."""
    match = re.match(_LEFT, line)
    return match and match[1]


def held_command(file: str = LOCK_FILE) -> str:
    """Shell text that prints ``held RUN WHO HOST SINCE`` when a run holds the node. Takes no lock."""
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
        raise ValueError(f"expected the holder of the run lock, actual {' | '.join(lines)!r}")
    return Holder(*words[1:])


def _functions() -> str:
    return shell.script(__name__, "run_lock", rp_l_limit_s=LIMIT_S)


def _plain(word: str) -> str:
    """The word without characters that the lock file or the shell would split."""
    return re.sub(r"[^\w.@:+-]", "_", word, flags=re.ASCII)
