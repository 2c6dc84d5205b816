"""Files on a node: compares them with their declaration and sends all changed files in one archive.

Files are replaced by rename, so that no reader sees a half-written one. Of shared files (``/etc/hosts``) the kit owns
only the block between its two marker lines.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import io
import shlex
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from rackproof.configure.rollback.journal import Journal, directory_line, file_line, mark_lines
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.sections import sections_of
from rackproof.parse.sha256sum import parse_digests
from rackproof.shell import Script

PENDING = "/run/rackproof/pending"
"""Folder of marks, one file for each unit that has not read its new configuration. On a tmpfs, so that a reboot, which
restarts every unit, clears it."""

REBOOT = "reboot:"
"""Prefix of marks for changes that need a reboot; the reason follows."""


def reboot_mark(reason: str) -> str:
    """Shell line that leaves a reboot mark. Raises ValueError when the reason cannot be a file name."""
    if "/" in reason or "\n" in reason:
        raise ValueError(f"a reason for a reboot has no / and is one line: {reason!r}")
    return f"mkdir -p {PENDING} && touch -- {shlex.quote(f'{PENDING}/{REBOOT}{reason}')}"


def pending_command() -> str:
    """Shell text that prints the marks, one per line. Builtins only: starting programs is slow on emulated machines."""
    return f'for f in {PENDING}/*; do [ ! -e "$f" ] || printf "%s\\n" "${{f##*/}}"; done; '


BEGIN = "# BEGIN rackproof"
END = "# END rackproof"

SYSTEMD = ("/etc/systemd/system/", "/usr/local/lib/systemd/system/")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Desired state of one file. ``restart`` and ``reload`` name the units that read it."""

    path: str
    content: str = field(repr=False)
    mode: str = "644"
    owner: str = "root"
    group: str = "root"
    restart: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    reboot: str | None = None
    """Why a change of this file needs a reboot, in a few words without ``/``."""
    block: bool = False
    """Only the lines between the markers belong to the kit."""
    secret: bool = False
    """Never shown, not even as a difference."""
    sysctl: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Keys of the kernel that the content sets."""


@dataclass(frozen=True, slots=True)
class RemoteDirectory:
    path: str
    mode: str = "755"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True, slots=True)
class Absent:
    """A file that must not be there."""

    path: str
    restart: tuple[str, ...] = ()
    reboot: str | None = None


Entry = RemoteFile | RemoteDirectory | Absent


@dataclass(frozen=True, slots=True)
class FileState:
    """Actual state of a path. ``kind`` is stat's name of the file type; ``text`` is None unless it was requested."""

    kind: str
    mode: str
    owner: str
    group: str
    sha256: str | None = None
    text: str | None = None


def states_command(paths: Sequence[str], texts: Sequence[str]) -> str:
    """Shell text that prints type, mode, owner and sha256 of all paths, and the content of those in ``texts``."""
    quoted = " ".join(shlex.quote(path) for path in paths)
    command = (
        f"export LC_ALL=C; stat -c '%n|%F|%a|%U|%G' -- {quoted} 2>/dev/null; echo --; "
        # -z: without it a backslash in a name (mount units have them) is escaped
        f"sha256sum -z -- {quoted} 2>/dev/null | tr '\\0' '\\n'; echo --; "
    )
    if texts:
        listed = " ".join(shlex.quote(path) for path in texts)
        command += (
            f'for f in {listed}; do [ -f "$f" ] || continue; '
            'printf "%s|" "$f"; base64 -w0 -- "$f" || exit 1; echo; done; '
        )
    return command


def parse_states(lines: Sequence[str]) -> dict[str, FileState]:
    """Answer of ``states_command``, without paths that do not exist. Raises ValueError on anything else."""
    stats, digests, contents = sections_of(lines, 3)
    sums = parse_digests(digests)
    texts = dict(line.split("|", 1) for line in contents)
    return {
        path: FileState(
            kind=kind,
            mode=mode,
            owner=owner,
            group=group,
            sha256=sums.get(path),
            text=base64.b64decode(texts[path]).decode(errors="replace") if path in texts else None,
        )
        for path, kind, mode, owner, group in (line.rsplit("|", 4) for line in stats)
    }


