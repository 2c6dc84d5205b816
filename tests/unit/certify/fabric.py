"""The fabric of a written rack: InfiniBand adapters that count what perftest, iperf3 and NCCL move, at their rates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from rackproof.bench.collectives.command import Requested
from rackproof.bench.links.figures import BOTH_WAYS, USE_GPU
from tests.unit.bench.test_all_rails import Nodes
from tests.unit.fabric import DATA

SECONDS = 10
MIB = 1 << 20
_COUNTERS = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
_DEVICE = re.compile(r"/sys/class/infiniband/(\S+)/ports/1/hw_counters")


@dataclass
class RackFabric(Nodes):
    """Rail k of every node is the k-th of its addresses."""

    port: str = "rail"
    device: str = "mlx5_rail"
    adapter: str = "IB"
    gpu: str = "NVIDIA H100 80GB HBM3"
    begins: Callable[[str, int], float] = lambda node, rail: 0.01 * rail
    lasts: Callable[[str, int], float] = lambda node, rail: SECONDS + 0.5
    rate: Callable[[str, str], float] = lambda node, device: 392.0
    """Gb/s that an adapter of the node sends."""
    bus: dict[str, float] = field(default_factory=lambda: {"NVLS": 480.0, "Ring": 372.0, "rack": 385.0, "rail": 48.6})
    """Bus bandwidth of NCCL in a node by algorithm, over all rails and over one, GB/s."""

    def placed(self, command: str) -> str:
        """Rail k and GPU k share a switch; half of them belong to each socket."""
        lines = []
        for rail in map(int, re.findall(r" rail(\d)", command.partition(";")[0])):
            processors = "56-111,168-223" if rail >= 4 else "0-55,112-167"
            lines += [f"{_switch(rail)}/0000:1{rail}:02.0", str(rail // 4), processors]
        gpus = [f"{_switch(rail)}/0000:1{rail}:03.0" for rail in range(8)]
        return "\n".join([*lines, *gpus, "/usr/bin/numactl", "no built perftest", "end\n"])

    def _link(self, node: str, command: str, program: str) -> str:
        words = shlex.split(command)
        if program == "iperf3":
            return self._iperf3(node, words)
        device, peer = words[words.index("-d") + 1], self._peer(command) or ""
        if program != "ib_write_bw":
            lasting = "-D" in words
            count = int(words[words.index("-D" if lasting else "-n") + 1])
            count = count * 612034 if lasting else count
            text = (DATA / f"perftest-write-lat{'-duration' if lasting else ''}.txt").read_text()
            text = text.replace("1000          1.54", f"{count}  1.54").replace("612034", str(count))
            if program == "ib_read_lat":
                text = text.replace("RDMA_Write Latency", "RDMA_Read Latency")
            self.send(node, peer, device, count * 70, count)
            return (self.gpu_memory if USE_GPU in words else "") + self._about(text, device)
        size, both = int(words[words.index("-s") + 1]), BOTH_WAYS in words
        rate = self.rate(node, device) * (1 + next(self.serial) % 7 / 1000)
        count = int(rate * 1e9 / 8 * SECONDS / size)
        average = rate * 1e9 / 8 / MIB * (2 if both else 1)
        text = (DATA / "perftest-write-bw-duration-slow.txt").read_text()
        row = f" {size}    {count}             0.00          {average:.2f}        {average * MIB / size / 1e6:.6f}"
        text = re.sub("(?m)^ 65536 .*$", row, text)
        self.send(node, peer, device, count * size, count)
        if both:
            text = text.replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test")
            self.send(peer, node, device, count * size, count)
        return (self.gpu_memory if USE_GPU in words else "") + self._about(text, device)

    def _about(self, text: str, device: str) -> str:
        text = text.replace(": rdma0", f": {device}").replace("Link type       : Ethernet", "Link type       : IB")
        return text.replace("5f21c6", f"{next(self.serial):06x}")

    def send(self, sender: str, receiver: str, device: str, moved: int, packets: int) -> None:
        """Count what an adapter moves, bytes in units of four. Both ends send packets: the other one acknowledges."""
        for node, way in ((sender, "xmit"), (receiver, "rcv")):
            self.counts[node, device][f"port_{way}_data"] += int(moved * 1.01) // 4
        for node in (sender, receiver):
            for way in ("xmit", "rcv"):
                self.counts[node, device][f"port_{way}_packets"] += packets

    def pass_(self, sender: str, receiver: str, port: str, moved: int, packets: int) -> None:
        """IP over InfiniBand: the interface counts it, and its adapter."""
        super().pass_(sender, receiver, port, moved, packets)
        self.send(sender, receiver, port.replace(self.port, self.device), moved, packets)

    def _counters(self, node: str, command: str) -> str:
        text = super()._counters(node, command).removesuffix("status 0\n")
        for device in _DEVICE.findall(command):
            folder = f"/sys/class/infiniband/{device}/ports/1/counters"
            text += "".join(f"{folder}/{name}:{self.counts[node, device][name]}\n" for name in _COUNTERS)
        return f"{text}status 0\n"

    def nccl_us(self, asked: Requested, size: int, factor: float) -> float:
        algorithm = asked.environment.get("NCCL_ALGO")
        bus = self.bus["rail" if asked.rail is not None else algorithm or "rack"]
        return max(20.0, size * factor / bus / 1e3) * (1 + next(self.serial) % 7 / 1000)


def _switch(rail: int) -> str:
    return f"/sys/devices/pci0000:1{rail}/0000:1{rail}:01.0"
