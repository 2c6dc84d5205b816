"""Files that are there as a whole or not at all, whoever reads them meanwhile and whatever ends the writer."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a file beside and move it into place. Text is UTF-8.

    ``durable``: the content is on the disk before the name is. ``mode``: of the file, less the umask. Several
    processes may write the same file; the last one's is there. Raises OSError, and nothing is left beside then.
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
