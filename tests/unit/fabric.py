"""Nodes whose fabric ports count what the tools move; what tools do, say and pass can be changed."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

from rackproof.bench.collectives.command import Requested, launcher_of, leads, requested_by
from rackproof.bench.links import placement
from rackproof.core.collective import busbw_factor, least_received
from rackproof.core.programs import packaged
from rackproof.parse import mpi_probe, nccl_log
from rackproof.parse.port_counters import BEGINS
from rackproof.remote.command import CommandResult
from rackproof.remote.command import program as first_program
from tests.unit.fakes import reply

DATA = Path(__file__).parents[1] / "data" / "tools"
MTU = 9000
GPU_ROW = " 8388608    20               0.00               80.00              0.000010"
CUDA = """Perftest doesn't supports CUDA tests with inline messages: inline size set to 0
initializing CUDA
Listing all CUDA devices in system:
CUDA device 0: PCIe address is 1B:00
CUDA device 1: PCIe address is 29:00

Picking device No. 1
[pid = 13194, dev = 1] device name = [NVIDIA H100 80GB HBM3]
creating CUDA Ctx
making it the current CUDA Ctx
cuMemAlloc() of a 16777216 bytes GPU buffer
allocated GPU buffer address at 00007f3fa4000000 pointer=0x7f3fa4000000
"""
"""Lines of perftest before a test with GPU memory; the order of its lines follows reports to its authors."""
DMABUF = "using DMA-BUF for GPU buffer address at 0x7f3fa4000000 aligned at 0x7f3fa4000000 with aligned size 16777216\n"
PCI = (
    "/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0\n0\n0-31,64-95\n"
    "/sys/devices/pci0000:37/0000:37:01.0/0000:3a:00.0/0000:3b:02.0/0000:1b:00.0\n"
    "/sys/devices/pci0000:15/0000:15:01.0/0000:29:00.0\n/usr/bin/numactl\nno built perftest\nend\n"
)
"""Adapter with its NUMA node, and GPUs of a node: the second GPU is behind the adapter's switch."""
NO_NUMA = "none\n-1\n\nno numactl\nno built perftest\nend\n"


@lru_cache(maxsize=4096)
def words_of(command: str) -> list[str]:
    return shlex.split(command)


