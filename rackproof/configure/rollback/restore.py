"""Plans a rollback from the journals of a node. Pure.

Several runs are undone in one step: every item gets its state before the oldest of these runs, and must now have the
state that the newest left. A file that was changed since then is refused unless ``force`` names it.
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
from rackproof.parse.sections import blocks_of

_NETWORK = "/etc/systemd/network/"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal; ``data`` is an absolute path. See ``journal`` for the fields."""

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

    @property
    def shows_text(self) -> bool:
        """Whether the difference of a file's contents is shown."""
        return not self.secret and self.state == "regular"


@dataclass(frozen=True, slots=True)
class KeptRun:
    order: int
    run: str
    entries: tuple[Entry, ...]


def kept_command(root: str = ROOT) -> str:
    """Shell text that prints all journals of the node, by run."""
    return (
        f'for d in {shlex.quote(root)}/[0-9]*.*; do [ -d "$d" ] || continue; printf "run\\t%s\\n" "$d"; '
        'for p in "$d"/*.part; do [ -e "$p" ] || continue; p=${p##*/}; printf "part\\t%s\\n" "${p%.part}"; '
        'cat -- "$d/$p" || exit 1; done; done; '
    )


def parse_kept(lines: Sequence[str]) -> tuple[KeptRun, ...]:
    """Answer of ``kept_command``, oldest run first. Raises ValueError on anything else."""
    runs = []
    for folder, body in blocks_of("journal", "run\t([^\t]+)", lines):
        order, _, run = folder.rpartition("/")[2].partition(".")
        parts = sorted((int(number), part) for number, part in blocks_of("journal", "part\t([^\t]+)", body))
        runs.append(KeptRun(int(order), run, tuple(_entry(folder, line) for _, part in parts for line in part)))
    return tuple(sorted(runs, key=lambda run: run.order))


def _entry(folder: str, line: str) -> Entry:
    fields = line.split("\t")
    if len(fields) != FIELDS:
        raise ValueError(f"not a line of a journal: {line!r}")
    entry = Entry(*fields)
    return entry if entry.data == "-" else replace(entry, data=f"{folder}/{entry.data}")


def chosen(runs: Iterable[KeptRun], target: str) -> tuple[KeptRun, ...]:
    """The run and all newer ones, oldest first: a run can only be undone together with later ones."""
    return tuple(run for run in runs if run.run >= target)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Items to restore, each to the state that was saved first."""

    files: tuple[Entry, ...] = ()
    directories: tuple[Entry, ...] = ()
    units: tuple[Entry, ...] = ()
    values: tuple[tuple[Entry, str], ...] = ()
    """Entries with the value to restore."""
    holds: tuple[Entry, ...] = ()
    grubby: Entry | None = None
    kernel: Entry | None = None
    marks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        listed = self.files or self.directories or self.units or self.values or self.holds
        return bool(listed or self.grubby or self.kernel)

    def changes(self, differences: Mapping[str, Sequence[str]]) -> tuple[Change, ...]:
        """Changes of the plan; ``differences``: of files, by path."""

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
            *([change("default kernel", self.kernel.before or "unknown")] if self.kernel else []),
            *([change("initramfs", "regenerated")] if INITRAMFS in self.marks else []),
            *(
                Change(what=reason, reboot=reason)
                for mark in self.marks
                if (reason := mark.removeprefix(REBOOT)) != mark
            ),
        )


def paths_of(runs: Iterable[KeptRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths whose state the plan needs, and those whose content it needs."""
    entries = [entry for run in runs for entry in run.entries]
    files = dict.fromkeys(e.path for e in entries if e.kind in ("file", "directory", "value"))
    texts = dict.fromkeys(path for e in entries if e.kind == "value" for path in (e.path, e.data))
    return tuple(dict.fromkeys((*files, *texts))), tuple(texts)


def plan_restore(runs: Sequence[KeptRun], states: Mapping[str, FileState], force: Collection[str] = ()) -> RestorePlan:
    """Compare the actual states with those that the runs left.

    Raises Refused, one line with all paths, when paths that are not in ``force`` were changed since.
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
            f"changed since these runs: {', '.join(sorted(foreign))}; "
            f"to overwrite these changes: --data force={','.join(sorted(foreign))}"
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
    """Entries with ``LATER`` replaced by the digests that the scripts recorded at their end; an interrupted script
    recorded none."""
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
    """Whether the path already has its previous state. A symlink that is still one was not touched."""
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
