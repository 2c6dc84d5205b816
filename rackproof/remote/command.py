"""Results of commands on nodes, and wrappers for commands. Pure."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile

from rackproof.core.failure import failure

KILL_AFTER_S = 5
NOT_FINISHED = "not finished within "
MARK = "RACKPROOF_COMMAND"
"""Environment variable that marks the processes of one connection."""
GRACE_S = 15.0
"""Seconds that the controller waits longer than the node's own ``timeout``: the connection may be slow."""
OUTPUT_LIMIT = 16 * 1024 * 1024
"""Maximum bytes of one stream; more output is an error."""
TOO_MUCH = f"printed more than {OUTPUT_LIMIT} bytes"


def not_finished(timeout_s: float) -> str:
    """``error`` of a command that reached its time limit."""
    return f"{NOT_FINISHED}{timeout_s:g} s"


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
    def outputs(self) -> tuple[str, ...]:
        """sha256 names of the streams that are not empty."""
        return tuple(sha256_of(stream) for stream in (self.stdout, self.stderr) if stream)

    @property
    def ok(self) -> bool:
        return self.rc == 0

    @property
    def late(self) -> bool:
        """Whether it reached its time limit."""
        return self.error == not_finished(self.timeout_s)

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def why(self) -> str:
        """Why the command failed, in one line."""
        if self.error:
            return self.error
        return failure(program(self.command), self.rc or 0, self.stderr.decode(errors="replace"), self.text)


@lru_cache(maxsize=64)
def sha256_of(output: bytes) -> str:
    """Cached, since thousands of measurements and checks read the same large output."""
    return hashlib.sha256(output).hexdigest()


def portable(script: str) -> str:
    """A POSIX script as one word that every login shell passes on unchanged; csh and fish quote differently.

    ``printf`` is part of the shell: a program that decodes would be started for every command.
    """
    if "\n" in script or "\0" in script:
        octal = re.sub(r"[\0\n!'\\]", lambda match: f"\\0{ord(match[0]):03o}", script)
        script = f"eval \"$(printf %b '{octal}')\""
    words = re.findall(r"[^'!\\]+|['!\\]", script)
    return "".join(_PORTABLE.get(word) or f"'{word}'" for word in words) or "''"


_PORTABLE = {"'": '"\'"', "!": "\\!", "\\": "\\\\"}


FULL_PATH = (
    "PATH=$PATH:/usr/sbin:/sbin; rackproof=; IFS=:; set -f; for folder in $PATH; do "
    '[ -n "$folder" ] && [ -x "$folder/." ] && rackproof=$rackproof${rackproof:+:}$folder; done; '
    "PATH=$rackproof; set +f; unset IFS folder rackproof"
)
"""Adds the last two folders, which a login without root may lack, and removes folders that it may not search: with
one of those the shell reports a missing program as ``Permission denied``."""


def bounded(command: str, timeout_s: float, sudo: str = "", mark: str = "", user: str = "") -> str:
    """The command under the node's own ``timeout``, in a fixed locale, as one shell string.

    The limit is on the node because a lost ssh connection does not end its commands. ``sudo`` is a prefix of it all.
    ``mark`` is in the environment of the command and its children; ``ending`` ends them by it. ``user`` is a prefix
    that runs the command itself as another user; ``timeout`` stays root's, so it can end it.
    """
    marked = f"{MARK}={mark} " if mark else ""
    run = portable(f"{FULL_PATH}; {command}")
    return f"{sudo}env LC_ALL=C {marked}timeout -k {KILL_AFTER_S} {timeout_s:g} {user}sh -c {run}"


def ending(mark: str) -> str:
    """End all processes with ``mark``: first with SIGTERM, after a second with SIGKILL."""
    find = f"grep -lszxF {MARK}={mark} /proc/[0-9]*/environ | cut -d/ -f3"
    kill = f'p=$({find}); [ -z "$p" ] || kill'
    return f"{{ {kill} $p && sleep 1; {kill} -9 $p; }} 2>/dev/null"


