"""One end of a relay, on a node, as the account that measures. Needs Python's standard library, nothing of rackproof.

``listen FOLDER FIRST NODE…`` makes the sockets ``FOLDER/NODE.fio`` and ``FOLDER/NODE.sh`` and numbers connections from
FIRST; ``serve FOLDER`` connects to ``FOLDER/fio.sock``, or runs a command line. ``run FOLDER NODE WORDS…`` runs a
command line on another node, as ssh does.

Between both ends, on stdin and stdout: frames of a connection's number, a length and data. The first frame of a
connection names its node and service; a length of 0 ends it. A command line ends with a zero byte.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable

HEAD = struct.Struct("!II")
MAGIC = b"rackproof-relay\n"


def exactly(count: int) -> bytes:
    """Bytes of stdin; fewer at its end."""
    data = b""
    while len(data) < count and (part := os.read(0, count - len(data))):
        data += part
    return data


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


class End:
    """This end's connections by number; ``waiting`` has command lines that are not complete."""

    def __init__(self, folder: str, first: int) -> None:
        self.folder, self.latest = folder, 0
        self.numbers = itertools.count(first)
        self.live: dict[int, socket.socket] = {}
        self.waiting: dict[int, bytes] = {}
        self.sessions: list[int] = []
        self.lock = threading.Lock()

    def send(self, number: int, data: bytes) -> None:
        with self.lock:
            write(HEAD.pack(number, len(data)) + data)

    def listen(self, node: str, service: str) -> None:
        own = socket.socket(socket.AF_UNIX)
        path = os.path.join(self.folder, node + "." + service)
        if os.path.lexists(path):
            os.unlink(path)
        own.bind(path)
        own.listen()
        start(self.accept, own, (node + " " + service).encode())

    def accept(self, listening: socket.socket, name: bytes) -> None:
        while True:
            own = listening.accept()[0]
            with self.lock:  # the node's end expects rising numbers
                number = self.latest = next(self.numbers)
                self.live[number] = own  # before the answer can come
                write(HEAD.pack(number, len(name)) + name)
            start(self.carry, number, own)

    def add(self, number: int, own: socket.socket) -> None:
        self.live[number] = own
        start(self.carry, number, own)

    def carry(self, number: int, own: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := own.recv(65536):
                self.send(number, data)
        self.send(number, b"")
        self.live.pop(number, None)
        own.close()

    def received(self, number: int, data: bytes) -> None:
        """A frame from the other end."""
        if number in self.waiting:
            self.waiting[number] += data
            if data.endswith(b"\0"):
                self.command(number, self.waiting.pop(number)[:-1].decode())
        elif (own := self.live.get(number)) is not None:
            with contextlib.suppress(OSError):  # its own thread ends it
                if data:
                    own.sendall(data)
                else:
                    own.shutdown(socket.SHUT_RDWR)
        elif number > self.latest:
            self.latest = number
            if data.endswith(b" sh"):
                self.waiting[number] = b""
                return
            own = socket.socket(socket.AF_UNIX)
            try:
                own.connect(os.path.join(self.folder, "fio.sock"))
            except OSError:
                self.send(number, b"")
            else:
                self.add(number, own)

    def command(self, number: int, line: str) -> None:
        own, other = socket.socketpair()
        with other:
            out = other.fileno()
            process = subprocess.Popen(
                ["sh", "-c", line], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.sessions.append(process.pid)
        self.add(number, own)

    def run(self) -> None:
        """Carry frames until stdin ends, then end what was started."""
        write(MAGIC)
        while len(head := exactly(HEAD.size)) == HEAD.size:
            number, length = HEAD.unpack(head)
            self.received(number, exactly(length))
        for session in self.sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGTERM)


def start(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def run(folder: str, node: str, words: list[str]) -> None:
    """Run a command on a node, and print its output, as ssh does."""
    path = os.path.join(folder, node + ".sh")
    if not os.path.exists(path):
        raise SystemExit(
            f"rackproof: no way to {node}, which mpirun takes for another machine: if it is this one, whose name is"
            f" {socket.gethostname()}, the name {node} must lead to it (/etc/hosts)"
        )
    own = socket.socket(socket.AF_UNIX)
    own.connect(path)
    own.sendall(" ".join(words).encode() + b"\0")
    while data := own.recv(65536):
        write(data)


def main() -> None:
    mode, folder, *names = sys.argv[1:]
    if mode == "run":
        run(folder, names[0], names[1:])
        return
    end = End(folder, int(names[0]) if names else 1)
    os.umask(0o077)
    for name in names[1:]:
        end.listen(name, "fio")
        end.listen(name, "sh")
    end.run()


main()
