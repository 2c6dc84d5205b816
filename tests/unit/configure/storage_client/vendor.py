"""A vendor's web server on this machine, and a node to install on: folders, and programs that only say what they do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rackproof.configure.inputs import Download
from rackproof.configure.package_transaction.lock import LOCK_WAIT_S
from rackproof.configure.storage_client.steps import Step, holding_command, parse_holding, script_of
from tests.unit.configure.package_managers import stand_ins
from tests.unit.shell import executable, sh

KERNEL = "6.8.0-60-generic"


@dataclass
class Vendor:
    """Files of the server, by path; a path in ``cut`` is broken off in the middle."""

    port: int = 0
    served: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def offer(self, path: str, content: bytes) -> Download:
        self.served[path] = content
        return Download(url=f"http://127.0.0.1:{self.port}{path}", sha256=hashlib.sha256(content).hexdigest())


@contextmanager
def vendor() -> Iterator[Vendor]:
    it = Vendor()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            it.asked.append(self.path)
            content = it.served.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in it.cut else content)

        def log_message(self, format: str, *args: object) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    it.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PATHS = (
    "/var/cache/rackproof", "/var/lib/rackproof", "/var/log/", "/etc/rackproof", "/etc/apt", "/etc/yum.repos.d",
    "/etc/pki", "/etc/beegfs", "/etc/wekaio", "/etc/daos", "/proc/", "/sys/module", "/usr/bin/weka", "/usr/lpp",
    "/opt/beegfs", "/etc/init.d", "/lib/modules", "/var/mmfs", "/usr/src", "/var/adm", "/var/lib/dnf", "/var/lib/dpkg",
)  # fmt: skip


OFFERED = "* 1.0-1\nbeegfs-client 20:8.3.1\ndaos-client 2.6.3-1\n* 5.2.3-1\n"


@dataclass
class Bench:
    """A node in a folder. What a script names below ``PATHS`` is there; ``programs`` come first on its PATH."""

    root: Path
    standing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in PATHS:
            target = self.root / path.strip("/")
            if path not in ("/usr/bin/weka",):
                target.mkdir(parents=True, exist_ok=True)
        (self.root / "etc/apt/sources.list.d").mkdir()
        self.file("/proc/locks", "")
        self.program("uname", f'case "$1" in -r) echo {KERNEL};; *) echo gpu-01;; esac')
        self.program("systemctl")
        self.program("apt-mark")
        self.program("rpm")

    def program(self, name: str, body: str = ":") -> None:
        """A program that notes how it was called, and then does ``body``."""
        executable(self.root / "bin" / name, self.at_root(f'echo "{name} $*" >>{self.root}/log\n{body}'))

    def managers(self) -> None:
        """apt and dnf that install whatever they are asked for, and remember it."""
        self.standing = stand_ins(self.root / "packages", OFFERED)
        for name, body in self.standing.items():
            self.program(name, body)

    def stand_in(self, name: str, before: str) -> None:
        """One of them that does something else first."""
        self.program(name, f"{before}\n{self.standing[name]}")

    @property
    def packages(self) -> Path:
        """Installed packages, ``NAME VERSION``."""
        return self.root / "packages/installed"

    def file(self, path: str, text: str, mode: int = 0o644) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.at_root(text))
        target.chmod(mode)
        return target

    def at_root(self, text: str) -> str:
        for path in PATHS:
            text = text.replace(path, f"{self.root}{path}")
        return text

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace(f"rp_wait_for_lock {LOCK_WAIT_S} ", "rp_wait_for_lock 2 ")
        return sh(self.at_root(script), PATH=f"{self.root}/bin:{os.environ['PATH']}", TMPDIR=str(self.root))

    def holding(self, steps: Sequence[Step]) -> tuple[bool, ...]:
        return parse_holding(self.run(holding_command(steps)).stdout.splitlines())

    def carry_out(self, steps: Sequence[Step]) -> subprocess.CompletedProcess[str]:
        """As the operation does: what does not hold yet, in one script."""
        missing = [step for step, holds in zip(steps, self.holding(steps), strict=True) if not holds]
        return self.run(script_of(missing))

    @property
    def log(self) -> str:
        path = self.root / "log"
        return path.read_text() if path.exists() else ""

    @property
    def left(self) -> list[str]:
        """Halves of files."""
        return [str(path) for suffix in ("part", "new") for path in self.root.rglob(f"*.{suffix}")]
