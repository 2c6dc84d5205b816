"""From what a node has kept to what it was before. Pure.

Several runs are undone as one step: of each thing the oldest state counts, and the newest says how it should be found.
Whoever has changed a file in the meantime would lose that, so such a file is refused unless it is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rackproof.configure.files import PENDING, REBOOT, FileState
from rackproof.configure.kernel import normal
from rackproof.configure.rollback.journal import (
    FIELDS,
    GRUB,
    INITRAMFS,
    LATER,
    ROOT,
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
from rackproof.errors import Refused

_SYSTEMD = ("/etc/systemd/system/", "/usr/local/lib/systemd/system/")
_MANAGER = "/etc/systemd/system.conf.d/"
_NETWORK = "/etc/systemd/network/"
STOP_S = 90
"""Seconds that a unit may take to stop."""
INITRAMFS_S = 1200
"""Seconds for the initial file systems of all kernels."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal; ``data`` with its whole path. See ``journal`` for the fields."""

    kind: str
    state: str
    mode: str
    owner: str
    before: str
    after: str
    flags: str
    data: str
    path: str

    @property
    def secret(self) -> bool:
        return "secret" in self.flags.split(",")


@dataclass(frozen=True, slots=True)
class KeptRun:
    order: int
    run: str
    entries: tuple[Entry, ...]


class ForeignChange(Refused):
    """Somebody else has changed what would be restored."""


def kept_command(root: str = ROOT) -> str:
    """Print all journals of the node, run by run."""
    return (
        f'for d in {shlex.quote(root)}/[0-9]*.*; do [ -d "$d" ] || continue; printf "run\\t%s\\n" "$d"; '
        'for p in "$d"/*.part; do [ -e "$p" ] || continue; p=${p##*/}; printf "part\\t%s\\n" "${p%.part}"; '
        'cat -- "$d/$p" || exit 1; done; done; '
    )


def parse_kept(lines: Sequence[str]) -> tuple[KeptRun, ...]:
    """Answer of ``kept_command``, oldest run first. Raises ValueError on anything else."""
    parts: dict[str, dict[int, list[Entry]]] = {}
    folder, part = "", 0
    for line in lines:
        fields = line.split("\t")
        if fields[0] == "run" and len(fields) == 2:
            folder = fields[1]
            parts[folder] = {}
        elif fields[0] == "part" and len(fields) == 2:
            part = int(fields[1])
            parts[folder][part] = []
        elif len(fields) == FIELDS:
            data = fields[7] if fields[7] == "-" else f"{folder}/{fields[7]}"
            kind, state, mode, owner, before, after, flags, _, path = fields
            parts[folder][part].append(Entry(kind, state, mode, owner, before, after, flags, data, path))
        else:
            raise ValueError(f"not a line of a journal: {line!r}")
    runs = []
    for name, found in parts.items():
        order, _, run = name.rpartition("/")[2].partition(".")
        runs.append(KeptRun(int(order), run, tuple(entry for number in sorted(found) for entry in found[number])))
    return tuple(sorted(runs, key=lambda each: each.order))


def chosen(runs: Iterable[KeptRun], target: str) -> tuple[KeptRun, ...]:
    """The run and all that are newer, oldest first: nothing can be undone below what stands on it."""
    return tuple(run for run in runs if run.run >= target)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What to bring back: of each thing what was kept first."""

    files: tuple[Entry, ...] = ()
    directories: tuple[Entry, ...] = ()
    units: tuple[Entry, ...] = ()
    values: tuple[tuple[Entry, str], ...] = ()
    """With the value that comes back."""
    holds: tuple[Entry, ...] = ()
    grubby: Entry | None = None
    kernel: Entry | None = None
    marks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        listed = self.files or self.directories or self.units or self.values or self.holds
        return bool(listed or self.grubby or self.kernel)

    @property
    def told(self) -> tuple[str, ...]:
        """What would be done, for a person."""
        said = [f"{e.path}: {'removed' if e.state == 'absent' else 'as before'}" for e in self.files]
        said += [f"{e.path}/: {'removed if empty' if e.state == 'absent' else 'as before'}" for e in self.directories]
        said += [f"{e.path}: {e.state or 'unknown'}, {e.mode or 'unknown'}" for e in self.units]
        said += [f"{e.path}: {value}" for e, value in self.values]
        said += [f"{e.path}: {'held' if e.state == 'yes' else 'not held'}" for e in self.holds]
        said += ["kernel arguments: as before"] if self.grubby or GRUB in self.marks else []
        said += [f"next start: {self.kernel.before or 'unknown'}"] if self.kernel else []
        said += ["initial file systems: made again"] if INITRAMFS in self.marks else []
        return tuple(said)


def paths_of(runs: Iterable[KeptRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths whose state decides: of files, and those whose text does."""
    entries = [entry for run in runs for entry in run.entries]
    files = dict.fromkeys(e.path for e in entries if e.kind in ("file", "directory", "value"))
    texts = dict.fromkeys(path for e in entries if e.kind == "value" for path in (e.path, e.data))
    return tuple(dict.fromkeys((*files, *texts))), tuple(texts)


