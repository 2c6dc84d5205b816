"""Steps: a test of a node, and the script that makes it pass.

All tests run first, in one command. The scripts of those that fail run in order, each followed by its test: a step
that still does not hold ends the run there with its own message.
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
    """Shell test; quick, reads only, and never looks below a mount point."""
    otherwise: str
    """One line: what is wrong when it does not hold afterwards, and what to do."""
    script: str = ""
    """Shell lines that make it hold; empty: it is only read back."""
    writes: tuple[str, ...] = ()
    """Configuration files that the script writes: a rollback restores them. Software, stamps and logs stay."""
    restart: tuple[str, ...] = ()
    """Units that read those files."""
    brings: tuple[tuple[str, str], ...] = ()
    """Packages that the script installs from repositories, with versions (empty: any), for the list of a mirror. The
    running kernel is ``$(uname -r)``, as in the script."""


def holding_command(steps: Sequence[Step]) -> str:
    """One command for all tests; one that takes more than 20 seconds does not hold."""
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


KEPT_WORDS = """\
said=$(mktemp -p /dev/shm rackproof.XXXXXX 2>/dev/null || mktemp) || exit 1
trap 'rm -f -- "$said"' EXIT"""
"""Messages of a step, in memory where possible: they matter most when a disk is full."""


def script_of(steps: Sequence[Step], journal: Journal | None = None) -> str:
    """Shell script that carries steps out, and stops at the first that does not hold afterwards.

    With a journal, the files of a step are saved just before it: an earlier step may have installed them.
    """
    # A program that asks a question (dpkg, ssh) reads nothing and does not wait.
    lines = ["set -u", "exec </dev/null", "export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l", KEPT_WORDS]
    if journal and any(step.writes for step in steps):
        lines.append(journal.head())
    for step in steps:
        written = [later(path) for path in step.writes] if journal and step.script else []
        if journal and written:
            marks = mark_lines([f"restart:{unit}" for unit in step.restart])
            lines.append(journal.part(marks, written))
        # A shell of its own: `set -e` means nothing left of || or inside of if.
        of_step, shown = (f'sh -eu -c {shlex.quote(text)} 2>"$said"' for text in (step.script, shown_form(step.script)))
        run = [Script(of_step, shown), "rc=$?", 'cat -- "$said" >&2']
        lines += run if step.script else ["rc=0", ': >"$said"']
        if journal and written:
            lines.append(journal.part_behind(written))
        test = f"timeout -k 2 20 sh -c {shlex.quote(step.holds)} >/dev/null 2>&1"
        lines.append(f"if [ $rc -ne 0 ] || ! {test}; then {_why(step)} exit 1; fi")
    return Script.of(*lines)


def _why(step: Step) -> str:
    """Shell that prints why: messages of the package manager or the kernel come before the step's own."""
    no_room = "|".join(f"*{shlex.quote(words)}*" for words in NO_ROOM)
    full = shlex.quote(f"{step.name}: a file system of this node is full, see above; make room and run again")
    locked = shlex.quote(f"{step.name}: somebody else is installing packages, see above")
    guess = shlex.quote(f"{step.name}: {step.otherwise}")
    return (
        f'case "$(cat -- "$said")" in {no_room}) echo {full};; *{shlex.quote(LOCKED)}*) echo {locked};;'
        f" *) echo {guess};; esac >&2;"
    )
