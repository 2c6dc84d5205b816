"""Accounts: made, put into groups, given keys, a password by its hash, and rights; never removed."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence

from rackproof import shell
from rackproof.configure.node.inputs import User
from rackproof.configure.rollback.journal import Later, file_line, later_keys
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.accounts import Account, public_key, read_accounts

SUDOERS = "/etc/sudoers.d"


def sudo_file(name: str) -> str:
    return f"{SUDOERS}/rackproof-{name}"


def sudo_text(user: User) -> str | None:
    return f"# Managed by rackproof.\n{user.name} {user.sudo}\n" if user.sudo else None


def state_command(names: Sequence[str]) -> str:
    """Command that reads accounts, groups, keys and rights. Hashes of passwords do not leave the node."""
    return shell.script(__name__, "users", *names, sudoers=SUDOERS)


def parse_state(lines: Sequence[str]) -> dict[str, Account]:
    """Answer of ``state_command``, without accounts that do not exist. Raises ParseError."""
    return {name: account for name, account in read_accounts(lines, "password").items() if account}


def plan(users: Sequence[User], hashes: Mapping[str, str], actual: Mapping[str, Account]) -> ScriptPlan:
    """Differences; names and hashes are the script's input. ``hashes`` by user.

    A rollback restores rights and keys; the accounts themselves are no part of it. Raises Refused when an account has
    another uid than declared.
    """
    lines: list[str] = []
    reasons: list[str] = []
    passwords: list[str] = []
    kept: list[str] = []
    keys: list[Later] = []
    for user in users:
        has = actual.get(user.name)
        if has is not None and user.uid is not None and has.uid != user.uid:
            raise Refused(
                f"user {user.name}: expected uid {user.uid}, actual {has.uid}; its files would lose their owner."
                f" Change it by hand: usermod -u {user.uid} {user.name}, then chown what it owns"
            )
        steps = _account(user, has)
        if user.name in hashes and (has is None or has.password != _digest(hashes[user.name])):
            passwords.append(f"{user.name}:{hashes[user.name]}")
            reasons.append(f"password of {user.name}")
        absent = [key for key in user.ssh_keys if has is None or public_key(key) not in map(public_key, has.keys)]
        if absent:
            steps += _keys(user.name, absent)
            keys.append(later_keys(user.name))
        text = sudo_text(user)
        if tuple((text or "").splitlines()) != (has.sudo if has else ()):
            steps += _sudo(user)
            kept.append(file_line(sudo_file(user.name), text and _digest(text)))
        if steps:
            reasons.append(f"user {user.name}")
            lines += steps
    if passwords:
        lines.append("chpasswd -e")
    return ScriptPlan(
        tuple(lines),
        tuple(Change(what=reason) for reason in reasons),
        tuple(kept),
        tuple(keys),
        head=("umask 022",),
        stdin="".join(f"{line}\n" for line in passwords),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _account(user: User, has: Account | None) -> list[str]:
    name, shell = shlex.quote(user.name), shlex.quote(user.shell)
    lines = [
        f"getent group {shlex.quote(group)} >/dev/null || groupadd -- {shlex.quote(group)}"
        for group in user.groups
        if has is None or group not in has.groups
    ]
    wanted = ",".join(group for group in user.groups if has is None or group not in has.groups)
    if has is None:
        number = f"-u {user.uid} " if user.uid is not None else ""
        lines.append(f"useradd -m {number}-s {shell} {f'-G {shlex.quote(wanted)} ' if wanted else ''}-- {name}")
    else:
        if wanted:
            lines.append(f"usermod -a -G {shlex.quote(wanted)} -- {name}")
        if has.shell != user.shell:
            lines.append(f"usermod -s {shell} -- {name}")
    return lines


def _keys(name: str, absent: Sequence[str]) -> list[str]:
    """Appended to the existing keys, as the user: a link in the user's home leads no further than the user can go."""
    quoted = shlex.quote(name)
    text = "".join(f"{key}\n" for key in absent)
    write = shell.script(__name__, "add_keys", text=text)
    return [
        f"h=$(getent passwd {quoted} | cut -d: -f6)",
        f'(cd / && runuser -u {quoted} -- sh -c {shlex.quote(write)} add_keys "$h")',
    ]


def _sudo(user: User) -> list[str]:
    """A rule that sudo cannot parse disables sudo for all users, so it is checked before it is installed."""
    path, text = sudo_file(user.name), sudo_text(user)
    if text is None:
        return [f"rm -f -- {path}"]
    # visudo and sudo ignore names with a dot, so an incomplete file has no effect.
    new = f"{SUDOERS}/.rackproof-{user.name}.new"
    message = shlex.quote(f"user {user.name}: sudo: visudo does not accept the rule; nothing was changed")
    return [
        "command -v visudo >/dev/null || { echo 'sudo is not installed: add it to the architecture' >&2; exit 1; }",
        f"printf %s {shlex.quote(text)} >{new}; chmod 440 {new}",
        f"visudo -cqf {new} >/dev/null || {{ rm -f {new}; echo {message} >&2; exit 1; }}",
        f"mv -f {new} {path}",
    ]
