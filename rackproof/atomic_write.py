"""Atomic writes: a reader sees the old file or the new one, never a part, even if the writer is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from pathlib import Path

from rackproof.errors import RackproofError


def replace_file(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a temporary file beside ``path`` and rename it into place. Text is encoded as UTF-8.

    ``durable`` syncs the content before the rename. ``mode`` is the file's, less the umask. When several processes
    write the same file, the last one wins. A device, a FIFO or a socket is never replaced. Raises OSError that names
    ``path``, and removes the temporary file.
    """
    _refuse_special(path)
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    try:
        part.unlink(missing_ok=True)  # of a killed process, or planted: others may write to the folder
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode), "wb") as handle:
            handle.write(data)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write_output(path: Path, content: str | bytes, kind: type[RackproofError], remedy: str = "") -> None:
    """``replace_file`` for a file that a user asked for. Raises ``kind``, one line that ends in ``remedy``."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise kind(f"{path}: cannot be written: {error.strerror or error}{remedy}") from None


def _refuse_special(path: Path) -> None:
    if not path.name:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder is refused by the rename
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
