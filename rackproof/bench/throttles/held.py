"""The limits of a scaled architecture, in force while its rack is measured, and the proof of it from recorded answers.

Every node with limits runs a program that sets them and removes them when its input ends: with the stage, with the
program, or with the connection. What even a killed program of the node leaves is removed at the next bench stage, and
a reboot removes everything. After each change and each step the limits are read back from the kernel; a step without
them has no numbers. Nodes that the inventory does not call virtual get none, and neither do machines, ports and drives
that are not QEMU's: their program refuses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, NodeInfo
from rackproof.core.rack import Node
from rackproof.core.throttles import BPS, CONDITION, IOPS, LABEL, NodeLimits, limits_of
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.throttles import MARK as ANSWER
from rackproof.parse.throttles import TOOL, parse_throttles
from rackproof.remote.channel import Pipe
from rackproof.remote.command import MARK, CommandResult
from rackproof.remote.interrupt import STOPPING
from rackproof.remote.ssh import Connection
from rackproof.shell import script

LIFE_S: Final = 12 * 3600.0
_READY: Final = b"rackproof-throttles\n"
_READY_S: Final = 180.0
_CLEAR: Final = script(__name__, "clear")
_HOLD: Final = f"{_CLEAR}\n{script(__name__, 'hold')}"
_DRIVES: Final = {"local": "data_drive", "nfs": "nfs_drive", "parallel": "ceph_drive"}
"""Key of the inventory's data with the drive behind a storage of a class."""


