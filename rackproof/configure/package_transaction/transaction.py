"""Transactions of the package manager as values, and the shell script that carries one out. Pure.

Every installation of the kit is one of these, with the same guarantees for apt and dnf:

* the lock of another run is waited for, and its holder named;
* what an interrupted run left half-configured is repaired first, or named;
* a file system without room is found before anything is downloaded;
* nothing is removed, and nothing becomes older, unless the transaction says so;
* holds are taken off only for the packages of the transaction, and put back however it ends;
* missing packages, unsigned and unreachable repositories, and files with another digest end it with one line;
* every package is read back at the end.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from rackproof import shell
from rackproof.configure.package_transaction.lock import LOCK_WAIT_S, lock_lines

RUNNING_KERNEL: Final = "$(uname -r)"
"""Stands for the release of the running kernel in names and versions; only the node knows it."""
ROOM_MIB: Final[Mapping[str, int]] = {"/usr": 256, "/var": 256}
"""Least free space for any transaction: maintainer scripts fail in strange ways on a disk that is nearly full. What the
packages themselves take is counted by apt and dnf."""
ANYTHING: Final = ("*",)
CACHE: Final = "/var/cache/rackproof"
"""Where downloads are kept; a file that is there with the right content is not downloaded again."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package: at any version, at exactly one, or at the newest with a prefix (``580.126.20-*``).

    An epoch counts where the version has one.
    """

    name: str
    version: str | None = None

    @property
    def spec(self) -> str:
        return self.name if self.version is None else f"{self.name}={self.version}"

    def satisfied_by(self, installed: str | None) -> bool:
        """Whether an installed version, with or without its epoch and revision, is this one."""
        if installed is None:
            return False
        if self.version is None:
            return True
        plain = installed.partition(":")[2] or installed
        declared = self.version.partition(":")[2] or self.version
        if declared.endswith("*"):
            return plain.startswith(declared[:-1])
        return plain == declared or plain.startswith(f"{declared}-")


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A package that is downloaded; ``path``: where it is kept on the node."""

    url: str
    sha256: str
    path: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of transactions: the inventory's mapping ``versions``."""

    allow_downgrade: bool = False
    allow_removal: bool = False
    lock_wait_s: int = LOCK_WAIT_S
    free_mib: int = 0
    """MiB that large installations (a version set, the GPU's stack) must find free; 0: ``ROOM_MIB``."""
    proxy: str | None = None


STRICT: Final = Policy()
"""Policy of an inventory without ``versions``: neither removals nor downgrades."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Packages to install together, and the changes that this may make. ``family``: debian (apt) or rhel (dnf)."""

    family: str
    packages: tuple[Package, ...] = ()
    first: tuple[Package, ...] = ()
    """Installed before the others are resolved: they pin what those depend on."""
    files: tuple[PackageFile, ...] = ()
    built: str = ""
    """Absolute paths of packages that are on the node already, as shell words or patterns."""
    hold: tuple[str, ...] = ()
    """Held at the end, at their installed versions."""
    removals: tuple[str, ...] = ()
    """Patterns of packages that may be removed for it."""
    downgrades: tuple[str, ...] = ()
    """Patterns of packages that may become older."""
    room_mib: Mapping[str, int] = field(default_factory=lambda: ROOM_MIB)
    """Free space that must be there, by directory."""
    refresh: bool = False
    """Fetch the lists of the repositories first: one was added, or the newest of several versions is wanted."""
    prepare: tuple[str, ...] = ()
    """Shell lines before it, under its lock: streams and components of repositories."""
    policy: Policy = STRICT

    @property
    def specs(self) -> tuple[str, ...]:
        """Shell words."""
        named = tuple(word(package.spec) for package in self.packages)
        return (*named, *(shlex.quote(file.path) for file in self.files), *((self.built,) if self.built else ()))


def word(text: str) -> str:
    """A quoted shell word, in which ``RUNNING_KERNEL`` is left to the node."""
    before, kernel, after = text.partition(RUNNING_KERNEL)
    if not kernel:
        return shlex.quote(text)
    return f'{before and shlex.quote(before)}"{RUNNING_KERNEL}"{after and shlex.quote(after)}'


def transaction_script(transaction: Transaction) -> shell.Script:
    """The transaction as a subshell: its traps, options and variables end with it.

    Ends with exit status 1 and one line on stderr, the last one, when anything is not as declared.
    """
    policy = transaction.policy
    removals = " ".join(ANYTHING if policy.allow_removal else transaction.removals)
    downgrades = " ".join(ANYTHING if policy.allow_downgrade else transaction.downgrades)
    install = f'rp_install {shlex.quote(removals)} {shlex.quote(downgrades)} "$@"'
    lines = ["(", "set -eu"]
    if policy.proxy is not None:
        lines.append(through_proxy(policy.proxy))
    lines += [_functions(transaction.family), f"rp_start {policy.lock_wait_s}"]
    lines += lock_lines(transaction.family, policy.lock_wait_s)
    specs = transaction.specs
    if specs or transaction.first:
        lines.append("rp_room " + shlex.join(f"{path}={mib}" for path, mib in transaction.room_mib.items()))
        lines.append("rp_repair")
    lines += transaction.prepare
    if transaction.refresh:
        lines.append("rp_refresh")
    lines += [fetch_line(file.url, file.sha256, file.path) for file in transaction.files]
    if transaction.first:
        lines += [
            f"set -- {' '.join(word(package.spec) for package in transaction.first)}",
            install,
            'rp_read_back "$@"',
        ]
    if specs:
        lines += [f"set -- {' '.join(specs)}", install]
    if specs or transaction.first:
        lines.append("rp_finish")
    if specs:
        lines.append('rp_read_back "$@"')
    if transaction.hold:
        lines.append(f"rp_hold {shlex.join(transaction.hold)}")
    return shell.Script.of(*lines, ")")


def cached(url: str, sha256: str) -> str:
    """Where a download is kept on the node. The digest is part of the name: another content is another file."""
    return f"{CACHE}/{sha256[:12]}-{url.partition('?')[0].rstrip('/').rpartition('/')[2]}"


def package_file(url: str, sha256: str, family: str) -> PackageFile:
    """A download that is a package; apt and dnf go by the suffix."""
    path, suffix = cached(url, sha256), ".deb" if family == "debian" else ".rpm"
    return PackageFile(url, sha256, path if path.endswith(suffix) else path + suffix)


def through_proxy(proxy: str) -> str:
    """Shell line for all downloads after it."""
    return f"export http_proxy={shlex.quote(proxy)} https_proxy={shlex.quote(proxy)}"


def fetch_function() -> shell.Script:
    """Shell functions for ``fetch_line``."""
    return shell.Script(shell.script(__name__, "fetch"), "")


def fetch_line(url: str, sha256: str, path: str, *more: str) -> str:
    """Shell line after which the file is there with the right content, or the status is 1.

    ``more``: limit in seconds, what to do where it cannot be fetched, and where its digest differs.
    """
    return f"rp_fetch {shlex.join((url, sha256, path, *more))}"


@cache
def _functions(family: str) -> shell.Script:
    if family not in ("debian", "rhel"):
        raise ValueError(f"no package manager is known for {family or 'this distribution'}")
    manager = "apt" if family == "debian" else "dnf"
    libraries = [shell.script(__name__, name) for name in ("lock", "fetch", "outcome", manager)]
    return shell.Script("\n".join(libraries), "")
