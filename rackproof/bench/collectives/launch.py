"""Starts the processes of collectives on all nodes, and reads what the nodes saw."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rackproof.bench.collectives.engines import Engine
from rackproof.bench.collectives.launchers import (
    SINGLETON,
    chosen_mpirun,
    exported,
    mpi_environment,
    mpirun,
    set_before,
    srun,
)
from rackproof.bench.collectives.nccl_used import DECLARED, READING, TOPOLOGY
from rackproof.bench.collectives.refusal import asking, is_refused
from rackproof.bench.firewall import Firewall
from rackproof.bench.port_proof import protected_priority, reading_command
from rackproof.bench.relay import Relay
from rackproof.bench.step import BenchContext
from rackproof.bench.user import USER, BenchUsers
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.reboot.drain import COMMAND_S
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.programs import MPI
from rackproof.core.rack import Rack
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.mpi_probe import MpiFound, parse_mpi_probe
from rackproof.remote.command import CommandResult
from rackproof.remote.ssh import Connection
from rackproof.shell import script

READING_S: Final = 20
"""Time limit of reading counters, in seconds."""
PROBING_S: Final = 180
_PROBE: Final = "mpi_probe"


@dataclass(frozen=True, slots=True)
class Way:
    """Words that start the processes of an engine on some nodes."""

    rack: Rack
    engine: Engine
    nodes: tuple[str, ...]
    ranks_per_node: int
    limit_s: float
    inputs: CollectiveInputs
    mpirun: str
    """``mpirun`` or its path; empty where it does not start the ranks."""
    backend: str
    """Backend of the engine torch: ``nccl`` or ``gloo``; empty for others."""
    alone: bool
    """Whether each node runs a collective of its own, all nodes at the same time."""

    @property
    def uses_nccl(self) -> bool:
        return self.engine.name == "nccl-tests" or self.backend == "nccl"

    @property
    def declared(self) -> str:
        """Comment with the topology files that the inventory gives the nodes; empty where it gives none."""
        given = {read_inputs(self.rack.node(node), GpuInputs).nccl_conf.get(TOPOLOGY) for node in self.nodes}
        files = sorted(file for file in given if file)
        return f"{DECLARED}{' '.join(files)}" if files and self.uses_nccl else ""

    @property
    def python(self) -> str:
        return self.inputs.python if self.backend and self.inputs.python else "python3"

    def commands(self, program: str, environment: Mapping[str, str], interface: str) -> dict[str, str]:
        """Commands by node that start a program of one process on every rank: one of the first node where a launcher
        starts them all. Raises ParseError."""
        if self.backend == "gloo":
            environment = {"GLOO_SOCKET_IFNAME": interface}
        if self.alone or self.inputs.launcher == "ssh":
            return {node: self.of_node(program, environment, node) for node in self.nodes}
        program += self._rendezvous()
        if self.inputs.launcher == "srun":
            own = mpi_environment(interface) if self.engine.needs_mpi else {}
            command = srun(
                self.nodes, self.ranks_per_node, {**environment, **own}, self.limit_s, mpi=self.engine.needs_mpi,
                gpus=self.engine.loads_gpus and self.backend != "gloo", partition=self.inputs.partition,
            )  # fmt: skip
        else:
            command = mpirun(self.nodes, self.ranks_per_node, interface, self.mpirun) + exported(environment)
        return {self.nodes[0]: f"{command} {program}"}

    def of_node(self, program: str, environment: Mapping[str, str], node: str) -> str:
        """Command of one node by which all its ranks start. Raises ParseError."""
        if self.backend:
            hosts = (node,) if self.alone else self.nodes
            program += f"{self._rendezvous()} {shlex.quote(','.join(hosts))} {self.ranks_per_node} {hosts.index(node)}"
        elif self.engine.needs_mpi:
            environment = {**environment, **SINGLETON}
        return f"{set_before(environment)}{program}"

    def _rendezvous(self) -> str:
        """Arguments of the torch program: backend and rendezvous ADDRESS:PORT; empty for others. Raises ParseError."""
        if not self.backend:
            return ""
        return f" {self.backend} {'127.0.0.1' if self.alone else self._address()}:{self.inputs.port}"

    def _address(self) -> str:
        """Rendezvous address: the first node's on the fabric. Raises ParseError if it has none."""
        node = self.rack.node(self.nodes[0])
        if (address := node.fabric_address()) is None:
            raise ParseError(self.engine.name, f"{node.name} has no fabric_addresses, where the ranks could meet")
        return address


