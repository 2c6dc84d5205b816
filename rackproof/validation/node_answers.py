"""What nodes answer about limits, accounts, interrupts and arrays. Pure.

Every answer ends with a line that proves that it is whole; each parser raises ParseError rather than guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import excerpt, whole_lines
from rackproof.validation.answers import STATUS, answer_of

# Limits

Pair = tuple[str, str]
"""A soft and a hard limit."""

LOGIN_END: Final = "end of login"
# A login of now: the connection that asks may be older than the limits.
LOGIN_LIMITS: Final = (
    "su -l root -c 'echo nofile $(ulimit -S -n) $(ulimit -H -n); echo nproc $(ulimit -S -u) $(ulimit -H -u);"
    f" echo stack $(ulimit -S -s) $(ulimit -H -s); echo {LOGIN_END}'"
)


def login_limits_of(output: str) -> dict[str, Pair]:
    """Answer to ``LOGIN_LIMITS``: nofile, nproc and stack (KiB); what a login says of its own is passed over."""
    *lines, last = whole_lines("ulimit", output)
    if last != LOGIN_END:
        raise ParseError("ulimit", f"the answer is cut off after {excerpt(last)}")
    found: dict[str, Pair] = {}
    for line in lines[-3:]:
        match = re.fullmatch(r"(nofile|nproc|stack) (unlimited|\d+) (unlimited|\d+)", line)
        if match is None or match[1] in found:
            raise ParseError("ulimit", f"no limit: {excerpt(line)}")
        found[match[1]] = (match[2], match[3])
    if len(found) != 3:
        raise ParseError("ulimit", "not all limits")
    return found


DAEMON_END: Final = "end of limits"
PROCESS_LIMITS: Final = {
    # a limit's name here: in /proc/PID/limits, and its unit there in ours
    "memlock": ("Max locked memory", 1024),
    "nofile": ("Max open files", 1),
    "nproc": ("Max processes", 1),
    "stack": ("Max stack size", 1024),
}


def daemon_limits_command(units: Iterable[str]) -> str:
    """The limits of the main process of each unit, as the kernel has them."""
    names = " ".join(map(shlex.quote, units))
    return (
        f'for u in {names}; do p=$(systemctl show --value --property=MainPID -- "$u");'
        ' s=$(systemctl show --value --property=ActiveState -- "$u"); echo "unit $u ${s:-unknown} ${p:-unknown}";'
        f' [ "${{p:-0}}" = 0 ] || cat "/proc/$p/limits"; done; echo {DAEMON_END}'
    )


@dataclass(frozen=True, slots=True)
class Daemon:
    """A unit's state, and the limits of its main process; none where it has no process."""

    state: str
    limits: Mapping[str, Pair]
    """As /proc has them: bytes, pieces."""


def daemon_limits_of(output: str, units: tuple[str, ...]) -> dict[str, Daemon]:
    """Answer to ``daemon_limits_command`` about these units."""
    *lines, last = whole_lines("systemctl", output)
    if last != DAEMON_END:
        raise ParseError("systemctl", f"the answer is cut off after {excerpt(last)}")
    names = {name: key for key, (name, _) in PROCESS_LIMITS.items()}
    found: dict[str, tuple[str, bool, dict[str, Pair]]] = {}
    current: dict[str, Pair] | None = None
    for line in lines:
        if match := re.fullmatch(r"unit (\S+) ([a-z]+) (\d+)", line):
            if match[1] in found:
                raise ParseError("systemctl", f"{match[1]} is there twice")
            current = {}
            found[match[1]] = (match[2], match[3] != "0", current)
        elif match := re.fullmatch(r"(Max [a-z ]+?)\s{2,}(unlimited|\d+)\s+(unlimited|\d+)(?:\s+\S+)?\s*", line):
            if current is None:
                raise ParseError("systemctl", f"limits of no unit: {excerpt(line)}")
            if match[1] in names:
                current[names[match[1]]] = (match[2], match[3])
        elif not line.startswith("Limit "):
            raise ParseError("/proc/PID/limits", f"no limit: {excerpt(line)}")
    for unit, (_, runs, limits) in found.items():
        if runs and limits.keys() != PROCESS_LIMITS.keys():
            raise ParseError("/proc/PID/limits", f"not all limits of {unit}")
    if tuple(found) != units:
        raise ParseError("systemctl", f"answered for {len(found)} of {len(units)} units")
    return {unit: Daemon(state, limits) for unit, (state, _, limits) in found.items()}


# Accounts

