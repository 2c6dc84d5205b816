"""Operations of one node that read facts of another: its ssh keys, or the key of a file system.

A fact of another node is read once in a run, when it is first needed, over the run's own connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TypeVar
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.context import host, inventory

from rackproof.configure import facts, mounts, trust
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile, block_of
from rackproof.configure.operation import Commands, note, operation, record, required
from rackproof.configure.operations import file_states, write_files
from rackproof.core.plan import Change
from rackproof.errors import Refused

T = TypeVar("T")

_Key = tuple[bool, str, str]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers of one run."""

    known: dict[_Key, object] = field(default_factory=dict)
    locks: dict[_Key, BoundedSemaphore] = field(default_factory=lambda: defaultdict(lambda: BoundedSemaphore(1)))


_runs: WeakKeyDictionary[State, _Answers] = WeakKeyDictionary()


def _key(other: Host, what: str) -> _Key:
    # Answers of the planning pass are not used in the execution pass.
    return bool(other.state.is_executing), other.name, what


def forget(other: Host, what: str) -> None:
    """Drop the cached answer; the next call of ``ask_node`` reads it again."""
    _runs.setdefault(other.state, _Answers()).known.pop(_key(other, what), None)


def ask_node(other: Host, what: str, question: Callable[[Host], T | None]) -> T | None:
    """Read an answer of another node once in a run; concurrent callers wait for it.

    None when the node has already failed in this run, cannot be reached, or gives no answer. None is cached too: a dead
    node costs one timeout, not one for every other node.
    """
    key = _key(other, what)
    answers = _runs.setdefault(other.state, _Answers())
    with answers.locks[key]:
        if key not in answers.known:
            answers.known[key] = _put(other, what, question)
        return answers.known[key]  # type: ignore[return-value]  # stored above, for the same question


def _put(other: Host, what: str, question: Callable[[Host], T | None]) -> T | None:
    if other in other.state.failed_hosts:
        return None
    try:
        if not other.connected:  # excluded from this run by --limit
            other.connect(reason=f"to ask for {what}", raise_exceptions=True)
        return question(other)
    except ConnectError as error:
        logger.warning("%s: %s", other.name, error)
        return None


def _identity(other: Host) -> trust.Identity | None:
    return other.get_fact(facts.Identity)


@operation()
def own_key() -> Commands:
    """Make an ssh key pair for root when there is none.

    **Example:**

    .. code:: python

        rack_operations.own_key(name="Key of root")
    """
    node = inventory.get_host(host.name)
    identity = required(ask_node(node, "identity", _identity), "the node's ssh keys")
    if identity.user_key is None:
        record([Change(what=trust.PRIVATE_KEY, why="absent")])
        yield StringCommand(trust.keygen_script(host.name))
        forget(node, "identity")
    else:
        host.noop("root has a key")


@operation()
def ssh_trust(names: Mapping[str, Sequence[str]], mpi_nodes: Sequence[str]) -> Commands:
    """Write the host keys of all nodes to ssh_known_hosts; let root of the other MPI nodes log in to an MPI node.

    + names: further names of every node of the rack
    + mpi_nodes: nodes that run MPI

    Keys of a node that does not answer stay as they are on other nodes; when there are none, a warning names the node.

    **Example:**

    .. code:: python

        rack_operations.ssh_trust(name="Trust", names={"gpu-01": ["10.61.0.1"]}, mpi_nodes=["gpu-01"])
    """
    member = host.name in mpi_nodes
    entries: list[Entry] = [RemoteFile(trust.KNOWN_HOSTS, "", block=True)]
    if member:
        entries += [
            RemoteDirectory("/root/.ssh", mode="700"),
            RemoteFile(trust.AUTHORIZED_KEYS, "", mode="600", block=True),
        ]
    states = file_states(entries, "the ssh files")
    present = {path: block_of(file_state.text or "") for path, file_state in states.items()}
    identities = {}
    for name in names:
        identity = ask_node(inventory.get_host(name), "identity", _identity)
        if identity is not None:
            identities[name] = identity
    lines, unknown = trust.known_hosts(names, identities, present.get(trust.KNOWN_HOSTS, ""))
    entries[0] = RemoteFile(trust.KNOWN_HOSTS, lines, block=True)
    if member:
        lines, without_key = trust.authorized_keys(mpi_nodes, identities, present.get(trust.AUTHORIZED_KEYS, ""))
        entries[2] = RemoteFile(trust.AUTHORIZED_KEYS, lines, mode="600", block=True)
        unknown = tuple(dict.fromkeys((*unknown, *without_key)))
    if unknown and host.state.is_executing:
        note(f"no keys of {', '.join(unknown)}: deploy again when these nodes answer")
    yield from write_files(entries, states)


def read_file(other: Host, path: str) -> bytes | None:
    """Content of a file with a secret, None without any. Over sftp: pyinfra may print the output of commands, but not
    the content of files."""
    buffer = BytesIO()
    try:
        if not other.get_file(path, buffer):
            return None
    except OSError:
        return None
    return buffer.getvalue() or None


def _secret(server: Host) -> str | None:
    content = read_file(server, mounts.CEPH_SECRET)
    return content.decode() if content else None


@operation()
def ceph_secret(server: str) -> Commands:
    """Copy the client key of the Ceph file system from its server; readable by root only, never shown.

    + server: node of the cluster

    **Example:**

    .. code:: python

        rack_operations.ceph_secret(name="Client key", server="storage-01")
    """
    content = ask_node(inventory.get_host(server), "ceph secret", _secret)
    if content is None:
        entry = RemoteFile(mounts.CEPH_SECRET, "", mode="600", secret=True)
        states = file_states([entry], "the Ceph client key")
        if mounts.CEPH_SECRET in states:
            host.noop(f"{server} does not answer; the present key stays")
        elif host.state.is_executing:
            raise Refused(f"no Ceph client key on {server}, whose cluster may be down; see there: ceph -s")
        else:
            yield from write_files([entry], states)  # planned; the key is made by the same run
        return
    entries: list[Entry] = [
        RemoteDirectory("/etc/ceph"),
        RemoteFile(mounts.CEPH_SECRET, content, mode="600", secret=True),
    ]
    yield from write_files(entries)
