"""Servers that a node's ssh port may have: silent, another protocol, nonsense, or an ssh server whose commands hang."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko

HOST_KEY = paramiko.ECDSAKey.generate()
_MARK = re.compile(rb"RACKPROOF_COMMAND=(\w+)")


def silent(sock: socket.socket, asked: threading.Event) -> None:
    asked.set()
    sock.recv(1)  # returns when the client or the test ends; the server closes the socket


def http(sock: socket.socket, asked: threading.Event) -> None:
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nServer: \x1b]0;CERTIFIED\x07\r\n\r\n<html>\r\nrackproof: CERTIFIED\r\n")
    sock.close()


def nonsense(sock: socket.socket, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"SSH-2.0-\x1b[2Jx\r\n" + bytes(range(256)) * 64)
        sock.recv(65536)
        sock.close()


def closed(sock: socket.socket, asked: threading.Event) -> None:
    sock.close()


def penalising(sock: socket.socket, asked: threading.Event) -> None:
    sock.sendall(b"Not allowed at this time\r\n")
    sock.close()


def crowded(sock: socket.socket, asked: threading.Event) -> None:
    sock.sendall(b"Exceeded MaxStartups\r\n")
    sock.close()


def garbage(sock: socket.socket, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(bytes(range(255, 0, -1)) * 999)
        sock.close()


def endless_line(sock: socket.socket, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock.sendall(b"x" * 65536)


def endless_banner(sock: socket.socket, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock.sendall(b"x\r\n" * 999)


def closed_after_the_greeting(sock: socket.socket, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def silent_after_the_greeting(sock: socket.socket, asked: threading.Event) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    silent(sock, asked)


STARTED: list[subprocess.Popen[bytes]] = []
"""Commands on the node."""


class _Hanging(paramiko.ServerInterface):
    """Every command becomes a process that sleeps, with the command's mark; what ends marked processes runs."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        marks = _MARK.findall(command)
        if b"grep -lszxF" in command:
            threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
            return True
        env = {**os.environ, "RACKPROOF_COMMAND": marks[0].decode() if marks else ""}
        STARTED.append(subprocess.Popen(["sleep", "300"], env=env, start_new_session=True))
        self._asked.set()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=60)
        with contextlib.suppress(OSError, EOFError):
            channel.sendall(done.stdout)
            channel.send_exit_status(done.returncode)
            channel.close()


class _Refusing(_Hanging):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.common.AUTH_FAILED


class _HangingLogin(_Hanging):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        threading.Event().wait()
        return paramiko.common.AUTH_FAILED


class _Unstarted(_Hanging):
    """Never confirms that a command has been started."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._asked.set()
        threading.Event().wait()
        return False


class _Printing(_Hanging):
    """Every command prints nonsense, and succeeds."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Timer(0.2, self._print, (channel,)).start()  # after the reply that it runs
        return True

    def _print(self, channel: paramiko.Channel) -> None:
        with contextlib.suppress(OSError, EOFError):
            channel.sendall(b"\x1b]0;CERTIFIED\x07\nrackproof: CERTIFIED\n" + bytes(range(256)) * 9)
            channel.send_exit_status(0)
            channel.close()


class _Answering(_Hanging):
    """Commands run on this machine; those of the checks only read."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, command), daemon=True).start()
        return True

    def _answer(self, channel: paramiko.Channel, command: bytes) -> None:
        with contextlib.suppress(OSError, EOFError):
            given = b"".join(iter(lambda: channel.recv(65536), b""))
            done = subprocess.run(["sh", "-c", command], input=given, capture_output=True, check=False, timeout=300)
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()


class _Limited(_Answering):
    """As ``_Answering``, for so many commands at once on a connection: ``MaxSessions`` of sshd_config(5)."""

    most = 3

    def __init__(self, asked: threading.Event) -> None:
        super().__init__(asked)
        self._running: list[paramiko.Channel] = []

    def check_channel_request(self, kind: str, chanid: int) -> int:
        running = sum(not channel.closed for channel in self._running)
        full = running >= self.most
        return paramiko.common.OPEN_FAILED_CONNECT_FAILED if full else paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._running.append(channel)
        return super().check_channel_exec_request(channel, command)


class _Channelless(_Limited):
    most = 0


class _Flooding(_Printing):
    """Every command prints errors without end."""

    def _print(self, channel: paramiko.Channel) -> None:
        self._asked.set()
        with contextlib.suppress(OSError, EOFError):
            while True:
                channel.sendall_stderr(b"x" * 32768)


def _serve(server: type[_Hanging], sock: socket.socket, asked: threading.Event, key: paramiko.PKey = HOST_KEY) -> None:
    transport = paramiko.Transport(sock)
    transport.add_server_key(key)
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        transport.start_server(server=server(asked))


def hanging(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Hanging, sock, asked)


def refusing(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Refusing, sock, asked)


def hanging_login(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_HangingLogin, sock, asked)


def unstarted(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Unstarted, sock, asked)


def printing(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Printing, sock, asked)


def answering(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Answering, sock, asked)


def limited(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Limited, sock, asked)


def channelless(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Channelless, sock, asked)


def flooding(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Flooding, sock, asked)


def another_key(sock: socket.socket, asked: threading.Event) -> None:
    _serve(_Hanging, sock, asked, paramiko.ECDSAKey.generate())


Behaviour = Callable[[socket.socket, threading.Event], None]


def after(count: int, first: Behaviour, then: Behaviour) -> Behaviour:
    """Behaves otherwise towards its first connections."""
    behaviours = itertools.chain(itertools.repeat(first, count), itertools.repeat(then))
    return lambda sock, asked: next(behaviours)(sock, asked)


@contextmanager
def server(behaviour: Behaviour) -> Iterator[tuple[int, threading.Event]]:
    """Port, and an event that is set when a client waits for an answer. Every socket is closed at the end."""
    asked = threading.Event()
    connections: list[socket.socket] = []

    def behave(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client went first
            behaviour(sock, asked)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                connections.append(sock)
                threading.Thread(target=behave, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept(), which close() does not
            thread.join(timeout=10)
            for sock in connections:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # ends the behaviour's recv() and sendall()
                sock.close()


def node_data(folder: Path, port: int) -> dict[str, Any]:
    """Data of a node behind the port, with a key and known_hosts of its own."""
    if not (folder / "key").exists():
        paramiko.ECDSAKey.generate().write_private_key_file(str(folder / "key"))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {HOST_KEY.get_name()} {HOST_KEY.get_base64()}\n")
    return {
        "architecture": "virtual-rack", "virtual": True, "simulated_gpus": True, "ssh_hostname": "127.0.0.1",
        "ssh_port": port, "ssh_user": "root", "ssh_key": str(folder / "key"),
        "ssh_known_hosts_file": str(folder / "known_hosts"), "fabric_addresses": ["10.77.0.21/24"],
        "fabric_macs": ["52:54:00:77:00:21"],
    }  # fmt: skip


def inventory(folder: Path, port: int, head: str = "") -> Path:
    """An inventory of one such node."""
    path = folder / "rack.py"
    path.write_text(f"{head}\ngpu = [('gpu-01', {node_data(folder, port)!r})]\n")
    return path
