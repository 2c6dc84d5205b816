"""Reads of files that anyone may have made: regular ones alone, in pieces, up to a limit."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, cast

from rackproof.errors import RackproofError

MIB: Final = 1024 * 1024
DOCUMENT: Final = 16 * MIB
"""Bytes of a file that people write: architecture, version set, source of an inventory."""
DATA: Final = 128 * MIB
"""Bytes of a file that the kit writes, decompressed: a recording, an output. A command's output ends at 16 MiB."""
VALUES: Final = 4_000_000
"""Values of a JSON document; each takes 50 to 100 bytes of memory, and as few as two in the file."""
COMPRESSED: Final = ".gz"
_PIECE: Final = MIB


def opened(path: Path) -> IO[bytes]:
    """A regular file, open for reading; a device, a FIFO or a socket is never waited for. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, limit: int = DATA) -> bytes:
    """Content of a regular file, decompressed where its name ends in ``.gz``. Raises OSError that names the file.

    ``limit``: bytes, of the file and of what it contains.
    """
    parts: list[bytes] = []
    size = 0
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise _too_large(path, limit)
        try:
            source = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if path.name.endswith(COMPRESSED) else file
            while piece := source.read(_PIECE):
                size += len(piece)
                if size > limit:
                    raise _too_large(path, limit)
                parts.append(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(errno.EINVAL, f"truncated or damaged: {error}", str(path)) from None
    return b"".join(parts)


def read_private(path: Path) -> bytes:
    """Content of a regular file that only its owner can access. Raises OSError, also for one of other users."""
    with opened(path) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            text = f"group or others have access (mode {mode:o}); chmod 600 {path}"
            raise OSError(errno.EPERM, text, str(path))
        content = file.read(MIB + 1)
    if len(content) > MIB:
        raise _too_large(path, MIB)
    return content


def read_json_text(path: Path, limit: int = DATA) -> str:
    """The text of a JSON document with at most ``VALUES`` values. Raises OSError, UnicodeDecodeError."""
    data = read_bytes(path, limit)
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES:
        raise OSError(errno.EFBIG, f"more than {VALUES} values", str(path))
    return data.decode("utf-8")


def read_text(path: Path, limit: int = DOCUMENT, encoding: str = "utf-8") -> str:
    """Raises OSError, UnicodeDecodeError."""
    return read_bytes(path, limit).decode(encoding)


def read_input(path: Path, kind: type[RackproofError], read: Callable[[Path], str] = read_text) -> str:
    """The text of a file that a user names. Raises ``kind``, one line."""
    try:
        return read(path)
    except OSError as error:
        raise kind(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise kind(f"{path}: cannot be read: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {limit // MIB} MiB", str(path))
