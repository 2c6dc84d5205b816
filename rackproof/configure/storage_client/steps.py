"""Steps: a test of a node, and the script that makes it succeed.

All tests run first, in one command. The scripts of failed tests then run in order, each followed by its test: if that
fails again, the run of the node ends with the step's message.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.configure.package_transaction.lock import LOCKED, NO_ROOM
from rackproof.configure.rollback.journal import Journal, later, mark_lines
from rackproof.shell import Script, shown_form


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    holds: str
    """Shell test: fast, read-only, and without access to mount points."""
    otherwise: str
    """One line for a test that fails after the script: the problem and a remedy."""
    script: str = ""
    """Shell lines that make the test succeed; empty: the step only tests."""
    writes: tuple[str, ...] = ()
    """Configuration files that the script writes; a rollback restores them. Software, stamps and logs stay."""
    restart: tuple[str, ...] = ()
    """Units that read those files."""
    brings: tuple[tuple[str, str], ...] = ()
    """Packages that the script installs from repositories, with versions (empty: any), for ``rackproof mirror list``.
    The running kernel is ``$(uname -r)``, as in the script."""


def holding_command(steps: Sequence[Step]) -> str:
    """One command for all tests; a test that takes more than 20 seconds fails."""
    lines = ["export LC_ALL=C; "]
    for number, step in enumerate(steps):
        lines.append(f"timeout -k 2 20 sh -c {shlex.quote(step.holds)} >/dev/null 2>&1; echo {number} $?; ")
    return "".join(lines)


def parse_holding(lines: Sequence[str]) -> tuple[bool, ...]:
    """Answer of ``holding_command``, in the order of the steps. Raises ValueError on anything else."""
    holding = []
    for number, line in enumerate(lines):
        index, status = line.split(" ")
        if int(index) != number:
            raise ValueError(f"expected the answer to step {number}, actual {line!r}")
        holding.append(int(status) == 0)
    return tuple(holding)


MESSAGES = """\
messages=$(mktemp -p /dev/shm rackproof.XXXXXX 2>/dev/null || mktemp) || exit 1
trap 'rm -f -- "$messages"' EXIT"""
"""File for the messages of a step, in memory where possible: they matter most when a disk is full."""


def script_of(steps: Sequence[Step], journal: Journal | None = None) -> str:
    """Shell script that runs steps, and stops at the first whose test then fails.

    With a journal, the files of a step are saved just before it, because an earlier step may have installed them.
    """
    # Interactive programs (dpkg, ssh) get end of file and do not wait.
    lines = ["set -u", "exec </dev/null", "export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l", MESSAGES]
    if journal and any(step.writes for step in steps):
        lines.append(journal.head())
    for step in steps:
        written = [later(path) for path in step.writes] if journal and step.script else []
        if journal and written:
            marks = mark_lines([f"restart:{unit}" for unit in step.restart])
            lines.append(journal.part(marks, written))
        # A shell of its own: `set -e` has no effect left of || or in the condition of if.
        texts = (step.script, shown_form(step.script))
        of_step, shown = (f'sh -eu -c {shlex.quote(text)} 2>"$messages"' for text in texts)
        run = [Script(of_step, shown), "rc=$?", 'cat -- "$messages" >&2']
        lines += run if step.script else ["rc=0", ': >"$messages"']
        if journal and written:
            lines.append(journal.part_behind(written))
        test = f"timeout -k 2 20 sh -c {shlex.quote(step.holds)} >/dev/null 2>&1"
        lines.append(f"if [ $rc -ne 0 ] || ! {test}; then {_why(step)} exit 1; fi")
    return Script.of(*lines)


def _why(step: Step) -> str:
    """Shell text that prints why a step failed: a full disk, a locked package manager, or the step's ``otherwise``."""
    no_room = "|".join(f"*{shlex.quote(words)}*" for words in NO_ROOM)
    full = shlex.quote(f"{step.name}: a file system of this node is full, see above; make room and run again")
    locked = shlex.quote(f"{step.name}: the package manager is locked by another process, see above")
    otherwise = shlex.quote(f"{step.name}: {step.otherwise}")
    return (
        f'case "$(cat -- "$messages")" in {no_room}) echo {full};; *{shlex.quote(LOCKED)}*) echo {locked};;'
        f" *) echo {otherwise};; esac >&2;"
    )