class Throttles(OncePerStage):
    """Limits of all nodes, for the length of a stage."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._pipes: dict[str, Pipe] = {}
        self._set: dict[str, str] = {}
        """The line that each node was given last."""
        self._wanted: dict[str, NodeLimits] = {}
        self._actual: dict[str, Any] = {}

    def begin(self) -> None:
        """Remove what a killed run has left."""
        virtual = [node.name for node in self._session.rack.nodes if node.virtual]
        self._session.fleet.run(dict.fromkeys(virtual, _CLEAR), _READY_S)

    def bring_about(self, port_gbps: int | None) -> str:
        """Set the limits of the next step, and read them back. Returns why they are not in force; empty if they are."""
        architecture = self._session.architecture
        nodes = self._session.rack.nodes
        limits = [(node, limits_of(architecture, node.groups, port_gbps)) for node in nodes]
        self._wanted = {node.name: own for node, own in limits if any(own)}
        lines = {}
        for node, own in limits:
            if any(own):
                if not node.virtual:
                    return f"{node.name} is no virtual machine, and {architecture.metadata.id} limits ports or drives"
                if why := _missing(architecture.storage, node, own):
                    return why
                lines[node.name] = self._line(node, own)
        changed = [node for node, line in lines.items() if self._set.get(node) != line or not self._pipes[node].alive]

        def give(connection: Connection) -> str | None:
            return self._give(connection, lines[connection.node.name])

        for name, refused in self._session.fleet.each(changed, give, "the limits of ports and drives").items():
            if refused is not None:
                return f"{name}: limits of ports and drives: {refused}"
        return self.read() if changed else ""

    def _line(self, node: Node, limits: NodeLimits) -> str:
        words = [f"port:{name}:{rate:.0f}" for name, rate in limits.ports.items()]
        words += [f"connections:{name}:{rate:.0f}" for name, rate in limits.connections.items()]
        for name, own in limits.drives.items():
            device = self._device(node, name)
            words.append(f"drive:{device}:{own.get(BPS, 0):.0f}:{own.get(IOPS, 0):.0f}")
        return " ".join(words + (["nfsd"] if self._nfsd(limits) else []))

    def _device(self, node: Node, storage: str) -> str:
        return str(node.data[_DRIVES[self._session.architecture.storage[storage].class_]])

    def _nfsd(self, limits: NodeLimits) -> bool:
        return any(self._session.architecture.storage[name].class_ == "nfs" for name in limits.drives)

    def _give(self, connection: Connection, line: str) -> str | None:
        """Why the node has not set its limits."""
        name = connection.node.name
        pipe = self._pipes.get(name)
        try:
            if pipe is None or not pipe.alive:
                pipe = self._pipes[name] = connection.pipe(f"exec env -u {MARK} sh -c {shlex.quote(_HOLD)}", LIFE_S)
        except RemoteError as error:
            return error.reason
        self._set.pop(name, None)
        if not pipe.write(f"{line}\n".encode()) or not pipe.skip_to(_READY, _READY_S):
            return pipe.why
        self._set[name] = line
        return None

    def read(self) -> str:
        """Read the limits back. Returns the first difference from what was set; empty without any."""
        self._actual = {}
        if not self._wanted:
            return ""
        commands = {}
        for name, limits in self._wanted.items():
            node = self._session.rack.node(name)
            drives = {storage: self._device(node, storage) for storage in limits.drives}
            commands[name] = state_command([*limits.ports, *limits.connections], drives, self._nfsd(limits))
        for name, answer in self._session.run(commands, _READY_S).items():
            actual, why = read_back(answer)
            if actual is None or (why := self._wanted[name].unlike(actual)):
                return f"{name}: limits of ports and drives: {why}"
            self._actual[name] = actual.plain()
        return ""

    def beside(self, measurement: Measurement) -> Measurement:
        """The measurement with the limits that were read back; unchanged without any."""
        if not self._actual or not measurement.samples:
            return measurement
        conditions = measurement.conditions | {CONDITION: self._actual}
        return measurement.model_copy(update={"conditions": conditions})

    def end(self) -> None:
        """Remove all limits."""
        for pipe in self._pipes.values():
            pipe.close()
        if self._pipes and not STOPPING.is_set():
            self._session.fleet.run(dict.fromkeys(self._pipes, _CLEAR), _READY_S)
        self._pipes, self._set = {}, {}


def _missing(storages: Mapping[str, Any], node: Node, limits: NodeLimits) -> str:
    for name in limits.drives:
        key = _DRIVES.get(storages[name].class_)
        if key is None or not node.data.get(key):
            return f"{node.name}: the inventory names no {key or 'drive'} behind {name}, whose reads are limited"
    return ""


def state_command(ports: Iterable[str], drives: Mapping[str, str], nfsd: bool) -> str:
    """Command that reads the limits of these ports and connections, and of these devices by storage."""
    words = [*ports, "--", *(word for pair in drives.items() for word in pair)]
    return script(__name__, "state", *words, nfsd=int(nfsd))


def is_state(command: str) -> bool:
    """Whether a recorded command is ``state_command``."""
    return ANSWER in command


def read_back(answer: CommandResult) -> tuple[NodeLimits | None, str]:
    """The limits of one answer, or None and why it has none."""
    if not answer.ok:
        return None, answer.why
    try:
        return parse_throttles(answer.text), ""
    except ParseError as error:
        return None, str(error)


def proven(
    architecture: Architecture, nodes: Iterable[NodeInfo], measurement: Measurement, answers: Sequence[CommandResult]
) -> dict[str, Any]:
    """Conditions of a measurement; none where the architecture limits nothing. Raises ParseError."""
    label = measurement.labels.get(LABEL)
    actual: dict[str, Any] = {}
    for node in nodes:
        wanted = limits_of(architecture, node.groups, float(label) if label is not None else None)
        if not any(wanted):
            continue
        own = [answer for answer in answers if answer.node == node.name and is_state(answer.command)]
        if not own:
            raise ParseError(TOOL, f"{node.name}: nothing says that its ports and drives were limited")
        for answer in own:
            limits, why = read_back(answer)
            if limits is None or (why := wanted.unlike(limits)):
                raise ParseError(TOOL, f"{node.name}: {why}")
            actual[node.name] = limits.plain()
    return {CONDITION: actual} if actual else {}
