"""Operations of a Slurm cluster. Every node is asked once; one node's answer is part of all nodes' configuration."""

from __future__ import annotations

import base64
import hashlib
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.context import host, inventory

from rackproof import shell
from rackproof.configure import rack_operations
from rackproof.configure.files import PENDING, Entry, RemoteFile
from rackproof.configure.operation import Commands, ask, note, operation, record, required
from rackproof.configure.operations import write_files
from rackproof.configure.rollback.journal import directory_line, file_line, later, mark_lines
from rackproof.configure.rollback.run import carried_out, journal_here, journaled
from rackproof.configure.slurm import conf, facts
from rackproof.configure.slurm.cluster import Cluster
from rackproof.configure.slurm.nodes import CHANGED, CONF, KEY, USER, NodeState, node_line, skew_s, user_plan
from rackproof.core.plan import Change
from rackproof.core.secret import Secret
from rackproof.errors import Refused
from rackproof.parse.slurm_conf import NodeLine, SlurmConf, parse_slurm_conf
from rackproof.remote.pyinfra_recording import RecordingConnector

GRES = "/etc/slurm/gres.conf"
REGISTRATION_S = 120
"""Seconds for slurmd to register; an emulated node takes half a minute."""
Render = Callable[[list[str], list[str]], str]
"""Takes lines of nodes and of partitions, returns slurm.conf."""


@dataclass(frozen=True, slots=True)
class TimedState:
    """A node's state, and when it was asked for, by the controller machine's clock."""

    state: NodeState
    between: tuple[float, float]


def _timed_state(other: Host) -> TimedState | None:
    before = time.time()
    state = other.get_fact(facts.SlurmNodeState)
    return None if state is None else TimedState(state, (before, time.time()))


def ask_state(name: str) -> TimedState | None:
    """The state of a node, asked once while planning and once while executing."""
    return rack_operations.ask_node(inventory.get_host(name), "slurm", _timed_state)


def _read_key(other: Host) -> Secret | None:
    """The key in base64."""
    key = rack_operations.read_file(other, KEY)
    return Secret(base64.b64encode(key).decode()) if key else None


def _mark(*marks: str) -> str:
    return f"mkdir -p {PENDING} && touch -- {' '.join(shlex.quote(mark) for mark in (*marks, CHANGED))}"


def _key_script(units: tuple[str, ...], *, new: bool = False) -> str:
    """Put a key in place atomically: a ``new`` one, or the one on standard input (base64)."""
    marks = [f"{PENDING}/restart:{unit}" for unit in units]
    new_key = "yes" if new else "no"
    script = shell.script(__name__, "munge_key", *marks, CHANGED, key=KEY, new_key=new_key, marks=PENDING)
    kept = (*mark_lines([f"restart:{unit}" for unit in units]), directory_line("/etc/munge"))
    return journal_here().before(kept, script, [later(KEY, secret=True)])


@operation()
def system_user(number: int, home: str) -> Commands:
    """Make Slurm's user where its package made none: the daemons refuse a SlurmUser that does not exist.

    + number: of the new user and group
    + home: absolute path, not created

    **Example:**

    .. code:: python

        slurm.system_user(name="User", number=64030, home="/var/lib/slurm")
    """
    there = ask(facts.SlurmUser, f"the user {USER}")
    yield from journaled(user_plan(there, number, home), f"the user {USER} is there")


@operation()
def make_munge_key() -> Commands:
    """Make a munge key on Slurm's controller, unless it has one: other nodes may use it already.

    **Example:**

    .. code:: python

        slurm.make_munge_key(name="Munge key")
    """
    here = required(ask_state(host.name), "the state of Slurm")
    if here.state.key is None:
        record([Change(what=KEY, why="absent")])
        yield StringCommand(_key_script(("munge.service",), new=True))
        rack_operations.forget(inventory.get_host(host.name), "slurm")
    elif here.state.key[1:] != ("400", "munge"):
        record([Change(what=KEY, why=f"mode and owner {' '.join(here.state.key[1:])}, expected 400 munge")])
        script = f"{_mark()}; chown munge:munge {KEY} && chmod 400 {KEY}"
        yield StringCommand(journal_here().before([file_line(KEY, "same", secret=True)], script))
    else:
        host.noop("the munge key is there")


@operation()
def bring_munge_key(controller: str) -> Commands:
    """Copy the controller's munge key to this node; readable by munge only, never shown.

    + controller: name of the node that has the key

    **Example:**

    .. code:: python

        slurm.bring_munge_key(name="Munge key of the controller", controller="login-01")
    """
    here = required(ask_state(host.name), "the state of Slurm")
    secret = rack_operations.ask_node(inventory.get_host(controller), "munge key", _read_key)
    if secret is None:
        if host.state.is_executing and here.state.key is None:
            raise Refused(f"{controller} has no munge key, or does not answer; nodes cannot be told to trust it")
        elif host.state.is_executing:
            host.noop(f"{controller} does not answer; the key that is there stays")
        elif here.state.key and here.state.key == _key_of(controller):
            # A recording has digests of secrets, not the secrets.
            host.noop("the munge key is the controller's")
        else:
            # Planned: the same run makes the key.
            record([Change(what=KEY, why=f"not the key of {controller}")])
            yield StringCommand(_key_script(("munge.service",)), _stdin="")
        return
    wanted = (hashlib.sha256(base64.b64decode(secret)).hexdigest(), "400", "munge")
    if here.state.key == wanted:
        host.noop("the munge key is the controller's")
        return
    record([Change(what=KEY, why=f"not the key of {controller}")])
    yield StringCommand(
        _key_script(("munge.service", "slurmd.service")),
        _stdin=f"{secret}\n",
    )
    rack_operations.forget(inventory.get_host(host.name), "slurm")


