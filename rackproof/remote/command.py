"""What a command on a node gives back, and how commands are wrapped. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

KILL_AFTER_S = 5
GRACE_S = 15.0
"""How much longer the controller waits than the node's own ``timeout``: the way back may be slow."""
OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes kept of one stream; a tool that prints more is cut and said to be."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """``rc`` is None when the command did not end, and ``error`` then says why in one line."""

    node: str
    command: str
    rc: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    elapsed_s: float = 0.0
    timeout_s: float = 0.0
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.rc == 0

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def why(self) -> str:
        """One line for a person: why this did not succeed."""
        if self.error:
            return self.error
        last = self.stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
        if self.rc == 127:
            return f"command not found: {last[0] or self.command}"
        return f"exit status {self.rc}" + (f": {last[0]}" if last[0] else "")


def portable(script: str) -> str:
    """A POSIX script as one word that every login shell passes on as it is; csh and fish have quoting of their own."""
    if "\n" in script or "\0" in script:
        script = f'eval "$(echo {base64.b64encode(script.encode()).decode()} | base64 -d)"'
    words = re.findall(r"[^'!\\]+|['!\\]", script)
    return "".join(_PORTABLE.get(word) or f"'{word}'" for word in words) or "''"


_PORTABLE = {"'": '"\'"', "!": "\\!", "\\": "\\\\"}


def bounded(command: str, timeout_s: float, sudo: str = "") -> str:
    """The command under the node's own ``timeout``, in a fixed locale, as one shell string.

    An ssh connection that goes away does not end what it started, so the limit has to stand on the node. ``sudo`` is
    put in front of all of it.
    """
    return f"{sudo}env LC_ALL=C timeout -k {KILL_AFTER_S} {timeout_s:g} sh -c {portable(command)}"


def tied(command: str, timeout_s: float, sudo: str = "") -> str:
    """A server that lives no longer than its connection: when its input ends, it is ended, by its process id.

    So a controller that is killed leaves nothing behind that holds a port or a file.
    """
    script = (
        f"exec 3<&0; {bounded(command, timeout_s)} 3<&- & p=$!; "
        "{ cat <&3 >/dev/null; kill -TERM $p 2>/dev/null; } & c=$!; "
        "wait $p; rc=$?; kill $c 2>/dev/null; exit $rc"
    )
    return f"{sudo}sh -c {portable(script)}"


def timed_out(rc: int | None) -> bool:
    """``timeout`` answers 124, or 137 when the command had to be killed."""
    return rc in (124, 137)
