"""Many commands in one round trip: the script that a node runs, and how its answer is unpacked. Pure.

Each command is started as ``Connection.run`` starts it, so that it cannot matter which way it was read. Two lanes work
the list off side by side, each under one limit: a command that hangs ends its own lane, one that cannot even be killed
is left behind, and the script answers without them. Limits for every single command would cost a small node more than
the commands do.

The answer is a list of files (``3.out 17 1763712345.120000000``), an empty line, and their contents in the same order.
For command 3 there are ``3.a`` (began), ``3.err``, ``3.out`` and ``3.rc`` (ended).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rackproof.remote.command import KILL_AFTER_S, CommandResult, timed_out

LANES = 2
"""More would only make the commands of a small node wait for each other."""
MAGIC = b"rackproof-batch/1"

_SCRIPT = """\
lane() {{
  k=$1
  timeout -k {kill_after} {limit} sh -c '
    n=$1
    shift
    for c in "$@"; do
      : >"$n.a"
      sh -c "$c" </dev/null >"$n.out" 2>"$n.err"
      echo $? >"$n.rc"
      n=$((n + {lanes}))
    done' lane "$@"
  : >"done$k"
  {finished} && kill "$watch"
}}
stop() {{
  kill "$watch" $pids
  cd /
  rm -rf "$d"
}}
main() {{
  umask 077
  LC_ALL=C
  export LC_ALL
  d=$(mktemp -d /dev/shm/rackproof.XXXXXX 2>/dev/null || mktemp -d) || exit 1
  cd "$d" || exit 1
  pids=
  # Nothing here holds the script's own streams: what hangs must not keep the connection open.
  sleep {budget} >/dev/null 2>&1 & watch=$!
  trap 'stop 2>/dev/null' EXIT
  trap 'exit 143' TERM HUP INT
{start}
  {finished} || wait "$watch"
  set --
  for rc in *.rc; do
    n=${{rc%.rc}}
    [ -s "$rc" ] && set -- "$@" "$n.a" "$n.err" "$n.out" "$rc"
  done
  for a in *.a; do
    n=${{a%.a}}
    [ -e "$a" ] && [ ! -s "$n.rc" ] && set -- "$@" "$a"
  done
  echo {magic}
  date '+now %s'
  [ $# -eq 0 ] || stat -c '%n %s %.9Y' "$@" || exit 1
  echo
  [ $# -eq 0 ] || cat "$@"
}}
main
"""


def lane_limit_s(timeout_s: float) -> float:
    """How long one lane may take: a command that hangs in its first half has had its own limit by then."""
    return 2 * timeout_s


def budget_s(timeout_s: float) -> float:
    """How long the script collects answers before it leaves behind what cannot be killed."""
    return lane_limit_s(timeout_s) + KILL_AFTER_S + 1


def script(commands: Sequence[str], timeout_s: float) -> bytes:
    """A POSIX shell script for ``sh -s``."""
    lanes = range(min(LANES, len(commands)))
    finished = " && ".join(f"[ -e done{lane} ]" for lane in lanes) or "true"
    text = _SCRIPT.format(
        kill_after=KILL_AFTER_S,
        limit=f"{lane_limit_s(timeout_s):g}",
        budget=f"{budget_s(timeout_s):g}",
        lanes=LANES,
        finished=finished,
        magic=MAGIC.decode(),
        start="\n".join(
            f'  lane {lane} {" ".join(map(shlex.quote, commands[lane::LANES]))} >/dev/null 2>&1 & pids="$pids $!"'
            for lane in lanes
        ),
    )
    return text.encode()


def unpack(node: str, commands: Sequence[str], timeout_s: float, answer: bytes) -> list[CommandResult]:
    """The results that the answer holds, in the order of ``commands``.

    A command that was under way for longer than its limit has an error instead of an exit status. One that was
    never started, or whose part of the answer does not add up, is left out: it has to be asked again.
    """
    files = _files(answer)
    now = files.pop("now", None)
    results = []
    for index, command in enumerate(commands):
        result = _result(node, command, timeout_s, files, str(index), float(now[1]) if now else 0.0)
        if result is not None:
            results.append(result)
    return results


def _files(answer: bytes) -> dict[str, tuple[bytes, float]]:
    """Contents and time of change by name; empty when the answer is damaged or cut."""
    head, blank, body = answer.partition(b"\n\n")
    lines = head.split(b"\n")
    if not blank or lines[0] != MAGIC:
        return {}
    files: dict[str, tuple[bytes, float]] = {}
    at = 0
    try:
        for line in lines[1:]:
            name, *numbers = line.decode("ascii").split(" ")
            if name == "now":
                files[name] = (b"", float(numbers[0]))
                continue
            size, changed = int(numbers[0]), float(numbers[1])
            files[name] = (body[at : at + size], changed)
            at += size
    except (ValueError, IndexError):
        return {}
    return files if at == len(body) else {}


def _result(
    node: str, command: str, timeout_s: float, files: dict[str, tuple[bytes, float]], number: str, now: float
) -> CommandResult | None:
    began = files.get(f"{number}.a")
    if began is None:
        return None
    late = CommandResult(
        node, command, None, elapsed_s=max(0.0, now - began[1]), timeout_s=timeout_s,
        error=f"not finished within {timeout_s:g} s",
    )  # fmt: skip
    ended = files.get(f"{number}.rc")
    if ended is None:
        return late if now - began[1] > timeout_s else None
    out, err = files.get(f"{number}.out"), files.get(f"{number}.err")
    if out is None or err is None or not ended[0].strip().isdigit():
        return None
    rc = int(ended[0])
    elapsed = max(0.0, ended[1] - began[1])
    if timed_out(rc):
        return CommandResult(node, command, None, out[0], err[0], elapsed, timeout_s, late.error)
    return CommandResult(node, command, rc, out[0], err[0], elapsed, timeout_s)
