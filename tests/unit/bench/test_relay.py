"""The relay between nodes, with its real programs; pipes are local instead of ssh's."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from rackproof.bench import relay
from rackproof.bench.relay import Relay, socket_of
from rackproof.bench.step import BenchContext
from rackproof.bench.user import HOME, BenchUsers
from rackproof.errors import NodeUnreachable
from tests.unit.fakes import scripted

NODES = ["gpu-01", "gpu-02", "storage-01"]


class LocalPipe:
    """A relay's end as a local process."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()
        self.why = "it ended"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def skip_to(self, mark: bytes, timeout_s: float) -> bool:
        return self._whole(self._out.readline(), len(mark)) == mark

    def read(self, count: int) -> bytes:
        return self._whole(self._out.read(count), count)

    def _whole(self, data: bytes, count: int) -> bytes:
        if len(data) < count:
            self._out.close()
        return data

    def write(self, data: bytes) -> bool:
        assert self.process.stdin is not None
        with self._lock:
            try:
                self.process.stdin.write(data)
                self.process.stdin.flush()
            except (OSError, ValueError):
                return False
        return True

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@dataclass
class Nodes:
    """A folder instead of each node's home."""

    folder: Path
    ends: dict[str, list[LocalPipe]] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)
    broken: set[str] = field(default_factory=set)

    def home(self, node: str) -> Path:
        return self.folder / node

    def pipe(self, node: str, command: str) -> LocalPipe:
        words = command.removeprefix("exec ").replace(HOME, str(self.home(node))).split()
        words = ["false"] if node in self.broken else [sys.executable, *words[1:]]
        end = LocalPipe(words)
        self.ends.setdefault(node, []).append(end)
        return end

    def connect(self, launcher: str, node: str) -> socket.socket:
        own = self.open.enter_context(socket.socket(socket.AF_UNIX))
        own.settimeout(60)
        own.connect(str(self.home(launcher) / Path(socket_of(node)).name))
        return own

    def answers(self, node: str) -> threading.Thread:
        """A server at the node's own socket that answers one connection with the node's name and what it gets."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.home(node) / "fio.sock"))
        server.listen()

        def serve() -> None:
            with server, server.accept()[0] as own:
                while data := own.recv(65536):
                    own.sendall(node.encode() + b":" + data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread

    def run(self, launcher: str, node: str, *words: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-I", str(self.home(launcher) / "relay_node.py"), "run", str(self.home(launcher))]
        return subprocess.run([*program, node, *words], capture_output=True, text=True, check=False, timeout=30)


@contextmanager
def relayed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Relay, Nodes, BenchContext]]:
    nodes = Nodes(folder / "h")
    with scripted(folder / "run", lambda node, command: None) as session:
        context = BenchContext(session, print)
        BenchUsers.of(context).ready(NODES)
        fake: Any = type(session.fleet["gpu-01"])
        monkeypatch.setattr(fake, "pipe", lambda own, command, limit_s, user="": nodes.pipe(own.node.name, command))
        for node in NODES:
            nodes.home(node).mkdir(parents=True)
            shutil.copy(Path(relay.__file__).with_name("relay_node.py"), nodes.home(node))
        with context.stage, nodes.open:
            yield Relay.of(context), nodes, context


def received(connection: socket.socket, count: int) -> bytes:
    """So many bytes, in however many pieces they come."""
    data = b""
    while len(data) < count and (piece := connection.recv(count - len(data))):
        data += piece
    return data


def test_what_reaches_the_launchers_socket_of_a_node_reaches_that_nodes_fio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        for node in NODES:
            own.serve(node)
            nodes.answers(node)
        own.listen("gpu-01", NODES)
        connections = {node: nodes.connect("gpu-01", node) for node in NODES}
        for node, connection in connections.items():
            connection.sendall(node.encode() * 2)
        assert {node: received(c, 3 * len(node) + 1).decode() for node, c in connections.items()} == {
            n: f"{n}:{n}{n}" for n in NODES
        }
        large = bytes(range(256)) * 4096
        threading.Thread(target=connections["gpu-02"].sendall, args=(large,)).start()
        got = b""
        while len(got.replace(b"gpu-02:", b"")) < len(large):
            got += connections["gpu-02"].recv(1 << 20)
        assert got.replace(b"gpu-02:", b"") == large


def test_another_launcher_gets_sockets_of_its_own_and_the_ends_of_the_nodes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        own.serve("storage-01")
        for launcher in ("gpu-01", "gpu-02", "gpu-01"):
            own.listen(launcher, ["storage-01"])
            nodes.home("storage-01").joinpath("fio.sock").unlink(missing_ok=True)
            nodes.answers("storage-01")
            with nodes.connect(launcher, "storage-01") as connection:
                connection.sendall(b"x")
                assert received(connection, 12) == b"storage-01:x"
        assert len(nodes.ends["storage-01"]) == 1


def test_a_command_line_runs_on_the_node_and_its_output_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        own.serve("gpu-02")
        own.listen("gpu-01", ["gpu-02"])
        done = nodes.run("gpu-01", "gpu-02", "( test", "!", "-e", "/nowhere", "&&", "echo 'a  b'; echo c >&2", ")")
        assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["a  b", "c"])


def test_a_connection_without_a_server_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        own.serve("gpu-02")
        own.listen("gpu-01", NODES)
        assert nodes.connect("gpu-01", "gpu-02").recv(1) == b""  # it has no fio
        assert nodes.connect("gpu-01", "storage-01").recv(1) == b""  # it has no end
        nodes.answers("gpu-02")
        with nodes.connect("gpu-01", "gpu-02") as connection:
            connection.sendall(b"x")
            assert received(connection, 8) == b"gpu-02:x"
            nodes.ends["gpu-02"][0].close()  # the node goes away
            assert connection.recv(100) == b""


def test_all_ends_and_what_they_run_end_with_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, context):
        own.serve("gpu-02")
        own.listen("gpu-01", ["gpu-02"])
        started = nodes.run("gpu-01", "gpu-02", "sleep 600 >/dev/null 2>&1 </dev/null & echo $!")
        assert Path(f"/proc/{started.stdout.strip()}").exists()
        with ExitStack() as context.stage:
            own.serve("gpu-02")  # it runs: the new step starts nothing
    assert [len(ends) for ends in nodes.ends.values()] == [1, 1]
    assert not any(end.alive for ends in nodes.ends.values() for end in ends)
    deadline = time.monotonic() + 120
    while "\nState:\tZ" not in _status(started.stdout.strip()) and time.monotonic() < deadline:
        time.sleep(0.05)  # a killed process of a busy host ends a little later
    assert "\nState:\tZ" in _status(started.stdout.strip())


def _status(pid: str) -> str:
    """``/proc/PID/status``; of a process that is gone, that of a zombie."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return "\nState:\tZ"


def test_a_node_without_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        nodes.broken.add("gpu-02")
        with pytest.raises(NodeUnreachable, match="gpu-02: no relay: it ended"):
            own.serve("gpu-02")


def test_the_socket_is_for_the_account_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with relayed(tmp_path, monkeypatch) as (own, nodes, _):
        own.listen("gpu-01", ["gpu-02"])
        assert {oct(path.stat().st_mode & 0o777) for path in nodes.home("gpu-01").glob("gpu-02.*")} == {"0o700"}