def plan_restore(runs: Sequence[KeptRun], states: Mapping[str, FileState], force: Collection[str] = ()) -> RestorePlan:
    """Compare what is there with what the runs have left.

    Raises ForeignChange, one line that names all of them, when something else is there and is not in ``force``.
    """
    entries = _settled(entry for run in runs for entry in run.entries)
    foreign: list[str] = []
    files: list[Entry] = []
    for path, chain in _by_path(entries, "file").items():
        now = states.get(path)
        digest = _digest(now)
        broken = any(b.before not in (a.after, a.before) for a, b in pairwise(chain))
        if _is_before(chain[0], now):
            continue
        if (broken or digest not in (chain[-1].after, chain[-1].before)) and path not in force:
            foreign.append(path)
        files.append(chain[0])
    values: list[tuple[Entry, str]] = []
    for path, chain in _by_path(entries, "value").items():
        now, old = states.get(path), states.get(chain[0].data)
        if now is None or old is None:
            continue  # gone with its module or device
        if normal(now.text or "") == normal(old.text or ""):
            continue
        if normal(now.text or "") != normal(chain[-1].after) and path not in force:
            foreign.append(path)
        values.append((chain[0], normal(old.text or "")))
    if foreign:
        raise ForeignChange(
            f"changed by somebody else since: {', '.join(sorted(foreign))}; "
            f"to lose that change: --data force={','.join(sorted(foreign))}"
        )
    directories = [
        chain[0]
        for path, chain in _by_path(entries, "directory").items()
        if not _directory_is_before(chain[0], states.get(path))
    ]
    touched = bool(files or values)
    grubby = _by_path(entries, "grubby").get("arguments", [None])[0]
    kernel = _by_path(entries, "kernel").get("default", [None])[0]
    marks = [entry.path for entry in entries if entry.kind == "mark"] if touched or grubby or kernel else []
    if any(entry.path.startswith(_NETWORK) for entry in files):
        marks.append(f"{REBOOT}network ports as they were")  # a port keeps its name and addresses until then
    return RestorePlan(
        files=tuple(files),
        directories=tuple(sorted(directories, key=lambda e: e.path.count("/"), reverse=True)),
        units=tuple(chain[0] for chain in _by_path(entries, "unit").values()),
        values=tuple(values),
        holds=tuple(chain[0] for chain in _by_path(entries, "hold").values()),
        grubby=grubby,
        kernel=kernel,
        marks=tuple(dict.fromkeys(marks)),
    )


def _settled(entries: Iterable[Entry]) -> list[Entry]:
    """With what the scripts have left in the place of what nobody could know before; where a script was cut off
    nobody knows it still."""
    found: list[Entry] = []
    open_: dict[str, int] = {}
    for entry in entries:
        if entry.kind == "wrote":
            if (index := open_.pop(entry.path, None)) is not None:
                found[index] = replace(found[index], after=entry.after)
            continue
        if entry.kind == "file":
            open_.pop(entry.path, None)
            if entry.after == LATER:
                open_[entry.path] = len(found)
        found.append(entry)
    return found


def _by_path(entries: Iterable[Entry], kind: str) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == kind:
            found.setdefault(entry.path, []).append(entry)
    return found


def _digest(now: FileState | None) -> str:
    return "-" if now is None else now.sha256 or "?"


def _is_before(entry: Entry, now: FileState | None) -> bool:
    """Nothing has to be done. Where a link was and is one, nobody has run anything of the kit since."""
    if entry.state == "absent" or now is None:
        return entry.state == "absent" and now is None
    if entry.state == "link":
        return now.kind == "symbolic link"
    return (
        entry.state == "regular"
        and now.kind.startswith("regular")
        and _digest(now) == entry.before
        and _has_attributes(entry, now)
    )


def _directory_is_before(entry: Entry, now: FileState | None) -> bool:
    if now is None:
        return entry.state == "absent"
    return entry.state != "absent" and _has_attributes(entry, now)


def _has_attributes(entry: Entry, now: FileState) -> bool:
    return (now.mode.lstrip("0"), f"{now.owner}:{now.group}") == (entry.mode.lstrip("0"), entry.owner)


