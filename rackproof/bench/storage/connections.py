"""Reads of one client over several connections of NFS, as a ratio to the same over one, or over RDMA to over TCP.

The declared mount stays as it is. Linux gives every mount of one server in one version of NFS the same connections,
from 4.1 on even where one asks for RDMA and the other for TCP. So the step mounts the export once more, in a version
that the client does not use with this server, and proves that no other mount has its connections. A process on the node
unmounts it with the step, or when the controller is gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from typing import Final

from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.storage.client_runs import SETUP_S, StorageClients, fio_step
from rackproof.bench.storage.commands import folders_of, state_after
from rackproof.bench.storage.connections_reader import POINT, SPEEDUP, VERSIONS, Leg, legs, own_mount, version_of
from rackproof.bench.storage.proof import check_mounts, mounts_of
from rackproof.bench.storage.reader import NAME, read_storage
from rackproof.bench.storage.runs import state_in
from rackproof.core.architecture import Architecture, ConnectionsProfile, Storage
from rackproof.core.architecture.storage import canonical
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, layout_of, render
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.mounted import server_of
from rackproof.remote.command import MARK
from rackproof.remote.interrupt import STOPPING
from rackproof.shell import script

LIFE_S: Final = 2 * 3600
"""Longest life of a mount, in seconds."""
MOUNT_S: Final = 75.0
"""Time for one mount, and for the end of an earlier one."""
_READY: Final = b"rackproof-own-mount\n"
_GONE: Final = f"for i in $(seq 1 100); do mountpoint -q {POINT} || exit 0; sleep 0.2; done; exit 1"
_OF_DECLARED: Final = (
    "vers", "proto", "port", "nconnect", "mountproto", "nolock", "fsc", "nofail", "_netdev", "bg",
)  # fmt: skip
"""Options of the declared mount that this one does not take over."""


def step(architecture: Architecture, name: str, metric: str, profile: ConnectionsProfile, names: list[str]) -> Step:
    """The step of one storage: one client after another, because together they would share the server."""
    pair = legs(architecture, name, metric, profile.count)
    id_ = f"storage/{name}/{'connections' if metric == SPEEDUP else 'transports'}"
    labels = {"storage": name, "block_bytes": str(profile.block_bytes)}
    places = [expected(metric, Scope.NODE, [node], labels, id_) for node in names]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        for place in places:
            client = _Client(context, architecture, name, layout_of([profile]), place.members[0])
            why = client.execute(profile, pair)
            read = read_storage(client.answers, context.session.architecture)
            yield reading_or_reason(place, read, NAME, outputs_of(client.own), why)

    runs = 2 * profile.runs * len(names)
    seconds = runs * (profile.runtime_s + profile.ramp_s + 2 * SETUP_S)
    who = counted(len(names), "client", "clients one after another")
    title = f"{name}: reads over {pair[1].text} and over {pair[0].text}, by {who}"
    files = [partial(render, leg.job, profile) for leg in pair]
    return fio_step(own_mount(pair[0].storage, VERSIONS[0], 1), names, places, title, seconds, execute, *files)


class _Client(StorageClients):
    """One client. ``storage`` is the mount of its own for the length of a run."""

    def __init__(self, context: BenchContext, architecture: Architecture, name: str, layout: Layout, node: str) -> None:
        super().__init__(context, name, architecture.storage[name], layout, [node])
        self.context, self.node, self.declared = context, node, self.storage

    def execute(self, profile: ConnectionsProfile, pair: tuple[Leg, Leg]) -> str:
        """All runs. Returns why there is no number."""
        try:
            version, source = self._choose()
            for leg in pair * profile.runs:
                self._run(profile, version, source, leg)
        except (RemoteError, ParseError) as error:
            return str(error)
        return self.lost.get(self.node, "")

    def _choose(self) -> tuple[str, str]:
        """A version of NFS that no mount of the declared server uses, and the source to mount. Raises ParseError."""
        ask = state_after(self.declared, (), self.addresses)
        state = state_in(self.ask({self.node: ask})[self.node], "before")
        check_mounts(self.declared, state, "before")
        declared = next(mount for mount in mounts_of(self.declared, state) if mount is not None)
        servers = {server_of(declared), *self.addresses}
        used = {
            version: mount.mountpoint
            for mount in state.client.mounts
            if mount.fstype.startswith("nfs") and server_of(mount) in servers
            for version in [version_of(mount)]
            if version != "3"
            or server_of(mount) == server_of(declared)  # NFS 3 does not know two addresses as one server
        }
        version = next((version for version in VERSIONS if version not in used), None)
        if version is None:
            points = ", ".join(sorted(set(used.values())))
            raise ParseError("mount", f"{points} use every version of NFS, and another mount would share connections")
        return version, declared.source

    def _run(self, profile: ConnectionsProfile, version: str, source: str, leg: Leg) -> None:
        """One run on a mount of its own. Raises RemoteError if there is no such mount."""
        if self.lost:
            return
        self.storage = own_mount(leg.storage, version, leg.count)
        command = mount_command(leg.storage, version, source, leg.count)
        pipe = self.session.fleet[self.node].pipe(command, LIFE_S)
        self.context.stack.callback(pipe.close)
        try:
            if not pipe.skip_to(_READY, MOUNT_S):
                self.lost[self.node] = f"{self.node}: no mount with {leg.text}: {pipe.why}"
                return
            self.write_files()
            if not self.lost:
                job_file = partial(render, leg.job, profile)
                self.run([self.node], job_file, profile.runtime_s + profile.ramp_s, again=False)
        finally:
            pipe.close()
        if not STOPPING.is_set() and not self.session.fleet[self.node].run(_GONE, MOUNT_S).ok:
            self.lost.setdefault(self.node, f"{self.node}: {POINT} could not be unmounted")

    def _directories(self, node: str) -> tuple[str, ...]:
        return connection_folders(self.storage, self.name, node)


def connection_folders(storage: Storage, name: str, node: str) -> tuple[str, ...]:
    """Folders of the step's files of a node, one per mount, beside those of other jobs. Of this storage alone: another
    one may be another export at the same mount point."""
    return tuple(f"{folder}-connections-{name}" for folder in folders_of(storage, node))


def mount_command(storage: Storage, version: str, source: str, count: int) -> str:
    """Command that keeps the mount while its input is open.

    It has no mark: at the end of the program it gets a signal through ``timeout``, and the time to unmount.
    """
    own = [option for option in storage.options if canonical(option).partition("=")[0] not in _OF_DECLARED]
    own += [f"vers={version}", f"proto={storage.transport or 'tcp'}"]
    own += ["retry=0"] if storage.over_rdma else [f"nconnect={count}", "retry=0"]
    own += [f"port={storage.port}"] if storage.port else []
    own += ["nolock", "mountproto=tcp"] if version == "3" else []
    text = script(__name__, "own_mount", point=POINT, source=source, options=",".join(dict.fromkeys(own)))
    return f"exec env -u {MARK} sh -c {shlex.quote(text)}"
