"""Transports, adapters and rails that NCCL used in a run, and what makes its figures worthless. Pure, but for one
command.

A run between nodes over TCP, without one of the rails, or through host memory where the architecture declares
GPUDirect, measures another path than the declared one, whatever its figures are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rackproof.bench.user import HOME
from rackproof.core.architecture import Architecture, Fabric
from rackproof.core.nvlink_domain import SERVICE
from rackproof.core.wording import some
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.nccl_log import MARK, TOOL, NcclLog, parse_nccl_log
from rackproof.remote.command import CommandResult
from rackproof.shell import script

ENVIRONMENT: Final = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING,GRAPH,NET",  # GRAPH: topology files; NET: merged adapters
    # apart from the table, whose lines it would tear; %h and %p are host and process
    "NCCL_DEBUG_FILE": f"{HOME}/nccl.%h.%p.log",
}
"""Makes NCCL log what it uses."""
READING: Final = script(__name__, "nccl_log", home=HOME)
"""Command that reads and removes the logs of a run; before a run it removes those of an earlier one."""
SOCKET: Final = re.compile(r"Socket|FastSocket", re.IGNORECASE)
"""Networks of NCCL that run over TCP."""
NVLS: Final = "NVLS"
ADAPTERS: Final = "NCCL_IB_HCA"
"""Adapters that NCCL may use; ``=`` before them: exactly these names (NCCL's documentation of its variables)."""
TOPOLOGY: Final = "NCCL_TOPO_FILE"
MNNVL: Final = "NCCL_MNNVL_ENABLE"
"""0: between nodes nothing may go over NVLink."""
DECLARED: Final = f"  # {TOPOLOGY} of the inventory: "
"""Comment at the end of a command, before the topology files that the inventory gives its nodes."""
LEAST_CHANNELS: Final = ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")
"""Variables that set the least number of channels."""
FEW_EDGES: Final = ("gather", "scatter", "sendrecv")
"""Operations of which some GPUs exchange nothing with other nodes, and whose sends use no channels of rings."""
_SHOWN: Final = 3

FATAL: Final = (
    (r"cuda failure|unhandled cuda error|illegal memory access", "a call of CUDA failed"),
    (r"out of memory|failed to (?:cuda )?(?:host )?alloc", "memory was short"),
    (r"NET/IB.*(?:got completion|async .*error|async fatal|status=\d+)", "an adapter reported a failed transfer"),
    (r"connection (?:closed|reset|refused)|call to (?:connect|recv|send|accept)\b.*fail", "a connection was lost"),
    (r"proxy.*(?:fail|error)|internal error|unhandled system error", "NCCL failed inside"),
    (r"timed? ?out|watchdog|abort", "a rank did not answer in time"),
    (r"no algorithm/protocol", "the algorithm that was asked for is not available"),
    (r"duplicate GPU|mismatch", "the ranks do not fit together"),
    (r"multicast.*(?:fail|error)|(?:fail|error).*multicast", "the NVSwitches refuse multicast"),
)
"""Warnings after which no figure counts, and what they mean. Source: the calls of WARN in NCCL's src/, each of which
returns an error from there; others only announce that something else is used."""
BENIGN: Final = (
    (r"libibverbs|NET/IB : (?:no|unable)|GPU ?Direct|DMA-?BUF|peermem", "the network in use is judged by itself"),
    (r"plug-?in", "NCCL goes on with its own network or tuner"),
    (r"iommu=pt|NUMA auto balancing|numa_balancing", "advice on a kernel setting, which has its own check"),
    (r"affinity|sched_setaffinity", "a thread's place is no result"),
    (r"deprecated|ignor", "a setting without effect"),
)
"""Warnings that cost nothing, and why. All others are shown with the figure."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Layout and environment that the command line asks of NCCL."""

    nodes: int
    ranks_per_node: int
    environment: Mapping[str, str]
    op: str
    rail: int | None = None
    """GPU, and so rail, of rank 0, where the ranks are split by rails."""
    topology_files: tuple[str, ...] = ()
    """Topology files that the inventory gives the nodes."""

    @property
    def algorithm(self) -> str | None:
        return self.environment.get("NCCL_ALGO")


def log_readings(answers: Iterable[CommandResult]) -> list[CommandResult]:
    return [answer for answer in answers if MARK in answer.command]


def log_of(answer: CommandResult) -> NcclLog:
    """Raises ParseError."""
    if not answer.ok:
        raise ParseError(TOOL, f"{answer.node}: {answer.why}")
    return parse_nccl_log(answer.stdout)


def bypasses_fabric(architecture: Architecture) -> bool:
    """Whether nodes are connected by NVLink."""
    return any(SERVICE in role.expect.services for role in architecture.roles.values())


def goes_over_nvlink(asked: Asked, architecture: Architecture) -> bool:
    """Whether what nodes exchange may take NVLink instead of the fabric's ports."""
    return asked.rail is None and asked.environment.get(MNNVL) != "0" and bypasses_fabric(architecture)


def conditions_of(logs: Mapping[str, NcclLog]) -> dict[str, Any]:
    """Networks, adapters and version of NCCL, in a few words."""
    networks = sorted({f"NET/{use.name}" for log in logs.values() for _, use in log.networks})
    in_use = [(log.adapters, use.device) for log in logs.values() for _, use in log.networks]
    adapters = sorted({name for names, device in in_use for name in names.get(device, ())})
    versions = sorted({log.version for log in logs.values() if log.version})
    channels = [number for log in logs.values() for numbers in log.channels.values() for number in numbers]
    algorithms = sorted({name for log in logs.values() for name in log.algorithms})
    files = sorted({file for log in logs.values() for file in log.topology_files})
    warnings = [text for log in logs.values() for text in log.warnings if not _meaning(BENIGN, text)]
    receiving = [log for log in logs.values() if _receives(log)] or list(logs.values())
    conditions: dict[str, Any] = {
        "network": ", ".join(networks) or "none",
        "gpudirect": all(_receives_into_gpu(log) for log in receiving) if networks else None,
        "adapters": ", ".join(adapters),
        "nvls": all(log.nvls for log in logs.values()),
        "inside": ", ".join(sorted({kind for log in logs.values() for kind in log.inside})),
        "channels": min(channels, default=None),
        "nccl": ", ".join(versions),
        "algorithms": ", ".join(algorithms),
        "topology_file": ", ".join(files),
        "nccl_warnings": list(dict.fromkeys(warnings)),
    }
    return {name: value for name, value in conditions.items() if value not in (None, "", [])}


def check_used(logs: Mapping[str, NcclLog], asked: Asked, architecture: Architecture) -> None:
    """Raises Mismatch, one line, if the run is not what was asked for. ``logs``: by node."""
    faults = [f"{node}: {fault}" for node, log in logs.items() for fault in _faults(log, asked, architecture)]
    ranks = [rank for log in logs.values() for rank in log.ranks]
    expected = asked.nodes if asked.rail is not None else asked.nodes * asked.ranks_per_node
    if not faults and asked.rail is not None:  # each rail has ranks of its own, and one of them prints the figures
        files = {node: log.files for node, log in logs.items() if log.files != asked.ranks_per_node}
        faults = [
            f"{node}: expected a log of each of {asked.ranks_per_node} ranks, actual {n}" for node, n in files.items()
        ]
    if not faults and set(ranks) != set(range(expected)):
        faults = [f"expected complete ranks 0 to {expected - 1}, actual {len(set(ranks))} of them"]
    faults = faults or list(_channel_faults(logs, asked, architecture))
    if faults:
        raise Mismatch(TOOL, some(faults, _SHOWN, "; "))


def _faults(log: NcclLog, asked: Asked, architecture: Architecture) -> Iterator[str]:
    for text in log.warnings:
        if (meaning := _meaning(FATAL, text)) and not _meaning(BENIGN, text):
            yield f"{meaning}: {text[:160]}"
    if not log.files:
        yield "NCCL wrote no log"
        return
    if asked.algorithm == NVLS and not log.nvls:
        yield "expected NVLS, actual no multicast in the NVSwitches"
    if asked.algorithm is not None:
        if strange := sorted(log.algorithms - {asked.algorithm}):
            yield f"expected the algorithm {asked.algorithm}, actual {', '.join(strange)}"
        elif log.environment.get("NCCL_ALGO") != asked.algorithm and asked.algorithm not in log.algorithms:
            yield f"expected the algorithm {asked.algorithm}, NCCL does not say that it obeys"
    yield from _topology_faults(log, asked, architecture)
    if asked.nodes > 1 and architecture.fabric is not None:
        yield from _network_faults(log, asked, architecture, architecture.fabric)


def _topology_faults(log: NcclLog, asked: Asked, architecture: Architecture) -> Iterator[str]:
    """Every rank must have loaded the declared topology file; NCCL goes on without one that it cannot open."""
    declared = _declared(architecture, TOPOLOGY)
    files = (declared,) if declared else asked.topology_files
    if not files and (own := log.environment.get(TOPOLOGY)):
        files = (own,)
    ranks = max(log.files, len(log.ranks))  # in groups of ranks numbers repeat; a process may have several ranks
    if files and not any(log.topology_files.get(file, 0) >= ranks for file in files):
        loaded = [f"{file} by {count}" for file, count in log.topology_files.items()]
        yield (
            f"expected the topology file {' or '.join(files)} loaded by {ranks} ranks,"
            f" actual {', '.join(loaded) or 'none'}"
        )


def _channel_faults(logs: Mapping[str, NcclLog], asked: Asked, architecture: Architecture) -> Iterator[str]:
    """All ranks of a communicator agree on their number of channels; groups of ranks have one each."""
    if asked.op not in FEW_EDGES:
        by_group: dict[int, dict[int, str]] = {}
        for node, log in logs.items():
            for gpu, numbers in log.channels.items():
                group = by_group.setdefault(0 if asked.rail is None else gpu, {})
                for number in numbers:
                    group.setdefault(number, f"{number} of {node} (GPU {gpu})")
        for group in by_group.values():
            if len(group) > 1:
                yield f"expected one number of channels, actual {', '.join(group[number] for number in sorted(group))}"
    limits = [asked.environment.get(name) or _declared(architecture, name) or "" for name in LEAST_CHANNELS]
    least = max((int(limit) for limit in limits if limit.isdecimal()), default=0)
    for node, log in logs.items():
        fewest = min((number for numbers in log.channels.values() for number in numbers), default=0)
        if fewest < least:
            yield f"{node}: expected {least} channels or more, actual {fewest or 'none reported'}"


def _declared(architecture: Architecture, variable: str) -> str | None:
    """Value that the architecture demands of /etc/nccl.conf."""
    value = ((architecture.gpu.nccl if architecture.gpu else None) or {}).get(variable)
    return None if value is None else str(value)


def _network_faults(log: NcclLog, asked: Asked, architecture: Architecture, fabric: Fabric) -> Iterator[str]:
    counts: dict[str, int] = {}
    for (_, use), count in log.networks.items():
        counts[use.name] = counts.get(use.name, 0) + count
    over_tcp = {name: count for name, count in counts.items() if SOCKET.search(name)}
    if over_tcp or any(SOCKET.fullmatch(name) for name in log.chosen):
        used = ", ".join(f"NET/{name} on {count} connections" for name, count in over_tcp.items())
        yield f"expected RDMA, actual {used or f'network {log.chosen[0]}'}"
        return
    over_nvlink = goes_over_nvlink(asked, architecture)
    if not counts and not over_nvlink:
        yield "NCCL names no connection to another node"
    direct = architecture.gpu.gpudirect if architecture.gpu else None
    only_sends = asked.op in FEW_EDGES and not _receives(log)
    if counts and direct and not only_sends and not _receives_into_gpu(log):
        yield f"expected GPUDirect RDMA ({direct}), actual copies through host memory"
    if counts and not over_nvlink:
        yield from _rail_faults(log, asked, fabric)


def _rail_faults(log: NcclLog, asked: Asked, fabric: Fabric) -> Iterator[str]:
    """A run of all rails uses each of them and no other adapter; one split by rails uses each GPU's own."""
    if unnamed := sorted({use.device for _, use in log.networks} - log.adapters.keys()):
        yield f"NCCL does not name the adapter {', '.join(map(str, unnamed))} of its connections"
        return
    used: dict[int, set[str]] = {}
    for gpu, use in log.networks:
        used.setdefault(gpu, set()).update(log.adapters[use.device])
    if asked.rail is not None:
        for gpu, own in sorted(used.items()):
            rail = (asked.rail + gpu) % asked.ranks_per_node
            wanted = f"{fabric.rdma_prefix}{rail}"
            if (gpu == 0 or asked.ranks_per_node == fabric.rails) and own != {wanted}:
                yield f"expected GPU {rail} on {wanted}, actual {', '.join(sorted(own))}"
        return
    named = asked.environment.get(ADAPTERS)
    rails = named.removeprefix("=").split(",") if named else [f"{fabric.rdma_prefix}{k}" for k in range(fabric.rails)]
    every = set().union(*used.values())
    if unused := [name for name in rails if name not in every and asked.op not in FEW_EDGES]:
        yield f"expected connections on all {len(rails)} rails, actual none on {some(unused, _SHOWN)}"
    if further := sorted(every - set(rails)):
        yield f"expected connections on the {len(rails)} rails alone, actual also on {some(further, _SHOWN)}"


def _receives(log: NcclLog) -> bool:
    return any(use.receives for _, use in log.networks)


def _receives_into_gpu(log: NcclLog) -> bool:
    """Whether all receives use GPUDirect RDMA. Sends need not: NCCL uses it for them only where the GPU has NVLink."""
    receiving = [use for _, use in log.networks if use.receives]
    return bool(receiving) and all(use.gpudirect for use in receiving)


def _meaning(table: Sequence[tuple[str, str]], text: str) -> str | None:
    return next((meaning for pattern, meaning in table if re.search(pattern, text, re.IGNORECASE)), None)
