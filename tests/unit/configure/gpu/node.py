"""A node's programs and files in a temporary folder, to run the stack's scripts against with a real shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.unit.configure.package_managers import stand_ins
from tests.unit.shell import executable, sh

PREFIXES = ("/sys/module", "/sys/bus", "/proc/driver", "/run/rackproof", "/var/lib/rackproof", "/etc/", "/dev/nvidia")

PROGRAMS = (
    "awk", "base64", "cat", "chmod", "df", "grep", "head", "ls", "mkdir", "mv", "printf", "readlink", "rm", "sed", "sh",
    "sha256sum", "sleep", "sort", "stat", "tail", "timeout", "touch", "tr", "uname",
)  # fmt: skip


class FakeNode:
    """Programs are shell scripts on PATH that write down how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.standing: dict[str, str] = {}
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "calls"
        self.log.touch()
        for folder in ("sys/module", "proc/driver/nvidia", "etc/systemd/system", "var/lib", "etc/apt/sources.list.d"):
            (root / folder).mkdir(parents=True)
        for name in PROGRAMS:
            program = shutil.which(name)
            assert program, name
            (self.bin / name).symlink_to(program)

    def program(self, name: str, body: str = "") -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        executable(path, f'echo "{name} $*" >>{self.log}\n{self.rooted(body)}')

    def managers(self, offered: str) -> None:
        """apt and dnf that remember what they install; ``offered`` as in ``stand_ins``."""
        self.standing = stand_ins(self.root / "packages", offered)
        for name, body in self.standing.items():
            self.program(name, body)

    def stand_in(self, name: str, before: str) -> None:
        """A program that does something else first, and then what it did."""
        self.program(name, f"{before}\n{self.standing.get(name, '')}")

    def file(self, path: str, content: str = "") -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    def rooted(self, script: str) -> str:
        for prefix in PREFIXES:
            script = script.replace(prefix, f"{self.root}{prefix}")
        return script

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return sh(self.rooted(script), PATH=str(self.bin))

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def marks(self) -> set[str]:
        return {path.name for path in (self.root / "run/rackproof/pending").glob("*")}
