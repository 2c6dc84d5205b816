"""The racks of the self-test: written by hand, or recorded."""

from __future__ import annotations

from pathlib import Path

from rackproof import architectures
from rackproof.core.rack import Rack
from rackproof.errors import SelfTestError
from rackproof.remote.collect import RecordingReader
from rackproof.remote.written import RACK, read_written
from rackproof.validation.context import Context, open_context


def open_written(folder: Path) -> Context:
    """The validators' context of a written rack. Raises SelfTestError or ArchitectureError."""
    written = read_written(folder)
    arch = architectures.load(written.architecture).model
    readers = {name: RecordingReader(name, answers) for name, answers in written.answers.items()}
    return Context(Rack(str(folder), written.nodes), arch, readers)


def open_rack(data: Path, name: str) -> Context:
    """The written or recorded rack of this name below ``data``. Raises SelfTestError, ArchitectureError, RunError.

    The architecture of a recorded rack is ``architecture.yaml`` beside the recordings, otherwise the one with the
    rack's name.
    """
    if (data / "written" / name / RACK).is_file():
        return open_written(data / "written" / name)
    recordings = data / "recordings" / name
    if not recordings.is_dir():
        raise SelfTestError(f"no rack {name!r} in {data / 'written'} or {data / 'recordings'}")
    beside = recordings / "architecture.yaml"
    return open_context(None, str(beside) if beside.is_file() else name, str(recordings))


PLANNED = "-deploy"
"""Suffix of recordings for plans of a deploy, which checks do not use."""


def racks_below(data: Path) -> list[str]:
    """Names of all racks for checks."""
    racks = {path.parent.name for path in (data / "written").glob(f"*/{RACK}")}
    if (data / "recordings").is_dir():
        folders = (path for path in (data / "recordings").iterdir() if path.is_dir())
        racks |= {path.name for path in folders if not path.name.endswith(PLANNED)}
    return sorted(racks)
