"""From what a node has kept to what it was before. Pure.

Several runs are undone as one step: of each thing the oldest state counts, and the newest says how it should be found.
Whoever has changed a file in the meantime would lose that, so such a file is refused unless it is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rackproof.configure.files import REBOOT, FileState
from rackproof.configure.kernel import normal
from rackproof.configure.rollback.journal import (
    FIELDS,
    GRUB,
    INITRAMFS,
    LATER,
    ROOT,
)
from rackproof.core.plan import Change
from rackproof.errors import Refused

_SYSTEMD = ("/etc/systemd/system/", "/usr/local/lib/systemd/system/")
_MANAGER = "/etc/systemd/system.conf.d/"
_NETWORK = "/etc/systemd/network/"


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
    for name, entries_by_part in parts.items():
        order, _, run = name.rpartition("/")[2].partition(".")
        runs.append(
            KeptRun(
                int(order), run, tuple(entry for number in sorted(entries_by_part) for entry in entries_by_part[number])
            )
        )
    return tuple(sorted(runs, key=lambda run: run.order))


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

    def changes(self, differences: Mapping[str, Sequence[str]]) -> tuple[Change, ...]:
        """What would change; ``differences`` are those of files, by path."""

        def change(what: str, why: str, difference: Sequence[str] = ()) -> Change:
            return Change(what=what, why=why, difference=tuple(difference))

        return (
            *(
                change(e.path, "removed" if e.state == "absent" else "as before", differences.get(e.path, ()))
                for e in self.files
            ),
            *(
                change(f"{e.path}/", "removed if empty" if e.state == "absent" else "as before")
                for e in self.directories
            ),
            *(change(e.path, f"{e.state or 'unknown'}, {e.mode or 'unknown'}") for e in self.units),
            *(change(e.path, value) for e, value in self.values),
            *(change(e.path, "held" if e.state == "yes" else "not held") for e in self.holds),
            *([change("kernel arguments", "as before")] if self.grubby or GRUB in self.marks else []),
            *([change("next start", self.kernel.before or "unknown")] if self.kernel else []),
            *([change("initial file systems", "made again")] if INITRAMFS in self.marks else []),
            *(
                Change(what=reason, reboot=reason)
                for mark in self.marks
                if (reason := mark.removeprefix(REBOOT)) != mark
            ),
        )


def paths_of(runs: Iterable[KeptRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths whose state decides: of files, and those whose text does."""
    entries = [entry for run in runs for entry in run.entries]
    files = dict.fromkeys(e.path for e in entries if e.kind in ("file", "directory", "value"))
    texts = dict.fromkeys(path for e in entries if e.kind == "value" for path in (e.path, e.data))
    return tuple(dict.fromkeys((*files, *texts))), tuple(texts)


def plan_restore(runs: Sequence[KeptRun], states: Mapping[str, FileState], force: Collection[str] = ()) -> RestorePlan:
    """Compare what is there with what the runs have left.

    Raises Refused, one line that names all of them, when something else is there and is not in ``force``.
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
        raise Refused(
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
    remaining: list[Entry] = []
    open_: dict[str, int] = {}
    for entry in entries:
        if entry.kind == "wrote":
            if (index := open_.pop(entry.path, None)) is not None:
                remaining[index] = replace(remaining[index], after=entry.after)
            continue
        if entry.kind == "file":
            open_.pop(entry.path, None)
            if entry.after == LATER:
                open_[entry.path] = len(remaining)
        remaining.append(entry)
    return remaining


def _by_path(entries: Iterable[Entry], kind: str) -> dict[str, list[Entry]]:
    by_path: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == kind:
            by_path.setdefault(entry.path, []).append(entry)
    return by_path


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
