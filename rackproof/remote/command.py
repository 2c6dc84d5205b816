"""Results of commands on nodes, and wrappers for commands. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from itertools import dropwhile

KILL_AFTER_S = 5
NOT_FINISHED = "not finished within "
"""How the error of a command begins that its time limit ended."""
MARK = "RACKPROOF_COMMAND"
"""Environment variable that marks the processes of one connection."""
GRACE_S = 15.0
"""Seconds that the controller waits longer than the node's own ``timeout``: the connection may be slow."""
OUTPUT_LIMIT = 16 * 1024 * 1024
"""Maximum bytes of one stream; more output is an error."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command. ``rc`` is None when it did not end; ``error`` then has the reason in one line."""

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
        """Why the command failed, in one line."""
        if self.error:
            return self.error
        last = self.stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
        if self.rc == 127:
            return f"command not found: {last[0] or self.command}"
        return f"exit status {self.rc}" + (f": {last[0]}" if last[0] else "")


def portable(script: str) -> str:
    """A POSIX script as one word that every login shell passes on unchanged; csh and fish quote differently."""
    if "\n" in script or "\0" in script:
        script = f'eval "$(echo {base64.b64encode(script.encode()).decode()} | base64 -d)"'
    words = re.findall(r"[^'!\\]+|['!\\]", script)
    return "".join(_PORTABLE.get(word) or f"'{word}'" for word in words) or "''"


_PORTABLE = {"'": '"\'"', "!": "\\!", "\\": "\\\\"}


def bounded(command: str, timeout_s: float, sudo: str = "", mark: str = "") -> str:
    """The command under the node's own ``timeout``, in a fixed locale, as one shell string.

    The limit is on the node because a lost ssh connection does not end its commands. ``sudo`` is a prefix of it all.
    ``mark`` is in the environment of the command and its children; ``ending`` ends them by it.
    """
    marked = f"{MARK}={mark} " if mark else ""
    return f"{sudo}env LC_ALL=C {marked}timeout -k {KILL_AFTER_S} {timeout_s:g} sh -c {portable(command)}"


def ending(mark: str) -> str:
    """End all processes with ``mark``: first with SIGTERM, after a second with SIGKILL."""
    find = f"grep -lszxF {MARK}={mark} /proc/[0-9]*/environ | cut -d/ -f3"
    kill = f'p=$({find}); [ -z "$p" ] || kill'
    return f"{{ {kill} $p && sleep 1; {kill} -9 $p; }} 2>/dev/null"


def tied(command: str, timeout_s: float, sudo: str = "") -> str:
    """A server that ends with its connection: the end of its input kills it, by its process id.

    So a killed controller leaves no process that occupies a port or a file.
    """
    script = (
        f"exec 3<&0; {bounded(command, timeout_s)} 3<&- & p=$!; "
        "{ cat <&3 >/dev/null; kill -TERM $p 2>/dev/null; } & c=$!; "
        "wait $p; rc=$?; kill $c 2>/dev/null; exit $rc"
    )
    return f"{sudo}sh -c {portable(script)}"


def program(command: str) -> str:
    """Name of the program, without a leading ``timeout -k 2 5`` and assignments."""
    words = list(dropwhile(lambda word: "=" in word, command.split()))
    if words[:1] == ["timeout"]:
        words = list(dropwhile(lambda word: word[0] in "-.0123456789", words[1:]))
    return words[0] if words else command


def timed_out(rc: int | None) -> bool:
    """Exit statuses of ``timeout``: 124, or 137 when the command had to be killed."""
    return rc in (124, 137)
