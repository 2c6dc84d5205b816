"""What a server may send before ssh begins: paramiko reads that line, and the lines before it, without a limit."""

from __future__ import annotations

from typing import Final

import paramiko
from paramiko.packet import Packetizer

LIMIT: Final = 64 * 1024
"""Bytes. RFC 4253, 4.2: the greeting has 255 characters; lines before it are a banner."""

_read = Packetizer._read_timeout  # type: ignore[attr-defined]


def _limited(packetizer: Packetizer, timeout: float) -> bytes:
    piece: bytes = _read(packetizer, timeout)
    sizes = vars(packetizer)
    sizes[__name__] = sizes.get(__name__, 0) + len(piece)
    if sizes[__name__] > LIMIT:
        raise paramiko.SSHException(f": more than {LIMIT} bytes that are no ssh")
    return piece


def limit_greetings() -> None:
    """For all connections of this process."""
    Packetizer._read_timeout = _limited  # type: ignore[attr-defined]
