"""Atomic writes: a reader sees the old file or the new one, never a part, even if the writer is killed."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a temporary file beside ``path`` and rename it into place. Text is encoded as UTF-8.

    ``durable`` syncs the content before the rename. ``mode`` is the file's, less the umask. When several processes
    write the same file, the last one wins. Raises OSError, and removes the temporary file.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, mode), "wb") as handle:
            handle.write(data)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
