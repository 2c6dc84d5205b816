"""Costly data of tests, made once for all workers of a run."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path

folders: list[Path] = []
"""The run's folder of temporary files, which ``conftest.py`` sets."""


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder of this name, as ``make`` leaves it; tests only read it."""
    (top,) = folders
    made = top / name
    with (top / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            partial = Path(tempfile.mkdtemp(dir=top))
            make(partial)
            partial.rename(made)
    return made