@dataclass
class FabricNodes:
    """Two or more nodes. Traffic takes the rail that its socket or device names, unless ``way`` says otherwise."""

    addresses: dict[str, str] = field(default_factory=lambda: {"10.77.0.21": "gpu-01", "10.77.0.22": "gpu-02"})
    """Fabric address: node; those of a node in the order of its rails."""
    port: str = "fabric"
    device: str = "rxe"
    """Prefixes of the interface and the RDMA device of a rail."""
    adapter: str = "RoCE"
    """NCCL's word for the link of an adapter."""
    gpu: str = "NVIDIA H200"
    way: Callable[[str], str] = lambda port: port
    """The port that traffic for a port really takes."""
    edit: Callable[[str, str], str] = lambda program, text: text
    """Changes what a program prints."""
    status: dict[str, int] = field(default_factory=dict)
    """Exit status by program."""
    complaints: dict[str, list[str]] = field(default_factory=dict)
    """By program: what its next runs print on stderr."""
    attempts: dict[str, list[Callable[[str], str]]] = field(default_factory=dict)
    """By program: changes of the next runs' outputs."""
    loss: dict[str, float] = field(default_factory=dict)
    """Percent, by node."""
    delay_ms: dict[str, float] = field(default_factory=dict)
    gpu_memory: str = CUDA
    """Lines of perftest about GPU memory."""
    served_memory: str | None = None
    """The same of servers; None: as clients."""
    pci: str = PCI
    built: bool = False
    """Whether the deploy built perftest with CUDA."""
    one_way: bool = False
    """Whether the server of a test in both directions sends nothing."""
    retries: int = 0
    """Retries of every RDMA test."""
    slow: dict[str, float] = field(default_factory=dict)
    """How many times longer collectives of MPI take, by port."""
    hostnames: dict[str, str] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    """Counters that no node has."""
    priority: Callable[[str], int] = lambda options: 3 if "--tclass=106" in options or "--sl=3" in options else 0
    """The priority that RDMA takes, from the command line of its tool."""
    nccl_priority: Callable[[str, str], int] = lambda node, port: 3
    """The priority that collectives take from and to a node's port."""
    returned: int | None = None
    """The priority of what servers send in tests of both directions; None: that of the clients."""
    mpi: str = (
        "default /usr/bin/mpirun\nmpirun /usr/bin/mpirun mpirun (Open MPI) 5.0.7\n"
        "mpi4py Open MPI v5.0.7, package: Debian OpenMPI\nsrun MPI plugin types are... none pmix pmix_v5\n"
    )
    """Answer of ``mpi_probe.sh`` between its first line and its last one."""
    spoken: Callable[[str, list[str]], list[str]] = lambda node, lines: lines
    """Changes the log of NCCL on a node: counted lines, as ``nccl_log.sh`` prints them."""
    nvlink: bool = False
    """Whether NVLink joins the nodes; NCCL then uses adapters only where NCCL_MNNVL_ENABLE is 0."""
    absent: int = 0
    """The last ranks of nccl-tests that do not take part."""
    adapters: int = 1
    """RDMA devices of a node; GPUs share them, or have several, unless NCCL_IB_HCA names those that NCCL may use."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """By node: what NCCL wrote since the last reading."""
    serial: Iterator[int] = field(default_factory=lambda: count(1))
    """Makes every output another one, as cookies, sequence numbers and times do."""
    counts: dict[tuple[str, str], dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: 1000))
    )

    def answer(self, node: str, command: str) -> CommandResult | None:
        program = packaged(first_program(command))
        if command.startswith(BEGINS):
            return reply(node, command, self._counters(node, command))
        if placement.is_question(command):
            asked = f"{'' if self.built else 'no '}built perftest\nend\n"
            return reply(node, command, self.placed(command).replace("no built perftest\nend\n", asked))
        if program == "ping":
            return self._ping(node, command)
        if mpi_probe.MARK in command:
            return reply(node, command, f"{mpi_probe.MARK}\n{self.mpi}end of mpi\n")
        if nccl_log.MARK in command:
            return reply(node, command, self._log(node))
        if launcher_of(command):
            return self._finish(node, command, self._collective(node, command))
        if program.startswith("ib_") and "bind=; " in command and "--use_cuda_bus_id" in command:
            text = self.gpu_memory if self.served_memory is None else self.served_memory
            return reply(node, command, f"{text} local address: LID 0000 PSN 0x{next(self.serial):06x}\n")
        if (program == "iperf3" and " -c " in command) or (program.startswith("ib_") and self._peer(command)):
            return self._finish(node, command, self._link(node, command, program))
        return None

    def placed(self, command: str) -> str:
        """Answer of ``placement.py``'s question on a node without the built program."""
        return self.pci

    def _finish(self, node: str, command: str, text: str) -> CommandResult:
        program = packaged(first_program(command))
        text = self.edit(program, text)
        if self.attempts.get(program):
            text = self.attempts[program].pop(0)(text)
        complaint = self.complaints[program].pop(0) if self.complaints.get(program) else ""
        return reply(node, command, text, rc=self.status.get(program, 0), err=complaint)

    def _peer(self, command: str) -> str | None:
        return self.addresses.get(words_of(command.partition("  # to ")[0])[-1])

    def pass_(self, sender: str, receiver: str, port: str, moved: int, packets: int) -> None:
        port = self.way(port)
        self.counts[sender, port]["tx_bytes"] += moved
        self.counts[receiver, port]["rx_bytes"] += moved
        for node in (sender, receiver):
            self.counts[node, port]["tx_packets"] += packets
            self.counts[node, port]["rx_packets"] += packets

    def _link(self, node: str, command: str, program: str) -> str:
        words = words_of(command)
        if program == "iperf3":
            return self._iperf3(node, words)
        device = words[words.index("-d") + 1]
        port = device.replace(self.device, self.port)
        peer = self._peer(command) or ""
        gpu_memory = self.gpu_memory if "--use_cuda_bus_id" in words else ""
        if program == "ib_write_bw" and "--use_cuda_bus_id" in words:
            text = gpu_memory + (DATA / "perftest-write-bw-duration-slow.txt").read_text()
            text = re.sub("(?m)^ 65536 .*$", GPU_ROW, text)
            if "-b" in words:
                text = text.replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test").replace("80.00", "160.00")
            self._carry(node, peer, port, (20, 8388608, 8388608), command)
        elif program == "ib_write_bw":
            text = (DATA / "perftest-write-bw-duration-slow.txt").read_text()
            if "-b" in words:
                text = text.replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test").replace("16.25", "32.50")
            self._carry(node, peer, port, (1300, 65536, 65600), command)
        else:
            lasting = "-D" in words
            count = 306017 * int(words[words.index("-D") + 1]) if lasting else 200
            text = (DATA / f"perftest-write-lat{'-duration' if lasting else ''}.txt").read_text()
            text = text.replace("1000          1.54", "200           1.54").replace("612034", str(count))
            text = text.replace("RDMA_Write Latency", f"RDMA_{'Read' if program == 'ib_read_lat' else 'Write'} Latency")
            text = gpu_memory + text
            self.pass_(node, peer, port, count * 70, count)
        self.counts[node, device]["duplicate_request"] += self.retries
        return text.replace(": rdma0", f": {device}").replace("5f21c6", f"{next(self.serial):06x}")

    def _carry(self, client: str, server: str, port: str, messages: tuple[int, int, int], command: str) -> None:
        """Number, bytes, and bytes with headers, of messages; of a test in both directions the server sends as many."""
        count, size, counted = messages
        ways = [(client, server, self.priority(command))]
        if "-b" in command.split() and not self.one_way:
            ways.append((server, client, ways[0][2] if self.returned is None else self.returned))
        for sender, receiver, number in ways:
            self.pass_(sender, receiver, port, count * size, count)
            self.counts[sender, self.way(port)][f"tx_prio{number}_bytes"] += count * counted
            self.counts[receiver, self.way(port)][f"rx_prio{number}_bytes"] += count * counted

    def _iperf3(self, node: str, words: list[str]) -> str:
        document = json.loads((DATA / "iperf3-3.12-two-streams.json").read_text())
        peer, own = words[words.index("-c") + 1], words[words.index("-B") + 1]
        seconds, streams = int(words[words.index("-t") + 1]), int(words[words.index("-P") + 1])
        start, moved = document["start"], 30_000_000 * seconds
        start["cookie"] = f"cookie{next(self.serial)}"
        start["connected"] = [{"local_host": own, "remote_host": peer} for _ in range(streams)]
        start["test_start"] |= {"num_streams": streams, "duration": seconds}
        start["tcp_mss_default"] = MTU - 52
        for name in ("sum_sent", "sum_received"):
            document["end"][name] |= {"seconds": seconds, "bytes": moved, "bits_per_second": 8.0 * moved / seconds}
        addresses = [address for address, name in self.addresses.items() if name == node]
        rail = addresses.index(own) if own in addresses else 0
        interface = words[words.index("--bind-dev") + 1] if "--bind-dev" in words else f"{self.port}{rail}"
        self.pass_(node, self.addresses[peer], interface, int(moved * 1.01), moved // MTU)
        return json.dumps(document) + "\n"

    def _counters(self, node: str, command: str) -> str:
        lines = [f"/proc/sys/kernel/hostname:{self.hostnames.get(node, node)}"]
        lines += ["/proc/net/snmp:Tcp: OutSegs RetransSegs", f"/proc/net/snmp:Tcp: {next(self.serial)} 7"]
        for port in re.findall(r"/sys/class/net/(\S+)/statistics", command):
            for name in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"):
                if name not in self.lacking:
                    lines.append(f"/sys/class/net/{port}/statistics/{name}:{self.counts[node, port][name]}")
        for device in re.findall(r"/sys/class/infiniband/(\S+)/ports/1/hw_counters", command):
            if "duplicate_request" not in self.lacking:
                retries = self.counts[node, device]["duplicate_request"]
                lines.append(f"/sys/class/infiniband/{device}/ports/1/hw_counters/duplicate_request:{retries}")
        if "ethtool -S" in command:
            for port in re.findall(r"/sys/class/net/(\S+)/statistics", command):
                names = [f"{way}_prio{number}_bytes" for number in range(8) for way in ("rx", "tx")]
                lines += [f"priorities of {port}", "NIC statistics:"]
                lines += [f"     {name}: {self.counts[node, port][name]}" for name in names if name not in self.lacking]
        return "".join(f"{line}\n" for line in lines) + "status 0\n"

    def _ping(self, node: str, command: str) -> CommandResult:
        match = re.search(r" -c (\d+) .* ([\d.]+)  # to (\S+)$", command)
        assert match is not None
        sent, peer = int(match[1]), match[3]
        ends = (node, peer)
        lost = round(sent * min(100.0, sum(self.loss.get(end, 0.0) for end in ends)) / 100)
        fastest = 1.0 + next(self.serial) / 1000 + sum(self.delay_ms.get(end, 0.0) for end in ends)
        text = f"\n--- {match[2]} ping statistics ---\n{sent} packets transmitted, {sent - lost} received, x\n"
        if lost < sent:
            text += f"rtt min/avg/max/mdev = {fastest:.3f}/{fastest + 2:.3f}/{fastest + 30:.3f}/0.300 ms\n"
        return reply(node, command, self.edit("ping", text), rc=1 if lost == sent else 0)

    def _log(self, node: str) -> str:
        lines = self.spoken(node, self.logs.pop(node, []))
        files = sum("Init COMPLETE" in line for line in lines)
        body = "".join(f"{line}\n" for line in lines)
        head = f"{self.hostnames.get(node, node)}\n{next(self.serial):036x}\nfiles {files}\n"
        return f"{nccl_log.MARK}\n{head}{body}end of nccl log\n"

    def _uses(self, asked: Requested, hosts: tuple[str, ...]) -> None:
        """Let NCCL say what a healthy run uses."""
        rails = range(asked.ranks_per_node)
        named = [f"{self.device}{number}" for number in range(self.adapters)]
        if only := asked.environment.get("NCCL_IB_HCA"):
            named = only.removeprefix("=").split(",")
        for number, host in enumerate(hosts):
            lines = [f"1 [0] INFO {key} set by environment to {value}." for key, value in asked.environment.items()
                     if key.startswith("NCCL_") and not key.startswith("NCCL_TESTS")]  # fmt: skip
            lines += ["2 [0] INFO NCCL version 2.26.2+cuda12.8", "2 [0] INFO Using network IB"]
            adapters = " ".join(f"[{number}]{name}:1/{self.adapter}" for number, name in enumerate(named))
            lines += [f"2 [0] INFO NET/IB : Using {adapters} [RO]; OOB {self.port}0:10.77.0.21"]
            lines += [f"1 [{gpu}] INFO 16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels"
                      for gpu in rails]  # fmt: skip
            lines += [f"1 [{gpu}] INFO NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)"
                      for gpu in rails if asked.environment.get("NCCL_NVLS_ENABLE") != "0"]  # fmt: skip
            for place in rails:
                split = asked.rail is not None
                rank = number if split else number * asked.ranks_per_node + place
                device = ((asked.rail or 0) + place) % asked.ranks_per_node if split else place
                lines += [f"1 [{place}] INFO ncclCommInitRank comm 0x rank {rank} nranks {asked.ranks} cudaDev {place}"
                          f" nvmlDev {device} - Init COMPLETE"]  # fmt: skip
                if len(hosts) > 1 and self.over_nvlink(asked):
                    lines += [f"16 [{place}] INFO Channel via P2P/MNNVL"]
                elif len(hosts) > 1:
                    own = [one for one in range(len(named)) if one % len(rails) == device] or [device % len(named)]
                    lines += [f"16 [{place}] INFO Channel [{way}] via NET/IB/{one}/GDRDMA/Shared"
                              for way in ("send", "receive") for one in own]  # fmt: skip
            self.logs[host] = lines

    def _collective(self, node: str, command: str) -> str:
        asked = requested_by(command)
        asked = asked if asked.hosts else asked.at(node)
        hosts = [self.hostnames.get(host, host) for host in asked.hosts for _ in range(asked.ranks_per_node)]
        split = 1 if asked.rail is None else asked.ranks_per_node
        together = asked.ranks_per_node // split
        received = split * sum(
            (asked.iterations + asked.warmup) * least_received(asked.op, size, len(asked.hosts), together)
            for size in asked.sizes
        )
        ports = self.carriers(asked)
        for host in asked.hosts:
            for port in ports:
                counts = self.counts[host, self.way(port)]
                counts["rx_bytes"] += received // len(ports)
                for way in ("rx", "tx"):
                    counts[f"{way}_prio{self.nccl_priority(host, port)}_bytes"] += received // len(ports)
        if asked.engine == "nccl-tests":
            self._uses(asked, asked.hosts)
            return self._nccl(asked.op, command, hosts[: len(hosts) - self.absent])
        if not leads(command):
            return ""
        rows = []
        time_us = self.slow.get(asked.interface or "", 1.0) * (1000.0 + next(self.serial) / 1000)
        for size in asked.sizes:
            alg = size / time_us / 1e3
            rows.append(
                {"bytes": size, "time_us": time_us, "algbw_GBps": alg,
                 "busbw_GBps": alg * busbw_factor(asked.op, len(hosts)), "wrong": 0,
                 "samples_us": [time_us] * asked.iterations}
            )  # fmt: skip
        document = {
            "rackproof_collectives": 1,
            "engine": asked.engine,
            "op": asked.op,
            "ranks": len(hosts),
            "hosts": hosts,
            "dtype": "float32",
            "warmup": asked.warmup,
            "mpi": "Open MPI v5.0.7",
            "results": rows,
        }
        if asked.engine == "torch":
            document["backend"] = asked.backend
            if asked.backend == "nccl":
                self._uses(asked, asked.hosts)
        return json.dumps(document) + "\n"

    def over_nvlink(self, asked: Requested) -> bool:
        return self.nvlink and asked.environment.get("NCCL_MNNVL_ENABLE") != "0"

    def carriers(self, asked: Requested) -> list[str]:
        """Ports of a node that a collective between nodes uses."""
        return [asked.interface or f"{self.port}0"]

    def nccl_us(self, asked: Requested, size: int, factor: float) -> float:
        """Microseconds of one call, whose bus bandwidth is ``factor`` times its rate."""
        return 1000.0

    def _nccl(self, op: str, command: str, hosts: list[str]) -> str:
        asked = requested_by(command)
        low, high, pid = asked.sizes[0], asked.sizes[-1], next(self.serial)
        groups = asked.ranks_per_node if asked.rail is not None else 1
        lines = [
            f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: 4(factor) warmup iters: {asked.warmup}"
            f" iters: {asked.iterations} agg iters: 1 validation: 1 graph: 0",
            "#",
            *(f"#  Rank {rank:2} Group {rank % groups:2} Pid  {pid} on {host} device  0 [0000:18:00] {self.gpu}"
              for rank, host in enumerate(hosts)),
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
            "     time   algbw   busbw  #wrong",
        ]  # fmt: skip
        for size in asked.sizes:
            factor = busbw_factor(op, len(hosts) // groups)
            time_us = self.nccl_us(asked, size, factor)
            alg = size / time_us / 1e3
            half = f"{time_us:.1f} {alg:.4f} {alg * factor:.4f} 0"
            lines.append(f"{size} {size // 4} float sum -1 {half} {half}")
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.0", "#"]
        return "".join(f"{line}\n" for line in lines)