@dataclass(frozen=True, slots=True)
class Launch(Way):
    """One way to start the processes of an engine on some nodes, which are ready for it."""

    context: BenchContext

    def among(self, context: BenchContext, nodes: tuple[str, ...]) -> Launch:
        """The same over some of its nodes, with connections of its own. Raises RemoteError."""
        if self.mpirun:
            connect(context, nodes)
        return replace(self, context=context, nodes=nodes)

    def run(
        self, program: str, environment: Mapping[str, str], interface: str, comment: str = ""
    ) -> list[CommandResult]:
        """Run a program of one process on every rank; the answers of the nodes that ran a command, the first of them
        first, and where Slurm gave no nodes, their states. ``comment``: at the end of every command."""
        users, session = BenchUsers.of(self.context), self.context.session
        plain = self.commands(program, environment, interface)
        commands = {node: f"{command}{comment}" for node, command in plain.items()}
        if not self.alone and self.inputs.launcher != "ssh":
            first = self.nodes[0]
            answer = session.run_on(first, commands[first], self.limit_s, user=users[first].prefix, hold=True)
            shown = session.run({first: asking(self.nodes)}, COMMAND_S + 10) if is_refused(answer) else {}
            return [answer, *shown.values()]

        def start(connection: Connection) -> CommandResult:
            name = connection.node.name
            return connection.run(commands[name], self.limit_s, user=users[name].prefix, hold=True)

        results = session.fleet.each(self.nodes, start, self.engine.name, parallel=len(self.nodes))
        return [session.record(result) for result in results.values()]

    def read(self) -> list[CommandResult]:
        """Counters of the fabric's ports and logs of NCCL, by node; reading removes the logs."""
        session = self.context.session
        answers: list[CommandResult] = []
        fabric = session.architecture.fabric
        if fabric is not None and not self.alone:
            priorities = self.uses_nccl and protected_priority(fabric) is not None
            command = reading_command(fabric, range(fabric.rails), priorities)
            answers += session.run(dict.fromkeys(self.nodes, command), READING_S).values()
        if self.uses_nccl:
            answers += session.run(dict.fromkeys(self.nodes, READING), READING_S).values()
        return answers


def inputs_of(rack: Rack, nodes: Sequence[str]) -> CollectiveInputs:
    """The inputs that all nodes share. Raises ParseError if they differ, InventoryError if they are not valid."""
    by_node = {node: read_inputs(rack.node(node), CollectiveInputs) for node in nodes}
    first = by_node[nodes[0]]
    if other := next((node for node, inputs in by_node.items() if inputs != first), None):
        raise ParseError("inventory", f"{CollectiveInputs.KEY} of {other} differs from that of {nodes[0]}")
    return first


def backend_of(architecture: Architecture, rack: Rack, nodes: Sequence[str]) -> str:
    """Backend of torch.distributed: ``nccl`` where every node has real GPUs, else ``gloo`` on processors."""
    gpu = architecture.gpu
    simulated = any(rack.node(node).simulated_gpus for node in nodes)
    return "nccl" if gpu is not None and gpu.count and not simulated else "gloo"


def way_of(
    architecture: Architecture, rack: Rack, engine: Engine, nodes: tuple[str, ...], profile: CollectiveProfile,
    limit_s: float, *, alone: bool,
) -> Way:  # fmt: skip
    """As the inventory has it: nodes' MPIs may need another path of ``mpirun``. Raises ParseError, InventoryError."""
    inputs = inputs_of(rack, nodes)
    word = (inputs.mpirun or "mpirun") if not alone and inputs.launcher == "mpirun" else ""
    backend = backend_of(architecture, rack, nodes) if engine.name == "torch" else ""
    return Way(rack, engine, nodes, profile.ranks_per_node, limit_s, inputs, word, backend, alone)


