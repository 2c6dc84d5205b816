"""Channels of an ssh connection: commands that run on a node, with their output in pieces."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import paramiko

from rackproof.remote import greeting
from rackproof.remote.command import OUTPUT_LIMIT, CommandResult, tied
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.redaction import redact

STOP_S = 15.0
"""Seconds that a server has to end when its connection closes."""
END_S = 4.0
"""The same after an interrupt, for servers and other commands."""
_COMPLAINT = 1024 * 1024
"""Maximum bytes of standard error that are read for the reason of a failure."""


class Server:
    """A server process on a node; ``stop`` ends it and returns its result."""

    def __init__(
        self, node: str, sudo: str, channel: paramiko.Channel, command: str, timeout_s: float, user: str = ""
    ) -> None:
        self._node, self._sudo, self._channel, self._user = node, sudo, channel, user
        self.command, self.timeout_s = command, timeout_s
        self._out, self._err = bytearray(), bytearray()
        self._result: CommandResult | None = None
        self._began = time.monotonic()

    def start(self) -> None:
        start(self._channel, tied(self.command, self.timeout_s, self._sudo, user=self._user))

    def poll(self) -> bool:
        """Collect the server's output; True while the server runs."""
        drain(self._channel, self._out, self._err, time.monotonic() + 0.01)
        return not self._channel.exit_status_ready()

    @property
    def output(self) -> bytes:
        return bytes(self._out)

    def stop(self) -> CommandResult:
        """End the server if it still runs, and return its result; later calls return the same result."""
        if self._result is not None:
            return self._result
        if not self._channel.closed and self.poll():
            self._channel.shutdown_write()
            drain(self._channel, self._out, self._err, time.monotonic() + (END_S if STOPPING.is_set() else STOP_S))
        ended = self._channel.exit_status_ready()
        rc = self._channel.recv_exit_status() if ended else None
        self._channel.close()
        elapsed = time.monotonic() - self._began
        self._result = CommandResult(
            self._node, self.command, None if rc == -1 else rc, bytes(self._out), bytes(self._err),
            elapsed, self.timeout_s, None if ended and rc != -1 else "did not end by itself",
        )  # fmt: skip
        return self._result


class Pipe:
    """Input and output of a command on a node; several threads may write."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return not self._channel.closed and not self._channel.exit_status_ready()

    @property
    def why(self) -> str:
        """End of the command's standard error in one line, without secrets."""
        err = bytearray()
        while self._channel.recv_stderr_ready() and len(err) < _COMPLAINT:
            err += self._channel.recv_stderr(65536)
        return redact(" ".join(err.decode(errors="replace").split())[-200:]) or "it does not answer"

    def skip_to(self, mark: bytes, timeout_s: float) -> bool:
        """Read up to a mark: login shells may print before it. False without a mark in time, or after an interrupt."""
        self._channel.settimeout(0.5)
        deadline, seen = time.monotonic() + timeout_s, b""
        while not seen.endswith(mark):
            try:
                part = self._channel.recv(1)
            except TimeoutError:
                if STOPPING.is_set() or time.monotonic() > deadline:
                    return False
                continue
            except OSError:
                return False
            if not part:
                return False
            seen = (seen + part)[-len(mark) :]
        self._channel.settimeout(None)
        return True

    def read(self, count: int) -> bytes:
        """``count`` bytes, or fewer at the end of the output."""
        data = b""
        try:
            while len(data) < count and (part := self._channel.recv(count - len(data))):
                data += part
        except OSError:
            return data
        return data

    def write(self, data: bytes) -> bool:
        """False if the command has ended."""
        with self._lock:
            try:
                self._channel.sendall(data)
            except (OSError, paramiko.SSHException):
                return False
        return True

    def close(self) -> None:
        """End the command's input, and with it the command."""
        self._channel.close()


def start(channel: paramiko.Channel, command: str, patience: float | None = None) -> None:
    """Start a command. Raises SSHException if the server does not confirm it in time; paramiko would wait forever."""
    began, patience = time.monotonic(), patience or greeting.ANSWER_S

    def give_up() -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):  # the connection is gone, too
            channel.close()

    timer = threading.Timer(patience, give_up)
    timer.daemon = True
    timer.start()
    try:
        channel.exec_command(command)
    except paramiko.SSHException:
        if time.monotonic() - began < patience:
            raise
        raise paramiko.SSHException(f"it did not start a command within {patience:g} s") from None
    finally:
        timer.cancel()


def full(*streams: bytearray) -> bool:
    """Whether an output has reached its limit; the channel is then closed."""
    return any(len(stream) >= OUTPUT_LIMIT for stream in streams)


def drain(
    channel: paramiko.Channel,
    out: bytearray,
    err: bytearray,
    deadline: float,
    until: Callable[[], bool] = lambda: False,
) -> bool:
    """Collect output until the command has ended (True), ``until`` returns True, or the deadline passes (False)."""
    channel.settimeout(min(0.1, max(0.001, deadline - time.monotonic())))
    while time.monotonic() < deadline and not until():
        moved = False
        chunk: bytes | None
        if channel.recv_stderr_ready():  # one piece: the output may be endless
            part = channel.recv_stderr(65536)
            err += part[: max(0, OUTPUT_LIMIT - len(err))]
            moved = bool(part)
            if moved and not channel.recv_ready():
                continue
        try:
            chunk = channel.recv(65536)
        except TimeoutError:
            chunk = None
        if chunk:
            out += chunk[: max(0, OUTPUT_LIMIT - len(out))]
            moved = True
        if chunk == b"" and not channel.recv_stderr_ready():
            if channel.status_event.wait(0.1) or channel.closed or not channel.get_transport().is_active():
                return True
        elif not moved and not channel.get_transport().is_active():
            raise EOFError("the node went away")
    return False


def reason(error: BaseException) -> str:
    """Why ssh failed, in one line."""
    if isinstance(error, socket.gaierror):
        return "its address does not resolve"
    if isinstance(error, paramiko.AuthenticationException):
        return "authentication failed"
    if isinstance(error, TimeoutError):
        return f"no connection within {greeting.ANSWER_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    words = redact(" ".join(str(error).split()))
    if isinstance(error, EOFError):
        return "the server closed the connection"
    return words or type(error).__name__
