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
file       state: regular, link or absent; sha256 before and after (``-`` when there is no file);
           data: the file beside that has the content; flags: ``secret``
directory  state: directory or absent; mode and owner
unit       state: enabled, disabled, masked, …; mode: active, inactive, …; path: its name
value      data: the file with the old value; after: the new one; path: a file of the kernel's
hold       state: yes or no; owner: debian or rhel; path: a package
grubby     data: the default kernel's arguments
mark       path: what becomes due with the change (``restart:UNIT``, ``reboot:REASON``, ``grub``)
=========  ==========================================================================================
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackproof.configure.run_lock import Holder, take_script

ROOT = "/var/lib/rackproof/rollback"
KEEP = 10
"""Runs that are kept on a node unless the inventory says otherwise (``rollback_keep``)."""
FIELDS = 9
GRUB = "grub"
"""Mark: the boot loader's menu has to be made again."""

_FUNCTIONS = r"""
rp_fail() {
  [ -z "$rp" ] || { rm -f -- "$rp/.new" "$rp/$rp_i"-*; rmdir -- "$rp"; } 2>/dev/null
  echo "$1 could not be kept for a rollback (is $rp_root full?): nothing was changed" >&2
  exit 1
}
rp_open() {
  rp= rp_i=1 rp_k=0 rp_last=0
  umask 022
  mkdir -p -- "${rp_root%/*}" || rp_fail "$rp_root"  # others keep things there, too
  umask 077
  mkdir -p -- "$rp_root" || rp_fail "$rp_root"
  for rp_d in "$rp_root"/[0-9]*."$1"; do [ ! -d "$rp_d" ] || rp=$rp_d; done
  if [ -z "$rp" ]; then
    for rp_d in "$rp_root"/[0-9]*.*; do [ ! -d "$rp_d" ] || { rp_last=${rp_d##*/}; rp_last=${rp_last%%.*}; }; done
    rp_last=${rp_last#"${rp_last%%[!0]*}"}
    rp=$rp_root/$(printf %06d $((${rp_last:-0} + 1))).$1
    mkdir -- "$rp" || rp_fail "$rp"
    set -- "$2" "$rp_root"/[0-9]*.*
    while [ $# -gt $(($1 + 1)) ]; do rp_d=$1; rm -rf -- "$2"; shift 2; set -- "$rp_d" "$@"; done
  fi
  while [ -e "$rp/$rp_i.part" ]; do rp_i=$((rp_i + 1)); done
  : >"$rp/.new" || rp_fail "$rp"
}
rp_line() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$rp/.new" || rp_fail "$9"
}
rp_parents() {
  rp_p=${1%/*}
  while [ -n "$rp_p" ] && ! [ -e "$rp_p" ]; do
    rp_line directory absent - - - - - - "$rp_p"
    rp_p=${rp_p%/*}
  done
}
rp_about() {
  rp_a=$(stat -c '%a %U:%G' -- "$1") || rp_fail "$1"
  case $rp_a in *UNKNOWN*) rp_a=$(stat -c '%a %u:%g' -- "$1") || rp_fail "$1" ;; esac
  rp_mode=${rp_a% *} rp_owner=${rp_a#* }
}
rp_file() {
  rp_k=$((rp_k + 1)) rp_data=$rp_i-$rp_k rp_after=$2
  if [ -L "$1" ]; then
    rp_to=$(readlink -- "$1") && printf %s "$rp_to" >"$rp/$rp_data" || rp_fail "$1"
    rp_kind=link
  elif [ -e "$1" ]; then
    cat -- "$1" >"$rp/$rp_data" || rp_fail "$1"
    rp_kind=regular
  else
    rp_line file absent - - - "$2" "$3" - "$1"
    rp_parents "$1"
    return
  fi
  rp_about "$1"
  rp_sum=$(sha256sum <"$rp/$rp_data") || rp_fail "$1"
  rp_sum=${rp_sum%% *}
  [ "$rp_after" != same ] || rp_after=$rp_sum
  rp_line file $rp_kind "$rp_mode" "$rp_owner" "$rp_sum" "$rp_after" "$3" "$rp_data" "$1"
}
rp_directory() {
  if [ -d "$1" ]; then
    rp_about "$1"
    rp_line directory directory "$rp_mode" "$rp_owner" - - - - "$1"
  else
    rp_line directory absent - - - - - - "$1"
    rp_parents "$1"
  fi
}
rp_unit() {
  rp_line unit "$(systemctl is-enabled -- "$1" 2>/dev/null | head -n 1)" \
    "$(systemctl is-active -- "$1" 2>/dev/null | head -n 1)" - - - - - "$1"
}
rp_value() {
  rp_k=$((rp_k + 1))
  [ -e "$1" ] || return 0
  cat -- "$1" >"$rp/$rp_i-$rp_k" || rp_fail "$1"
  rp_line value - - - - "$2" - "$rp_i-$rp_k" "$1"
}
rp_hold() {
  rp_held=no
  if [ "$1" = rhel ]; then
    ! dnf -q versionlock list 2>/dev/null | sed 's/-[0-9][0-9]*:.*//' | grep -qxF -- "$2" || rp_held=yes
  else
    ! apt-mark showhold 2>/dev/null | grep -qxF -- "$2" || rp_held=yes
  fi
  rp_line hold $rp_held - "$1" - - - - "$2"
}
rp_grubby() {
  rp_k=$((rp_k + 1))
  grubby --info=DEFAULT | sed -n 's/^args="\(.*\)"$/\1/p' | head -n 1 >"$rp/$rp_i-$rp_k" || rp_fail "kernel arguments"
  rp_line grubby - - - - - - "$rp_i-$rp_k" arguments
}
rp_mark() {
  rp_line mark - - - - - - - "$1"
}
rp_close() {
  { sync -- "$rp/.new" "$rp/$rp_i"-* 2>/dev/null || sync; } && mv -f -- "$rp/.new" "$rp/$rp_i.part" || rp_fail "$rp"
}
""".strip()


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
        return "\n".join(
            (
                "(",
                *([take_script(self.holder, self.take_over)] if self.holder else []),
                f"rp_root={shlex.quote(self.root)}",
                _FUNCTIONS,
                f"rp_open {shlex.quote(self.run)} {self.keep}",
                *kept,
                "rp_close",
                ") </dev/null || exit 1",
            )
        )

    def before(self, lines: Iterable[str], script: str) -> str:
        """A script, with what it changes kept first."""
        kept = self.script(lines)
        return f"{kept}\n{script}" if kept else script


def _path(path: str) -> str:
    if "\t" in path or "\n" in path:
        raise ValueError(f"a path with a tab or a line end cannot be kept for a rollback: {path!r}")
    return shlex.quote(path)


def file_line(path: str, after: str | None, secret: bool = False) -> str:
    """A file that is about to be written (sha256 of its new content, ``same`` for a change of mode) or removed."""
    return f"rp_file {_path(path)} {after or '-'} {'secret' if secret else '-'}"


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


def mark_lines(marks: Sequence[str]) -> tuple[str, ...]:
    """What has to follow the change, and a rollback of it as well: pending marks, or ``GRUB``."""
    return tuple(f"rp_mark {_path(mark)}" for mark in marks)