USERS_END: Final = "end of accounts"


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    shell: str
    groups: frozenset[str]
    keys: tuple[str, ...]
    readable: str | None
    """Why sshd does not use the keys: owner and mode that it refuses. None when it does, or there are none."""
    sudo: tuple[str, ...]
    """Rules that the kit's file for it has, the user's name in front."""
    may_sudo: bool | None
    """What sudo itself says; None where there is no sudo."""


def users_command(names: Iterable[str]) -> str:
    """Ask for accounts, groups, keys, and what sudo makes of its rules. No password leaves the node."""
    listed = " ".join(map(shlex.quote, names))
    return (
        f'export LC_ALL=C; for u in {listed}; do entry=$(getent passwd "$u") || {{ echo "absent $u"; continue; }};'
        ' echo "user $entry"; echo "groups $(id -nG -- "$u")"; home=$(echo "$entry" | cut -d: -f6);'
        ' f=$home/.ssh/authorized_keys; if [ -e "$f" ]; then for p in "$home" "$home/.ssh" "$f"; do'
        ' echo "path $(stat -L -c \'%U %a\' -- "$p") $p"; done; sed -n \'/^[^#]/s/^/key /p\' "$f"; fi;'
        ' f=/etc/sudoers.d/rackproof-$u; [ ! -e "$f" ] || sed -n \'/^[^#]/s/^/rule /p\' "$f";'
        ' if command -v sudo >/dev/null; then if timeout 20 sudo -n -l -U "$u" | grep -q "may run the following";'
        " then echo sudo yes; else echo sudo no; fi; else echo sudo absent; fi; done;"
        " if command -v visudo >/dev/null; then visudo -c -q >/dev/null 2>&1; echo sudoers $?;"
        f" else echo sudoers absent; fi; echo {USERS_END}"
    )


@dataclass(frozen=True, slots=True)
class Accounts:
    by_name: Mapping[str, Account | None]
    """None for an account that is not there."""
    sudoers_good: bool | None
    """Whether visudo accepts all rules together; None where there is no sudo."""


def users_of(output: str, names: tuple[str, ...]) -> Accounts:
    """Answer to ``users_command`` about these accounts."""
    *lines, sudoers, last = ["", *whole_lines("getent", output)]
    checked = re.fullmatch(r"sudoers (\d{1,3}|absent)", sudoers)
    if last != USERS_END or checked is None:
        raise ParseError("getent", f"the answer is cut off after {excerpt(last)}")
    blocks: dict[str, tuple[list[str], dict[str, list[str]]] | None] = {}
    said: dict[str, list[str]] | None = None
    for line in lines[1:]:
        key, _, value = line.partition(" ")
        if key == "absent" and value not in blocks:
            blocks[value], said = None, None
        elif key == "user" and value.partition(":")[0] not in blocks:
            fields, said = value.split(":"), {}
            if len(fields) != 7 or not fields[2].isdigit():
                raise ParseError("getent", f"no account: {excerpt(line)}")
            blocks[fields[0]] = (fields, said)
        elif key in ("groups", "path", "key", "rule", "sudo") and said is not None:
            said.setdefault(key, []).append(value)
        else:
            raise ParseError("getent", f"not about an account: {excerpt(line)}")
    if tuple(blocks) != names:
        raise ParseError("getent", f"answered for {len(blocks)} of {len(names)} accounts")
    good = None if checked[1] == "absent" else checked[1] == "0"
    return Accounts({name: block and _account(*block) for name, block in blocks.items()}, good)


def _account(fields: list[str], said: Mapping[str, list[str]]) -> Account:
    name = fields[0]
    groups, sudo = said.get("groups", []), said.get("sudo", [])
    if len(groups) != 1 or not groups[0].split() or sudo not in (["yes"], ["no"], ["absent"]):
        raise ParseError("getent", f"{name}: no groups, or no word of sudo")
    refused = None
    for path in said.get("path", []):
        match = re.fullmatch(r"(\S+) ([0-7]{3,4}) (/.*)", path)
        if match is None:
            raise ParseError("stat", f"{name}: no owner and mode: {excerpt(path)}")
        if match[1] not in (name, "root") or int(match[2], 8) & 0o022:
            refused = refused or f"{match[3]} of {match[1]}, mode {match[2]}"
    return Account(
        uid=int(fields[2]),
        shell=fields[6],
        groups=frozenset(groups[0].split()),
        keys=tuple(said.get("key", ())),
        readable=refused,
        sudo=tuple(said.get("rule", ())),
        may_sudo={"yes": True, "no": False, "absent": None}[sudo[0]],
    )


# Interrupts