def differences_paths(plan: RestorePlan) -> list[tuple[Entry, str]]:
    """Files whose difference can be shown, with where the old content is."""
    return [(entry, entry.data) for entry in plan.files if not entry.secret and entry.state == "regular"]


def restore_lines(plan: RestorePlan) -> tuple[str, ...]:
    """What a rollback of this rollback would need."""
    lines = list(mark_lines(plan.marks))
    lines += [directory_line(e.path) for e in plan.directories]
    lines += [file_line(e.path, None if e.state == "absent" else e.before, e.secret) for e in plan.files]
    lines += [unit_line(e.path) for e in plan.units]
    lines += [value_line(e.path, value) for e, value in plan.values]
    lines += [hold_line(e.path, e.owner) for e in plan.holds]
    lines += [grubby_line()] if plan.grubby else []
    lines += [kernel_line(plan.kernel.before)] if plan.kernel else []
    return tuple(lines)


def restore_script(plan: RestorePlan, journal: Journal) -> str:
    """Shell script that brings everything back; it keeps what it replaces, as every run does."""
    return "\n".join(
        [
            "set -eu",
            "umask 022",
            journal.script(restore_lines(plan)),
            *_stopped(plan),
            *_marked(plan.marks),
            *_directories(plan.directories),
            *_files(plan),
            *_emptied(plan.directories),
            *_units(plan),
            *(f"printf '%s\\n' {shlex.quote(value)} >{shlex.quote(e.path)}" for e, value in plan.values),
            *_holds(plan.holds),
            *_boot(plan),
            *_restarted(plan),
        ]
    )


def _stopped(plan: RestorePlan) -> list[str]:
    """Units that were not there or not running before, while their files still are there. A busy mount ends it here."""
    running = ("active", "activating", "reloading")
    names = {e.path: None for e in plan.units if e.mode not in running}
    lines = []
    for name in (*names, *(each for each in _units_that_go(plan) if each not in names)):
        unit = shlex.quote(name)
        message = shlex.quote(f"{name} could not be stopped (is it busy?): nothing was restored")
        # What goes may be a copy that stands before the package's own, which stays.
        packaged = "" if name in names else f"[ -e /usr/lib/systemd/system/{unit} ] || "
        lines.append(
            f"{packaged}! systemctl is-active --quiet -- {unit} || timeout {STOP_S} systemctl stop -- {unit} ||"
            f" {{ echo {message} >&2; exit 1; }}"
        )
    return lines


def _units_that_go(plan: RestorePlan) -> tuple[str, ...]:
    """Units whose file was not there before."""
    names = []
    for entry in plan.files:
        folder, _, name = entry.path.rpartition("/")
        if entry.state == "absent" and f"{folder}/" in _SYSTEMD and "." in name:
            names.append(name)
    return tuple(names)


def _marked(marks: Sequence[str]) -> list[str]:
    due = [mark for mark in marks if mark not in (GRUB, INITRAMFS)]
    if not due:
        return []
    return [f"mkdir -p {PENDING}", f"touch -- {' '.join(shlex.quote(f'{PENDING}/{mark}') for mark in due)}"]


def _files(plan: RestorePlan) -> list[str]:
    """All contents are on the disk before the first is moved into place."""
    if not plan.files:
        return []
    back = [entry for entry in plan.files if entry.state != "absent"]
    beside = [shlex.quote(_beside(entry.path)) for entry in back]
    lines = []
    if back:
        full = "{ echo 'the old files could not be written (is the disk full?): none was restored' >&2; exit 1; }"
        lines += [f"trap {shlex.quote('rm -f -- ' + ' '.join(beside))} EXIT", "trap 'exit 143' TERM HUP INT"]
        for entry, new in zip(back, beside, strict=True):
            data = shlex.quote(entry.data)
            folder = shlex.quote(entry.path.rpartition("/")[0] or "/")
            if entry.state == "link":
                lines.append(f'mkdir -p -- {folder} && ln -sfn -- "$(cat -- {data})" {new} || {full}')
            else:
                lines.append(
                    # Never through a link that somebody has put there: not every folder is root's.
                    f"mkdir -p -- {folder} && rm -f -- {new} && (umask 077; set -C; cat -- {data} >{new})"
                    f" && chown -h {entry.owner} -- {new}"
                    f" && chmod {entry.mode} -- {new} || {full}"
                )
        written = [new for entry, new in zip(back, beside, strict=True) if entry.state != "link"]
        lines += [f"sync -- {' '.join(written)} 2>/dev/null || sync"] if written else []
        lines += [f"mv -fT -- {new} {shlex.quote(entry.path)}" for entry, new in zip(back, beside, strict=True)]
    lines += [f"rm -f -- {shlex.quote(entry.path)}" for entry in plan.files if entry.state == "absent"]
    return lines


