"""The keeper: parent process of a rack's QEMU processes.

QEMU outlives a ``lab up`` that succeeds, but neither an interrupted one nor the keeper. The kernel kills QEMU with its
parent (PR_SET_PDEATHSIG). After ``hold`` the keeper stops the nodes that a client started if its connection ends
without ``commit``.

Protocol on ``.lab/keeper.sock``: one JSON object per line, one answer per line.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rackproof.errors import LabError

SOCKET = "keeper.sock"
PIDFILE = "keeper.pid"
LOG = "keeper.log"
PR_SET_PDEATHSIG = 1


@dataclass
class _Client:
    sock: socket.socket
    buffer: bytes = b""
    holding: bool = False
    started: set[str] = field(default_factory=set)


def _dies_with(parent: int) -> Callable[[], None]:
    """``preexec_fn`` that has the kernel kill the child with its parent, and exits if the parent has already ended."""
    libc = ctypes.CDLL(None, use_errno=True)

    def die_with_parent() -> None:
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != parent:
            os._exit(1)

    return die_with_parent


class Keeper:
    """Single-threaded on purpose: the parent-death signal follows the thread that forked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.running = True
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, _Client] = {}

    def serve(self) -> None:
        os.chdir(self.folder)  # relative, because a unix socket's path is limited to 108 bytes
        Path(SOCKET).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(SOCKET)
            os.chmod(SOCKET, 0o600)
            listener.listen()
            Path(PIDFILE).write_text(str(os.getpid()))
            self.selector.register(listener, selectors.EVENT_READ)
            signal.signal(signal.SIGTERM, self._terminated)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command in the foreground
            while self.running:
                for key, _ in self.selector.select(timeout=1.0):
                    if key.fileobj is listener:
                        self._accept(listener)
                    else:
                        self._read(self.clients[key.fd])
                self._reap()
        self._stop_all()
        Path(SOCKET).unlink(missing_ok=True)
        Path(PIDFILE).unlink(missing_ok=True)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.running = False

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        self.clients[sock.fileno()] = _Client(sock)
        self.selector.register(sock, selectors.EVENT_READ)

    def _read(self, client: _Client) -> None:
        try:
            data = client.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self._drop(client)
            return
        client.buffer += data
        while b"\n" in client.buffer:
            line, client.buffer = client.buffer.split(b"\n", 1)
            try:
                answer = self._handle(client, json.loads(line))
            except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            try:
                client.sock.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                self._drop(client)
                return

    def _drop(self, client: _Client) -> None:
        self.selector.unregister(client.sock)
        del self.clients[client.sock.fileno()]
        client.sock.close()
        if client.holding:  # interrupted: undo
            for name in client.started:
                self._stop(name)
            if not self.nodes:
                self.running = False

    def _handle(self, client: _Client, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "hold":
                client.holding = True
            case "commit":
                client.holding = False
                client.started.clear()
            case "start":
                self._start(request["node"], request["command"])
                client.started.add(request["node"])
            case "stop":
                self._stop(request["node"])
            case "shutdown":
                self.running = False
            case "status":
                pass
            case other:
                return {"error": f"unknown request {other!r}"}
        return {"pids": {name: process.pid for name, process in self.nodes.items()}}

    def _start(self, name: str, command: list[str]) -> None:
        if name in self.nodes:
            return
        cwd = Path("nodes") / name
        with (cwd / "qemu.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                command,
                cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                preexec_fn=_dies_with(os.getpid()),  # safe: this process has one thread
            )  # fmt: skip

    def _stop(self, name: str) -> None:
        process = self.nodes.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)

    def _stop_all(self) -> None:
        for name in list(self.nodes):
            self._stop(name)

    def _reap(self) -> None:
        for name, process in list(self.nodes.items()):
            if process.poll() is not None:
                print(f"{name}: QEMU ended with status {process.returncode}", file=sys.stderr, flush=True)
                del self.nodes[name]


class KeeperClient:
    """A connection to a rack's keeper. Raises LabError if the rack is down."""

    def __init__(self, folder: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(20.0)
        try:
            connect_in(self._sock, folder, SOCKET)
        except OSError as error:
            self._sock.close()
            raise LabError("the virtual rack is down: start it with `rackproof lab up`") from error
        self._file = self._sock.makefile("rb")

    def __enter__(self) -> KeeperClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sock.close()

    def request(self, op: str, **arguments: Any) -> dict[str, int]:
        """Send one request; return the process ids of the running nodes."""
        try:
            self._sock.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
            line = self._file.readline()
        except OSError as error:
            raise LabError(f"the lab's keeper does not answer ({error}); see .lab/{LOG}") from error
        if not line:
            raise LabError(f"the lab's keeper ended; see .lab/{LOG}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LabError(f"the lab's keeper refused {op}: {answer['error']}")
        return dict(answer["pids"])


def connect_in(sock: socket.socket, folder: Path, name: str) -> None:
    """Connect to a unix socket in a folder whose path may exceed the limit of socket paths."""
    handle = os.open(folder, os.O_PATH)
    try:
        sock.connect(f"/proc/self/fd/{handle}/{name}")
    finally:
        os.close(handle)


_spawned: list[subprocess.Popen[bytes]] = []
"""Popen objects are kept, so that Python reaps a keeper that ends first."""


def spawn(folder: Path) -> None:
    """Start a keeper in the background, in its own session."""
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rackproof.lab.keeper", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, close_fds=True,
        )  # fmt: skip
    _spawned.append(process)


if __name__ == "__main__":
    Keeper(Path(sys.argv[1])).serve()