def launch_of(
    context: BenchContext,
    engine: Engine,
    nodes: tuple[str, ...],
    profile: CollectiveProfile,
    limit_s: float,
    *,
    alone: bool,
    connected: bool = True,
) -> Launch:
    """Make accounts, copy the program, connect the nodes. Raises ParseError, one line, and RemoteError.

    Without ``connected``, the nodes are connected by ``Launch.among``.
    """
    session, users = context.session, BenchUsers.of(context)
    way = way_of(session.architecture, session.rack, engine, nodes, profile, limit_s, alone=alone)
    inputs, backend, word = way.inputs, way.backend, way.mpirun
    if lost := users.ready(nodes):
        raise ParseError(USER, next(iter(lost.values())))
    if not alone and inputs.launcher == "ssh" and engine.needs_mpi:
        raise ParseError("inventory", f"collectives.launcher is ssh, {engine.name} needs mpirun or srun between nodes")
    if not alone and inputs.launcher == "mpirun":
        word = chosen_mpirun(_probed(context, nodes, inputs), engine.name == "mpi")
        if connected:
            connect(context, nodes)
    if not alone and inputs.launcher == "srun":
        one_account(users, [*nodes, *_controllers(session, users)], "srun")
        if engine.needs_mpi and not _probed(context, nodes, inputs)[nodes[0]].pmix:
            raise ParseError("srun", f"{nodes[0]}: srun --mpi=list names no pmix, by which Open MPI is started")
    if engine.source:
        users.put(nodes, __package__, (engine.source,))
    # Slurm's controller, which may be none of the nodes, connects to ports that srun chooses
    chosen = alone or inputs.launcher != "srun"
    Firewall.of(context).close(nodes, [inputs.port] if backend else [], chosen=chosen)
    return Launch(
        session.rack, engine, nodes, profile.ranks_per_node, limit_s, inputs, word, backend, alone, context
    )  # fmt: skip


def connect(context: BenchContext, nodes: Sequence[str]) -> None:
    """Connections from the first node to the others, for mpirun. Raises RemoteError."""
    relay = Relay.of(context)
    context.session.fleet.each(nodes[1:], lambda connection: relay.serve(connection.node.name), "the relay")
    relay.listen(nodes[0], nodes[1:])


def _controllers(session: Session, users: BenchUsers) -> list[str]:
    """Slurm's controller, where it is a node of the rack: it starts no job of an account that it does not know.

    Raises ParseError where it has none.
    """
    slurm = session.architecture.slurm
    names = (
        [node.name for node in session.rack.group(slurm.controller_role)[:1]] if slurm and slurm.controller_role else []
    )
    if lost := users.ready(names):
        raise ParseError("srun", f"Slurm's controller: {next(iter(lost.values()))}")
    return names


def one_account(users: BenchUsers, nodes: Sequence[str], tool: str) -> None:
    """Raises ParseError unless the account has the same uid and gid on all nodes, as Slurm and file systems need."""
    numbers = {node: users[node] for node in nodes}
    first = numbers[nodes[0]]
    if other := next((node for node, account in numbers.items() if account != first), None):
        raise ParseError(
            tool,
            f"{USER} is {first.uid}:{first.gid} on {nodes[0]} and {numbers[other].uid}:{numbers[other].gid} on {other}:"
            " make the account with one number on all nodes (node.users)",
        )


def mpirun_of(context: BenchContext, nodes: Sequence[str], with_mpi4py: bool) -> str:
    """The mpirun by which ``launch_of`` starts ranks on these nodes; where none suits, the first one that they have.

    Raises ParseError if the nodes' answers are unknown, or their inputs differ.
    """
    inputs = inputs_of(context.session.rack, nodes)
    probed = _probed(context, nodes, inputs)
    try:
        return chosen_mpirun(probed, with_mpi4py)
    except ParseError:
        return next((one.path for mpis in probed.values() for one in mpis.launchers), inputs.mpirun or "mpirun")


def _probed(context: BenchContext, nodes: Sequence[str], inputs: CollectiveInputs) -> dict[str, MpiFound]:
    """The MPIs of the nodes, asked once in a stage. Raises ParseError."""
    known: dict[str, MpiFound] = context.shared.setdefault("mpi", {})
    command = script(__name__, _PROBE, declared=inputs.mpirun or "", built=f"{MPI}/bin/mpirun")
    missing = [node for node in nodes if node not in known]
    for node, answer in context.session.run(dict.fromkeys(missing, command), PROBING_S).items() if missing else ():
        if not answer.ok:
            raise ParseError("mpirun", f"{node}: its MPIs are unknown: {answer.why}")
        known[node] = parse_mpi_probe(answer.stdout)
    if inputs.mpirun:
        return {
            node: MpiFound(
                tuple(one for one in probed.launchers if one.path == inputs.mpirun), probed.library,
                probed.library_version, probed.pmix,
            )
            for node, probed in known.items() if node in nodes
        }  # fmt: skip
    return {node: known[node] for node in nodes}
