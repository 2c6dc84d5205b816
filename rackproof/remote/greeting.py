"""How an ssh server greets (RFC 4253, 4.2), before paramiko takes over: with limits, tried again where sshd refuses.

paramiko reads the greeting without a limit, reports a refusal as "Error reading SSH protocol banner", and waits for the
key exchange no longer than for the TCP connection. ``greeted`` is the ``transport_factory`` of every connection of the
kit, pyinfra's included; jump hosts of the user's ssh_config are the user's.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Any, Final

import paramiko

from rackproof.remote.interrupt import STOPPING

LIMIT: Final = 64 * 1024
"""Bytes. RFC 4253, 4.2: the greeting has 255 characters; lines before it are a banner."""
ANSWER_S = 20.0
"""Seconds that a server has for its greeting, for the key exchange, and for each answer to a login."""
REFUSED_S = 60.0
"""Seconds of retries after a refusal in ``REFUSALS``. OpenSSH's penalties (PerSourcePenalties) last 15 s and
more, a login that counts for MaxStartups ends with LoginGraceTime, at the latest after 120 s."""
CLOSED_S = 8.0
"""Seconds of retries when the server closes without a greeting: sshd restarts, or a NAT or QEMU finds no server."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
REFUSALS: Final = {
    "Not allowed at this time": "sshd refuses this address for a while (PerSourcePenalties)",
    "Exceeded MaxStartups": "sshd has too many logins at once (MaxStartups)",
}
"""Messages of sshd before it closes (OpenSSH, sshd.c and srclimit.c), and their meaning."""
_GREETING = re.compile(rb"(?:^|\n)(?=SSH-[^\n]*\n)")
_WORDS = 80


class _Closed(Exception):
    """The server closed the connection without a greeting; the text is what the server sent."""


class _Begun:
    """A socket of which the first bytes have been read."""

    def __init__(self, sock: Any, data: bytes) -> None:
        self._sock, self._data = sock, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        if not self._data:
            data: bytes = self._sock.recv(size)
            return data
        first, self._data = self._data[:size], self._data[size:]
        return first


class _Transport(paramiko.Transport):
    """Raises an error for a key exchange that does not end; paramiko would raise it in the next call."""

    def __init__(self, sock: Any, **arguments: Any) -> None:
        super().__init__(sock, **arguments)
        self.auth_timeout = ANSWER_S
        self.handshake_timeout = 2 * ANSWER_S  # paramiko's error would be an EOFError: ``start_client`` ends first

    def start_client(self, event: Any = None, timeout: float | None = None) -> None:
        try:
            super().start_client(event, max(timeout or 0.0, ANSWER_S))
        except EOFError:
            raise paramiko.SSHException("the server closed the connection in the key exchange") from None
        if event is None and not self.initial_kex_done:
            raise paramiko.SSHException(f"the server did not finish the key exchange within {ANSWER_S:g} s")


def greeted(sock: Any, **arguments: Any) -> paramiko.Transport:
    """A transport over a connected socket whose server has greeted. Raises paramiko.SSHException with what the server
    did instead, and OSError if a second connection fails."""
    began, pause = time.monotonic(), FIRST_PAUSE_S
    peer = _peer(sock)
    while True:
        try:
            return _Transport(_Begun(sock, _greeting(sock)), **arguments)
        except _Closed as closed:
            words = str(closed)
        limit = REFUSED_S if words in REFUSALS else 0.0 if words else CLOSED_S
        left = began + limit - time.monotonic()
        if peer is None or left <= 0 or STOPPING.is_set():
            raise paramiko.SSHException(_refusal(words))
        _wait(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)
        sock = socket.socket(sock.family, socket.SOCK_STREAM)
        sock.settimeout(ANSWER_S)
        sock.connect(peer)


def _peer(sock: Any) -> Any:
    """The server's address; None if a second connection is impossible: through a jump host or a proxy, and after a
    reset by the server."""
    try:
        return sock.getpeername() if isinstance(sock, socket.socket) else None
    except OSError:
        return None


def _greeting(sock: Any) -> bytes:
    """The server's greeting and what follows. Raises _Closed or SSHException after closing the socket."""
    data, until = b"", time.monotonic() + ANSWER_S
    sock.settimeout(0.2)
    try:
        while (begin := _GREETING.search(data)) is None:
            if len(data) > LIMIT:
                raise paramiko.SSHException(f"no ssh server answers: it sent more than {LIMIT} bytes that are no ssh")
            if STOPPING.is_set() or time.monotonic() > until:
                raise paramiko.SSHException(
                    f"no ssh server answers: it sent {repr(_words(data)) if data else 'nothing'} within {ANSWER_S:g} s"
                )
            try:
                piece = sock.recv(4096)
            except TimeoutError:
                continue
            except ConnectionError:
                piece = b""
            if not piece:
                raise _Closed(_words(data))
            data += piece
        return data[begin.end() :]
    except BaseException:
        sock.close()
        raise


def _words(data: bytes) -> str:
    """The first line: further lines could look like lines of the kit."""
    return " ".join(data.decode(errors="replace").strip().partition("\n")[0].split())[:_WORDS]


def _refusal(words: str) -> str:
    if not words:
        return "the server closed the connection without a greeting"
    return REFUSALS.get(words) or f"no ssh server answers: it sent {words!r} and closed the connection"


def _wait(seconds: float) -> None:
    """Sleep without blocking pyinfra's other hosts: gevent replaces ``time.sleep``, not an existing event's wait."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not STOPPING.is_set():
        time.sleep(min(left, 0.2))
