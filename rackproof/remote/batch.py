"""Many commands in one round trip: the script that a node runs, and how its answer is unpacked. Pure.

Each command is wrapped exactly as ``Connection.run`` wraps it, so that it cannot matter which way it was read. A few
lanes work the list off side by side: a command that hangs in the kernel and cannot be killed holds up its own lane,
and the script answers without it when the time is over.

The answer is a list of files (``0003.out 17 1763712345.120000000``), an empty line, and their contents in the same
order. For command 3 there are ``0003.a`` (began), ``.err``, ``.out`` and ``.rc`` (ended).
"""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.remote.command import KILL_AFTER_S, CommandResult, bounded, timed_out

LANES = 2
"""More would only make the commands of a small node wait for each other."""
MAGIC = b"rackproof-batch/1"
POLL_S = 0.2

_LOCALE = "env LC_ALL=C "
"""Set once for the whole script: a process less for every command, a third of what a quick one costs."""

_SCRIPT = """\
lane() {{
  for n in "$@"; do
    : >"$n.a"
    "c$n" </dev/null >"$n.out" 2>"$n.err"
    echo $? >"$n.rc"
  done
  : >"done$1"
}}
stop() {{
  kill "$watch" 2>/dev/null
{stops}
}}
main() {{
  umask 077
  LC_ALL=C; export LC_ALL
  d=$(mktemp -d /dev/shm/rackproof.XXXXXX 2>/dev/null || mktemp -d) || exit 1
  trap 'stop; cd /; rm -rf "$d"' EXIT
  trap 'exit 143' TERM HUP INT
  cd "$d" || exit 1
{lanes}
  sleep {budget} >/dev/null 2>&1 & watch=$!
  until {finished} || ! kill -0 "$watch" 2>/dev/null; do
    sleep {poll}
  done
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
{commands}
main
"""


def budget_s(timeout_s: float) -> float:
    """How long the script collects answers: one command may use up all of its own limit."""
    return timeout_s + KILL_AFTER_S + 5


def script(commands: Sequence[str], timeout_s: float) -> bytes:
    """A POSIX shell script for ``sh -s`` that runs every command under its own limit."""
    numbers = [f"{index:04d}" for index in range(len(commands))]
    lanes = [numbers[k::LANES] for k in range(min(LANES, len(numbers)))]
    text = _SCRIPT.format(
        # A lane holds none of the script's streams: one that hangs must not keep the connection open.
        lanes="\n".join(f"  lane {' '.join(lane)} >/dev/null 2>&1 & p{lane[0]}=$!" for lane in lanes),
        stops="\n".join(f'  [ -e done{lane[0]} ] || kill "$p{lane[0]}" 2>/dev/null' for lane in lanes),
        budget=f"{budget_s(timeout_s):g}",
        poll=POLL_S,
        finished=f"{{ {' && '.join(f'[ -e done{lane[0]} ]' for lane in lanes) or 'true'}; }}",
        magic=MAGIC.decode(),
        commands="\n".join(
            f"c{number}() {{ {bounded(command, timeout_s).removeprefix(_LOCALE)}; }}"
            for number, command in zip(numbers, commands, strict=True)
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
        result = _result(node, command, timeout_s, files, f"{index:04d}", float(now[1]) if now else 0.0)
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
