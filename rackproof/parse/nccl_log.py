"""Answer of ``rackproof/bench/collectives/nccl_log.sh``: NCCL's log (``NCCL_DEBUG=INFO``) of one run on one node.

The words are NCCL's own (src/init.cc, src/transport/net.cc, src/transport/net_ib.cc, src/graph/xml.cc and
src/enqueue.cc of versions 2.12 to 2.31), and those of its plug-ins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines

MARK: Final = "rackproof nccl log 1"
"""First line of every answer, and part of the command."""
TOOL: Final = "NCCL"
_END: Final = "end of nccl log"
_FILES: Final = re.compile(r"files (\d{1,9})")
_LINE: Final = re.compile(r"\s*(\d{1,9}) \[(\d{1,4})\] (INFO|WARN) (.*)")
_CONNECTION: Final = re.compile(r"(?:Channel|CollNet) (?:\[(\w+)\] )?via (\S.*)")
"""CollNet: to the switches that add the values up (SHARP). NCCL connects the GPUs among themselves only where a call
needs it (from 2.22), so there may be no other connection."""
_NETWORK: Final = re.compile(r"(?:NET|COLLNET)/([A-Za-z][\w .-]*?)/(\d{1,4})(?:\(\d+\))?(/GDRDMA)?(?:[/(].*)?")
_ADAPTERS: Final = re.compile(r"NET/[\w.-]+ : Using (.*)")
_DEVICE: Final = re.compile(r"\[(\d{1,4})\] ?([\w.-]+):\d+[:\d]*/")
_ENTRY: Final = re.compile(r"\[(\d{1,4})\](?:=\{[^}]*\}|[\w.-]+:\d+[:\d]*/)")
"""One adapter, or several that work as one: ``[0]mlx5_0:1/IB``, ``[1]={[1] mlx5_1:1/IB, [2] mlx5_2:1/IB}``; with its
port, rail and plane where NCCL_IB_HCA names them: ``[0]mlx5_0:1:0:3/IB``."""
_DIRECT: Final = "_dma"
"""Ends the name of an adapter that reaches GPUs over a PCIe link of their own (ConnectX-8, NCCL from 2.27)."""
_MERGED: Final = re.compile(r"NET/[\w.-]+ : Made virtual device \[(\d{1,4})\] name=(\S+) .*")
_COMPLETE: Final = re.compile(r"rank (\d{1,7}) n[rR]anks (\d{1,7}) .*Init COMPLETE")
_SET: Final = re.compile(r"(NCCL_\w+) set by environment to (.*?)\.?")
_CHANNELS: Final = re.compile(r"(\d{1,4}) coll channels")
_TOPOLOGY: Final = re.compile(r"Loading topology file (\S+)")
_NO_MULTICAST: Final = re.compile(r"NVLS multicast support is (?:not available|available .*, transport disabled)")
_ALGORITHM: Final = re.compile(r"(?:(\w+): )?\d+ Bytes -> Algo (\w+) proto")
_NUMBERED: Final = {"0": "Tree", "1": "Ring", "2": "CollNetDirect", "3": "CollNetChain", "4": "NVLS", "5": "NVLSTree"}
"""``NCCL_ALGO_*`` of src/include/nccl_common.h: versions before 2.24 print the number."""
_NAMED: Final = {name.upper(): name for name in _NUMBERED.values()} | {"NVLS_TREE": "NVLSTree"}


@dataclass(frozen=True, slots=True)
class Network:
    """How connections between nodes run: ``IB``, ``Socket``, the name of a plug-in."""

    name: str
    device: int
    """Number of the adapter in NCCL's own list."""
    gpudirect: bool
    """Whether the adapter reads or writes the GPU's memory."""
    receives: bool


@dataclass(frozen=True, slots=True)
class NcclLog:
    hostname: str
    """Host name by the kernel."""
    files: int
    """Logs: one for each process."""
    ranks: frozenset[int]
    """Ranks whose communicator was complete."""
    version: str | None
    networks: Mapping[tuple[int, Network], int]
    """Connections to other nodes, by GPU and network."""
    inside: Mapping[str, int]
    """Connections inside the node: ``P2P``, ``SHM``."""
    adapters: Mapping[int, tuple[str, ...]]
    """RDMA devices that NCCL uses, by number: one, or several that it merged."""
    chosen: tuple[str, ...]
    """``Using network IB``."""
    nvls: bool
    """Every communicator has multicast buffers in the NVSwitches."""
    channels: Mapping[int, frozenset[int]]
    """Numbers of channels of the communicators, by GPU."""
    environment: Mapping[str, str]
    """Variables that NCCL says it obeys."""
    topology_files: Mapping[str, int]
    """Topology files that were loaded, and how often: once by each rank."""
    algorithms: frozenset[str]
    """Algorithms of the calls; empty where NCCL does not say it."""
    warnings: tuple[str, ...]


