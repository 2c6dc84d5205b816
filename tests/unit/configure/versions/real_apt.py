"""apt and dpkg of this machine with everything of theirs in a folder: real transactions that touch nothing else."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from rackproof.configure.package_transaction.lock import LOCKS
from tests.unit.shell import executable

AVAILABLE = all(shutil.which(tool) for tool in ("apt-get", "apt-mark", "dpkg-deb", "dpkg-query"))

_CONF = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Bin::methods "/usr/lib/apt/methods";
APT::Sandbox::User "root";
APT::Architectures {{ "{architecture}"; }};
Acquire::Languages "none";
Acquire::Retries::Delay "false";
DPkg::Options {{ "--force-not-root"; "--force-bad-path"; "--force-unsafe-io"; "--admindir={root}/var/lib/dpkg";
  "--instdir={root}/root"; "--log={root}/dpkg.log"; }};
"""


_LOCK = re.compile("|".join(re.escape(path) for path in sorted(LOCKS["debian"], key=len, reverse=True)))
MEMORY = Path("/dev/shm")


@cache
def _architecture() -> str:
    """The machine's own: apt starts dpkg again and again to ask for others, unless it is told that there are none."""
    return subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def fast_folder() -> Iterator[Path]:
    """A folder in memory where programs may run, else a temporary one: dpkg waits for the disk after every step."""
    flags = os.statvfs(MEMORY).f_flag if os.access(MEMORY, os.W_OK) else os.ST_NOEXEC
    with tempfile.TemporaryDirectory(dir=None if flags & os.ST_NOEXEC else MEMORY) as name:
        yield Path(name)


class RealApt:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.controls: dict[str, str] = {}
        for folder in (
            "repo", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "var/lib/dpkg/info",
            "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial", "var/log/apt", "root", "bin",
        ):  # fmt: skip
            (root / folder).mkdir(parents=True)
        for name in ("status", "available"):
            (root / "var/lib/dpkg" / name).touch()
        (root / "apt.conf").write_text(_CONF.format(root=root, architecture=_architecture()))
        (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{root}/repo ./\n")
        executable(root / "bin/systemctl")

    def publish(self, name: str, version: str, fields: str = "", postinst: str = "") -> None:
        """Build a package and put it into the repository."""
        folder = self.root / "build" / f"{name}_{version}"
        (folder / "DEBIAN").mkdir(parents=True)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Tests <tests@example.org>\n"
            f"Description: nothing\n{fields}"
        )
        (folder / "DEBIAN/control").write_text(control)
        self.controls[f"{name}_{version}_all.deb"] = control
        if postinst:
            executable(folder / "DEBIAN/postinst", postinst)
        subprocess.run(
            ["dpkg-deb", "-Zgzip", "--root-owner-group", "-b", str(folder), str(self.root / "repo")],
            check=True,
            capture_output=True,
        )
        self._index()

    def withdraw(self, name: str, version: str) -> None:
        (self.root / "repo" / f"{name}_{version}_all.deb").unlink()
        self._index()

    def _index(self) -> None:
        entries = []
        for package in sorted((self.root / "repo").glob("*.deb")):
            control = self.controls[package.name]
            data = package.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            entries.append(f"{control}Filename: ./{package.name}\nSize: {len(data)}\nSHA256: {digest}\n")
        packages = "\n".join(entries)
        (self.root / "repo/Packages").write_text(packages)
        size, digest = len(packages.encode()), hashlib.sha256(packages.encode()).hexdigest()
        (self.root / "repo/Release").write_text(f"Label: Tests\nSHA256:\n {digest} {size} Packages\n")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root}/bin:{os.environ.get('PATH', '/usr/bin')}:/usr/sbin:/sbin",
            "APT_CONFIG": str(self.root / "apt.conf"),
            "DPKG_ADMINDIR": str(self.root / "var/lib/dpkg"),
        }

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script; it waits for this folder's locks, not for those of the machine."""
        script = _LOCK.sub(lambda match: f"{self.root}{match[0]}", script)
        return subprocess.run(
            ["sh", "-c", script], env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )

    def installed(self) -> dict[str, str]:
        lines = self.run("dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\\n'").stdout.splitlines()
        return {words[1]: words[2] for words in map(str.split, lines) if words[0] == "installed"}


class PreparedApt:
    """States of one ``RealApt``, each made once. The root keeps its path: apt's files name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[Callable[[RealApt], None], tuple[Path, dict[str, str]]] = {}

    def at(self, prepare: Callable[[RealApt], None]) -> RealApt:
        """The root as ``prepare`` left it, and as if nothing else had been done to it."""
        root = self.folder / "apt"
        shutil.rmtree(root, ignore_errors=True)
        apt = RealApt(root)
        if prepare not in self.made:
            prepare(apt)
            copy = self.folder / f"state-{len(self.made)}"
            shutil.copytree(root, copy, symlinks=True)
            self.made[prepare] = copy, dict(apt.controls)
            return apt
        copy, controls = self.made[prepare]
        shutil.rmtree(root)
        shutil.copytree(copy, root, symlinks=True)
        apt.controls = dict(controls)
        return apt
