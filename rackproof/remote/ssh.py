"""One ssh connection per node for a whole run, more for many commands at once; every command has a deadline, every host
key is checked."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import fabric
import paramiko

from rackproof.core.clocks import Clock
from rackproof.core.rack import Node
from rackproof.errors import HostKeyRefused, NodeUnreachable, RemoteError
from rackproof.remote import batch, clocks, greeting
from rackproof.remote.channel import END_S, Pipe, Server, drain, full, reason, start
from rackproof.remote.command import (
    GRACE_S,
    TOO_MUCH,
    CommandResult,
    bounded,
    ending,
    not_finished,
    tied,
    timed_out,
)
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.redaction import redact

KEEPALIVE_S = 15
INTERRUPTED = "interrupted"
PROOF_S = 20.0
_MARK = b"rackproof-begin\n"
_UNOPENED = "Unable to open channel."
"""paramiko's message for a refused channel where another thread has taken the refusal itself."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its threads log the errors that it raises, too


class _Reject(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise paramiko.SSHException(f"host key of {hostname} is not known")


class Connection:
    """An ssh connection to one node. After a failed attempt the node is not tried again in this run."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._connection: Any = None
        self._further: list[Any] = []
        """Connections for the commands that the first one has no room for."""
        self._failure: RemoteError | None = None
        self._lock = threading.Lock()
        self._sudo = sudo_of(node)
        self._mark = secrets.token_hex(8)
        self._proven = False
        self._noisy = False
        """The login shell prints output of its own before every command."""

    def open(self) -> paramiko.Transport:
        """Connect on first use. Raises NodeUnreachable or HostKeyRefused; later calls raise the same error."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._connection is None:
                try:
                    self._connection = self._connect()
                except RemoteError as error:
                    self._failure = error
                    raise
            transport: paramiko.Transport | None = self._connection.transport
            if transport is None or not transport.is_active():
                self._failure = NodeUnreachable(self.node.name, "the connection was lost")
                raise self._failure
            return transport

    def _session(self, patience_s: float) -> paramiko.Channel:
        """A channel for one command. Raises RemoteError.

        sshd refuses more of them at once than its ``MaxSessions``, 10 by default, which counts for each connection.
        """
        tried = 0
        try:
            while True:
                transports: list[paramiko.Transport] = [self.open(), *(one.transport for one in self._further)]
                for transport in transports[tried:]:
                    tried += 1
                    try:
                        return transport.open_session(timeout=patience_s)
                    except paramiko.SSHException as error:
                        if not isinstance(error, paramiko.ChannelException) and str(error) != _UNOPENED:
                            raise
                with self._lock:
                    if tried > len(self._further):  # otherwise another command has made one meanwhile
                        connection = self._connect()
                        channel: paramiko.Channel = connection.transport.open_session(timeout=patience_s)
                        self._further.append(connection)
                        return channel
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NodeUnreachable(self.node.name, f"no channel: {reason(error)}") from error

    def _connect(self) -> Any:
        data = self.node.data
        connect: dict[str, Any] = {"timeout": greeting.ANSWER_S, "transport_factory": greeting.greeted}
        if key := data.get("ssh_key"):
            pkey = self._private_key(str(key), data.get("ssh_key_password"))
            connect |= {"pkey": pkey, "look_for_keys": False, "allow_agent": False}
        connection = fabric.Connection(
            host=str(data.get("ssh_hostname") or self.node.name),
            user=data.get("ssh_user"),
            port=int(data["ssh_port"]) if data.get("ssh_port") else None,
            connect_kwargs=connect,
        )
        client: paramiko.SSHClient = connection.client
        client.set_missing_host_key_policy(_Reject())
        try:
            known = data.get("ssh_known_hosts_file")
            host, port = connection.host, connection.port
            name = host if port == paramiko.config.SSH_PORT else f"[{host}]:{port}"
            for kind, key in _keys_of(str(known) if known else None, name):
                client.get_host_keys().add(name, kind, key)
            connection.open()
        except paramiko.BadHostKeyException as error:
            raise HostKeyRefused(
                self.node.name, f"its host key has changed ({error.key.fingerprint}); refused"
            ) from error
        except paramiko.SSHException as error:
            if "is not known" in str(error):
                raise HostKeyRefused(
                    self.node.name, f"{error}; refused (known_hosts: {known or 'of the user'})"
                ) from error
            raise NodeUnreachable(self.node.name, reason(error)) from error
        except (OSError, EOFError, ValueError) as error:
            raise NodeUnreachable(self.node.name, reason(error)) from error
        except Exception as error:  # whatever paramiko makes of bytes that are no ssh
            raise NodeUnreachable(self.node.name, f"no ssh server answers: {reason(error)}") from error
        connection.transport.set_keepalive(KEEPALIVE_S)
        return connection

    def _private_key(self, file: str, password: str | None) -> paramiko.PKey:
        """The key, with its certificate. Raises NodeUnreachable. paramiko, given a file name, tries every type of key
        and reports the last one's error instead of a refused login."""
        try:
            try:
                return paramiko.PKey.from_path(file)
            except TypeError:  # it is encrypted
                if not password:
                    raise ValueError("it is encrypted: give ssh_key_password") from None
                return paramiko.PKey.from_path(file, password.encode())
        except Exception as error:  # whatever the library makes of bytes that are no key, and of a wrong password
            where = "" if isinstance(error, OSError) else f"{file}: "
            raise NodeUnreachable(self.node.name, f"ssh_key: {where}{reason(error)}") from error

    def run(
        self, command: str, timeout_s: float, stdin: bytes | None = None, user: str = "", *, hold: bool = False
    ) -> CommandResult:
        """Run one command to its end. Failures on the node do not raise: see CommandResult.error.

        ``user`` is a prefix that runs the command as another user. With ``hold`` the command, which has no input, ends
        on the node when this connection is lost; otherwise it goes on up to its limit.
        """
        if stdin is not None and batch.MAGIC in stdin[: 2 * len(batch.MAGIC)]:
            return self._run(command, timeout_s, stdin)  # a batch's answer proves that it has run
        began = time.monotonic()
        try:
            self._prove()
        except RemoteError as error:
            return CommandResult(
                self.node.name, command, None, b"", b"", time.monotonic() - began, timeout_s, error.reason
            )
        if not self._noisy:
            return self._run(command, timeout_s, stdin, user=user, hold=hold)
        result = self._run(_marked(command), timeout_s, stdin, user=user, hold=hold)
        out, err = result.stdout.partition(_MARK), result.stderr.partition(_MARK)
        why = result.error if result.rc is None or out[1] else "its login shell did not run the command"
        rc = result.rc if why is None else None
        return replace(result, command=command, rc=rc, stdout=out[2], stderr=err[2], error=why)

    def _prove(self) -> None:
        """Check once that commands run at all: login shell and sudo may refuse them. Raises RemoteError.

        The exit status of a refusal cannot be distinguished from that of a failed command.
        """
        if self._proven or self._failure is not None:
            self.open()
            return
        result = self._run(_marked("true"), PROOF_S)
        if result.rc is None:
            self.open()  # raises the reason when it is the connection
            if result.why == TOO_MUCH:  # every command would end like this
                self._failure = NodeUnreachable(self.node.name, f"its login shell: {TOO_MUCH}")
                raise self._failure
            raise NodeUnreachable(self.node.name, result.why)
        if result.rc != 0 or not result.stdout.endswith(_MARK) or not result.stderr.endswith(_MARK):
            lines = [*result.stderr.decode(errors="replace").split("\n"), *result.text.split("\n")]
            line = next((line.strip() for line in reversed(lines) if line.strip()), f"exit status {result.rc}")
            line = line.removeprefix("sudo: ")
            cause = "sudo is refused" if self._sudo else "its login shell runs no commands"
            self._failure = NodeUnreachable(self.node.name, f"{cause}: {redact(line)}")
            raise self._failure
        self._proven = True
        self._noisy = result.stdout != _MARK or result.stderr != _MARK

    def clean_up(self, command: str) -> None:
        """Run a command, also after an interrupt, and ignore its result. Skips a node without a connection, or that did
        not answer the last such command."""
        if self._connection is not None and self._failure is None:
            result = self._run(command, END_S, clean_up=True)
            if result.rc is None:
                self._failure = NodeUnreachable(self.node.name, result.why)

    def end_commands(self) -> None:
        """End the commands of this connection that still run on the node."""
        self.clean_up(ending(self._mark))

    def _run(
        self,
        command: str,
        timeout_s: float,
        stdin: bytes | None = None,
        clean_up: bool = False,
        user: str = "",
        hold: bool = False,
    ) -> CommandResult:
        began = time.monotonic()

        def result(rc: int | None, error: str | None, out: bytes = b"", err: bytes = b"") -> CommandResult:
            return CommandResult(self.node.name, command, rc, out, err, time.monotonic() - began, timeout_s, error)

        def stopping() -> bool:
            return STOPPING.is_set() and not clean_up

        if stopping():
            return result(None, INTERRUPTED)
        patience = END_S if clean_up else greeting.ANSWER_S
        try:
            channel = self._session(patience)
        except RemoteError as error:
            return result(None, error.reason)
        with contextlib.closing(channel):
            out, err = bytearray(), bytearray()
            try:
                mark = "" if clean_up else self._mark
                start(channel, (tied if hold else bounded)(command, timeout_s, self._sudo, mark, user), patience)
                try:
                    if stdin:
                        channel.sendall(stdin)
                    if not hold:
                        channel.shutdown_write()
                except OSError:
                    if not channel.get_transport().is_active():
                        raise
                    # The command has ended without reading its input.
                too_much = partial(full, out, err)
                until = began + timeout_s + (0 if clean_up else GRACE_S)
                finished = drain(channel, out, err, until, lambda: too_much() or stopping())
            except (paramiko.SSHException, OSError, EOFError) as error:
                return result(None, f"connection lost: {reason(error)}", bytes(out), bytes(err))
            if too_much():
                return result(None, TOO_MUCH, bytes(out), bytes(err))
            if not finished and stopping():
                return result(None, INTERRUPTED, bytes(out), bytes(err))
            if not finished:
                return result(None, f"no answer within {timeout_s:g} s", bytes(out), bytes(err))
            rc: int | None = channel.recv_exit_status()
        if rc == -1:
            return result(None, "connection lost", bytes(out), bytes(err))
        if timed_out(rc):
            return result(None, not_finished(timeout_s), bytes(out), bytes(err))
        return result(rc, None, bytes(out), bytes(err))

    def clock(self, base_s: float) -> Clock | str:
        """Offset of the node's clock, or why it is unknown; see ``clocks.measured``."""
        try:
            with contextlib.closing(self._session(greeting.ANSWER_S)) as channel:
                channel.settimeout(clocks.LIMIT_S)
                start(channel, bounded(clocks.READ, 2 * clocks.LIMIT_S, self._sudo, self._mark))
                return clocks.measured(channel.sendall, lambda: channel.recv(4096), STOPPING.is_set, base_s)
        except RemoteError as error:
            return error.reason
        except (paramiko.SSHException, OSError, EOFError) as error:
            return reason(error)

    @contextlib.contextmanager
    def serving(self, command: str, timeout_s: float, user: str = "") -> Iterator[Server]:
        """Run a server during the block, as another user with the prefix ``user``. It ends with the block, or with this
        connection. Raises RemoteError."""
        channel = self._session(greeting.ANSWER_S)
        server = Server(self.node.name, self._sudo, channel, command, timeout_s, user)
        try:
            try:
                server.start()
            except (paramiko.SSHException, OSError, EOFError) as error:
                raise NodeUnreachable(self.node.name, reason(error)) from error
            yield server
        finally:
            server.stop()

    def put(self, data: bytes, path: str, user: str = "") -> None:
        """Write a file that only its user can read. Raises NodeUnreachable."""
        part = shlex.quote(f"{path}.part")
        answer = self.run(f"umask 077; cat >{part} && mv -f -- {part} {shlex.quote(path)}", PROOF_S, data, user)
        if not answer.ok:
            raise NodeUnreachable(self.node.name, f"writing {path}: {answer.why}")

    def pipe(self, command: str, timeout_s: float, user: str = "") -> Pipe:
        """Start a command whose input and output are read and written here. Raises RemoteError."""
        try:
            channel = self._session(greeting.ANSWER_S)
            start(channel, bounded(command, timeout_s, self._sudo, self._mark, user))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NodeUnreachable(self.node.name, reason(error)) from error
        return Pipe(channel)

    @property
    def host_key(self) -> str:
        """Type and fingerprint of the connection's host key; empty without a connection."""
        transport = self._connection.transport if self._connection is not None else None
        if transport is None or not transport.is_active():
            return ""
        key = transport.get_remote_server_key()
        return f"{key.get_name()} {key.fingerprint}"

    def forget(self) -> None:
        """Close, and allow a new attempt (after a reboot)."""
        if not self._lock.acquire(timeout=0 if STOPPING.is_set() else -1):
            return  # another thread is connecting; the program ends anyway
        try:
            for connection in (self._connection, *self._further):
                if connection is not None:
                    connection.close()
            self._connection, self._failure, self._proven, self._further = None, None, False, []
        finally:
            self._lock.release()


def _keys_of(file: str | None, name: str) -> list[tuple[str, paramiko.PKey]]:
    """Host keys of a host in a known_hosts file (None: the user's, if it exists). Raises OSError."""
    path = Path(file) if file is not None else Path.home() / ".ssh" / "known_hosts"
    try:
        facts = path.stat()
    except FileNotFoundError:
        if file is None:
            return []
        raise
    return list((_known_hosts(str(path), facts.st_mtime_ns, facts.st_size).lookup(name) or {}).items())


@lru_cache(maxsize=8)
def _known_hosts(path: str, changed_ns: int, size: int) -> paramiko.HostKeys:
    """The file, parsed once for all nodes."""
    return paramiko.HostKeys(path)


def sudo_of(node: Node) -> str:
    """Prefix of commands by pyinfra's ``_sudo`` and ``_sudo_user`` in the node's data: empty, or ending in a space."""
    if not node.data.get("_sudo"):
        return ""
    user = node.data.get("_sudo_user")
    return f"sudo -n -u {shlex.quote(str(user))} " if user else "sudo -n "


def _marked(command: str) -> str:
    """The command, preceded by a mark in both streams where its own output begins."""
    mark = _MARK.decode().strip()
    return f"echo {mark}; echo {mark} >&2; exec sh -c {shlex.quote(command)}"
