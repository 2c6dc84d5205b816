"""Folders of recordings: one file per node, ``gpu-01.json``, or ``gpu-01.json.gz`` for a large one."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rackproof import __version__
from rackproof.atomic_write import replace_file
from rackproof.core.texts import file_name
from rackproof.errors import RunError
from rackproof.read_file import DATA, MIB, read_input, read_json_text
from rackproof.remote.recording import Recording

COMPRESSED_FROM = 1024 * 1024
"""Minimum size of a compressed recording, bytes of JSON."""
PLAIN, COMPRESSED = ".json", ".json.gz"


def recording_files(folder: Path) -> list[Path]:
    """Recordings in a folder, sorted by file name."""
    return sorted(path for path in folder.glob("*.json*") if path.name.endswith((PLAIN, COMPRESSED)))


def read_recording(path: Path) -> Recording:
    """Read one recording. Raises RunError, one line, with the file's name."""
    return Recording.from_json(read_input(path, RunError, read_json_text), str(path))


def read_folder(folder: Path) -> list[Recording]:
    """All recordings of a folder, sorted by file name. Raises RunError."""
    return list(read_files(folder).values())


def read_files(folder: Path) -> dict[Path, Recording]:
    """All recordings of a folder by file, sorted. Raises RunError for a folder without any, or two of one node."""
    nodes: dict[str, Path] = {}
    recordings = {}
    for path in recording_files(folder):
        recording = read_recording(path)
        other = nodes.setdefault(recording.node.name, path)
        if other != path:
            raise RunError(f"{path}: a second recording of {recording.node.name}, besides {other.name}; remove one")
        recordings[path] = recording
    if not recordings:
        raise RunError(f"{folder}: the folder has no recordings (*{PLAIN})")
    return recordings


def write_recordings(folder: Path, recordings: Iterable[Recording]) -> list[Path]:
    """Write one file per node, atomically; nodes without results get none. A name never leads out of the folder.

    Raises RunError.
    """
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[str, str] = {}
        for recording in recordings:
            if recording.results:
                name, node = file_name(recording.node.name), recording.node.name
                if names.setdefault(name, node) != node:
                    raise RunError(f"{node}: its file would be that of {names[name]}: {name}{PLAIN}")
                stamped = replace(
                    recording, recorded=recording.recorded or now, rackproof=recording.rackproof or __version__
                )
                written.append(_write(folder, name, stamped.to_json().encode()))
    except OSError as error:
        raise RunError(f"{folder}: cannot write recordings: {error.strerror or error}") from None
    return written


def _write(folder: Path, name: str, data: bytes) -> Path:
    large = len(data) >= COMPRESSED_FROM
    path, other = (folder / f"{name}{suffix}" for suffix in ((COMPRESSED, PLAIN) if large else (PLAIN, COMPRESSED)))
    if len(data) > DATA:
        raise RunError(f"{path}: not written, it would be larger than {DATA // MIB} MiB and could not be read")
    # mtime=0: equal recordings are equal files.
    replace_file(path, gzip.compress(data, mtime=0) if large else data)
    other.unlink(missing_ok=True)
    return path
