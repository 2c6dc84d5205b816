"""Servers that are no node: the connection ends, and its reason is the cause, in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import paramiko
import pytest

from rackproof.core.rack import Node
from rackproof.errors import RemoteError
from rackproof.remote import ssh
from rackproof.remote.ssh import Connection
from tests.fuzz import servers

CAUSES: dict[servers.Behaviour, str] = {
    servers.http: r"Error reading SSH protocol banner|Indecipherable protocol",
    servers.nonsense: r"no ssh server answers|Error reading|Incompatible|closed the connection|\w{6}",
    servers.closed: r"Error reading SSH protocol banner",
    servers.silent: r"Error reading SSH protocol banner|spoke no ssh",
    servers.garbage: r"Error reading SSH protocol banner",
    servers.endless_line: r"more than 65536 bytes that are no ssh",
    servers.endless_banner: r"more than 65536 bytes that are no ssh|Indecipherable protocol",
    servers.closed_after_the_greeting: r"the server closed the connection",
    servers.silent_after_the_greeting: r"the server closed the connection, or spoke no ssh",
    servers.refusing: r"authentication failed",
    servers.hanging_login: r"authentication failed",
    servers.another_key: r"its host key has changed",
}


def node_behind(folder: Path, port: int) -> Node:
    return Node("gpu-01", ("gpu",), servers.node_data(folder, port))


@pytest.mark.parametrize("behaviour", CAUSES, ids=lambda behaviour: behaviour.__name__)
def test_a_server_that_is_no_node_is_named_by_its_cause(behaviour: servers.Behaviour, tmp_path: Path) -> None:
    with servers.server(behaviour) as (port, _):
        connection = Connection(node_behind(tmp_path, port), connect_timeout=3.0)
        with pytest.raises(RemoteError, match=CAUSES[behaviour]) as caught:
            connection.open()
    words = str(caught.value)
    assert len(words.splitlines()) == 1
    assert not any(name in words for name in ("EOFError", "No existing session", "expected OPENSSH key", "Traceback"))


@pytest.mark.parametrize(
    ("kind", "form"), [("rsa", "PEM"), ("rsa", "RFC4716"), ("ecdsa", "PEM"), ("ed25519", "RFC4716")]
)
@pytest.mark.parametrize("password", ["", "correct horse"])
def test_a_refused_login_is_its_own_cause_with_every_type_of_key(
    kind: str, form: str, password: str, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-m", form, "-N", password, "-f", str(key)], check=True)
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
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 2.0)
    with servers.server(servers.unstarted) as (port, _):
        connection = Connection(node_behind(tmp_path, port))
        answer = connection.run("true", 5)
        connection.forget()
    assert answer.rc is None
    assert "it did not start a command within 2 s" in str(answer.error)


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
