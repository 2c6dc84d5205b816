"""Single drives, one of a node after another, and the OSDs of a Ceph cluster, one after another.

Nodes that are machines of their own are measured at once; virtual ones share a host and are measured one by one.
Drives are read and never written; OSDs write objects of their own and remove them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rackproof.bench.drives.listing import ListedDrive, drives_in, list_command, state_command, usable
from rackproof.bench.drives.osd_reader import WRITE, bench_command, osds_command, osds_on, placed
from rackproof.bench.drives.reader import READ, fio_line, read_command, read_drives
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_of, unmeasured
from rackproof.core.architecture import Architecture, DriveProfile, OsdProfile
from rackproof.core.architecture.expectations import role_with
from rackproof.core.drives import declared_drives, drive_names
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

LIST_S = 60.0
SETUP_S = 3.0
"""Start and end of one run."""
MARGIN_S = 60.0
TYPICAL, SLOWEST = 200e6, 1e6
"""B/s that an OSD writes: for estimates, and for time limits."""
CLUSTER_S = 15.0
"""Time limit of monitors where the architecture has none."""


def plan(architecture: Architecture, profile: DriveProfile, rack: Rack) -> list[Step]:
    """One step per use of drives."""
    declared = dict.fromkeys(use for node in rack.nodes for use in declared_drives(architecture, node.groups))
    every = (_Reads.of(architecture, rack, use) for use in profile.uses or declared)
    return [reads.step(profile) for reads in every if reads.drives]


def plan_osds(architecture: Architecture, profile: OsdProfile, rack: Rack) -> list[Step]:
    """One step for all OSDs; none where no node can ask the cluster."""
    osds = _Osds.of(architecture, rack, profile.use)
    roles = [s.server_role for s in architecture.storage.values() if s.fstype == "ceph" and s.server_role]
    servers = tuple(dict.fromkeys(node.name for role in roles for node in rack.group(role)))
    return [osds.step(profile, servers)] if osds.drives and servers else []


@dataclass(frozen=True)
class _Drives:
    """The drives of one use."""

    architecture: Architecture
    rack: Rack
    use: str
    drives: Mapping[str, tuple[str, ...]]
    """Names of the drives by node."""

    @classmethod
    def of(cls, architecture: Architecture, rack: Rack, use: str) -> Self:
        declared = {node.name: declared_drives(architecture, node.groups).get(use) for node in rack.nodes}
        named = {node: drive_names(node, use, drives.count) for node, drives in declared.items() if drives}
        return cls(architecture, rack, use, {node: names for node, names in named.items() if names})

    @property
    def who(self) -> str:
        return f"{counted(sum(map(len, self.drives.values())), 'drive')} of {counted(len(self.drives), 'node')}"

    def places(self, metric: str, block_bytes: int, step: str) -> tuple[Measurement, ...]:
        """Every drive, and every node for its slowest one."""
        labels = {"use": self.use, "block_bytes": str(block_bytes)}
        names = [name for names in self.drives.values() for name in names]
        return (
            *(expected(metric, Scope.DRIVE, [name], labels, step) for name in names),
            *(expected(metric, Scope.NODE, [node], labels, step) for node in self.drives),
        )

    def listed(self, context: BenchContext) -> tuple[list[CommandResult], dict[str, str]]:
        """Lists of the drives, and why nodes are lost."""
        alive = context.session.alive(list(self.drives), context.say)
        roles = {node: role_with(self.architecture, self.rack.node(node).groups, "drives") for node in self.drives}
        answers = context.session.run({node: list_command(roles[node] or "") for node in alive}, LIST_S)
        silent = [node for node in self.drives if node not in alive]
        for node in silent:  # so that the evidence has it
            absent = CommandResult(node, list_command(roles[node] or ""), None, error="it does not answer")
            answers[node] = context.session.record(absent)
        return list(answers.values()), {node: f"{node} does not answer" for node in silent}

    def usable(self, answers: list[CommandResult], node: str) -> list[ListedDrive]:
        """Drives of a node that can be measured; the reader says why others cannot."""
        drives_of, listed = drives_in(answers, self.architecture), []
        for name in self.drives[node]:
            try:
                listed.append(usable(drives_of(node, self.use), name))
            except ParseError:
                continue
        return listed

    def results(
        self, answers: list[CommandResult], lost: Mapping[str, str], places: Iterable[Measurement]
    ) -> Iterator[Measurement]:
        read = read_drives(answers, self.architecture)
        for place in places:
            node = place.members[0].partition("/")[0]
            try:
                yield unmeasured(place, lost[node]) if node in lost else reading_of(place, read)
            except ParseError as error:
                yield unmeasured(place, str(error), outputs_of(a for a in answers if a.node == node))


class _Reads(_Drives):
    """fio on every drive."""

    def step(self, profile: DriveProfile) -> Step:
        places = self.places(READ, profile.block_bytes, f"drives/{self.use}/read")
        title = f"{self.use} drives: reads of {profile.block_bytes} B, {self.who}, one of a node after another"
        seconds = {node: profile.runs * len(n) * (profile.runtime_s + SETUP_S) for node, n in self.drives.items()}
        virtual, physical = self._apart()
        estimate = max([sum(seconds[node] for node in virtual), *(seconds[node] for node in physical)])

        def execute(context: BenchContext) -> Iterator[Measurement]:
            answers, lost = self.listed(context)
            virtual, physical = self._apart(lost)

            def run(node: str) -> None:
                drives = self.usable(answers, node)
                try:
                    for listed in drives * profile.runs:
                        limit = profile.runtime_s + MARGIN_S
                        answers.append(context.session.run_on(node, read_command(listed, profile), limit, hold=True))
                except RemoteError as error:
                    lost[node] = str(error)

            context.session.fleet.each(physical, lambda connection: run(connection.node.name), title)
            for node in virtual:
                run(node)
            yield from self.results(answers, lost, places)

        return Step(places[0].step, title, estimate, places, execute, commands=(fio_line(["DEVICE"], profile),))

    def _apart(self, lost: Mapping[str, str] = {}) -> tuple[list[str], list[str]]:
        """Virtual and physical nodes."""
        nodes = [node for node in self.drives if node not in lost]
        virtual = [node for node in nodes if self.rack.node(node).virtual]
        return virtual, [node for node in nodes if node not in virtual]


class _Osds(_Drives):
    """The benchmark of every OSD."""

    def step(self, profile: OsdProfile, servers: Sequence[str]) -> Step:
        """``servers`` of the cluster: the first that it answers asks it, which with cephadm is one with its key."""
        places = self.places(WRITE, profile.block_bytes, f"osds/{self.use}/write")
        title = f"{self.use} drives: OSDs write {profile.bytes} B each, {self.who}, one after another"
        limit = self.architecture.ceph.answer_timeout_s if self.architecture.ceph else CLUSTER_S
        seconds = profile.runs * sum(map(len, self.drives.values())) * (profile.bytes / TYPICAL + SETUP_S)

        def execute(context: BenchContext) -> Iterator[Measurement]:
            answers, lost = self.listed(context)
            cluster = ""
            for cluster in (node for node in servers if node not in lost):
                answers.append(context.session.run_on(cluster, osds_command(limit), 2 * limit + MARGIN_S))
                if answers[-1].ok:
                    break
            try:
                on_drives = placed(answers, self.use, drives_in(answers, self.architecture))
                lost = {node: f"{why}{osds_on(answers, node)}" for node, why in lost.items()}
            except ParseError as error:
                on_drives, lost = {}, dict.fromkeys(self.drives, str(error)) | lost
            drives = [listed for node in self.drives if node not in lost for listed in self.usable(answers, node)]
            for listed in drives * profile.runs:
                for osd in (osd.number for osd in on_drives.get(listed.name, ()) if osd.up):
                    node, state = listed.name.partition("/")[0], state_command(listed.watched)
                    bench = bench_command(osd, profile.bytes, profile.block_bytes, limit)
                    try:
                        for where, command in ((node, state), (cluster, bench), (node, state)):
                            seconds = limit + profile.bytes / SLOWEST if command == bench else 0.0
                            answers.append(context.session.run_on(where, command, seconds + MARGIN_S, hold=True))
                    except RemoteError as error:
                        lost[node] = str(error)
            yield from self.results(answers, lost, places)

        shown = (osds_command(limit), bench_command(0, profile.bytes, profile.block_bytes, limit))
        return Step(places[0].step, title, seconds, places, execute, commands=shown)
