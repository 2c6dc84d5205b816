"""Resource limits of login shells and of daemons."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, matched, whole_lines

Pair = tuple[str, str]
"""A soft and a hard limit."""
LOGIN_END: Final = "end of login"
# In a new login: the current connection may predate the limits.
LOGIN_LIMITS: Final = (
    "su -l root -c 'echo nofile $(ulimit -S -n) $(ulimit -H -n); echo nproc $(ulimit -S -u) $(ulimit -H -u);"
    f" echo stack $(ulimit -S -s) $(ulimit -H -s); echo {LOGIN_END}'"
)


def parse_login_limits(output: str) -> dict[str, Pair]:
    """Output of ``LOGIN_LIMITS``: nofile, nproc and stack (KiB); other output of the login is ignored."""
    lines = ended_lines("ulimit", output, LOGIN_END)
    limits: dict[str, Pair] = {}
    for line in lines[-3:]:
        match = re.fullmatch(r"(nofile|nproc|stack) (unlimited|\d+) (unlimited|\d+)", line)
        if match is None or match[1] in limits:
            raise ParseError("ulimit", f"expected a limit, got {excerpt(line)}")
        limits[match[1]] = (match[2], match[3])
    if len(limits) != 3:
        raise ParseError("ulimit", "the answer lacks a limit")
    return limits


LOGIN_MEMLOCK: Final = "su -l root -c 'ulimit -l'"


def parse_login_memlock(output: str) -> str:
    """Output of ``LOGIN_MEMLOCK``, in KiB or ``unlimited``; lines that the login prints before it are ignored."""
    last = whole_lines("ulimit", output)[-1].strip()
    matched("ulimit", r"unlimited|\d+", last, "a limit")
    return last


DAEMON_END: Final = "end of limits"
PROCESS_LIMITS: Final = {
    # name: (name in /proc/PID/limits, its units per unit of ours)
    "memlock": ("Max locked memory", 1024),
    "nofile": ("Max open files", 1),
    "nproc": ("Max processes", 1),
    "stack": ("Max stack size", 1024),
}


def daemon_limits_command(units: Iterable[str]) -> str:
    """Command that prints the limits of each unit's main process from /proc."""
    names = " ".join(map(shlex.quote, units))
    return (
        f'for u in {names}; do p=$(systemctl show --value --property=MainPID -- "$u");'
        ' s=$(systemctl show --value --property=ActiveState -- "$u"); echo "unit $u ${s:-unknown} ${p:-unknown}";'
        f' [ "${{p:-0}}" = 0 ] || cat "/proc/$p/limits"; done; echo {DAEMON_END}'
    )


@dataclass(frozen=True, slots=True)
class Daemon:
    """A unit's state, and the limits of its main process; empty where it has no process."""

    state: str
    limits: Mapping[str, Pair]
    """As in /proc: bytes or counts."""


def parse_daemon_limits(output: str, units: tuple[str, ...]) -> dict[str, Daemon]:
    """Output of ``daemon_limits_command`` for these units. Raises ParseError."""
    lines = ended_lines("systemctl", output, DAEMON_END)
    names = {name: key for key, (name, _) in PROCESS_LIMITS.items()}
    daemons: dict[str, tuple[str, bool, dict[str, Pair]]] = {}
    current: dict[str, Pair] | None = None
    for line in lines:
        if match := re.fullmatch(r"unit (\S+) ([a-z]+) (\d+)", line):
            if match[1] in daemons:
                raise ParseError("systemctl", f"{match[1]} is listed twice")
            current = {}
            daemons[match[1]] = (match[2], match[3] != "0", current)
        elif match := re.fullmatch(r"(Max [a-z ]+?)\s{2,}(unlimited|\d+)\s+(unlimited|\d+)(?:\s+\S+)?\s*", line):
            if current is None:
                raise ParseError("systemctl", f"limits before the first unit: {excerpt(line)}")
            if match[1] in names:
                current[names[match[1]]] = (match[2], match[3])
        elif not line.startswith("Limit "):
            raise ParseError("/proc/PID/limits", f"expected a limit, got {excerpt(line)}")
    for unit, (_, runs, limits) in daemons.items():
        if runs and limits.keys() != PROCESS_LIMITS.keys():
            raise ParseError("/proc/PID/limits", f"{unit} lacks a limit")
    if tuple(daemons) != units:
        raise ParseError("systemctl", f"expected {len(units)} units, got {len(daemons)}")
    return {unit: Daemon(state, limits) for unit, (state, _, limits) in daemons.items()}
