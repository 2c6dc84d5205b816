"""Reads of one client over several connections of NFS, as a ratio to the same over one; likewise over RDMA to over TCP,
and over several mounts, each of another address of the server, to over one.

The declared mount stays as it is. Linux gives every mount of one server in one version of NFS the same connections,
from 4.1 on even where one asks for RDMA and the other for TCP. So the step mounts the export once more, in a version
that the client does not use with this server, and proves that no other mount has its connections. A process on the node
unmounts it with the step, or when the controller is gone. Several mounts are made in NFS 3, which knows no two
addresses as one server.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.storage.client_runs import SETUP_S, StorageClients
from rackproof.bench.storage.commands import folders_of, state_after
from rackproof.bench.storage.connections_reader import (
    APART,
    MOUNTS_GAIN,
    RDMA_GAIN,
    SPEEDUP,
    VERSIONS,
    Leg,
    legs,
    protocol_of,
    version_of,
)
from rackproof.bench.storage.layout import FIRST_S, SUFFIX
from rackproof.bench.storage.proof import check_mounts, mounts_of
from rackproof.bench.storage.reader import read_storage
from rackproof.bench.storage.runs import State, state_in
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import Architecture, ConnectionsProfile, MountsProfile, Storage, StorageProfile
from rackproof.core.architecture.storage import canonical
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, command_line, layout_of, render, render_layout
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.mounted import export_of, server_of
from rackproof.remote.command import MARK
from rackproof.remote.interrupt import STOPPING
from rackproof.shell import script

LIFE_S: Final = 2 * 3600
"""Longest life of a mount, in seconds."""
MOUNT_S: Final = 75.0
"""Time for one mount, and for the end of an earlier one."""
_READY: Final = b"rackproof-own-mount\n"
_MOUNTED: Final = f"grep -q ' {OWN_MOUNT}[0-9]* ' /proc/self/mounts"
GONE: Final = f"for i in $(seq 1 100); do {_MOUNTED} || exit 0; sleep 0.2; done; exit 1"
_LEGS: Final = {SPEEDUP: "connections", RDMA_GAIN: "transports", MOUNTS_GAIN: "mounts"}
"""Last part of a step's id."""
_OF_DECLARED: Final = (
    "vers", "proto", "port", "nconnect", "mountproto", "nolock", "fsc", "nofail", "_netdev", "bg",
)  # fmt: skip
"""Options of the declared mount that this one does not take over."""

Sizes = ConnectionsProfile | MountsProfile


def steps(
    architecture: Architecture, name: str, profile: StorageProfile, names: list[str], addresses: Sequence[str]
) -> Iterator[Step]:
    """The steps of one storage, whose servers have these addresses."""
    storage, layout = architecture.storage[name], layout_of_own(profile)
    asked = {
        SPEEDUP: profile.connections if storage.takes_connections else None,
        RDMA_GAIN: profile.transports if storage.over_rdma else None,
        MOUNTS_GAIN: profile.mounts if storage.class_ == "nfs" else None,
    }
    for metric, sizes in asked.items():
        if sizes is not None and layout is not None:
            yield _step(architecture, name, metric, sizes, layout, names, addresses)


def layout_of_own(profile: StorageProfile) -> Layout | None:
    """Files of all steps on mounts of their own, which use the same ones; None without such a step."""
    jobs = [job for job in (profile.connections, profile.transports, profile.mounts) if job is not None]
    return layout_of(jobs) if jobs else None


def _step(
    architecture: Architecture,
    name: str,
    metric: str,
    profile: Sizes,
    layout: Layout,
    names: list[str],
    addresses: Sequence[str],
) -> Step:
    """One client after another, because together they would share the server."""
    pair = legs(architecture, name, metric, profile.count)
    id_ = f"storage/{name}/{_LEGS[metric]}"
    labels = {"storage": name, "block_bytes": str(profile.block_bytes)}
    places = [expected(metric, Scope.NODE, [node], labels, id_) for node in names]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        for place in places:
            client = _Client(context, architecture, name, layout, place.members[0])
            why = client.execute(profile, metric, pair)
            read = read_storage(client.answers, context.session.architecture)
            yield reading_or_reason(place, read, outputs_of(client.own), why)

    runs = 2 * profile.runs * len(names)
    seconds = runs * (profile.runtime_s + profile.ramp_s + 2 * SETUP_S)
    who = counted(len(names), "client", "clients one after another")
    title = f"{name}: reads over {pair[1].text} and over {pair[0].text}, by {who}"
    written = partial(render_layout, f"{name}{SUFFIX}", layout, limit_s=FIRST_S)
    commands = [
        command
        for node in names[:1]
        for leg in pair
        for folders in [":".join(connection_folders(leg.own_mounts(APART), name, node))]
        for command in (
            *_mounts(leg, metric, addresses),
            *(command_line(job_file(folders)) for job_file in (written, partial(render, leg.job, profile))),
        )
    ]
    return Step(id_, title, seconds, tuple(places), execute, commands=tuple(dict.fromkeys(commands)))


def _mounts(leg: Leg, metric: str, addresses: Sequence[str]) -> list[str]:
    """Mounts of a leg for a dry run: with the first version of NFS that a step tries, as the client's own mounts decide
    which one it is."""
    version = APART if metric == MOUNTS_GAIN else VERSIONS[0]
    points = leg.own_mounts(version).mountpoints
    return [
        shlex.join(["mount", "-t", "nfs", "-o", _options(leg, version), "--", export_of(address, source), point])
        for source in [leg.storage.source]
        for address, point in zip(addresses, points, strict=False)
    ]