def _beside(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.rackproof-new"


def _directories(directories: Sequence[Entry]) -> list[str]:
    """Those that were there, from the top."""
    lines = []
    for entry in reversed([each for each in directories if each.state != "absent"]):
        path = shlex.quote(entry.path)
        lines.append(f"mkdir -p -- {path} && chmod {entry.mode} -- {path} && chown {entry.owner} -- {path}")
    return lines


def _emptied(directories: Sequence[Entry]) -> list[str]:
    """Those that were not there, from the bottom; what somebody else has put there stays."""
    paths = [shlex.quote(entry.path) for entry in directories if entry.state == "absent"]
    return [f"rmdir -- {path} 2>/dev/null || [ ! -e {path} ] || echo {path}: not empty, left there" for path in paths]


def _units(plan: RestorePlan) -> list[str]:
    lines = []
    for entry in plan.units:
        unit = shlex.quote(entry.path)
        if entry.state.startswith("masked"):
            lines.append(f"systemctl mask --no-reload -- {unit}")
        elif entry.state in ("enabled", "disabled"):
            verb = entry.state.removesuffix("d")
            lines.append(f"systemctl unmask --no-reload -- {unit} && systemctl {verb} --no-reload -- {unit}")
        else:
            lines.append(f"[ \"$(systemctl is-enabled -- {unit} 2>/dev/null)\" != masked ] ||"
                         f" systemctl unmask --no-reload -- {unit}")  # fmt: skip
    if plan.units or any(entry.path.startswith(_SYSTEMD) for entry in plan.files):
        lines += ["systemctl daemon-reload", f"rm -f -- {PENDING}/daemon-reload"]
    if any(entry.path.startswith(_MANAGER) for entry in plan.files):
        lines.append("systemctl daemon-reexec")
    lines += [f"systemctl start -- {shlex.quote(entry.path)}" for entry in plan.units if entry.mode == "active"]
    return lines


def _holds(holds: Sequence[Entry]) -> list[str]:
    lines = []
    for entry in holds:
        held = entry.state == "yes"
        if entry.owner == "rhel":
            lines.append(f"dnf -q -y versionlock delete {shlex.quote(entry.path)} >/dev/null 2>&1 || :")
            if held:  # the versions that were locked, not those that are installed
                lines.append(
                    'while read -r e; do dnf -q -y versionlock add --raw "$e" </dev/null >/dev/null; done'
                    f" <{shlex.quote(entry.data)}"
                )
        else:
            lines.append(f"apt-mark {'hold' if held else 'unhold'} {shlex.quote(entry.path)} >/dev/null")
    return lines


def _boot(plan: RestorePlan) -> list[str]:
    lines = ["update-grub >/dev/null"] if GRUB in plan.marks else []
    if plan.kernel and plan.kernel.before:
        image = shlex.quote(plan.kernel.before)
        lines.append(
            f"if [ -e {image} ]; then grubby --set-default {image} >/dev/null;"
            f" else echo {image}: not there any more, the default kernel stays >&2; fi"
        )
    if plan.grubby:
        data = shlex.quote(plan.grubby.data)
        lines.append(
            "now=$(grubby --info=DEFAULT | sed -n 's/^args=\"\\(.*\\)\"$/\\1/p' | head -n 1);"
            f' grubby --update-kernel=ALL --remove-args="$now" --args="$(cat -- {data})"'
        )
    if INITRAMFS in plan.marks:
        lines += [
            "if command -v update-initramfs >/dev/null; then make='update-initramfs -u -k all';"
            " elif command -v dracut >/dev/null; then make='dracut --force --regenerate-all'; else make=true; fi",
            f"timeout {INITRAMFS_S} $make >/dev/null || {{ echo 'files are as before, and the initial file systems"
            " could not be made again: make them before the next start' >&2; exit 1; }",
        ]
    return lines


def _restarted(plan: RestorePlan) -> list[str]:
    """What runs sees its old files again, and one that fails does not keep the others from it; reboots stay due."""
    lines = []
    gone = _units_that_go(plan)
    for mark in plan.marks:
        verb, _, name = mark.partition(":")
        if mark.startswith(REBOOT) or verb not in ("restart", "reload"):
            continue
        unit, done = shlex.quote(name), f"rm -f -- {shlex.quote(f'{PENDING}/{mark}')}"
        if name in gone:
            lines.append(done)
            continue
        command = "restart" if verb == "restart" else "reload-or-restart"
        lines.append(
            f"{{ ! systemctl is-active --quiet -- {unit} || systemctl {command} -- {unit}; }} && {done} || failed=1"
        )
    return ["failed=0", *lines, "[ $failed = 0 ]"] if lines else []
