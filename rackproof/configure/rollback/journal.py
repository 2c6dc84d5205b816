"""Shell that keeps what a script is about to change. Pure.

``/var/lib/rackproof/rollback/`` has one folder for each run that changed something on the node, named by its place
in the order and the run (``000007.20261121T183000-4f2a``), readable by root only. A script that changes something
writes there first: contents into files of their own, and one ``N.part`` with a line for each thing, moved into place
as a whole once everything is on the disk. When that fails (a full disk, say) the script ends before it has changed
anything. A line has nine fields, separated by tabs::

    kind state mode owner before after flags data path

=========  ==========================================================================================
kind       what the fields say
=========  ==========================================================================================
file       state: regular, link or absent; sha256 before and after (``-`` when there is no file,
           ``later`` when only the script knows it); data: the file beside that has the content;
           flags: ``secret``
wrote      after: sha256 of what a script has left of a file that was kept with ``later``
directory  state: directory or absent; mode and owner
unit       state: enabled, disabled, masked, …; mode: active, inactive, …; path: its name
value      data: the file with the old value; after: the new one; path: a file of the kernel's
hold       state: yes or no; owner: debian or rhel; path: a package; data: rhel's locks of it
grubby     data: the default kernel's arguments
kernel     before and after: the image that the next start brings, as grubby names it
mark       path: what becomes due with the change (``restart:UNIT``, ``reboot:REASON``, ``grub``,
           ``initramfs``)
=========  ==========================================================================================
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.configure.run_lock import Holder, take_script
from rackproof.shell import Script

ROOT = "/var/lib/rackproof/rollback"
KEEP = 10
"""Runs that are kept on a node unless the inventory says otherwise (``rollback_keep``)."""
FIELDS = 9
GRUB = "grub"
"""Mark: the boot loader's menu has to be made again."""
INITRAMFS = "initramfs"
"""Mark: the initial file systems have copies of what changes, and have to be made again."""
LATER = "later"
"""Instead of the sha256 of a new content that only the script knows."""


@dataclass(frozen=True, slots=True)
class Later:
    """Journal lines of a file whose new content only the script knows: before and behind it."""

    before: str
    behind: str


@dataclass(frozen=True, slots=True)
class Journal:
    """Of one run of pyinfra, the same on all nodes; ``run`` sorts by time."""

    run: str
    keep: int = KEEP
    root: str = ROOT
    holder: Holder | None = None
    """Who takes the node before anything is kept; None in a plan, which takes nothing."""
    take_over: str | None = None
    """The run that the node may be taken from."""

    def script(self, lines: Iterable[str]) -> str:
        """Shell text that keeps what the lines name, or ends the script. Nothing for no lines."""
        kept = list(lines)
        if not kept:
            return ""
        return Script.of("(", *self._take(), *self._functions(), *self._part(kept), ") </dev/null || exit 1")

    def before(self, lines: Iterable[str], script: str, later: Iterable[Later] = ()) -> str:
        """A script, with what it changes kept first. What it leaves of ``later`` is written down behind it, however
        it ends."""
        unknown = list(later)
        if not unknown:
            kept = self.script(lines)
            return Script.of(kept, script) if kept else script
        return Script.of(
            self.head(),
            self.part(lines, unknown),
            # A shell of its own: nothing that it does to its options, or to end itself, keeps the rest from it.
            "(",
            script,
            ")",
            "rp_rc=$?",
            self.part_behind(unknown),
            "exit $rp_rc",
        )

    def head(self) -> str:
        """Shell text that ``part`` and ``part_behind`` need, once before them."""
        taken = (Script("\n".join(("(", *self._take(), ") </dev/null || exit 1")), ""),) if self.holder else ()
        return Script.of(*taken, *self._functions())

    def part(self, lines: Iterable[str], later: Iterable[Later] = ()) -> str:
        """Shell text that keeps what the lines name, and what only the script knows, or ends the script."""
        kept = (*lines, *(entry.before for entry in later))
        return Script.of("(", *self._part(kept), ") </dev/null || exit 1")

    def part_behind(self, later: Iterable[Later]) -> str:
        """Shell text that writes down what a script has left. Where it cannot, a rollback asks before it overwrites."""
        return Script.of("(", *self._part([entry.behind for entry in later]), ") </dev/null 2>/dev/null || :")

    def _take(self) -> tuple[str, ...]:
        return (Script(take_script(self.holder, self.take_over), ""),) if self.holder else ()

    def _functions(self) -> tuple[str, ...]:
        return (Script(shell.script(__name__, "journal", rp_root=self.root), ""),)

    def _part(self, lines: Sequence[str]) -> tuple[str, ...]:
        return (f"rp_open {shlex.quote(self.run)} {self.keep}", *lines, "rp_close")


def _path(path: str) -> str:
    if "\t" in path or "\n" in path:
        raise ValueError(f"a path with a tab or a line end cannot be kept for a rollback: {path!r}")
    return shlex.quote(path)


def file_line(path: str, after: str | None, secret: bool = False) -> str:
    """A file that is about to be written (sha256 of its new content, ``same`` for a change of mode) or removed."""
    # Secrets and removals have no difference that a plan could show.
    shown = f"rp_file {_path(path)}" if after and not secret else None
    text = f"rp_file {_path(path)} {after or '-'} {'secret' if secret else '-'}"
    return text if shown is None else Script(text, shown)


def later(path: str, secret: bool = False) -> Later:
    """A file that a script makes of what only the node knows."""
    return Later(file_line(path, LATER, secret), f"rp_wrote {_path(path)}")


def later_keys(user: str) -> Later:
    """The ``authorized_keys`` of a user, who may be made by the script."""
    name = shlex.quote(user)
    return Later(f"rp_keys {name}", f'rp_wrote "$(rp_home {name})/.ssh/authorized_keys"')


def directory_line(path: str) -> str:
    return f"rp_directory {_path(path)}"


def unit_line(name: str) -> str:
    """A unit that is about to be enabled, masked, started or stopped."""
    return f"rp_unit {_path(name)}"


def value_line(path: str, after: str) -> str:
    """A value of the running kernel, by the path of its file."""
    return f"rp_value {_path(path)} {shlex.quote(' '.join(after.split()))}"


def hold_line(package: str, family: str) -> str:
    """A package that is about to be held or let go, with ``apt-mark`` (debian) or ``dnf versionlock`` (rhel)."""
    return f"rp_hold {shlex.quote(family)} {_path(package)}"


def grubby_line() -> str:
    """The kernel's arguments are about to be changed with grubby."""
    return "rp_grubby"


def kernel_line(image: str) -> str:
    """Another kernel is about to be made the default with grubby."""
    return f"rp_kernel {_path(image)}"


def mark_lines(marks: Sequence[str]) -> tuple[str, ...]:
    """What has to follow the change, and a rollback of it as well: pending marks, ``GRUB`` or ``INITRAMFS``."""
    return tuple(f"rp_mark {_path(mark)}" for mark in marks)
