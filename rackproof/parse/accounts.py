"""User accounts: getent, numbers, groups, authorised keys and sudo rules."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

USERS_END: Final = "end of accounts"
_MAY_SUDO: Final = {"yes": True, "no": False, "absent": None}
_NUMBERS: Final = re.compile(r"uid ([1-9]\d{0,9}) gid ([1-9]\d{0,9})\n")


@dataclass(frozen=True, slots=True)
class PasswdEntry:
    name: str
    uid: int
    home: str
    shell: str


def parse_passwd_entry(line: str) -> PasswdEntry:
    """One line of ``getent passwd``. Raises ParseError."""
    fields = line.split(":")
    if len(fields) != 7 or not fields[0] or not fields[2].isdecimal():
        raise ParseError("getent", f"expected an account entry, got {excerpt(line)}")
    return PasswdEntry(fields[0], int(fields[2]), fields[5], fields[6])


def parse_account_numbers(tool: str, output: str) -> tuple[int, int]:
    """A line ``uid NUMBER gid NUMBER`` of an account without root's rights. Raises ParseError."""
    if (match := _NUMBERS.fullmatch(output)) is None:
        raise ParseError(tool, f"unreadable output: {output[:80]!r}")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    shell: str
    groups: frozenset[str]
    keys: tuple[str, ...] = ()
    readable: str | None = None
    """Owner and mode for which sshd refuses the keys. None when sshd accepts them, or there are none."""
    sudo: tuple[str, ...] = ()
    """Lines of /etc/sudoers.d/rackproof-USER: all of them for a deploy, rules for a check."""
    may_sudo: bool | None = None
    """From ``sudo -l -U``; None without sudo, and for a deploy."""
    password: str = ""
    """For a deploy: sha256 of the stored hash, which itself stays on the node."""


def accounts_command(names: Iterable[str]) -> str:
    """Command that prints accounts, groups, keys and sudo rules. It prints no password.

    Keys are read as their user, whose links root must not follow.
    """
    listed = " ".join(map(shlex.quote, names))
    return (
        'export LC_ALL=C; as_user() { if [ "$(id -u)" = 0 ]; then runuser -u "$u" -- "$@"; else "$@"; fi; };'
        f' for u in {listed}; do entry=$(getent passwd "$u") || {{ echo "absent $u"; continue; }};'
        ' echo "user $entry"; echo "groups $(id -nG -- "$u")"; home=$(echo "$entry" | cut -d: -f6);'
        ' f=$home/.ssh/authorized_keys; if as_user test -f "$f"; then for p in "$home" "$home/.ssh" "$f"; do'
        ' echo "path $(stat -L -c \'%U %a\' -- "$p") $p"; done;'
        ' as_user cat "$f" | awk \'/^[^#]/ {print "key " $0}\'; fi;'
        ' f=/etc/sudoers.d/rackproof-$u; [ ! -e "$f" ] || awk \'/^[^#]/ {print "rule " $0}\' "$f";'
        ' if command -v sudo >/dev/null; then if timeout 20 sudo -n -l -U "$u" | grep -q "may run the following";'
        " then echo sudo yes; else echo sudo no; fi; else echo sudo absent; fi; done;"
        " if command -v visudo >/dev/null; then visudo -c -q >/dev/null 2>&1; echo sudoers $?;"
        f" else echo sudoers absent; fi; echo {USERS_END}"
    )


@dataclass(frozen=True, slots=True)
class Accounts:
    by_name: Mapping[str, Account | None]
    """None for an account that does not exist."""
    sudoers_good: bool | None
    """Whether ``visudo -c`` accepts all rules; None without sudo."""


def parse_accounts(output: str, names: tuple[str, ...]) -> Accounts:
    """Output of ``accounts_command`` for these accounts. Raises ParseError."""
    *lines, sudoers, last = ["", *whole_lines("getent", output)]
    checked = re.fullmatch(r"sudoers (\d{1,3}|absent)", sudoers)
    if last != USERS_END or checked is None:
        raise ParseError("getent", f"the answer is cut off after {excerpt(last)}")
    accounts = read_accounts(lines[1:], "sudo")
    if tuple(accounts) != names:
        raise ParseError("getent", f"expected {len(names)} accounts, got {len(accounts)}")
    return Accounts(accounts, None if checked[1] == "absent" else checked[1] == "0")


def read_accounts(lines: Iterable[str], last: Literal["sudo", "password"]) -> dict[str, Account | None]:
    """Accounts by name; None for one that does not exist. ``last``: the line that an account has exactly once, as that
    of groups. Raises ParseError."""
    blocks: dict[str, tuple[PasswdEntry, dict[str, list[str]]] | None] = {}
    fields: dict[str, list[str]] | None = None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "absent" and value not in blocks:
            blocks[value], fields = None, None
        elif key == "user" and value.partition(":")[0] not in blocks:
            entry, fields = parse_passwd_entry(value), {}
            blocks[entry.name] = (entry, fields)
        elif key in ("groups", "path", "key", "rule", last) and fields is not None:
            fields.setdefault(key, []).append(value)
        else:
            raise ParseError("getent", f"expected a line about an account, got {excerpt(line)}")
    return {name: block and _account(*block, last) for name, block in blocks.items()}


def _account(entry: PasswdEntry, fields: Mapping[str, list[str]], last: str) -> Account:
    name = entry.name
    groups, only = fields.get("groups", []), fields.get(last, [])
    if len(groups) != 1 or not groups[0].split() or len(only) != 1 or (last == "sudo" and only[0] not in _MAY_SUDO):
        raise ParseError("getent", f"{name}: expected a line of groups and one about {last}")
    refused = None
    for path in fields.get("path", []):
        match = re.fullmatch(r"(\S+) ([0-7]{3,4}) (/.*)", path)
        if match is None:
            raise ParseError("stat", f"{name}: expected owner and mode, got {excerpt(path)}")
        if match[1] not in (name, "root") or int(match[2], 8) & 0o022:
            refused = refused or f"{match[3]} of {match[1]}, mode {match[2]}"
    return Account(
        uid=entry.uid,
        shell=entry.shell,
        groups=frozenset(groups[0].split()),
        keys=tuple(fields.get("key", ())),
        readable=refused,
        sudo=tuple(fields.get("rule", ())),
        may_sudo=_MAY_SUDO.get(only[0]),
        password=only[0] if last == "password" else "",
    )


def public_key(line: str) -> tuple[str, ...]:
    """Options, type and key of a line of authorized_keys, without the comment."""
    match = re.match(r"(.*?)\b((?:ssh|ecdsa|sk)-\S+)\s+(\S+)", line)
    return (match[1].strip(), match[2], match[3]) if match else (line,)
