"""RDMA between GPU memories, on one rail at a time: writes of every adapter to another node, or between all pairs, and
latency of reads.

Each adapter uses the GPU that is nearest to it on PCIe; process and host memory are bound to the adapter's NUMA node.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from rackproof.bench.links.figures import (
    BOTH_ALL_RAILS,
    BOTH_WAYS,
    GPU_BANDWIDTH,
    GPU_BLOCK_BYTES,
    GPU_BOTH,
    GPU_BOTH_ALL_RAILS,
    GPU_READ_LATENCY,
    OF_GPU,
    PROGRAMS,
    TO,
    USE_DMABUF,
    USE_GPU,
    duration_of,
)
from rackproof.bench.links.placement import Placement
from rackproof.bench.links.steps import (
    LATENCY_S,
    RDMA_PORT,
    START_S,
    End,
    Tool,
    commands_of,
    from_address,
    measure_pairs,
    traffic_class,
)
from rackproof.bench.step import BenchContext, Step, expected
from rackproof.core.architecture import Architecture, Fabric, LinkProfile
from rackproof.core.architecture.coverage import measures
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.pairing import each_once, rounds
from rackproof.core.programs import PERFTEST
from rackproof.core.rack import Rack

ANY_GPU: Final = "GPU"
"""In the commands of a dry run: nodes tell which GPU is next to an adapter."""


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack) -> list[Step]:
    """Steps where a criterion asks for GPU memory: every node sends once on each rail, or every pair is measured, with
    group testing every node with one other; the nodes of a round at once."""
    fabric = architecture.fabric
    if fabric is None:
        return []
    names = [node.name for node in rack.group(profile.members)]
    pairs_of = rounds if profile.all_pairs(len(names)) else each_once
    schedules = {Scope.NIC: sends(names), Scope.PAIR: pairs_of(names)}
    return [
        _step(architecture, fabric, profile, metric, scope, rail, number, pairs, rack)
        for metric in (GPU_BANDWIDTH, GPU_BOTH, GPU_READ_LATENCY)
        for scope, schedule in schedules.items()
        if measures(architecture, metric, scope)
        for rail in range(fabric.rails)
        for number, pairs in enumerate(schedule, 1)
    ]


def sends(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds of (server, client) in which every node is a client once, and no node is in two pairs of a round."""
    schedule = rounds(names)
    if not schedule:
        return []
    first = schedule[0]
    once = [list(first), [(client, server) for server, client in first]]
    paired = {name for pair in first for name in pair}
    once += [[(first[0][0], name)] for name in names if name not in paired]
    return once


def _step(
    architecture: Architecture,
    fabric: Fabric,
    profile: LinkProfile,
    metric: str,
    scope: Scope,
    rail: int,
    number: int,
    pairs: Sequence[tuple[str, str]],
    rack: Rack,
) -> Step:
    ways = {GPU_BOTH: "-both-ways", GPU_READ_LATENCY: "-read-latency"}.get(metric, "")
    id_ = f"links/rail{rail}/gpu-memory{ways}{'-pairs' if scope is Scope.PAIR else ''}{number}"
    places = {
        pair: [
            expected(
                metric,
                scope,
                pair if scope is Scope.PAIR else [f"{pair[1]}/nic{rail}"],
                {"rail": str(rail)},
                id_,
            )
        ]
        for pair in pairs
    }

    tool = _tool(architecture, fabric, profile, metric, rail)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return measure_pairs(context, fabric, rail, tool, places, profile.runs, gpus=True)

    seconds = profile.runs * (seconds_of(profile, metric) + START_S)
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    title = f"rdma from GPU memory{ways.replace('-', ' ')}, rail {rail}, round {number}"
    commands = commands_of(fabric, tool, rail, [rack.node(name) for name in pairs[0]], ANY_GPU)
    return Step(id_, title, seconds, expects, execute, commands=commands)


def _tool(architecture: Architecture, fabric: Fabric, profile: LinkProfile, metric: str, rail: int) -> Tool:
    def command(end: End) -> str:
        return command_of(architecture, fabric, profile, metric, rail, end.placement)

    return Tool(
        "rdma-gpu",
        (metric,),
        RDMA_PORT,
        lambda own: from_address(command(own), own, "exec "),
        lambda peer, own: f"{command(own)} {shlex.quote(peer.address)}{TO}{peer.node}",
        seconds_of(profile, metric),
        of_both=True,
    )


def seconds_of(profile: LinkProfile, metric: str) -> float:
    """Estimate of one run."""
    return LATENCY_S if metric == GPU_READ_LATENCY else profile.rdma_duration_s


def command_of(
    architecture: Architecture,
    fabric: Fabric,
    profile: LinkProfile,
    metric: str,
    rail: int,
    placement: Placement,
    port: int = RDMA_PORT,
) -> str:
    """perftest of either end on its adapter's NUMA node; with GPU memory its path is the one that is declared, and the
    program is the one that the deploy built with CUDA, where the node has it."""
    program, device = PROGRAMS[metric], shlex.quote(f"{fabric.rdma_prefix}{rail}")
    size = GPU_BLOCK_BYTES if metric in OF_GPU else profile.rdma_block_bytes
    options = f"-D {duration_of(metric, profile)}"
    if metric == GPU_READ_LATENCY:
        options = f"-n {profile.latency_iterations}"
    if program == "ib_write_bw":
        options = f"-s {size} {options}"
    if metric in OF_GPU and placement.gpu is not None:
        options += f" {USE_GPU} {shlex.quote(placement.gpu)}"
        if architecture.gpu and architecture.gpu.gpudirect == "dmabuf":
            options += f" {USE_DMABUF}"
    if metric in (GPU_BOTH, BOTH_ALL_RAILS, GPU_BOTH_ALL_RAILS):
        options += f" {BOTH_WAYS}"
    if metric in OF_GPU and placement.built:
        program = f"{PERFTEST}/{program}"
    return placement.bound(f"{program} -d {device} -F -p {port}{traffic_class(fabric)} {options}")
