"""Servers that are no node: the connection ends, and one line names the cause."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import paramiko
import pytest

from rackproof.core.rack import Node
from rackproof.errors import NodeUnreachable, RemoteError
from rackproof.remote import channel as channels
from rackproof.remote import greeting
from rackproof.remote.command import OUTPUT_LIMIT
from rackproof.remote.ssh import Connection
from tests.fuzz import servers

pytestmark = pytest.mark.few(8)

CAUSES: dict[servers.Behaviour, str] = {
    servers.http: r"no ssh server answers: it sent 'HTTP/1.1 400 Bad Request' and closed the connection",
    servers.nonsense: r"no ssh server answers|Incompatible|closed the connection|\w{6}",
    servers.closed: r"the server closed the connection without a greeting",
    servers.silent: r"no ssh server answers: it sent nothing within 3 s",
    servers.garbage: r"no ssh server answers: it sent .* (and closed the connection|that are no ssh)",
    servers.endless_line: r"more than 65536 bytes that are no ssh",
    servers.endless_banner: r"more than 65536 bytes that are no ssh",
    servers.closed_after_the_greeting: r"the server closed the connection in the key exchange",
    servers.silent_after_the_greeting: r"the server did not finish the key exchange within 3 s",
    servers.penalising: r"sshd refuses this address for a while \(PerSourcePenalties\)",
    servers.crowded: r"sshd has too many logins at once \(MaxStartups\)",
    servers.refusing: r"authentication failed",
    servers.hanging_login: r"authentication failed",
    servers.another_key: r"its host key has changed",
}


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("ANSWER_S", 3.0), ("REFUSED_S", 1.0), ("CLOSED_S", 1.0), ("FIRST_PAUSE_S", 0.01)):
        monkeypatch.setattr(greeting, name, seconds)


def node_behind(folder: Path, port: int) -> Node:
    return Node("gpu-01", ("gpu",), servers.node_data(folder, port))


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("behaviour", CAUSES, ids=lambda behaviour: behaviour.__name__)
def test_the_error_names_why_a_server_is_no_node(behaviour: servers.Behaviour, tmp_path: Path) -> None:
    with servers.server(behaviour) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        with pytest.raises(RemoteError, match=CAUSES[behaviour]) as caught:
            connection.open()
    words = str(caught.value)
    assert len(words.splitlines()) == 1
    assert not any(name in words for name in ("EOFError", "No existing session", "expected OPENSSH key", "Traceback"))


@pytest.mark.parametrize("refusal", [servers.closed, servers.penalising, servers.crowded])
def test_a_server_that_refuses_for_a_while_is_tried_again(
    refusal: servers.Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("REFUSED_S", 60.0), ("CLOSED_S", 60.0), ("FIRST_PAUSE_S", 0.05)):
        monkeypatch.setattr(greeting, name, seconds)
    with servers.server(servers.after(2, refusal, servers.printing)) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        assert connection.open().is_authenticated()
        connection.forget()


def test_pauses_between_attempts_grow_up_to_their_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pauses: list[float] = []
    now = [0.0]

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(greeting, "_wait", wait)
    monkeypatch.setattr(greeting, "_greeting", refused := Refused())
    monkeypatch.setattr(greeting.time, "monotonic", lambda: now[0])
    for refused.words, expected in (
        ("Not allowed at this time", [0.5, 1, 2, 4, 8, 15, 15, 14.5]), ("", [0.5, 1, 2, 4, 0.5]), ("HTTP/1.1", []),
    ):  # fmt: skip
        pauses.clear()
        with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(paramiko.SSHException):
            greeting.greeted(socket.create_connection(listener.getsockname()))
        assert pauses == expected


class Refused:
    """Refuses every connection with the same words."""

    words = ""

    def __call__(self, sock: socket.socket) -> bytes:
        sock.close()
        raise greeting._Closed(self.words)


@pytest.mark.parametrize("lines", [b"", b"Hello\r\nSSH is not this\r\n"])
def test_what_a_server_sends_from_its_greeting_on_reaches_paramiko(lines: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(lines + b"SSH-2.0-x\r\n\x00\x01")
        begun = greeting._Begun(ours, greeting._greeting(ours))
        theirs.sendall(b"\x02")
        assert begun.recv(9) == b"SSH-2.0-x"
        assert b"".join(begun.recv(128) for _ in range(2)) == b"\r\n\x00\x01\x02"


def test_pyinfras_connections_have_the_same_limits(tmp_path: Path) -> None:
    """pyinfra changes Python's sockets when it is imported, so it runs in a process of its own."""
    with servers.server(servers.endless_line) as (port, _):
        path = servers.inventory(tmp_path, port)
        done = subprocess.run(
            [str(Path(sys.executable).with_name("pyinfra")), "-y", str(path), "exec", "--", "true"],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    assert "[gpu-01] SSH error (no ssh server answers: it sent more than 65536 bytes that are no ssh)" in done.stderr


@pytest.mark.parametrize(
    ("kind", "form"), [("rsa", "PEM"), ("rsa", "RFC4716"), ("ecdsa", "PEM"), ("ed25519", "RFC4716")]
)
@pytest.mark.parametrize("password", ["", "correct horse"])
def test_a_refused_login_is_its_own_cause_with_every_type_of_key(
    kind: str, form: str, password: str, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    size = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *size, "-m", form, "-N", password, "-f", str(key)], check=True)
    with servers.server(servers.refusing) as (port, _):
        node = node_behind(tmp_path, port)
        for given, cause in (
            (password, "authentication failed"), ("", "it is encrypted: give ssh_key_password"), ("wrong", str(key)),
        ):  # fmt: skip
            data = {**node.data, "ssh_key_password": given}
            expected = cause if password else "authentication failed"
            with pytest.raises(RemoteError, match=expected):
                Connection(Node(node.name, node.groups, data)).open()


