"""Slurm (``scontrol``, ``slurmd -C``) and munge, its authentication."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, matched, whole_lines

SCONTROL: Final = "scontrol"
_KEY: Final = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z_]*)=")
_REASON: Final = re.compile(r"(?<=\s)Reason=(.*\[\S*@\S*\])")
"""Free text, followed by user and time."""
_NONE: Final = ("", "(null)", "N/A", "n/a")


@dataclass(frozen=True, slots=True)
class Controller:
    role: str
    """primary, backup, backup1 …"""
    host: str
    state: str
    """UP or DOWN, as printed."""


def parse_scontrol_ping(output: str | bytes) -> tuple[Controller, ...]:
    """``scontrol ping``; never empty."""
    controllers = []
    for line in whole_lines(SCONTROL, output):
        if match := re.fullmatch(r"Slurmctld\((\w+)\) at (\S+) is (\w+)", line.strip()):
            controllers.append(Controller(match[1], match[2], match[3]))
        elif line.startswith("Slurmctld("):
            raise ParseError(SCONTROL, f"expected the state of a controller, got {excerpt(line)}")
    if not controllers:
        raise ParseError(SCONTROL, f"expected a controller, got {excerpt(str(output))}")
    return tuple(controllers)


def parse_scontrol_records(output: str | bytes, first: str) -> tuple[dict[str, str], ...]:
    """``scontrol -o show …``: one mapping per line; each line begins with ``first``; never empty.

    Values may contain spaces, a reason any text. The first value of a repeated key wins, as free text comes last.
    """
    records = []
    for line in whole_lines(SCONTROL, output):
        if not line.strip():
            continue
        reason = _REASON.search(line)
        if reason:
            line = line[: reason.start()] + line[reason.end() :]
        keys = list(_KEY.finditer(line))
        if not keys or keys[0].start() != 0 or keys[0][1] != first:
            raise ParseError(SCONTROL, f"expected a line of {first}, got {excerpt(line)}")
        record: dict[str, str] = {}
        for match, following in zip(keys, [*keys[1:], None], strict=True):
            end = following.start() if following else len(line)
            record.setdefault(match[1], line[match.end() : end].strip())
        if reason:
            record["Reason"] = reason[1]
        records.append(record)
    if not records:
        raise ParseError(SCONTROL, f"lists no {first}")
    return tuple(records)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node in the controller's view."""

    name: str
    states: tuple[str, ...]
    """The base state first, then flags: ``("DOWN", "DRAIN", "NOT_RESPONDING")``."""
    reason: str | None
    version: str | None
    """Version of the registered slurmd; None without one."""
    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gres: dict[str, int]
    """Count by resource, types summed."""
    tres: dict[str, str]
    """Trackable resources: ``cpu``, ``mem``, ``gres/gpu``."""
    partitions: tuple[str, ...]


def parse_scontrol_node(output: str | bytes) -> SlurmNode:
    """``scontrol -o show node NAME``."""
    records = parse_scontrol_records(output, "NodeName")
    if len(records) != 1:
        raise ParseError(SCONTROL, f"expected one node, actual {len(records)}")
    record = records[0]

    def number(key: str) -> int:
        return integer(SCONTROL, key, _needed(record, key))

    return SlurmNode(
        name=_needed(record, "NodeName"),
        states=node_states(record),
        reason=None if record.get("Reason", "") in _NONE else record["Reason"],
        version=None if record.get("Version", "") in _NONE else record["Version"],
        cpus=number("CPUTot"),
        sockets=number("Sockets"),
        cores_per_socket=number("CoresPerSocket"),
        threads_per_core=number("ThreadsPerCore"),
        memory_mib=number("RealMemory"),
        gres=parse_gres(_needed(record, "Gres")),
        tres=dict(part.partition("=")[::2] for part in record.get("CfgTRES", "").split(",") if part),
        partitions=tuple(record.get("Partitions", "").split(",")) if record.get("Partitions", "") not in _NONE else (),
    )


def _needed(record: Mapping[str, str], key: str) -> str:
    if not record.get(key):
        raise ParseError(SCONTROL, f"{record.get('NodeName') or record.get('PartitionName')} has no {key}")
    return record[key]


def node_states(record: Mapping[str, str]) -> tuple[str, ...]:
    """Base state and flags of a record of ``scontrol show node``. Raises ParseError."""
    text = _needed(record, "State")
    states: list[str] = []
    silent = False
    for word in text.split("+"):
        match = re.fullmatch(r"([A-Z][A-Z_]*)([*~#!%$@^-]?)", word)
        if match is None:
            raise ParseError(SCONTROL, f"expected a state, got {excerpt(text)}")
        states.append(match[1])
        silent |= match[2] == "*"
    if silent and "NOT_RESPONDING" not in states:
        states.append("NOT_RESPONDING")
    return tuple(states)