def merge_block(existing: str, block: str) -> str:
    """``existing`` with the kit's block replaced, or appended.

    Raises Refused when the existing markers do not enclose exactly one block.
    """
    lines = existing.splitlines()
    begins = [i for i, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [i for i, line in enumerate(lines) if line.strip() == END]
    body = [BEGIN, *block.splitlines(), END]
    if not begins and not ends:
        return "\n".join([*lines, *body]) + "\n"
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        raise Refused(f"{len(begins)} line(s) '{BEGIN}' and {len(ends)} line(s) '{END}': repair them by hand")
    return "\n".join([*lines[: begins[0]], *body, *lines[ends[0] + 1 :]]) + "\n"


def block_of(existing: str) -> str:
    """The lines between the markers, empty when there are none."""
    lines = [line.strip() for line in existing.splitlines()]
    if BEGIN not in lines or END not in lines:
        return ""
    return "\n".join(existing.splitlines()[lines.index(BEGIN) + 1 : lines.index(END)]) + "\n"


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Changes of files; empty when the node is as declared."""

    directories: tuple[RemoteDirectory, ...] = ()
    writes: tuple[tuple[RemoteFile, str], ...] = ()
    """Files with their complete new content, also of blocks."""
    attributes: tuple[RemoteFile, ...] = ()
    """Files of which only mode or owner differs."""
    removals: tuple[Absent, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.directories or self.writes or self.attributes or self.removals)

    @property
    def pending(self) -> tuple[str, ...]:
        """Marks for later operations: ``restart:UNIT``, ``reload:UNIT``, ``daemon-reload``, ``reboot:REASON``."""
        marks: list[str] = []
        for file, _ in self.writes:
            marks += [f"restart:{unit}" for unit in file.restart] + [f"reload:{unit}" for unit in file.reload]
        for absent in self.removals:
            marks += [f"restart:{unit}" for unit in absent.restart]
        changed: list[RemoteFile | Absent] = [*(file for file, _ in self.writes), *self.removals]
        marks += [f"{REBOOT}{entry.reboot}" for entry in changed if entry.reboot]
        touched = [file.path for file, _ in self.writes] + [absent.path for absent in self.removals]
        if any(path.startswith(SYSTEMD) for path in touched):
            marks.append("daemon-reload")
        return tuple(dict.fromkeys(marks))


def plan_files(entries: Iterable[Entry], states: Mapping[str, FileState]) -> FilePlan:
    """Compare declared with actual states. Raises Refused."""
    directories: list[RemoteDirectory] = []
    writes: list[tuple[RemoteFile, str]] = []
    attributes: list[RemoteFile] = []
    removals: list[Absent] = []
    seen: set[str] = set()
    for entry in entries:
        if entry.path in seen:
            raise Refused(f"{entry.path}: declared twice")
        seen.add(entry.path)
        state = states.get(entry.path)
        if isinstance(entry, Absent):
            if state is not None:
                removals.append(entry)
        elif isinstance(entry, RemoteDirectory):
            if state is not None and state.kind != "directory":
                raise Refused(f"{entry.path}: expected a directory, actual {state.kind}")
            if state is None or _attributes(state) != _wanted(entry):
                directories.append(entry)
        else:
            if state is not None and state.kind not in ("regular file", "regular empty file", "symbolic link"):
                raise Refused(f"{entry.path}: expected a file, actual {state.kind}")
            content = _content(entry, state)
            digest = _digest(content)
            if state is None or state.kind == "symbolic link" or state.sha256 != digest:
                writes.append((entry, content))
            elif _attributes(state) != _wanted(entry):
                attributes.append(entry)
    return FilePlan(tuple(directories), tuple(writes), tuple(attributes), tuple(removals))


def _content(file: RemoteFile, state: FileState | None) -> str:
    if not file.block:
        return file.content
    try:
        return merge_block((state.text if state else None) or "", file.content)
    except Refused as error:
        raise Refused(f"{file.path}: {error}") from None


def _wanted(entry: RemoteFile | RemoteDirectory) -> tuple[str, str, str]:
    return entry.mode.lstrip("0"), entry.owner, entry.group


def _attributes(state: FileState) -> tuple[str, str, str]:
    return state.mode.lstrip("0"), state.owner, state.group


def kept_lines(plan: FilePlan) -> tuple[str, ...]:
    """Journal lines that a rollback of the plan needs."""
    lines = list(mark_lines(plan.pending))
    lines += [directory_line(directory.path) for directory in plan.directories]
    lines += [file_line(file.path, _digest(content), file.secret) for file, content in plan.writes]
    lines += [file_line(file.path, "same", file.secret) for file in plan.attributes]
    lines += [file_line(absent.path, None) for absent in plan.removals]
    return tuple(lines)


def apply_script(plan: FilePlan, journal: Journal | None = None) -> str:
    """Shell script that applies a plan; it reads ``archive(plan)`` from standard input.

    With a journal, previous states are saved first. All new contents are on the disk before the first file is replaced,
    so that after a full disk, a lost connection or a crash every file has its old or its new content. Marks come
    first: after an interrupted run a unit may be restarted needlessly, but never stays with its old configuration.
    """
    lines = ["set -eu", "umask 022"]
    if journal:
        lines.append(journal.script(kept_lines(plan)))
    if plan.pending:
        marks = " ".join(shlex.quote(f"{PENDING}/{mark}") for mark in plan.pending)
        lines += [f"mkdir -p {PENDING}", f"touch -- {marks}"]
    for directory in plan.directories:
        path = shlex.quote(directory.path)
        lines.append(
            f"mkdir -p -- {path} && chown {directory.owner}:{directory.group} -- {path}"
            f" && chmod {directory.mode} -- {path}"
        )
    if plan.writes:
        new = [shlex.quote(beside(file.path)) for file, _ in plan.writes]
        listed = " ".join(new)
        lines += [
            f"trap {shlex.quote(f'rm -f -- {listed}')} EXIT",
            "trap 'exit 143' TERM HUP INT",
            # A truncated archive may end between two files: check for each file.
            f"base64 -d | tar -x -p -m -f - -C / && {' && '.join(f'[ -f {path} ]' for path in new)} ||"
            " { echo 'the new files could not be written (is the disk full?): none was replaced' >&2; exit 1; }",
            f"sync -- {listed} 2>/dev/null || sync",
        ]
        lines += [f"mv -fT -- {shlex.quote(beside(file.path))} {shlex.quote(file.path)}" for file, _ in plan.writes]
    for file in plan.attributes:
        path = shlex.quote(file.path)
        lines.append(f"chown {file.owner}:{file.group} -- {path} && chmod {file.mode} -- {path}")
    lines += [f"rm -f -- {shlex.quote(absent.path)}" for absent in plan.removals]
    return Script.of(*lines)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()


def archive(plan: FilePlan) -> str:
    """Base64 of a tar archive with the new files, under temporary names beside the files that they replace."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for file, content in plan.writes:
            data = content.encode(errors="surrogateescape")  # a secret may be binary
            member = tarfile.TarInfo(beside(file.path).lstrip("/"))
            member.size = len(data)
            member.mode = int(file.mode, 8)
            member.uname, member.gname = file.owner, file.group
            tar.addfile(member, io.BytesIO(data))
    return base64.encodebytes(buffer.getvalue()).decode()


def changes(plan: FilePlan, states: Mapping[str, FileState], shown: bool = False) -> list[Change]:
    """Changes of the plan, by path. ``shown``: with the differences of contents, except of secrets."""
    all_changes = [
        Change(
            what=file.path,
            why="content" if file.path in states else "new",
            difference=_difference(file, content, states.get(file.path)) if shown else (),
            reboot=file.reboot,
        )
        for file, content in plan.writes
    ]
    entries: list[RemoteFile | RemoteDirectory] = [*plan.directories, *plan.attributes]
    all_changes += [Change(what=e.path, why=f"mode {e.mode}, owner {e.owner}:{e.group}") for e in entries]
    all_changes += [Change(what=absent.path, why="removed", reboot=absent.reboot) for absent in plan.removals]
    return sorted(all_changes, key=lambda change: change.what)


def _difference(file: RemoteFile, content: str, state: FileState | None) -> tuple[str, ...]:
    if file.secret:
        return (f"{file.path}: changed (secret, not shown)",)
    old = ((state.text if state else None) or "").splitlines()
    return tuple(difflib.unified_diff(old, content.splitlines(), file.path, file.path, lineterm="", n=2))


def beside(path: str) -> str:
    """Temporary name of a file's new content, in the same folder."""
    target = PurePosixPath(path)
    return str(target.with_name(f".{target.name}.rackproof-new"))
