"""Disks of a converged virtual rack, kept beside the image under a hash of everything that made them.

A new rack for tests starts from them instead of from the image; where there are none for the present sources they are
made first: boot from the image, deploy, power off, copy. Kept are the disks and host keys of every node; ports, the
key of the checkout and its seed archives are made anew by ``Lab.up``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rackproof.lab.image import cache_folder

SOURCES = (
    "architectures/virtual-rack.yaml",
    "deploys",
    "inventories/group_data",
    "inventories/lab.py",
    "rackproof",
    "templates",
    "uv.lock",
)
READ_ONLY = tuple(f"rackproof/{name}" for name in ("bench", "cli", "report", "selftest", "validation"))
"""Packages of the kit that leave nothing on a node's disk after a deploy."""
PATTERNS = ("root.qcow2", "*.raw", "ssh_host_ed25519_key*")
MOST_KEPT = 2
COPY_TIMEOUT_S = 900


def fingerprint(root: Path) -> str:
    """Hash of the sources' relative paths and contents."""
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        digest.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[Path]:
    excluded = tuple(root / name for name in READ_ONLY)
    for name in SOURCES:
        paths: Iterable[Path] = (root / name).rglob("*") if (root / name).is_dir() else (root / name,)
        for path in paths:
            if path.is_file() and "__pycache__" not in path.parts and not any(x in path.parents for x in excluded):
                yield path


class ConvergedDisks:
    """The kept disks of one fingerprint. The rack must be off for ``keep`` and ``restore``."""

    def __init__(self, name: str, say: Callable[[str], None], folder: Path | None = None) -> None:
        self.root = folder or cache_folder() / "converged"
        self.folder = self.root / name
        self.say = say

    @property
    def exist(self) -> bool:
        return self.folder.is_dir()

    def restore(self, nodes: Path) -> bool:
        """Copy the kept disks to ``nodes``, the folder with one folder a node; False when there are none."""
        with self._exclusive():
            if not self.exist:
                return False
            began = time.monotonic()
            part = Path(tempfile.mkdtemp(prefix=".nodes.", dir=nodes.parent))
            try:
                _copy(self.folder, part)
                part.rename(nodes)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            os.utime(self.folder)
        self.say(f"converged disks {self.folder.name} copied in {time.monotonic() - began:.0f} s")
        return True

    def keep(self, nodes: Path) -> None:
        """Keep the disks of ``nodes``, and of older fingerprints the latest used. A full disk is not an error."""
        with self._exclusive():
            began = time.monotonic()
            part = Path(tempfile.mkdtemp(prefix=".part.", dir=self.root))
            try:
                _copy(nodes, part)
                shutil.rmtree(self.folder, ignore_errors=True)
                part.rename(self.folder)
            except (OSError, subprocess.SubprocessError) as error:
                shutil.rmtree(part, ignore_errors=True)
                self.say(f"the converged disks are not kept: {error}")
                return
            self._prune()
        self.say(f"converged disks {self.folder.name} kept in {time.monotonic() - began:.0f} s")

    def discard(self) -> None:
        with self._exclusive():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _prune(self) -> None:
        for left in self.root.glob(".part.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        kept = sorted((path for path in self.root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MOST_KEPT]:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _copy(source: Path, target: Path) -> None:
    """Disks and host keys of every node; holes stay holes. Raises OSError, subprocess.SubprocessError."""
    for node in sorted(path for path in source.iterdir() if path.is_dir()):
        (target / node.name).mkdir()
        files = [str(path) for pattern in PATTERNS for path in sorted(node.glob(pattern))]
        command = ["cp", "--sparse=always", "--reflink=auto", "--preserve=mode,timestamps", "--"]
        subprocess.run([*command, *files, str(target / node.name)], check=True, timeout=COPY_TIMEOUT_S)
