"""The unprivileged user that tests access to shared storage: UID, subordinate ids, folders."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.rollback.journal import later
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.sections import sections_of

HOME = "/var/lib/rackproof/home"


@dataclass(frozen=True, slots=True)
class UserState:
    uid: int | None
    """None when there is no such user."""
    holder: str | None
    """User that has the declared UID."""
    subuid: tuple[str, ...]
    """The user's lines of /etc/subuid."""
    subgid: tuple[str, ...]
    folders: Mapping[str, str]
    """Owner's UID of existing folders, by path."""


def state_command(inputs: ContainerInputs, folders: Sequence[str]) -> str:
    name = shlex.quote(inputs.user)
    paths = " ".join(shlex.quote(folder) for folder in folders)
    return (
        f"export LC_ALL=C; id -u {name} 2>/dev/null; echo --; getent passwd {inputs.uid} | cut -d: -f1; echo --; "
        f"grep -s ^{name}: /etc/subuid; echo --; grep -s ^{name}: /etc/subgid; echo --; "
        f"for d in {paths}; do timeout -k 2 20 stat -c '%n|%u' -- \"$d\" 2>/dev/null; done; "
    )


def parse_state(lines: Sequence[str]) -> UserState:
    """Raises ValueError."""
    uid, holder, subuid, subgid, folders = sections_of(lines, 5)
    return UserState(
        uid=int(uid[0]) if uid else None,
        holder=holder[0] if holder else None,
        subuid=tuple(subuid),
        subgid=tuple(subgid),
        folders=dict(line.rsplit("|", 1) for line in folders),
    )


def plan(inputs: ContainerInputs, folders: Sequence[str], state: UserState) -> ScriptPlan:
    """Missing account, ranges and folders of the user. Raises Refused."""
    if state.uid is not None and state.uid != inputs.uid:
        raise Refused(
            f"user {inputs.user} has the number {state.uid} here, expected {inputs.uid}: set containers.uid to it on"
            " every node, or choose another containers.user"
        )
    if state.uid is None and state.holder is not None:
        raise Refused(f"the number {inputs.uid} belongs to {state.holder} here: choose another containers.uid")
    name, lines = shlex.quote(inputs.user), []
    changes: list[Change] = []
    if state.uid is None:
        changes.append(Change(what=f"user {inputs.user}", why="no such user"))
        lines.append(
            f"getent group {name} >/dev/null || groupadd -g {inputs.uid} {name}; "
            f"useradd -u {inputs.uid} -g {name} -d {HOME} -m -s /bin/sh -K SUB_UID_COUNT=0 -K SUB_GID_COUNT=0 {name}"
        )
    held = {"/etc/subuid": state.subuid, "/etc/subgid": state.subgid}
    files = [file for file, ranges in held.items() if ranges != (_range(inputs),)]
    for file in files:
        changes.append(Change(what=file, why=f"not the range {_range(inputs)}"))
        lines.append(
            # grep's status 1: no other users. A worse one must not lose theirs.
            f"{{ [ ! -f {file} ] || grep -v ^{name}: {file} || [ $? -eq 1 ] || exit 1;"
            f" echo {_range(inputs)}; }} > {file}.rackproof-new"
            f" && chmod 644 {file}.rackproof-new && mv -f {file}.rackproof-new {file}"
        )
    for folder in folders:
        owner = state.folders.get(folder)
        if owner != str(inputs.uid):
            path = shlex.quote(folder)
            changes.append(Change(what=folder, why=f"owner {owner} becomes {inputs.uid}" if owner else "absent"))
            lines.append(
                f"timeout -k 2 60 install -d -m 755 -o {inputs.uid} -g {inputs.uid} -- {path} || "
                f"{{ echo {shlex.quote(f'{folder}: cannot be given to {inputs.user}; does the server squash root?')}"
                " >&2; exit 1; }"
            )
    return ScriptPlan(tuple(lines), tuple(changes), (), tuple(map(later, files)))


def _range(inputs: ContainerInputs) -> str:
    return f"{inputs.user}:{inputs.subordinate_start}:{inputs.subordinate_count}"
