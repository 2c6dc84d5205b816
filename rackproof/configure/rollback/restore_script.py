"""The script of a rollback. Pure.

Order: stop units while their files exist; restore directories and files, units, values of the kernel, holds and the
boot loader; restart units. The script saves what it replaces, as every run does.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rackproof import shell
from rackproof.configure.files import PENDING, REBOOT, SYSTEMD, beside
from rackproof.configure.rollback.journal import (
    GRUB,
    INITRAMFS,
    Journal,
    directory_line,
    file_line,
    grubby_line,
    hold_line,
    kernel_line,
    mark_lines,
    unit_line,
    value_line,
)
from rackproof.configure.rollback.restore import Entry, RestorePlan

_MANAGER = "/etc/systemd/system.conf.d/"
STOP_S = 90
"""Seconds that a unit may take to stop."""
INITRAMFS_S = 1200
"""Seconds for regenerating the initramfs images of all kernels."""


def restore_script(plan: RestorePlan, journal: Journal) -> str:
    """Shell script that restores everything in the plan."""
    return shell.Script.of(
        "set -eu",
        "umask 022",
        journal.script(_kept(plan)),
        shell.script(__name__, "restore", stop_limit_s=STOP_S, initramfs_limit_s=INITRAMFS_S),
        *_stops(plan),
        *_marks(plan.marks),
        *_directories(plan.directories),
        *_files(plan.files),
        *(f"back_remove_directory {_quoted(e.path)}" for e in plan.directories if e.state == "absent"),
        *_units(plan),
        *(f"printf '%s\\n' {_quoted(value)} >{_quoted(e.path)}" for e, value in plan.values),
        *_holds(plan.holds),
        *_boot(plan),
        *_restarts(plan),
    )


def _kept(plan: RestorePlan) -> list[str]:
    """Journal lines that a rollback of this rollback needs."""
    lines = list(mark_lines(plan.marks))
    lines += [directory_line(e.path) for e in plan.directories]
    lines += [file_line(e.path, None if e.state == "absent" else e.before, e.secret) for e in plan.files]
    lines += [unit_line(e.path) for e in plan.units]
    lines += [value_line(e.path, value) for e, value in plan.values]
    lines += [hold_line(e.path, e.owner) for e in plan.holds]
    lines += [grubby_line()] if plan.grubby else []
    lines += [kernel_line(plan.kernel.before)] if plan.kernel else []
    return lines


def _quoted(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _stops(plan: RestorePlan) -> list[str]:
    """Units that were not running or did not exist before."""
    names = [e.path for e in plan.units if e.mode not in ("active", "activating", "reloading")]
    added = [name for name in _added_units(plan) if name not in names]
    return [
        *(f"back_stop {_quoted(name)}" for name in dict.fromkeys(names)),
        *(f"back_stop_added {_quoted(name)}" for name in dict.fromkeys(added)),
    ]


def _added_units(plan: RestorePlan) -> tuple[str, ...]:
    """Units whose file did not exist before."""
    absent = (entry.path.rpartition("/") for entry in plan.files if entry.state == "absent")
    return tuple(name for folder, _, name in absent if f"{folder}/" in SYSTEMD and "." in name)


def _marks(marks: Sequence[str]) -> list[str]:
    paths = [f"{PENDING}/{mark}" for mark in marks if mark not in (GRUB, INITRAMFS)]
    return [f"mkdir -p {PENDING}", f"touch -- {_quoted(*paths)}"] if paths else []


def _directories(directories: Sequence[Entry]) -> list[str]:
    """Directories that existed before, parents first."""
    present = [entry for entry in directories if entry.state != "absent"]
    return [f"back_directory {_quoted(e.path, e.mode, e.owner)}" for e in reversed(present)]


def _files(files: Sequence[Entry]) -> list[str]:
    """Write all contents to the disk before the first rename."""
    back = [(entry, beside(entry.path)) for entry in files if entry.state != "absent"]
    lines = []
    if back:
        news = [new for _, new in back]
        lines += [f"trap {_quoted('rm -f -- ' + _quoted(*news))} EXIT", "trap 'exit 143' TERM HUP INT"]
        for entry, new in back:
            words = _quoted(entry.data, entry.path.rpartition("/")[0] or "/", new)
            attributes = _quoted(entry.mode, entry.owner)
            lines.append(f"back_link {words}" if entry.state == "link" else f"back_file {words} {attributes}")
        written = [new for entry, new in back if entry.state != "link"]
        lines += [f"sync -- {_quoted(*written)} 2>/dev/null || sync"] if written else []
        lines += [f"mv -fT -- {_quoted(new, entry.path)}" for entry, new in back]
    return lines + [f"rm -f -- {_quoted(entry.path)}" for entry in files if entry.state == "absent"]


def _units(plan: RestorePlan) -> list[str]:
    lines = []
    for entry in plan.units:
        unit = _quoted(entry.path)
        if entry.state.startswith("masked"):
            lines.append(f"systemctl mask --no-reload -- {unit}")
        elif entry.state in ("enabled", "disabled"):
            verb = entry.state.removesuffix("d")
            lines.append(f"systemctl unmask --no-reload -- {unit} && systemctl {verb} --no-reload -- {unit}")
        else:
            lines.append(f"back_unmask {unit}")
    if plan.units or any(entry.path.startswith(SYSTEMD) for entry in plan.files):
        lines += ["systemctl daemon-reload", f"rm -f -- {PENDING}/daemon-reload"]
    if any(entry.path.startswith(_MANAGER) for entry in plan.files):
        lines.append("systemctl daemon-reexec")
    return lines + [f"systemctl start -- {_quoted(entry.path)}" for entry in plan.units if entry.mode == "active"]


def _holds(holds: Sequence[Entry]) -> list[str]:
    lines = []
    for entry in holds:
        held = entry.state == "yes"
        if entry.owner == "rhel":
            lines.append(f"back_locks {_quoted(entry.path, entry.data if held else '')}")
        else:
            lines.append(f"apt-mark {'hold' if held else 'unhold'} {_quoted(entry.path)} >/dev/null")
    return lines


def _boot(plan: RestorePlan) -> list[str]:
    lines = ["update-grub >/dev/null"] if GRUB in plan.marks else []
    lines += [f"back_kernel {_quoted(plan.kernel.before)}"] if plan.kernel and plan.kernel.before else []
    lines += [f"back_arguments {_quoted(plan.grubby.data)}"] if plan.grubby else []
    return lines + (["back_initramfs"] if INITRAMFS in plan.marks else [])


def _restarts(plan: RestorePlan) -> list[str]:
    """Restart or reload running units with their old files. Pending reboots stay pending."""
    lines = []
    added = _added_units(plan)
    for mark in plan.marks:
        verb, _, unit = mark.partition(":")
        if mark.startswith(REBOOT) or verb not in ("restart", "reload"):
            continue
        path = f"{PENDING}/{mark}"
        command = "restart" if verb == "restart" else "reload-or-restart"
        lines.append(f"rm -f -- {_quoted(path)}" if unit in added else f"back_running {_quoted(command, unit, path)}")
    return ["failed=0", *lines, "[ $failed = 0 ]"] if lines else []
