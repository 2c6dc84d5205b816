"""Slurm: daemons and tools of a node, and its state in the controller."""

from __future__ import annotations

import shlex
from datetime import datetime

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Slurm
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS
from rackproof.parse.slurm import (
    SlurmConfig,
    SlurmNode,
    parse_scontrol_config,
    parse_scontrol_node,
    parse_scontrol_ping,
    parse_scontrol_records,
    parse_slurmd_c,
    parse_srun_help,
    parse_unmunge,
)
from rackproof.parse.systemctl import parse_systemctl_show
from rackproof.parse.text import excerpt, version_begins, whole_lines
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read

LIMIT = "timeout -k 2 15"
PING = f"{LIMIT} scontrol ping 2>&1{STATUS}"
# The node's clock before and after; the first line in between has the controller's.
CLOCK = "date +%Y-%m-%dT%H:%M:%S"
CONFIG = f"{CLOCK}; {LIMIT} scontrol show config 2>&1; s=$?; {CLOCK}; echo status $s"
PARTITIONS = f"{LIMIT} scontrol -o show partition 2>&1{STATUS}"
SLURMD = "systemctl show --property=Id,LoadState,ActiveState,SubState -- slurmd.service"
HARDWARE = f"{LIMIT} slurmd -C{STATUS}"
MUNGE = f"munge -n | {LIMIT} unmunge 2>&1{STATUS}"
HELP = f"{LIMIT} srun --help 2>&1{STATUS}"

STATES = ("IDLE", "MIXED", "ALLOCATED", "COMPLETING", "RESERVED", "PLANNED", "MAINT")
FLAGS = ("CLOUD", "COMPLETING", "DYNAMIC_NORM", "RESERVED", "PLANNED", "MAINTENANCE", "BLOCKED")


def slurm_of(arch: Architecture) -> Slurm:
    """Slurm of the architecture. Raises Unmeasured without it."""
    if arch.slurm is None:
        raise Unmeasured("the architecture has no section slurm")
    return arch.slurm


def show_node(node: Node) -> str:
    return f"{LIMIT} scontrol -o show node {shlex.quote(node.name)} 2>&1{STATUS}"


def registered(host: Host, node: Node) -> SlurmNode:
    state = parse_scontrol_node(answered(host, show_node(node), "scontrol").body)
    if state.name != node.name:
        raise Unmeasured(f"scontrol answered for {state.name} instead")
    return state


def config_of(host: Host) -> tuple[datetime, SlurmConfig, datetime]:
    """Time of the node before, configuration, time of the node after."""
    output = whole_lines("scontrol", answered(host, CONFIG, "scontrol").body)
    if len(output) < 3:
        raise ParseError("scontrol", f"no configuration: {excerpt(output[0])}")
    before, *lines, after = output
    return time_of(before), parse_scontrol_config("".join(f"{line}\n" for line in lines)), time_of(after)


