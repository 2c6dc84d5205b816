"""The rollback journal: shell text that saves the state of everything that a script changes. Pure.

``/var/lib/rackproof/rollback/`` has one folder for each run that changed something on the node, named by a sequence
number and the run (``000007.20261121T183000-4f2a``), readable by root only. Before a script changes anything it saves
file contents there, and one ``N.part`` with a line for each item, renamed into place once everything is on the disk.
When that fails (e.g. on a full disk) the script ends without a change. A line has nine fields, separated by tabs::

    kind state mode owner before after flags data path

=========  ==========================================================================================
kind       meaning of the fields
=========  ==========================================================================================
file       state: regular, link or absent; sha256 before and after (``-`` when there is no file,
           ``later`` when only the script knows it); data: name of the file with the content;
           flags: ``secret``
wrote      after: sha256 of a file that was saved with ``later``, after the script
directory  state: directory or absent; mode and owner
unit       state: enabled, disabled, masked, …; mode: active, inactive, …; path: its name
value      data: the file with the old value; after: the new one; path: a file of the kernel's
hold       state: yes or no; owner: debian or rhel; path: a package; data: rhel's locks of it
grubby     data: the default kernel's arguments
kernel     before and after: the default image, as grubby names it
mark       path: what the change makes necessary (``restart:UNIT``, ``reboot:REASON``, ``grub``,
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
"""Runs that a node keeps; ``rollback_keep`` in the inventory overrides it."""
FIELDS = 9
GRUB = "grub"
"""Mark: the boot loader's menu must be regenerated."""
INITRAMFS = "initramfs"
"""Mark: the initramfs images contain copies of the changed files and must be regenerated."""
LATER = "later"
"""In place of the new content's sha256, when only the script knows the content."""


@dataclass(frozen=True, slots=True)
class Later:
    """Journal lines of a file whose new content only the script knows: before and after the script."""

    before: str
    behind: str


@dataclass(frozen=True, slots=True)
class Journal:
    """Journal of one run of pyinfra. ``run`` is the same on all nodes and sorts by time."""

    run: str
    keep: int = KEEP
    root: str = ROOT
    holder: Holder | None = None
    """Holder of the run lock, which the script takes first; None in a plan, which takes no lock."""
    take_over: str | None = None
    """A run that the lock may be taken from."""

    def script(self, lines: Iterable[str]) -> str:
        """Shell text that saves what the lines name, or ends the script. Empty without lines."""
        kept = list(lines)
        if not kept:
            return ""
        return Script.of("(", *self._take(), *self._functions(), *self._part(kept), ") </dev/null || exit 1")

    def before(self, lines: Iterable[str], script: str, later: Iterable[Later] = ()) -> str:
        """The script, preceded by shell text that saves what it changes. After the script, even a failed one, the
        new contents of ``later`` are recorded."""
        unknown = list(later)
        if not unknown:
            kept = self.script(lines)
            return Script.of(kept, script) if kept else script
        return Script.of(
            self.head(),
            self.part(lines, unknown),
            # A subshell: options and exits of the script do not affect the rest.
            "(",
            script,
            ")",
            "rp_rc=$?",
            self.part_behind(unknown),
            "exit $rp_rc",
        )

    def head(self) -> str:
        """Shell text that must precede ``part`` and ``part_behind``."""
        taken = (Script("\n".join(("(", *self._take(), ") </dev/null || exit 1")), ""),) if self.holder else ()
        return Script.of(*taken, *self._functions())

    def part(self, lines: Iterable[str], later: Iterable[Later] = ()) -> str:
        """Shell text that saves what ``lines`` and ``later`` name, or ends the script."""
        kept = (*lines, *(entry.before for entry in later))
        return Script.of("(", *self._part(kept), ") </dev/null || exit 1")

    def part_behind(self, later: Iterable[Later]) -> str:
        """Shell text that records the new contents of ``later``. When it fails, a rollback needs ``force`` for them."""
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
    """A file that will be written or removed. ``after``: sha256 of its new content, ``same`` for a change of mode, None
    for a removal."""
    # A plan shows no digests, only that the file is secret or removed.
    shown = f"rp_file {_path(path)}" if after and not secret else None
    text = f"rp_file {_path(path)} {after or '-'} {'secret' if secret else '-'}"
    return text if shown is None else Script(text, shown)


def later(path: str, secret: bool = False) -> Later:
    """A file whose new content only the script knows."""
    return Later(file_line(path, LATER, secret), f"rp_wrote {_path(path)}")


def later_keys(user: str) -> Later:
    """The ``authorized_keys`` of a user whom the script may create."""
    name = shlex.quote(user)
    return Later(f"rp_keys {name}", f'rp_wrote "$(rp_home {name})/.ssh/authorized_keys"')


def directory_line(path: str) -> str:
    return f"rp_directory {_path(path)}"


def unit_line(name: str) -> str:
    """A unit that will be enabled, masked, started or stopped."""
    return f"rp_unit {_path(name)}"


def value_line(path: str, after: str) -> str:
    """A value of the running kernel, by the path of its file."""
    return f"rp_value {_path(path)} {shlex.quote(' '.join(after.split()))}"


def hold_line(package: str, family: str) -> str:
    """A package that will be held or released, with ``apt-mark`` (debian) or ``dnf versionlock`` (rhel)."""
    return f"rp_hold {shlex.quote(family)} {_path(package)}"


def grubby_line() -> str:
    """The kernel's arguments, which will be changed with grubby."""
    return "rp_grubby"


def kernel_line(image: str) -> str:
    """The default kernel, which will be changed with grubby."""
    return f"rp_kernel {_path(image)}"


def mark_lines(marks: Sequence[str]) -> tuple[str, ...]:
    """Follow-up actions of the change and of its rollback: pending marks, ``GRUB`` or ``INITRAMFS``."""
    return tuple(f"rp_mark {_path(mark)}" for mark in marks)