def tied(command: str, timeout_s: float, sudo: str = "", mark: str = "", user: str = "") -> str:
    """A command that ends with its connection: the end of the input kills the process of ``timeout`` and its group.

    The signal to the group is needed because ``timeout`` does not pass on a signal that arrives while it starts the
    command. So a killed controller leaves no process that occupies a port, a file or a storage. The command itself
    reads no input.
    """
    script = (
        f"exec 3<&0; {bounded(command, timeout_s, mark=mark, user=user)} 3<&- & p=$!; "
        "{ cat <&3; kill -TERM -$p $p; } >/dev/null 2>&1 & c=$!; "
        "wait $p; rc=$?; kill $c 2>/dev/null; exit $rc"
    )
    return f"{sudo}sh -c {portable(script)}"


_WRAPPERS = frozenset({"timeout", "env", "nice", "ionice", "taskset", "numactl", "runuser", "setpriv", "sudo", "exec"})
_KEYWORDS = frozenset({"!", "do", "elif", "else", "if", "then", "until", "while", "{", "("})
_BUILTINS = frozenset((
    ".", ":", "[", "break", "case", "cd", "command", "continue", "do", "done", "echo", "esac", "eval", "exit", "export",
    "false", "fi", "for", "local", "printf", "read", "return", "set", "shift", "sleep", "source", "test", "trap",
    "true", "umask", "unset", "wait", "}",
))  # fmt: skip
_HELPERS = frozenset((
    "awk", "cat", "cut", "date", "find", "grep", "head", "ls", "mkdir", "mktemp", "mountpoint", "readlink", "rm", "sed",
    "sort", "sync", "tail", "uname", "uniq",
))  # fmt: skip
"""Programs of the system, which are rarely the subject of a command."""

_PROGRAM = re.compile(r"[\w./+-]+")
_SCRIPT = re.compile(r"\bpython3 (?:-\w+ )*\S*?([\w.-]+\.py)\b")
_FUNCTION = re.compile(r"^(\w+)\(\) *\{", re.MULTILINE)


@lru_cache(maxsize=4096)  # many nodes and checks share a command
def program(command: str) -> str:
    """First program of a command that is not a helper of the shell, for messages.

    Skips assignments, redirections, wrappers such as ``timeout -k 2 5``, and a shell that only runs its arguments. A
    command of helpers has the name of the first one.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();&|\n<>")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    simple: list[list[str]] = [[]]
    target = False
    try:
        for token in lexer:
            if not token or token.strip("();&|\n<>"):
                if not target:
                    simple[-1].append(token)
                target = False
            elif "<" in token or ">" in token:
                target = True
            else:
                simple.append([])
    except ValueError:  # quotes that are not closed
        simple = [command.split()]
    skipped = _BUILTINS.union(_FUNCTION.findall(command))
    names = [name for words in simple if _PROGRAM.fullmatch(name := _first_program(words)) and name not in skipped]
    return next((name for name in names if name not in _HELPERS), names[0] if names else "sh" if command else "")


def script_or_program(command: str) -> str:
    """As ``program``; Python is named by its script."""
    name = program(command)
    script = _SCRIPT.search(command) if name == "python3" else None
    return script[1] if script else name


def _first_program(words: Iterable[str]) -> str:
    """Program of a simple command, without keywords, assignments and wrappers; empty where there is none."""
    left = list(dropwhile(lambda word: word in _KEYWORDS or "=" in word, words))
    if left[:2] == ["sh", "-c"] and left[2:] and left[2].endswith('"$@"'):
        return _first_program(left[4:])
    while left and left[0] in _WRAPPERS:
        left = left[1:]
        while left and ("=" in left[0] or left[0][0] in "-.0123456789"):
            left = left[2:] if left[0] == "-u" else left[1:]  # the user of sudo and runuser
    return left[0] if left and left[0] not in ("for", "case") else ""


def timed_out(rc: int | None) -> bool:
    """Exit statuses of ``timeout``: 124, or 137 when the command had to be killed."""
    return rc in (124, 137)
