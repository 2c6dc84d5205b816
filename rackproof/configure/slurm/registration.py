"""Whether a node came back to its controller after the kit changed something, and what to do when it did not.

A node that somebody drained stays drained, and a node that is down for a reason of its own stays down: only what the
kit itself may have caused is undone, once, after the change.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.configure.slurm.nodes import CHANGED

OWN_REASONS = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Low RealMemory",
    "Low socket",
    "Low CPUs",
    "Low TmpDisk",
    "gres/",
    "Duplicate jobid",
)
"""How the reasons begin that slurmctld gives by itself; anything else was written by a person or a program."""
WAIT_S = 120
"""Seconds for slurmd to register; an emulated node takes half a minute."""


@dataclass(frozen=True, slots=True)
class Registration:
    changed: bool
    """The kit changed this node's Slurm since it was last seen to be well."""
    state: str | None
    reason: str | None


def state_command(node: str) -> str:
    """The controller is only asked where there is a mark: it takes no question from a node that nothing changed."""
    name = shlex.quote(node)
    return (
        f"if [ -e {CHANGED} ]; then echo changed; "
        f"timeout -k 2 20 scontrol -o show node {name} 2>/dev/null | tr ' ' '\\n' | grep -E '^(State|Reason)='; fi; "
    )


def parse_state(lines: Sequence[str]) -> Registration:
    values = dict(line.partition("=")[::2] for line in lines[1:])
    return Registration(lines[:1] == ["changed"], values.get("State"), values.get("Reason"))


def settle_script(node: str) -> str:
    """Wait until the node has registered, take it back where Slurm itself put it down, and say where it stands.

    Fails when it has not registered, or is refused; the mark stays then, and the next run tries again.
    """
    name = shlex.quote(node)
    own = "|".join(f'"{reason}"*' for reason in OWN_REASONS)
    return f"""set -u
show() {{ timeout -k 2 20 scontrol -o show node {name} 2>&1; }}
field() {{ printf '%s\\n' "$line" | sed -n "s/^.* $1=\\([^ ]*\\).*$/\\1/p"; }}
# Slurm keeps the words of a drain that has ended, and adds its own to them.
reason() {{ printf '%s\\n' "$line" | sed -n \\
  -e '/State=[^ ]*DRAIN/!s/ Reason=rackproof[a-z-]*: reboot (.*) : / Reason=/' \\
  -e 's/^.* Reason=\\(.*\\) \\[.*$/\\1/p'; }}
n=0 resumed=no state='' line=''
while [ $n -lt {WAIT_S} ]; do
  line=$(show); state=$(field State)
  case $state in
    '' | UNKNOWN* | *'*'* | *NOT_RESPONDING*) ;;
    DOWN* | *DRAIN* | *INVAL*)
      case $(reason) in
        {own} | '')
          if [ $resumed = no ]; then
            timeout -k 2 20 scontrol update NodeName={name} State=RESUME && resumed=yes
          elif [ $n -gt 30 ]; then
            break
          fi ;;
        *)
          echo "{name} stays $state: $(reason)"; rm -f -- {CHANGED}; exit 0 ;;
      esac ;;
    *) rm -f -- {CHANGED}; exit 0 ;;
  esac
  n=$((n + 1)); sleep 1
done
echo {name}": expected it idle in Slurm, actual ${{state:-no answer of the controller}} $(reason);" \\
  "see journalctl -u slurmd here and -u slurmctld on the controller" >&2
exit 1"""
