"""Hardware and state of Slurm's nodes: one question a node, one line of slurm.conf for equal nodes."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from rackproof import shell
from rackproof.configure.files import PENDING
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.parse.accounts import parse_passwd_entry
from rackproof.parse.sections import sections_of
from rackproof.parse.sha256sum import parse_digests
from rackproof.parse.slurm import NodeHardware, parse_slurmd_c
from rackproof.parse.slurm_conf import NodeLine

CONF = "/etc/slurm/slurm.conf"
KEY = "/etc/munge/munge.key"
CHANGED = f"{PENDING}/slurm-changed"
"""Mark: the kit changed this node's part of Slurm, and has not verified since that it registered."""


USER = "slurm"
"""SlurmUser of every node."""
USER_COMMAND = f"getent passwd {USER} || [ $? -eq 2 ]"


def parse_user(lines: Sequence[str]) -> str:
    """Answer of ``USER_COMMAND``: the user's number, empty without the user. Raises ValueError."""
    if not lines:
        return ""
    entry = parse_passwd_entry(lines[0])
    if len(lines) != 1 or entry.name != USER:
        raise ValueError(f"expected a line of passwd(5) for {USER}, actual {lines[0]!r}")
    return str(entry.uid)


def user_plan(number: str, wanted: int, home: str) -> ScriptPlan:
    """SlurmUser, "which must exist on all nodes" with one number (Slurm's Quick Start Administrator Guide).

    Debian's packages and EPEL's make it; SchedMD's do not. ``number``: of the user that is there, empty without one.
    """
    if number:
        return ScriptPlan()
    return ScriptPlan(
        (
            f"getent group {USER} >/dev/null || groupadd -r -g {wanted} -- {USER}",
            f"useradd -r -u {wanted} -g {USER} -d {shlex.quote(home)} -s /sbin/nologin -- {USER}",
        ),
        (Change(what=f"user {USER}", why="no such user"),),
    )


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node of the cluster, or its controller."""

    clock: float
    """Seconds since 1970, by its own clock."""
    hardware: NodeHardware | None
    """None when it is not readable."""
    key: tuple[str, str, str] | None
    """sha256, mode and owner of the munge key; None without one."""
    conf: str | None
    """Content of slurm.conf."""
    nvml: bool
    changed: bool


def state_command() -> str:
    return shell.script(__name__, "node_state", key=KEY, conf=CONF, changed=CHANGED)


def parse_state(lines: Sequence[str]) -> NodeState:
    """Answer of ``state_command``. Raises ValueError."""
    clock, hardware, key, conf, nvml, changed = sections_of(lines, 6)
    try:
        text = base64.b64decode(conf[0], validate=True).decode(errors="replace") if conf else None
    except binascii.Error as error:
        raise ValueError(f"slurm.conf: {error}") from None
    return NodeState(
        clock=float(clock[0]),
        hardware=parse_slurmd_c("\n".join(hardware) + "\n") if hardware else None,
        key=_key(key),
        conf=text,
        nvml=any(line.endswith("gpu_nvml.so") for line in nvml),
        changed=changed == ["changed"],
    )


def _key(lines: Sequence[str]) -> tuple[str, str, str] | None:
    if not lines:
        return None
    mode, owner = lines[0].split()
    (digest,) = parse_digests(lines[1:]).values()
    return digest, mode, owner


def node_line(hardware: NodeHardware, tolerance_pct: float, before: NodeLine | None = None) -> NodeLine:
    """Line for a node with this hardware.

    Memory is rounded down to whole multiples of about a 64th: equal nodes differ by a few MiB, and by a few more after
    every new kernel. An existing value stays as long as it is within the tolerance, or slurm.conf would change at every
    reboot of a node.
    """
    step = 1 if tolerance_pct < 2 else 1 << max(0, (hardware.memory_mib // 64).bit_length() - 1)
    memory = max(1, hardware.memory_mib // step * step)
    least = hardware.memory_mib * (1 - tolerance_pct / 100)
    if before is not None and least <= before.memory_mib <= hardware.memory_mib:
        memory = before.memory_mib
    return NodeLine(hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core, memory)


def folded(lines: Mapping[str, NodeLine]) -> list[tuple[str, NodeLine]]:
    """Node sets that share a line, in the order in which their first node comes."""
    sets: dict[NodeLine, list[str]] = {}
    for name, line in lines.items():
        sets.setdefault(line, []).append(name)
    return [(node_set(names), line) for line, names in sets.items()]


def node_set(names: Sequence[str]) -> str:
    """``r1-gpu-[01-08],r2-gpu-[01-08]``: Slurm reads one pair of brackets in a name, at its end."""
    try:
        names_folded = NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)
    except NodeSetParseError:  # no plain host names
        return ",".join(names)
    names_folded.fold_axis = (-1,)
    return str(names_folded)


def skew_s(node: float, node_asked: tuple[float, float], other: float, other_asked: tuple[float, float]) -> float:
    """Lower bound of the offset of two clocks, seconds. ``…_asked``: a third clock before and after each reading."""

    def offset(clock: float, asked: tuple[float, float]) -> tuple[float, float]:
        return clock - asked[1], clock - asked[0]

    low, high = offset(node, node_asked)
    other_low, other_high = offset(other, other_asked)
    return max(0.0, low - other_high, other_low - high)
