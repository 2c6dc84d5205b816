"""The user that measures: an account without rights on every node.

Benchmark programs take connections and do what they are told there, so none of them runs as root: the account owns its
home and the folders of the benchmarks, and nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Final

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.errors import NodeUnreachable
from rackproof.parse import ParseError
from rackproof.parse.accounts import parse_account_numbers
from rackproof.remote.command import CommandResult, portable
from rackproof.remote.ssh import Connection
from rackproof.shell import script

USER: Final = "rackproof-bench"
HOME: Final = "/run/rackproof-bench"
"""Made by root for a stage, of mode 700, and removed with it; root alone can make a name in ``/run``."""
JOIN_HOME: Final = "/run/rackproof-join"
"""Folder of the program with which a node joins. Root's own: the account that measures must not change what root
runs."""
OWN_MOUNT: Final = "/run/rackproof-own-mount"
"""Where the benchmarks mount a storage once more; several mounts have a number after it."""
TIDY: Final = (
    f"rm -rf -- {HOME} {JOIN_HOME}; for at in {OWN_MOUNT} {OWN_MOUNT}[0-9] {OWN_MOUNT}[0-9][0-9]; do"
    ' [ ! -d "$at" ] || { timeout -k 2 5 umount -l -- "$at"; rmdir -- "$at"; } 2>/dev/null; done;'
    f" find /dev/shm -xdev -mindepth 1 -maxdepth 1 -type f -user {USER} -delete 2>/dev/null"
)
"""Also what a killed program leaves: its mount, and the shared memory of NCCL's ranks (``/dev/shm/nccl-…``), which
would fill the node's memory."""
SETUP: Final = script(__name__, "user", account=USER, home=HOME)
_TIMEOUT_S: Final = 60.0
_IMPORT: Final = re.compile(rb"^from (\w+_node) import ", re.MULTILINE)
"""In programs of the nodes: a module that has to be beside the program."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account's numbers on one node."""

    uid: int
    gid: int

    @property
    def prefix(self) -> str:
        """Prefix of root's commands that run as this account, without a way back. Locked memory is unlimited where root
        may decide it, because RDMA pins what it registers. Temporary files go where the end of the stage removes them:
        an MPI that is killed keeps its folder."""
        become = (
            "prlimit --memlock=unlimited --pid $$ 2>/dev/null;"
            f" exec setpriv --reuid={self.uid} --regid={self.gid} --clear-groups --no-new-privs"
            f' env -C {HOME} HOME={HOME} TMPDIR={HOME} USER={USER} LOGNAME={USER} "$@"'
        )
        return f"sh -c {portable(become)} as "


def account_of(answer: CommandResult) -> Account:
    """The account that ``SETUP`` prints. Raises ParseError."""
    if not answer.ok:
        raise ParseError(USER, answer.why)
    return Account(*parse_account_numbers(USER, answer.text))


@cache
def with_imports(package: str, programs: tuple[str, ...]) -> dict[str, bytes]:
    """Sources by file name: programs of a package, and the modules of it or of ``rackproof.bench`` that they import."""
    sources: dict[str, bytes] = {}
    left = list(programs)
    while left:
        name = left.pop(0)
        if name not in sources:
            beside, here = (files(place).joinpath(name) for place in (package, "rackproof.bench"))
            sources[name] = (beside if beside.is_file() else here).read_bytes()
            left += [f"{module.decode()}.py" for module in _IMPORT.findall(sources[name])]
    return sources


def node_program(name: str, *words: str, home: str = HOME) -> str:
    """Command that runs a program of the kit, which is in the folder ``home`` of a node."""
    return f"python3 -I {home}/{name} {shlex.join(words)}"


class BenchUsers(OncePerStage):
    """Accounts of the nodes."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._accounts: dict[str, Account] = {}
        self._copied: set[tuple[str, str]] = set()

    def __getitem__(self, node: str) -> Account:
        """Raises NodeUnreachable for a node that has no account yet."""
        try:
            return self._accounts[node]
        except KeyError:
            raise NodeUnreachable(node, f"it has no account {USER}") from None

    def ready(self, nodes: Iterable[str]) -> dict[str, str]:
        """Make missing accounts. Returns the nodes without one and the reasons."""
        lost = {}
        missing = dict.fromkeys((node for node in nodes if node not in self._accounts), SETUP)
        for node, answer in self._session.run(missing, _TIMEOUT_S).items() if missing else ():
            try:
                self._accounts[node] = account_of(answer)
            except ParseError as error:
                lost[node] = f"{node}: no account {USER} to measure with: {error.reason}"
        return lost

    def put(self, nodes: Sequence[str], package: str, programs: Iterable[str]) -> None:
        """Copy missing programs of a package, and what they import, into the homes of nodes that are ready.

        Raises RemoteError.
        """
        for name, data in with_imports(package, tuple(programs)).items():
            if missing := [node for node in nodes if (node, name) not in self._copied]:
                self._session.fleet.each(missing, partial(self._put, data, name), "the programs that measure")
                self._copied |= {(node, name) for node in missing}

    def _put(self, data: bytes, name: str, connection: Connection) -> None:
        connection.put(data, f"{HOME}/{name}", self[connection.node.name].prefix)