def test_a_server_that_never_starts_a_command_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greeting, "ANSWER_S", 2.0)
    with servers.server(servers.unstarted) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        answer = connection.run("true", 5)
        with pytest.raises(NodeUnreachable, match=r"^gpu-01: "):
            connection.pipe("cat", 5)
        with pytest.raises(NodeUnreachable, match=r"^gpu-01: "), connection.serving("cat", 5):
            pass
        connection.forget()
    assert answer.rc is None
    assert "it did not start a command within 2 s" in str(answer.error)


def test_more_commands_run_at_once_than_sshd_allows_on_a_connection(tmp_path: Path) -> None:
    """The servers of all clients of a storage run on one node; OpenSSH allows ten commands of a connection."""
    with servers.server(servers.limited) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        pipes = [connection.pipe("cat", 60) for _ in range(7)]
        with ThreadPoolExecutor(9) as pool:
            answers = list(pool.map(lambda number: connection.run(f"echo {number}", 60), range(9)))
        with connection.serving("cat", 60) as server:
            assert server.poll()
        assert all(pipe.alive for pipe in pipes)
        for pipe in pipes:
            pipe.close()
        connection.forget()
    assert [answer.text for answer in answers] == [f"{number}\n" for number in range(9)], answers[0].error


def test_a_server_that_gives_no_channel_is_named(tmp_path: Path) -> None:
    with servers.server(servers.channelless) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        answer = connection.run("true", 5)
        with pytest.raises(NodeUnreachable, match="no channel"):
            connection.pipe("cat", 5)
        with pytest.raises(NodeUnreachable, match="no channel"), connection.serving("cat", 5):
            pass
        assert isinstance(clock := connection.clock(0.0), str)
        connection.forget()
    assert answer.rc is None
    assert "no channel" in str(answer.error)
    assert "no channel" in clock


class EndlessErrors:
    """A channel of a command that prints errors faster than they are read, without end."""

    recv_stderr_ready = recv_ready = staticmethod(lambda: True)
    pieces = 0

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv_stderr(self, size: int) -> bytes:
        self.pieces += 1
        assert self.pieces * size < 3 * OUTPUT_LIMIT, "nothing ends it"
        return b"x" * size

    def recv(self, size: int) -> bytes:
        raise TimeoutError


@pytest.mark.parametrize("written", [False, True])
def test_errors_without_end_are_read_up_to_the_limit(written: bool) -> None:
    channel, out, err = EndlessErrors(), bytearray(), bytearray()
    channel.recv_ready = staticmethod(lambda: written)  # type: ignore[assignment]
    full = partial(channels.full, out, err)
    assert not channels.drain(channel, out, err, math.inf, full)  # type: ignore[arg-type]
    assert len(err) == OUTPUT_LIMIT


def test_errors_without_end_do_not_delay_an_interrupt() -> None:
    channel, out, err = EndlessErrors(), bytearray(), bytearray()
    assert not channels.drain(channel, out, err, math.inf, lambda: len(err) > 0)  # type: ignore[arg-type]
    assert channel.pieces == 1


def test_a_login_that_floods_every_command_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "OUTPUT_LIMIT", 2**17)
    with servers.server(servers.flooding) as (port, asked):
        connection = Connection(node_behind(tmp_path, port))
        first = connection.run("true", 5)
        assert asked.is_set()
        asked.clear()
        second = connection.run("true", 5)
        connection.forget()
    assert not asked.is_set()
    assert first.error == second.error
    assert "its login shell: printed more than" in str(first.error)


def test_a_login_with_an_encrypted_key_works(tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "key"), password="correct horse")
    with servers.server(servers.printing) as (port, _):
        node = node_behind(tmp_path, port)
        connection = Connection(Node(node.name, node.groups, {**node.data, "ssh_key_password": "correct horse"}))
        assert connection.open().is_authenticated()
        answer = connection.run("true", 5)
        connection.forget()
    assert answer.rc is None
    assert "runs no commands" in str(answer.error)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "ssh_key: "), (b"\x00\xff" * 99, "ssh_key: "), (b"ssh-rsa AAAA x\n", "ssh_key: ")],
)
def test_a_file_that_is_no_key_is_named(content: bytes | None, words: str, tmp_path: Path) -> None:
    with servers.server(servers.silent) as (port, _):
        node = node_behind(tmp_path, port)
        (tmp_path / "key").unlink()
        if content is not None:
            (tmp_path / "key").write_bytes(content)
        with pytest.raises(RemoteError, match=words) as caught:
            Connection(node).open()
    assert str(tmp_path / "key") in str(caught.value)