def _key_of(controller: str) -> tuple[str, str, str] | None:
    """Digest of the controller's key, with the mode and owner that it has on every node."""
    there = ask_state(controller)
    return (there.state.key[0], "400", "munge") if there and there.state.key else None


@operation()
def same_clock(controller: str, limit_s: float) -> None:
    """Refuse a node whose clock differs from the controller's: munge would refuse its credentials. Changes nothing.

    + controller: name of the node to compare with
    + limit_s: seconds that the clocks may differ

    **Example:**

    .. code:: python

        slurm.same_clock(name="Clock", controller="login-01", limit_s=60)
    """
    here, there = required(ask_state(host.name), "the node's clock"), ask_state(controller)
    if isinstance(host.connector, RecordingConnector):
        host.noop("recorded at other moments: clocks are compared by a deploy")
    elif there is None:
        host.noop(f"{controller} does not answer")
    else:
        apart = skew_s(here.state.clock, here.between, there.state.clock, there.between)
        if apart > limit_s:
            raise Refused(
                f"the clocks of {host.name} and {controller} are {apart:.0f} s apart, more than {limit_s:g} s:"
                " munge refuses each other's credentials; see chronyc tracking on both"
            )
        else:
            host.noop("the clocks agree")


def hardware(cluster: Cluster, before: SlurmConf | None) -> tuple[dict[str, NodeLine], list[str]]:
    """A line of slurm.conf for every node, and nodes without one. A node that does not answer keeps its line."""
    lines: dict[str, NodeLine] = {}
    unknown: list[str] = []
    for name in cluster.nodes:
        here = ask_state(name)
        old = before.nodes.get(name) if before else None
        if here is not None and here.state.hardware is not None:
            lines[name] = node_line(here.state.hardware, cluster.declared.memory_tolerance_pct, old)
        elif old is not None:
            lines[name] = old
        else:
            unknown.append(name)
    return lines, unknown


@operation()
def configuration(cluster: Cluster, render: Render, simulated: bool) -> Commands:
    """Write slurm.conf, the same on every node, and this node's gres.conf. Daemons read them again, or restart.

    + cluster: the cluster that the node belongs to
    + render: makes slurm.conf from the lines of nodes and partitions
    + simulated: whether the node's GPUs are simulated, so that gres.conf lists files instead of asking NVML

    **Example:**

    .. code:: python

        slurm.configuration(
            name="Configuration",
            cluster=cluster,
            render=lambda nodes, partitions: plan.configuration(site, cluster, nodes, partitions),
            simulated=False,
        )
    """
    here = required(ask_state(host.name), "the state of Slurm")
    own = parse_slurm_conf(here.state.conf) if here.state.conf is not None else None
    conf.check_ours(host.name, own, cluster)
    # All nodes start from the controller's file, so that they keep the same of it.
    there = ask_state(cluster.controller)
    served = parse_slurm_conf(there.state.conf) if there and there.state.conf is not None else None
    lines, unknown = hardware(cluster, served or own)
    conf.check_kept(cluster, lines)
    if not lines:
        raise Refused(f"the hardware of {', '.join(cluster.nodes)} could not be read; slurm.conf was not changed")
    if unknown and host.state.is_executing:
        note(f"Slurm does not know {', '.join(unknown)}: deploy again when they answer")
    # Before the run the package, and its plugin with it, may be missing still.
    nvml = here.state.nvml or (cluster.mig and not host.state.is_executing)
    worker = host.name in cluster.nodes and bool(cluster.declared.gres)
    try:
        gres = conf.gres_text(cluster, simulated, nvml) if worker else None
    except Refused as error:
        raise Refused(f"{host.name}: {error}") from None
    text = render(conf.node_text(cluster, lines), conf.partition_text(cluster, lines))
    restart = conf.needs_restart(own, parse_slurm_conf(text))
    yield from _written(_entries(cluster, text, restart, gres))


def _entries(cluster: Cluster, text: str, restart: bool, gres: str | None) -> list[Entry]:
    units = [("slurmctld.service", cluster.controller == host.name), ("slurmd.service", host.name in cluster.nodes)]
    readers = tuple(unit for unit, here in units if here)
    entries: list[Entry] = [
        RemoteFile(CONF, text, restart=readers if restart else (), reload=() if restart else readers),
    ]
    if gres is not None:
        entries.append(RemoteFile(GRES, gres, restart=("slurmd.service",)))
    return entries


def _written(entries: list[Entry]) -> Commands:
    """Write files as ``files`` does, and mark that this node has to register again."""
    for command in write_files(entries):
        yield StringCommand(_mark())
        yield command


@operation()
def registered(node: str) -> Commands:
    """After a change: wait until the controller has registered this node, and undo what the change did to its state.

    + node: name of the node in Slurm

    **Example:**

    .. code:: python

        slurm.registered(name="Registered", node="gpu-01")
    """
    script = settle_script(node) if ask(facts.SlurmChanged, "the mark of a changed Slurm") else ""
    changes = [Change(what=f"{node} in Slurm", why="its configuration changed; it registers again")]
    yield from carried_out(script, changes, "nothing of Slurm was changed")


def settle_script(node: str) -> str:
    """Wait until the node has registered, resume it where Slurm itself put it down, and report its state.

    A node that an operator drained stays drained, and a node that is down for another reason stays down: only what the
    kit itself may have caused is undone, once, after the change. Fails when it has not registered, or is refused; the
    mark stays, and the next run tries again.
    """
    return shell.script(__name__, "registration", node=node, changed=CHANGED, wait_s=REGISTRATION_S)