IRQ_END: Final = "end of interrupts"
# What the interrupt controller uses goes before what was asked for; a line that never fired has no choice yet.
INTERRUPTS: Final = (
    'for d in /sys/class/net/*/device /sys/class/infiniband/*/device; do [ -e "$d" ] || continue;'
    ' p=$(readlink -f "$d"); [ -d "$p/msi_irqs" ] || p=${p%/*}; [ ! -d "$p/msi_irqs" ] || echo "$p"; done | sort -u |'
    ' while read -r p; do echo "device ${p##*/} $(cat "$p/numa_node") $(cat "$p/local_cpulist")";'
    ' for i in "$p"/msi_irqs/*; do f=/proc/irq/${i##*/}; [ -e "$f/smp_affinity_list" ] || continue;'
    ' a=$(cat "$f/effective_affinity_list" 2>/dev/null); echo "irq ${i##*/} ${a:-$(cat "$f/smp_affinity_list")}"; done;'
    f" done; echo {IRQ_END}"
)


@dataclass(frozen=True, slots=True)
class CardInterrupts:
    """A network card, and on which processors its interrupts come in."""

    slot: str
    numa_node: int
    """-1 where the firmware does not say."""
    local: frozenset[int]
    by_irq: Mapping[int, frozenset[int]]

    @property
    def far(self) -> tuple[int, ...]:
        """Interrupts that may come in on a processor of another NUMA node."""
        return tuple(irq for irq, processors in self.by_irq.items() if not processors <= self.local)


def interrupts_of(output: str) -> tuple[CardInterrupts, ...]:
    """Answer to ``INTERRUPTS``."""
    *lines, last = whole_lines("/proc/irq", output)
    if last != IRQ_END:
        raise ParseError("/proc/irq", f"the answer is cut off after {excerpt(last)}")
    cards: list[tuple[str, int, frozenset[int], dict[int, frozenset[int]]]] = []
    for line in lines:
        if match := re.fullmatch(r"device (\S+) (-1|\d+) ([\d,-]+)", line):
            cards.append((match[1], int(match[2]), _processors(match[3]), {}))
        elif (match := re.fullmatch(r"irq (\d+) ([\d,-]+)", line)) and cards and int(match[1]) not in cards[-1][3]:
            cards[-1][3][int(match[1])] = _processors(match[2])
        else:
            raise ParseError("/proc/irq", f"no interrupt: {excerpt(line)}")
    return tuple(CardInterrupts(*card) for card in cards)


def _processors(text: str) -> frozenset[int]:
    """``0-2,8``."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match is None:
            raise ParseError("/proc/irq", f"no processors: {excerpt(text)}")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


# Arrays


@dataclass(frozen=True, slots=True)
class Array:
    """An md array as the kernel has it."""

    device: str
    """``/dev/md127``; what its name leads to."""
    level: str
    drives: int
    """Members that it was made of."""
    state: str
    chunk_bytes: int
    members: Mapping[str, str]
    """Drive: ``in_sync``, ``faulty`` …"""


def array_command(label: str) -> str:
    """Ask the kernel for the array of this name."""
    return (
        f'd=$(readlink -f -- {shlex.quote(f"/dev/md/{label}")}); if [ -b "$d" ]; then echo "array $d";'
        ' cd "/sys/block/${d##*/}" &&'
        ' grep -sH "" md/level md/raid_disks md/array_state md/chunk_size md/dev-*/state;'
        f" else echo no array; fi{STATUS}"
    )


def array_of(output: str) -> Array | None:
    """Answer to ``array_command``; None when there is no such array."""
    answer = answer_of("mdadm", output)
    if (answer.body, answer.status) == ("no array\n", 0):
        return None
    head, _, rest = answer.body.partition("\n")
    device = re.fullmatch(r"array (/dev/\S+)", head)
    if device is None or answer.status != 0:
        raise ParseError("/sys/block", f"no array: {excerpt(answer.body)}")
    values = {path: lines[0] if len(lines) == 1 else "" for path, lines in files_of(rest).items()} if rest else {}
    members = {
        path.removeprefix("md/dev-").removesuffix("/state"): state
        for path, state in values.items()
        if path.startswith("md/dev-")
    }
    asked = ("md/level", "md/raid_disks", "md/array_state", "md/chunk_size")
    missing = [path for path in asked if not values.get(path)]
    if missing or not members or not (values["md/raid_disks"].isdigit() and values["md/chunk_size"].isdigit()):
        raise ParseError("/sys/block", f"{device[1]} says nothing about {', '.join(missing) or 'its members'}")
    return Array(
        device=device[1],
        level=values["md/level"],
        drives=int(values["md/raid_disks"]),
        state=values["md/array_state"],
        chunk_bytes=int(values["md/chunk_size"]),
        members=members,
    )