class _Client(StorageClients):
    """One client. ``storage`` is the mounts of its own for the length of a run."""

    def __init__(self, context: BenchContext, architecture: Architecture, name: str, layout: Layout, node: str) -> None:
        super().__init__(context, name, architecture.storage[name], layout, [node])
        self.node, self.declared = node, self.storage

    def execute(self, profile: Sizes, metric: str, pair: tuple[Leg, Leg]) -> str:
        """All runs. Returns why there is no number."""
        try:
            version, sources = self._choose() if metric != MOUNTS_GAIN else (APART, self._apart(profile.count))
            for leg in pair * profile.runs:
                self._run(profile, version, sources[: leg.mounts], leg)
        except (RemoteError, ParseError) as error:
            return str(error)
        return self.lost.get(self.node, "")

    def _choose(self) -> tuple[str, list[str]]:
        """A version of NFS that no mount of the declared server uses, and the source to mount. Raises ParseError."""
        state = self._declared()
        mounts = [mount for mount in mounts_of(self.declared, state) if mount is not None]
        declared = next((mount for mount in mounts if server_of(mount) in self.addresses[:1]), mounts[0])
        servers = {server_of(declared), *self.addresses}
        used = {
            version: mount.mountpoint
            for mount in state.client.mounts
            if mount.fstype.startswith("nfs") and server_of(mount) in servers
            for version in [version_of(mount)]
            if version != APART
            or server_of(mount) == server_of(declared)  # NFS 3 does not know two addresses as one server
        }
        version = next((version for version in VERSIONS if version not in used), None)
        if version is None:
            points = ", ".join(sorted(set(used.values())))
            raise ParseError("mount", f"{points} use every version of NFS, and another mount would share connections")
        return version, [declared.source]

    def _apart(self, count: int) -> list[str]:
        """Sources of so many mounts, each with another address of the server. Raises ParseError."""
        self._declared()
        if len(self.addresses) < count:
            has = f"the inventory has {counted(len(self.addresses), 'address', 'addresses')} of its server"
            raise ParseError("mount", f"{has}, the profile asks for {count} mounts")
        return [export_of(address, self.declared.source) for address in self.addresses[:count]]

    def _declared(self) -> State:
        """The client's state with the declared mounts. Raises ParseError for others."""
        ask = state_after(self.declared, (), self.origin)
        state = state_in(self.ask({self.node: ask})[self.node], "before")
        check_mounts(self.declared, state, "before")
        return state

    def _run(self, profile: Sizes, version: str, sources: Sequence[str], leg: Leg) -> None:
        """One run on mounts of its own. Raises RemoteError if there are no such mounts."""
        if self.lost:
            return
        self.storage = leg.own_mounts(version)
        pipe = self.session.fleet[self.node].pipe(mount_command(leg, version, sources), LIFE_S)
        self.context.stack.callback(pipe.close)
        try:
            if not pipe.skip_to(_READY, MOUNT_S * leg.mounts):
                self.lost[self.node] = f"{self.node}: no mount with {leg.text}: {pipe.why}"
                return
            self.write_files()
            if not self.lost:
                job_file = partial(render, leg.job, profile)
                self.run([self.node], job_file, profile.runtime_s + profile.ramp_s, again=False)
        finally:
            pipe.close()
        if not STOPPING.is_set() and not self.session.fleet[self.node].run(GONE, MOUNT_S).ok:
            self.lost.setdefault(self.node, f"{self.node}: {OWN_MOUNT} could not be unmounted")

    def _directories(self, node: str) -> tuple[str, ...]:
        return connection_folders(self.storage, self.name, node)


def connection_folders(storage: Storage, name: str, node: str) -> tuple[str, ...]:
    """Folders of the step's files of a node, one per mount, beside those of other jobs. Of this storage alone: another
    one may be another export at the same mount point."""
    return tuple(f"{folder}-connections-{name}" for folder in folders_of(storage, node))


def mount_command(leg: Leg, version: str, sources: Sequence[str]) -> str:
    """Command that keeps the leg's mounts, one of each source, while its input is open.

    It has no mark: at the end of the program it gets a signal through ``timeout``, and the time to unmount.
    """
    numbered = "1" if leg.mounts > 1 else ""
    text = script(__name__, "own_mount", *sources, point=OWN_MOUNT, options=_options(leg, version), numbered=numbered)
    return f"exec env -u {MARK} sh -c {shlex.quote(text)}"


def _options(leg: Leg, version: str) -> str:
    """Options of the leg's mounts."""
    storage, protocol = leg.storage, protocol_of(leg.storage)
    own = [option for option in storage.options if canonical(option).partition("=")[0] not in _OF_DECLARED]
    own += [f"vers={version}", f"proto={protocol}"]
    own += ["retry=0"] if protocol == "rdma" else [f"nconnect={leg.count}", "retry=0"]
    own += [f"port={storage.port}"] if storage.port else []
    own += ["nolock", "mountproto=tcp"] if version == "3" else []
    own += ["nosharecache"] if leg.apart else []  # the declared mount of NFS 3 keeps its own cache and counters
    return ",".join(dict.fromkeys(own))
