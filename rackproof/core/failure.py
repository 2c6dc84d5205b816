"""Why a program failed, in one line: the cause first, in the program's own words, its exit status last. Pure."""

from __future__ import annotations

import re
from typing import Final

from rackproof.core.wording import shortened

NOT_FOUND: Final = 127
NOT_STARTED: Final = 126
_TIMED_OUT: Final = (124, 137)
"""Exit statuses of ``timeout``: 137 when it had to kill the program; the kernel, short of memory, gives the same."""
_SIGNALS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_LONGEST: Final = 160

_ABSENT: Final = re.compile(
    r"failed to run command ['‘`\"](?P<a>[^'’\"]+)"
    r"|env: ['‘]?(?P<b>[^'’: ]+)['’]?: No such file"
    r"|(?:^|[\s:])['‘]?(?P<c>[\w./+-]+)['’]?: (?:command )?not found"
    r"|: (?:line )?\d+: (?P<d>[\w./+-]+): No such file or directory$"
)
"""Messages of shells, ``timeout`` and ``env`` about a program that does not exist."""
_NO_WORDS: Final = re.compile(
    r"perl: warning:|\W*(?:LANGUAGE|LC_ALL|LANG)\b|.*warning: setlocale|(?i:usage):|Try ['‘`\"]|"
    r"(?i:for more (?:information|details)|see ['‘`\"]|run ['‘`\"].* --help)|Killed$|Terminated$|\W*$"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+\S*$"
    r"|\[[IW]\d{4} [\d:.]+ |frame #\d+: "  # PyTorch's warnings when a process ends, and its stack
    r"|\*\*\* |.*(?:ORTE_ERROR_LOG|FORCE-TERMINATE|Local abort before MPI_INIT)"  # Open MPI, after its cause
)
"""Lines that say nothing about a cause: advice, what a shell adds, and the time of day."""
_RANK: Final = re.compile(r"\[rank\d+\]: ?")
"""PyTorch's prefix of a rank's lines."""
_BOX: Final = re.compile(r"(?ms)^-{74}\n(.*?)^-{74}$")
"""Advice of Open MPI and PRRTE, mostly on what another line has reported."""
_NAMED: Final = re.compile(r"(?!(?i:error|fatal|warning|note|info|timeout|sh|bash|env|sudo):)[\w./+-]+: ")
"""A program's own name at the beginning of its line."""
_DOCUMENT: Final = re.compile(r"(?m)^\s*(?:[{\[]\s*$|\{\s*\"|\[\s*\{|<\?xml)")
NEEDS_ROOT: Final = re.compile(
    r"(?i)may not be used by non-root|must be (?:run as )?(?:root|superuser)|unless you are root|are you root"
    r"|only root (?:can|may)|requires? (?:root|superuser)|^Password: ?"
)
"""Messages of programs to users other than root; the last is of ``su``."""
DENIED: Final = re.compile(r"(?i)permission denied|operation not permitted")
_CAUSES: Final = (
    (re.compile(r"Cannot talk to daemon"), "chronyd does not run"),
    (re.compile(r"couldn't communicate with the NVIDIA driver"), "the NVIDIA driver does not run"),
    (re.compile(r"Cannot connect to the Docker daemon"), "dockerd does not run"),
    (re.compile(r"Unable to contact slurm controller"), "slurmctld does not answer"),
    (
        re.compile(r"RADOS permission denied|\bError E(?:ACCES|PERM): |mount error 13\b|handle_auth_bad_method"),
        "Ceph refuses the node's key, or the login cannot read it",
    ),
    (NEEDS_ROOT, "it needs root"),
    (DENIED, "the login may not do this"),
    (re.compile(r"No space left on device"), "a file system is full"),
)  # fmt: skip
"""Messages of programs that need an explanation, each with its explanation."""


def failure(tool: str, status: int, *outputs: str) -> str:
    """``chronyd does not run: chronyc: 506 Cannot talk to daemon (exit status 1)``.

    ``outputs``: what it printed, error output first; of the first that has words, the last line counts.
    """
    tool = tool.rpartition("/")[2] or tool
    words = next((line for line in map(last_words, outputs) if line), "")
    end = f"(exit status {status})"
    lines = (line.strip() for output in outputs for line in output.splitlines()) if status == NOT_FOUND else ()
    absent = next(filter(None, map(_ABSENT.search, lines)), None)  # another command may print the last line
    if status == NOT_FOUND and (absent or not words):  # or a library is missing
        name = next(filter(None, absent.groups()), tool) if absent else tool
        return f"{name} is not installed {end}"
    if status == NOT_STARTED:
        what = f"{tool} cannot be started"
    elif status in _TIMED_OUT:
        what = f"{tool} did not finish in time{' or was killed' if status == _TIMED_OUT[1] else ''}"
    elif status > 128:
        what = f"{tool} was ended by {_SIGNALS.get(status - 128, f'signal {status - 128}')}"
    elif not words:
        what = f"{tool} failed"
    else:
        named = _NAMED.match(words) or re.search(rf"(?<![\w.-]){re.escape(tool)}(?![\w.-])", words)
        own = words if named else f"{tool}: {words}"
        known = cause_of(words)
        return f"{known and f'{known}: '}{own} {end}"
    return f"{what}{words and f': {words}'} {end}"


def cause_of(words: str) -> str:
    """Cause behind a program's message; empty where the message names it."""
    return next((cause for pattern, cause in _CAUSES if pattern.search(words)), "")


def last_words(text: str) -> str:
    """The last line before a document that says something, shortened; empty where there is none. Without such a line,
    the beginning of Open MPI's first advice."""
    before = text[: document.start()] if (document := _DOCUMENT.search(text)) else text
    lines = (" ".join(_RANK.sub("", line, count=1).split()) for line in reversed(_BOX.sub("", before).splitlines()))
    line = next((line for line in lines if line and not _NO_WORDS.match(line)), "")
    if not line and (box := _BOX.search(before)):
        line = " ".join(box[1].split())
    return shortened(line, _LONGEST)
