"""The fabric of a written rack: adapters that count what perftest, iperf3 and NCCL move, at their rates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rackproof.bench.collectives.command import Requested
from rackproof.bench.collectives.group_reader import SETS
from rackproof.bench.collectives.nccl_used import ADAPTERS
from rackproof.bench.links.figures import BOTH_WAYS, USE_GPU
from tests.unit.bench.test_all_rails import Nodes
from tests.unit.fabric import DATA, words_of

SECONDS = 20
"""Duration of a test of all adapters of a node at once."""
MIB = 1 << 20
_COUNTERS = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
_DEVICE = re.compile(r"/sys/class/infiniband/(\S+)/ports/1/hw_counters")


@dataclass
class RackFabric(Nodes):
    """Rail k of every node is the k-th of its addresses."""

    port: str = "rail"
    device: str = "mlx5_rail"
    adapter: str = "IB"
    """Or ``RoCE``."""
    gpus: int = 8
    begins: Callable[[str, int], float] = lambda node, rail: 0.01 * rail
    lasts: Callable[[str, int], float] = lambda node, rail: SECONDS + 0.5
    rate: Callable[[str, str], float] = lambda node, device: 392.0
    """Gb/s that an adapter of the node sends."""
    bus: dict[str, float] = field(default_factory=dict)
    """Bus bandwidth of NCCL in GB/s: in a node by algorithm; ``rack``: over all nodes; ``rails``: the same where NVLink
    joins the nodes and is switched off between them; ``rail``: over one of the rails."""

    def placed(self, command: str) -> str:
        """Rail k and GPU k share a switch; half of them belong to each socket."""
        lines = []
        for rail in map(int, re.findall(r" rail(\d)", command.partition(";")[0])):
            socket = 2 * rail // self.gpus
            lines += [f"{_switch(rail)}/0000:1{rail}:02.0", str(socket), f"{56 * socket}-{56 * socket + 55}"]
        gpus = [f"{_switch(rail)}/0000:1{rail}:03.0" for rail in range(self.gpus)]
        return "\n".join([*lines, *gpus, "/usr/bin/numactl", "no built perftest", "end\n"])

    def _link(self, node: str, command: str, program: str) -> str:
        words = words_of(command)
        if program == "iperf3":
            return self._iperf3(node, words)
        device, peer = words[words.index("-d") + 1], self._peer(command) or ""
        priority = self.priority(command)
        if program != "ib_write_bw":
            lasting = "-D" in words
            count = int(words[words.index("-D" if lasting else "-n") + 1])
            count = count * 612034 if lasting else count
            text = (DATA / f"perftest-write-lat{'-duration' if lasting else ''}.txt").read_text()
            text = text.replace("1000          1.54", f"{count}  1.54").replace("612034", str(count))
            if program == "ib_read_lat":
                text = text.replace("RDMA_Write Latency", "RDMA_Read Latency")
            self.send(node, peer, device, count * 70, count, priority)
            return (self.gpu_memory if USE_GPU in words else "") + self._about(text, device)
        size, both = int(words[words.index("-s") + 1]), BOTH_WAYS in words
        rate = self.rate(node, device) * (1 + next(self.serial) % 7 / 1000)
        count = int(rate * 1e9 / 8 * int(words[words.index("-D") + 1]) / size)
        average = rate * 1e9 / 8 / MIB * (2 if both else 1)
        text = (DATA / "perftest-write-bw-duration-slow.txt").read_text()
        row = f" {size}    {count}             0.00          {average:.2f}        {average * MIB / size / 1e6:.6f}"
        text = re.sub("(?m)^ 65536 .*$", row, text)
        self.send(node, peer, device, count * size, count, priority)
        if both:
            text = text.replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test")
            self.send(peer, node, device, count * size, count, priority)
        return (self.gpu_memory if USE_GPU in words else "") + self._about(text, device)

    def _about(self, text: str, device: str) -> str:
        if self.adapter == "IB":
            text = text.replace("Link type       : Ethernet", "Link type       : IB")
        return text.replace(": rdma0", f": {device}").replace("5f21c6", f"{next(self.serial):06x}")

    def send(self, sender: str, receiver: str, device: str, moved: int, packets: int, priority: int) -> None:
        """Count what an adapter moves, bytes in units of four. Both ends send packets: the other one acknowledges."""
        port = device.replace(self.device, self.port)
        for node, way, short in ((sender, "xmit", "tx"), (receiver, "rcv", "rx")):
            self.counts[node, device][f"port_{way}_data"] += int(moved * 1.01) // 4
            self.counts[node, port][f"{short}_prio{priority}_bytes"] += int(moved * 1.01)
        for node in (sender, receiver):
            for way in ("xmit", "rcv"):
                self.counts[node, device][f"port_{way}_packets"] += packets

    def pass_(self, sender: str, receiver: str, port: str, moved: int, packets: int) -> None:
        """The interface counts IP, and of IP over InfiniBand its adapter as well."""
        super().pass_(sender, receiver, port, moved, packets)
        if self.adapter == "IB":
            self.send(sender, receiver, port.replace(self.port, self.device), moved, packets, 0)

    def _counters(self, node: str, command: str) -> str:
        text, more, rest = super()._counters(node, command).removesuffix("status 0\n").partition("priorities of ")
        for device in _DEVICE.findall(command):
            folder = f"/sys/class/infiniband/{device}/ports/1/counters"
            text += "".join(f"{folder}/{name}:{self.counts[node, device][name]}\n" for name in _COUNTERS)
        return f"{text}{more}{rest}status 0\n"

    def _collective(self, node: str, command: str) -> str:
        return super()._collective(node, command.partition(SETS)[0])

    def carriers(self, asked: Requested) -> list[str]:
        if self.over_nvlink(asked):
            return []
        named = asked.environment.get(ADAPTERS, "").removeprefix("=").split(",")
        devices = [f"{self.device}{rail}" for rail in range(self.adapters)]
        return [one.replace(self.device, self.port) for one in devices if named == [""] or one in named]

    def nccl_us(self, asked: Requested, size: int, factor: float) -> float:
        over = "rails" if self.nvlink and not self.over_nvlink(asked) else "rack"
        bus = self.bus["rail" if asked.rail is not None else asked.environment.get("NCCL_ALGO") or over]
        return max(20.0, size * factor / bus / 1e3) * (1 + next(self.serial) % 7 / 1000)


def _switch(rail: int) -> str:
    return f"/sys/devices/pci0000:1{rail}/0000:1{rail}:01.0"
