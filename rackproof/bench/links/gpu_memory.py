"""RDMA from GPU memory to GPU memory: every adapter sends to the same rail of another node.

Each adapter uses the GPU that is nearest to it on PCIe; process and host memory are bound to the adapter's NUMA node.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rackproof.bench.firewall import Firewall
from rackproof.bench.links.figures import GPU_BANDWIDTH, GPU_BLOCK_BYTES, USE_DMABUF, USE_GPU
from rackproof.bench.links.reader import TO
from rackproof.bench.links.steps import RDMA_PORT, START_S, End, Tool, end_of, measure_pair, ready_pairs, traffic_class
from rackproof.bench.step import BenchContext, Step, expected, unmeasured
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Architecture, LinkProfile
from rackproof.core.architecture.coverage import asks_for
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.pairing import rounds
from rackproof.core.rack import Rack
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

_TOOL: Final = "PCI devices"
_LIMIT_S: Final = 20
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack, group: str = "gpu") -> list[Step]:
    """Steps where a criterion asks for GPU memory: every node sends once on each rail; the nodes of a round at once."""
    fabric = architecture.fabric
    if fabric is None or not asks_for(architecture, GPU_BANDWIDTH):
        return []
    names = [node.name for node in rack.group(group)]
    sends = _sends(names)
    return [
        _step(architecture, profile, rail, number, pairs)
        for rail in range(fabric.rails)
        for number, pairs in enumerate(sends, 1)
    ]


def _sends(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds of (server, client) in which every node is a client once, and no node is in two pairs of a round."""
    schedule = rounds(names)
    if not schedule:
        return []
    first = schedule[0]
    sends = [list(first), [(client, server) for server, client in first]]
    paired = {name for pair in first for name in pair}
    sends += [[(first[0][0], name)] for name in names if name not in paired]
    return sends


def _step(
    architecture: Architecture, profile: LinkProfile, rail: int, number: int, pairs: Sequence[tuple[str, str]]
) -> Step:
    id_ = f"links/rail{rail}/gpu-memory{number}"
    places = {
        pair: [expected(GPU_BANDWIDTH, Scope.NIC, [f"{pair[1]}/nic{rail}"], {"rail": str(rail)}, id_)] for pair in pairs
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        session, fabric = context.session, architecture.fabric
        ready, absent = ready_pairs(context, pairs)
        reasons = {pair: f"{gone} does not answer" for pair, gone in absent.items()}
        lost = BenchUsers.of(context).ready([name for pair in ready for name in pair])
        port = f"{fabric.interface_prefix}{rail}" if fabric else ""
        answers = session.run({name: pci_command(port) for pair in ready for name in pair}, _LIMIT_S)
        runs: dict[tuple[str, str], tuple[Tool, tuple[End, End]]] = {}
        for pair in ready:
            ends = [end_of(session.rack.node(name), fabric, rail) if fabric else None for name in pair]
            try:
                gpus = {name: nearest_gpu(answers[name]) for name in pair}
            except ParseError as error:
                reasons[pair] = str(error)
                continue
            if gone := [name for name in pair if name in lost]:
                reasons[pair] = lost[gone[0]]
            elif ends[0] is None or ends[1] is None:
                name = pair[0] if ends[0] is None else pair[1]
                reasons[pair] = f"{name}: the inventory gives no fabric address for rail {rail}"
            else:
                runs[pair] = (_tool(architecture, profile, rail, gpus), (ends[0], ends[1]))
        for pair, reason in reasons.items():
            yield from (unmeasured(place, reason) for place in places[pair])
        Firewall.of(context).close([name for pair in runs for name in pair], [RDMA_PORT])
        if runs:
            with ThreadPoolExecutor(max_workers=len(runs)) as pool:
                yield from (
                    measurement
                    for of_pair in pool.map(
                        lambda pair: measure_pair(context, *runs[pair], places[pair], profile.runs), runs
                    )
                    for measurement in of_pair
                )

    seconds = profile.runs * (profile.rdma_duration_s + START_S)
    expects = tuple(place for of_pair in places.values() for place in of_pair)
    return Step(id_, f"rdma from GPU memory, rail {rail}, round {number}", seconds, expects, execute)


def _tool(architecture: Architecture, profile: LinkProfile, rail: int, gpus: dict[str, str]) -> Tool:
    fabric, gpu = architecture.fabric, architecture.gpu
    if fabric is None:
        raise ValueError("no fabric")
    near = shlex.quote(f"netdev:{fabric.interface_prefix}{rail}")
    common = (
        f"-d {shlex.quote(f'{fabric.rdma_prefix}{rail}')} -F -p {RDMA_PORT}{traffic_class(fabric)} -s {GPU_BLOCK_BYTES}"
    )
    dmabuf = f" {USE_DMABUF}" if gpu is not None and gpu.gpudirect == "dmabuf" else ""

    def command(end: End) -> str:
        own = f"{USE_GPU} {shlex.quote(gpus[end.node])}{dmabuf}"
        return f"numactl --cpunodebind={near} --membind={near} ib_write_bw {common} -D {profile.rdma_duration_s} {own}"

    def server(own: End) -> str:
        bind = f"bind=--bind_source_ip={shlex.quote(own.address)}"
        return f"bind=; ! ib_write_bw --help 2>&1 | grep -q -e --bind_source_ip || {bind}; exec {command(own)} $bind"

    def client(peer: End, own: End) -> str:
        return f"{command(own)} {shlex.quote(peer.address)}{TO}{peer.node}"

    return Tool("rdma-gpu", (GPU_BANDWIDTH,), RDMA_PORT, server, client, profile.rdma_duration_s)


def pci_command(port: str) -> str:
    """Command that prints the PCI path of a network interface, then those of all NVIDIA GPUs."""
    return (
        f"readlink -e /sys/class/net/{shlex.quote(port)}/device || echo none; for d in /sys/bus/pci/devices/*; do "
        'case "$(cat "$d/vendor"):$(cat "$d/class")" in 0x10de:0x030[02]*) readlink -e "$d";; esac; done; echo end'
    )


def nearest_gpu(answer: CommandResult) -> str:
    """PCI address of the GPU that shares most of the adapter's path; the first one of several. Raises ParseError."""
    if not answer.ok:
        raise ParseError(_TOOL, f"{answer.node}: {answer.why}")
    lines = answer.text.splitlines()
    if lines[-1:] != ["end"]:
        raise ParseError(_TOOL, f"{answer.node}: the answer is cut off")
    own, gpus = lines[0], lines[1:-1]
    addresses = [path.rpartition("/")[2] for path in gpus]
    if own == "none" or not own.startswith("/sys/devices/"):
        raise ParseError(_TOOL, f"{answer.node}: the port is no PCI device")
    if not gpus or not all(map(_ADDRESS.fullmatch, addresses)):
        raise ParseError(_TOOL, f"{answer.node}: no NVIDIA GPU on PCI")
    shared = [_shared(own, path) for path in gpus]
    return addresses[shared.index(max(shared))]


def _shared(a: str, b: str) -> int:
    """Number of leading parts that two paths have in common."""
    parts = list(zip(a.split("/"), b.split("/"), strict=False))
    return next((number for number, (left, right) in enumerate(parts) if left != right), len(parts))
