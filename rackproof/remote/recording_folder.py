"""Recordings on disk: a folder with one file a node, ``gpu-01.json``, or ``gpu-01.json.gz`` when it is large."""

from __future__ import annotations

import datetime as dt
import gzip
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rackproof import __version__
from rackproof.atomic_write import replace_file
from rackproof.errors import RunError
from rackproof.remote.recording import Recording

COMPRESSED_FROM = 1024 * 1024
"""Bytes of JSON from which on a recording is compressed."""
PLAIN, COMPRESSED = ".json", ".json.gz"


def recording_files(folder: Path) -> list[Path]:
    """Files of recordings, in the order of their names; empty where there is none."""
    return sorted(path for path in folder.glob("*.json*") if path.name.endswith((PLAIN, COMPRESSED)))


def read_recording(path: Path) -> Recording:
    """Raises RunError, one line, with the file's name."""
    try:
        data = path.read_bytes()
        if path.name.endswith(COMPRESSED):
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except (EOFError, zlib.error) as error:
        raise RunError(f"{path}: truncated or damaged: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    return Recording.from_json(text, str(path))


def read_folder(folder: Path) -> list[Recording]:
    """All recordings of a folder, in the order of their file names. Raises RunError."""
    return list(read_files(folder).values())


def read_files(folder: Path) -> dict[Path, Recording]:
    """All recordings of a folder by file, in the order of their names. Raises RunError."""
    nodes: dict[str, Path] = {}
    found = {}
    for path in recording_files(folder):
        recording = read_recording(path)
        other = nodes.setdefault(recording.node.name, path)
        if other != path:
            raise RunError(f"{path}: a second recording of {recording.node.name}, beside {other.name}; remove one")
        found[path] = recording
    if not found:
        raise RunError(f"{folder}: no recording there (*{PLAIN})")
    return found


def write_recordings(folder: Path, recordings: Iterable[Recording]) -> list[Path]:
    """One file a node, each replaced as a whole; a node that answered nothing has none. Raises RunError."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for recording in recordings:
            if recording.results:
                stamped = replace(
                    recording, recorded=recording.recorded or now, rackproof=recording.rackproof or __version__
                )
                written.append(_write(folder, recording.node.name, stamped.to_json().encode()))
    except OSError as error:
        raise RunError(f"{folder}: cannot write recordings: {error.strerror or error}") from None
    return written


def _write(folder: Path, name: str, data: bytes) -> Path:
    large = len(data) >= COMPRESSED_FROM
    path, other = (folder / f"{name}{suffix}" for suffix in ((COMPRESSED, PLAIN) if large else (PLAIN, COMPRESSED)))
    # The time stays out of the file: the same recording is the same file.
    replace_file(path, gzip.compress(data, mtime=0) if large else data)
    other.unlink(missing_ok=True)
    return path