def parse_nccl_log(output: str | bytes) -> NcclLog:
    """Raises ParseError where the answer is incomplete or unreadable. Its third line only tells two answers apart."""
    lines = whole_lines(TOOL, output)
    if len(lines) < 5 or lines[0] != MARK or lines[-1] != _END or not (files := _FILES.fullmatch(lines[3])):
        raise ParseError(TOOL, f"expected a whole answer, it ends with {excerpt(lines[-1])}")
    networks: dict[tuple[int, Network], int] = {}
    inside: dict[str, int] = {}
    adapters: dict[int, tuple[str, ...]] = {}
    channels: dict[int, set[int]] = {}
    topology_files: dict[str, int] = {}
    environment: dict[str, str] = {}
    ranks: set[int] = set()
    algorithms: set[str] = set()
    warnings: dict[str, None] = {}
    chosen: dict[str, None] = {}
    version, multicast, refused = None, False, False
    for line in lines[4:-1]:
        match = matched(TOOL, _LINE, line, "a counted line of a log")
        count, gpu, text = int(match[1]), int(match[2]), match[4]
        if match[3] == "WARN":
            warnings[text.strip()] = None
        elif connection := _CONNECTION.search(text):
            if network := _NETWORK.fullmatch(connection[2]):
                receives = connection[1] != "send"
                used = (gpu, Network(network[1], int(network[2]), network[3] is not None, receives))
                networks[used] = networks.get(used, 0) + count
            else:
                kind = connection[2].partition("/")[0]
                inside[kind] = inside.get(kind, 0) + count
        elif complete := _COMPLETE.search(text):
            ranks.add(int(complete[1]))
        elif using := _ADAPTERS.search(text):
            adapters |= _adapters(using[1])
        elif merged := _MERGED.search(text):
            adapters[int(merged[1])] = tuple(name.removesuffix(_DIRECT) for name in merged[2].split("+"))
        elif "Using network " in text:
            chosen[text.partition("Using network ")[2].strip()] = None
        elif setting := _SET.fullmatch(text.strip()):
            environment[setting[1]] = setting[2]
        elif number := _CHANNELS.search(text):
            channels.setdefault(gpu, set()).add(int(number[1]))
        elif loaded := _TOPOLOGY.search(text):
            topology_files[loaded[1]] = topology_files.get(loaded[1], 0) + count
        elif call := _ALGORITHM.search(text):
            algorithms.add(_NUMBERED.get(call[2]) or _NAMED.get(call[2].upper(), call[2]))
        elif _NO_MULTICAST.search(text):
            refused = True
        elif "NVLS comm" in text or "NVLS multicast support is available" in text:
            multicast = True
        elif "NCCL version " in text:
            version = text.partition("NCCL version ")[2].split("+")[0].split()[0]
    return NcclLog(
        hostname=lines[1].strip(),
        files=int(files[1]),
        ranks=frozenset(ranks),
        version=version,
        networks=networks,
        inside=inside,
        adapters=adapters,
        chosen=tuple(chosen),
        nvls=multicast and not refused,
        channels={gpu: frozenset(numbers) for gpu, numbers in channels.items()},
        environment=environment,
        topology_files=topology_files,
        algorithms=frozenset(algorithms),
        warnings=tuple(warnings),
    )


def _adapters(listed: str) -> dict[int, tuple[str, ...]]:
    """Adapters by number. Versions 2.19 to 2.23 number merged ones by their place in the list, and say it of none."""
    adapters = {}
    for place, entry in enumerate(_ENTRY.finditer(listed)):
        inside = entry[0].partition("=")[2] or entry[0]
        names = tuple(name.removesuffix(_DIRECT) for _, name in _DEVICE.findall(inside))
        adapters[place if "={" in listed else int(entry[1])] = names
    return adapters