_SUFFIX: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def node_reason(record: Mapping[str, str]) -> str | None:
    """Reason of a record of ``scontrol show node``, without user and time; None without a reason."""
    reason = re.sub(r" *\[\S*@\S*\]$", "", record.get("Reason", ""))
    return None if reason in _NONE else reason


_NO_NODES: Final = re.compile(rb"srun: .*(?:allocat|Required node not available)")
"""``srun: error: Unable to allocate resources: Requested nodes are busy``; ``… Job allocation 7 has been revoked``."""


def no_nodes_given(words: bytes) -> bool:
    """Whether the error output of ``srun`` says that Slurm gave the job no nodes."""
    return _NO_NODES.search(words) is not None


def parse_gres(text: str) -> dict[str, int]:
    """``gpu:h200:8(S:0-1),lscratch:3200``: count of each resource."""
    resources: dict[str, int] = {}
    if text in _NONE:
        return resources
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        name, *rest = part.split(":")
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            raise ParseError(SCONTROL, f"expected a resource, got {excerpt(text)}")
        count = re.fullmatch(r"(\d{1,18})([KMGT]?)", rest[-1]) if rest else None
        resources[name] = resources.get(name, 0) + (int(count[1]) * _SUFFIX[count[2]] if count else 1)
    return resources


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """Running configuration of the controller."""

    as_of: str
    """The controller's time, in the time zone of the querying node: ``2026-11-21T12:00:00``."""
    values: dict[str, str]

    def value(self, key: str) -> str | None:
        """None where the key is not set. Raises ParseError for a key that Slurm does not have."""
        if key not in self.values:
            raise ParseError(SCONTROL, f"the configuration has no {key}")
        return None if self.values[key] in _NONE else self.values[key]

    def seconds(self, key: str) -> int:
        """``300 sec``. Raises ParseError for anything else."""
        number, _, unit = (self.value(key) or "").partition(" ")
        if unit != "sec":
            raise ParseError(SCONTROL, f"no {key}: {excerpt(self.values[key])}")
        return integer(SCONTROL, key, number)


def parse_srun_help(output: str | bytes) -> frozenset[str]:
    """``srun --help``: its options, plugins' included."""
    lines = whole_lines("srun", output)
    options = {match[1] for line in lines if (match := re.match(r"\s+(?:-\w, )?(--[a-z][a-z-]*)", line))}
    if not any(line.startswith("Usage: srun") for line in lines) or "--help" not in options:
        raise ParseError("srun", f"unexpected answer to --help: {excerpt(lines[0])}")
    return frozenset(options)


def parse_scontrol_config(output: str | bytes) -> SlurmConfig:
    """``scontrol show config``."""
    lines = whole_lines(SCONTROL, output)
    match = matched(SCONTROL, r"Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", lines[0], "a configuration")
    values: dict[str, str] = {}
    for line in lines[1:]:
        if pair := re.fullmatch(r"(\S+)\s*= ?(.*)", line):
            values.setdefault(pair[1], pair[2].strip())
    return SlurmConfig(match[1], values)


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """Hardware that slurmd detects on its node."""

    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int


def parse_slurmd_c(output: str | bytes) -> NodeHardware:
    """``slurmd -C``."""
    tool = "slurmd"
    lines = [line for line in whole_lines(tool, output) if line.startswith("NodeName=")]
    if len(lines) != 1:
        raise ParseError(tool, f"expected a node, got {excerpt(str(output))}")
    values = {}
    for word in lines[0].split():
        key, equals, value = word.partition("=")
        if equals:
            values[key] = value

    def number(*keys: str) -> int:
        for key in keys:
            if key in values:
                return integer(tool, key, values[key], minimum=1)
        raise ParseError(tool, f"the node has no {keys[0]}")

    return NodeHardware(
        cpus=number("CPUs"),
        sockets=number("SocketsPerBoard", "Sockets") * (number("Boards") if "Boards" in values else 1),
        cores_per_socket=number("CoresPerSocket"),
        threads_per_core=number("ThreadsPerCore"),
        memory_mib=number("RealMemory"),
    )


def parse_unmunge(output: str | bytes) -> str:
    """``munge -n | unmunge``: the status, ``Success``, ``Expired credential`` …"""
    tool = "unmunge"
    for line in whole_lines(tool, output):
        if match := re.fullmatch(r"STATUS:\s+(\S.*?) \(\d+\)", line):
            return match[1]
    raise ParseError(tool, f"expected a status, got {excerpt(str(output))}")


def job_of_step(title: str) -> str | None:
    """Job id in the process title of a slurmstepd; None for the cgroup keeper (``slurmstepd infinity``)."""
    match = re.match(r"\d+", step_in(title) or "")
    return match and match[0]


def step_in(title: str) -> str | None:
    """Step in the process title of a slurmstepd: ``4711.batch``."""
    match = re.search(r"slurmstepd: \[(\S+)\]", title)
    return match and match[1]