def time_of(text: str) -> datetime:
    """Local time of the node; both clocks are compared in its time zone."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        raise ParseError("date", f"no time: {excerpt(text)}") from None


@check(
    "slurm.controller",
    reads="slurm",
    protects="Without a controller no job starts; without its backup none starts while the primary is down.",
    hint="systemctl status slurmctld on the controller; SlurmctldHost in slurm.conf; port 6817 from this node.",
)
def test_controller(host: Host, arch: Architecture, rack: Rack) -> None:
    role = slurm_of(arch).controller_role
    leads = rack.group(role)[:1] if role else ()
    reply = answered(host, PING, "scontrol", good=None)
    if reply.timed_out:
        raise AssertionError("expected an answer of the controller within 15 s, actual none")
    controllers = parse_scontrol_ping(reply.body)
    problems = [
        f"controller {controller.host} ({controller.role}): expected UP, actual {controller.state}"
        for controller in controllers
        if controller.state != "UP"
    ]
    # Two independent controllers would give the same node to two jobs.
    for expected in leads:
        primary = next((c.host for c in controllers if c.role == "primary"), "none")
        if primary != expected.name:
            problems.append(f"primary controller: expected {expected.name}, actual {primary}")
    expect_all(problems)
    if role and not leads:
        raise Unmeasured(f"the inventory has no node of role {role}, whose first one is the primary controller")


@check(
    "slurm.slurmd",
    reads="slurm",
    protects="A node without slurmd takes no jobs; the controller marks it down minutes later.",
    hint="systemctl status slurmd; journalctl -u slurmd for errors in gres.conf and of munge.",
)
def test_slurmd(host: Host) -> None:
    shown = parse_systemctl_show(read(host, SLURMD))
    if len(shown) != 1 or shown[0].get("Id") != "slurmd.service" or "SubState" not in shown[0]:
        raise Unmeasured("systemctl: no state of slurmd.service")
    if (loaded := shown[0].get("LoadState")) != "loaded":
        raise AssertionError(f"expected slurmd.service, actual {(loaded or 'no state').replace('-', ' ')}")
    actual = f"{shown[0].get('ActiveState')} ({shown[0]['SubState']})"
    expect(actual, "active (running)", "slurmd.service")


@check(
    "slurm.node_state",
    reads="slurm",
    protects="A drained node runs nothing; a draining one takes no new job.",
    hint="Read the reason; once fixed: scontrol update NodeName=NAME State=RESUME.",
)
def test_node_state(host: Host, node: Node) -> None:
    reply = answered(host, show_node(node), "scontrol", good=None)
    if reply.status != 0 and f"Node {node.name} not found" in reply.body:
        raise AssertionError(f"expected {node.name} among Slurm's nodes, actual not found")
    state = registered(host, node)
    if state.states[0] not in STATES or not set(state.states[1:]) <= set(FLAGS):
        reason = f": {state.reason}" if state.reason else ""
        raise AssertionError(f"expected IDLE, MIXED or ALLOCATED, actual {'+'.join(state.states)}{reason}")


@check(
    "slurm.config",
    reads="slurm",
    protects="Nodes with another slurm.conf than the controller apply other task placement and limits.",
    hint="Distribute slurm.conf again, or use configless slurmd; then scontrol reconfigure.",
)
def test_config(host: Host) -> None:
    expect(config_of(host)[1].value("HASH_VAL"), "Match", "hash of slurm.conf")


@check(
    "slurm.version",
    reads="slurm.version",
    protects="A slurmd more than two releases behind its controller cannot register.",
    hint="apt policy slurmd on the node, and slurmctld on the controller; upgrade slurmdbd first, nodes last.",
)
def test_version(host: Host, arch: Architecture, node: Node) -> None:
    expected = slurm_of(arch).version or ""
    announce(host, CONFIG, show_node(node))
    versions = {"controller": config_of(host)[1].value("SLURM_VERSION"), "slurmd": registered(host, node).version}
    expect_all(
        f"{what}: expected {expected}, actual {version or 'never registered'}"
        for what, version in versions.items()
        if not version_begins(version, expected)
    )


@check(
    "slurm.gres",
    reads="slurm.gres",
    protects="Slurm never allocates a GPU that it does not count.",
    hint="slurmd -G on the node; gres.conf and the node's line in slurm.conf must have the same number.",
)
def test_gres(host: Host, arch: Architecture, node: Node, item: str) -> None:
    state = registered(host, node)
    expected = slurm_of(arch).gres[item]
    problems = []
    if state.gres.get(item, 0) != expected:
        problems.append(f"{item}: expected {expected}, actual {state.gres.get(item, 0)}")
    accounted = state.tres.get(f"gres/{item}")  # only if the site accounts it
    if accounted is not None and accounted != str(expected):
        problems.append(f"gres/{item} in TRES: expected {expected}, actual {accounted}")
    expect_all(problems)


@check(
    "slurm.partition",
    reads="slurm.partitions",
    protects="A node missing from its partition silently runs none of the partition's jobs.",
    hint="scontrol show partition; the partition's Nodes in slurm.conf; scontrol update PartitionName=NAME State=UP.",
)
def test_partition(host: Host, node: Node, item: str) -> None:
    announce(host, PARTITIONS, show_node(node))
    partitions = parse_scontrol_records(answered(host, PARTITIONS, "scontrol").body, "PartitionName")
    states = {record["PartitionName"]: record.get("State") for record in partitions}
    expect(states.get(item, "no such partition"), "UP", "state")
    of_node = registered(host, node).partitions
    if item not in of_node:
        raise AssertionError(f"expected {node.name} in {item}, actual in {', '.join(of_node) or 'none'}")


@check(
    "slurm.registered",
    reads="slurm.memory_tolerance_pct",
    protects="Slurm allocates what slurm.conf declares: too much runs out of memory, too little leaves cores idle.",
    hint="Compare slurmd -C with the node's line in slurm.conf; less memory means a failed module.",
)
def test_registered(host: Host, arch: Architecture, node: Node) -> None:
    announce(host, HARDWARE, show_node(node))
    hardware = parse_slurmd_c(answered(host, HARDWARE, "slurmd").body)
    has = registered(host, node)
    tolerance = slurm_of(arch).memory_tolerance_pct
    cores = hardware.sockets * hardware.cores_per_socket
    problems = [
        f"{what}: expected {expected} as on the node, actual {actual}"
        for what, expected, actual in (
            ("sockets", hardware.sockets, has.sockets),
            ("cores of a socket", hardware.cores_per_socket, has.cores_per_socket),
            ("threads of a core", hardware.threads_per_core, has.threads_per_core),
            # A site may count cores instead of threads.
            ("CPUs", hardware.cpus, has.cpus if has.cpus != cores else hardware.cpus),
        )
        if expected != actual
    ]
    least = hardware.memory_mib * (1 - tolerance / 100)
    if not least <= has.memory_mib <= hardware.memory_mib:
        problems.append(f"memory: expected {least:.0f} to {hardware.memory_mib} MiB, actual {has.memory_mib} MiB")
    expect_all(problems)


@check(
    "slurm.health_check",
    reads="slurm.health_check",
    protects="Without a health check a node with a dead GPU keeps taking jobs and failing them.",
    hint="HealthCheckProgram and HealthCheckInterval in slurm.conf; the program must be executable on every node.",
)
def test_health_check(host: Host, arch: Architecture) -> None:
    program = slurm_of(arch).health_check or ""
    there = f"test -x {shlex.quote(program)}{STATUS}"
    announce(host, CONFIG, there)
    config = config_of(host)[1]
    expect(config.value("HealthCheckProgram"), program, "HealthCheckProgram")
    if config.seconds("HealthCheckInterval") == 0:
        raise AssertionError("HealthCheckInterval: expected more than 0 sec, actual 0 sec")
    if answered(host, there, "test", good=(0, 1)).status != 0:
        raise AssertionError(f"expected {program} to be executable, actual not")


@check(
    "slurm.munge",
    reads="slurm.munge",
    protects="Without munge node and controller cannot authenticate each other.",
    hint="systemctl status munge; the key must be the controller's (mode 400, owner munge), and the clocks equal.",
)
def test_munge(host: Host) -> None:
    # slurm.controller and slurm.node_state show authentication between node and controller.
    reply = answered(host, MUNGE, "unmunge", good=None)
    if reply.status != 0 and "STATUS:" not in reply.body:
        raise AssertionError(f"expected a credential that decodes, actual {reply.reason}")
    expect(parse_unmunge(reply.body), "Success", "credential of this node")


@check(
    "slurm.clock",
    reads="slurm.max_clock_skew_s",
    protects="Credentials from a clock that is minutes off are rejected: the node stops responding.",
    hint="chronyc tracking on the node and on the controller; correct the one that is off.",
)
def test_clock(host: Host, arch: Architecture) -> None:
    before, config, after = config_of(host)
    limit = slurm_of(arch).max_clock_skew_s
    if after < before:
        raise Unmeasured("the node's clock ran backwards")
    there = time_of(config.as_of)
    early, late = (before - there).total_seconds(), (there - after).total_seconds()
    skew = max(early, late, 0.0)
    if not skew <= limit:
        direction = "behind" if late > 0 else "ahead of"
        raise AssertionError(f"expected at most {limit:g} s apart, actual {skew:.0f} s {direction} the controller")


@check(
    "slurm.pyxis",
    reads="slurm.pyxis",
    protects="Jobs that name a container image fail at once on a node without the plugin.",
    hint="plugstack.conf must name spank_pyxis.so; srun --help shows --container-image when it is loaded.",
)
def test_pyxis(host: Host) -> None:
    if "--container-image" not in parse_srun_help(answered(host, HELP, "srun").body):
        raise AssertionError("expected srun to support --container-image, actual not")
