"""One run at a time on a node: a converge and a rollback that interleave leave neither's result. Pure.

``/run/rackproof/run`` says which run works on the node, whose it is, from where and since when. Nobody has to remove
it: it counts for as long as the connection by which the run came is open (a process on the node, known by its id and
by when it began), so a run that was killed, failed or cut off holds nothing. Where no such process is found (a
connector that is not ssh) it counts for ``LIMIT_S`` after the run's last change. A boot ends it in any case. Who knows
that the other run is not at work takes the node from it by name: ``--data take_over=RUN``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LOCK_FILE: Final = "/run/rackproof/run"
LIMIT_S: Final = 7200
"""Seconds; longer than any single command of a deploy may take."""
WAIT_S: Final = 20
"""Seconds to wait for another run that is just looking at the file."""

_READ = r"""
rp_lock_begun() {
  rp_l_s=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  rp_l_s=${rp_l_s##*) }
  set -- $rp_l_s
  [ $# -lt 20 ] || echo "${20}"
}
rp_lock_read() {
  rp_l_run= rp_l_who= rp_l_from= rp_l_since= rp_l_pid= rp_l_begun=
  while IFS='=' read -r rp_l_k rp_l_v; do
    case $rp_l_k in
      run) rp_l_run=$rp_l_v ;; who) rp_l_who=$rp_l_v ;; from) rp_l_from=$rp_l_v ;; since) rp_l_since=$rp_l_v ;;
      pid) rp_l_pid=$rp_l_v ;; begun) rp_l_begun=$rp_l_v ;;
    esac
  done <"$1"
  [ -n "$rp_l_run" ] || return 1
  if [ -n "$rp_l_pid" ] && [ -n "$rp_l_begun" ]; then
    [ "$(rp_lock_begun "$rp_l_pid")" = "$rp_l_begun" ]
  else
    [ $(($(date +%s) - $(stat -c %Y -- "$1"))) -lt @LIMIT@ ]
  fi
}
""".strip().replace("@LIMIT@", str(LIMIT_S))

_TAKE = r"""
rp_lock_connection() {
  rp_l_p=$$
  while [ "${rp_l_p:-0}" -gt 1 ]; do
    rp_l_c=$(cat "/proc/$rp_l_p/comm" 2>/dev/null)
    case $rp_l_c in
      sshd* | dropbear* | pyinfra* | python*) echo "pid=$rp_l_p"; echo "begun=$(rp_lock_begun "$rp_l_p")"; return ;;
    esac
    rp_l_p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$rp_l_p/status" 2>/dev/null)
  done
}
rp_lock() (
  umask 022
  mkdir -p -- "${1%/*}" || exit 1
  exec 9>>"$1"
  flock -w @WAIT@ 9 || { echo "$1 could not be locked: nothing was changed" >&2; exit 1; }
  if rp_lock_read "$1" && [ "$rp_l_run" != "$2" ] && [ "$rp_l_run" != "$5" ]; then
    echo "run $rp_l_run of $rp_l_who on $rp_l_from works on this node since $rp_l_since, so nothing was changed;" \
      "wait for its end, or take the node from it: --data take_over=$rp_l_run" >&2
    exit 1
  fi
  [ "$rp_l_run" = "$2" ] || rp_l_since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  printf 'run=%s\nwho=%s\nfrom=%s\nsince=%s\n%s\n' "$2" "$3" "$4" "$rp_l_since" "$(rp_lock_connection)" >"$1" || exit 1
)
""".strip().replace("@WAIT@", str(WAIT_S))


@dataclass(frozen=True, slots=True)
class Holder:
    """A run, and who to ask about it."""

    run: str
    who: str
    host: str
    """That the run was started on."""
    since: str = ""
    """As the node's clock has it; empty for one that has taken nothing yet."""

    @property
    def sentence(self) -> str:
        return f"run {self.run} of {self.who} on {self.host} works on this node since {self.since}"


def take_script(holder: Holder, take_over: str | None = None, file: str = LOCK_FILE) -> str:
    """Shell text that takes the node for a run, or ends the script with status 1 and one line that says who has it.

    A run takes it as often as it likes. ``take_over``: the run that it may be taken from.
    """
    words = (file, *(_plain(word) for word in (holder.run, holder.who, holder.host, take_over or "")))
    return f"{_READ}\n{_TAKE}\nrp_lock {' '.join(map(shlex.quote, words))} || exit 1"


def held_command(file: str = LOCK_FILE) -> str:
    """Print one line, ``held RUN WHO HOST SINCE``, where a run works on the node. Takes nothing."""
    path = shlex.quote(file)
    return (
        f"{_READ}\nif [ -r {path} ] && rp_lock_read {path}; then"
        ' echo "held $rp_l_run $rp_l_who $rp_l_from $rp_l_since"; fi; '
    )


def parse_held(lines: Sequence[str]) -> Holder | None:
    """Answer of ``held_command``. Raises ValueError on anything else."""
    if not lines:
        return None
    words = lines[0].split()
    if len(lines) != 1 or len(words) != 5 or words[0] != "held":
        raise ValueError(f"expected who holds the node, actual {' | '.join(lines)!r}")
    return Holder(*words[1:])


def _plain(word: str) -> str:
    """One word for a file of lines ``key=value``."""
    return re.sub(r"[^\w.@:+-]", "_", word, flags=re.ASCII)
