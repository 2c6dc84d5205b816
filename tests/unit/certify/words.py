"""Words of an architecture's node in the place of those of the written HGX H200: as many parts, of those kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rackproof.core.architecture import Architecture, Cpu, Gpu, Nic

Words = Sequence[tuple[re.Pattern[str], str]]
"""Pattern, replacement; in this order."""
MORE_PACKAGES: Final = ("fio", "infiniband-diags", "iperf3", "openmpi-bin")
BUSES: Final = ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")
"""Bus of each GPU; the adapter of its rail is one bus behind."""
RAILS: Final = ("1a", "3c", "4d", "5e", "9c", "bc", "cc", "dc")
SLOTS: Final = {"compute": RAILS, "storage": ("2a", "aa"), "in_band": ("04",)}
"""Buses of adapters by purpose."""
PORTS: Final = {"compute": (r"rail\d", r"mlx5_(?:rail)?[0-7]"), "storage": (r"stor\d", "mlx5_[89]")}
"""Patterns of interfaces and RDMA devices by purpose."""
ADAPTERS: Final = {
    "ConnectX-6": "MT28908 Family [ConnectX-6] [15b3:101b]",
    "ConnectX-7": "MT2910 Family [ConnectX-7] [15b3:1021]",
    "BlueField-3": "MT43244 BlueField-3 integrated ConnectX-7 network controller [15b3:a2dc]",
}
"""As lspci names them."""
RATES: Final = {200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)"}
PROCESSORS: Final = {
    "8480C": ("Intel(R) Xeon(R) Platinum 8480C", 2), "8570": ("INTEL(R) XEON(R) PLATINUM 8570", 2),
    "EPYC 7742": ("AMD EPYC 7742 64-Core Processor", 2), "Grace|Neoverse-V2": ("Neoverse-V2", 1),
}  # fmt: skip
"""By the architecture's model: as lscpu names it, and threads of a core."""
SWITCHES: Final = {"nvswitch-8-nv12": ("1af1", 6)}
"""PCI id and number of NVSwitches, where they are not those of the written server."""


def words_of(model: Architecture) -> Words:
    expect = model.roles["gpu"].expect
    words = [(r"(?m)^installed ethtool$", "\n".join(f"installed {name}" for name in ("ethtool", *MORE_PACKAGES)))]
    if model.gpu:
        words += _gpus(model.gpu)
    if model.fabric:
        words += [(r"\bmlx5_([0-7])\b", rf"{model.fabric.rdma_prefix}\1")]
    for nic in _ports(model):
        words += _adapters(nic)
    if expect.cpu:
        words += _processors(expect.cpu)
    # two drives for the system, of another size; fewer drives for data
    words += [
        ("Micron_7450_MTFDKBG960TFR", "Micron_7450_MTFDKBG1T9TFR"),
        (r"(namespace nvme[01]n1) 1875385008", r"\1 3750748848"),
    ]
    if kept := sum(drives.count or 8 for drives in expect.drives):
        words += [(rf"(?m)^nvme nvme[{kept}-9]\n(?: .*\n)*", "")] if kept < 10 else []
    return [(re.compile(pattern), word) for pattern, word in words]


def exchanged(text: str, words: Words) -> str:
    for pattern, word in words:
        text = pattern.sub(word, text)
    return text


def _ports(model: Architecture) -> Iterator[Nic]:
    """NICs that an architecture lists, and the ports of its fabric if it does not list them."""
    nics, fabric = model.roles["gpu"].expect.nics, model.fabric
    yield from nics
    if fabric and "compute" not in {nic.purpose for nic in nics}:
        yield Nic(
            purpose="compute", count=fabric.rails, speed_gbps=fabric.line_rate_gbps or 400.0,
            link_layer="Ethernet" if fabric.kind == "roce" else "InfiniBand", source="fabric",
        )  # fmt: skip


def names_of(nic: Nic, model: Architecture) -> list[str]:
    """Names of the ports of a purpose."""
    if nic.purpose == "in_band":
        return [f"eno{number}" for number in range(1, nic.count + 1)]
    first, prefix = (8, "mlx5_") if nic.purpose == "storage" else (0, model.fabric.rdma_prefix if model.fabric else "")
    return [f"{prefix}{number}" for number in range(first, first + nic.count)]


def processors(model: Architecture) -> int:
    """As Linux counts them."""
    cpu = model.roles["gpu"].expect.cpu
    return (cpu.cores or 0) * PROCESSORS[cpu.model or ""][1] if cpu else 224


def facts(model: Architecture) -> str:
    cpu = model.roles["gpu"].expect.cpu
    machine = "aarch64" if cpu and "Grace" in (cpu.model or "") else "x86_64"
    return f"Linux 6.8.0-79-generic {machine}\nUbuntu 24.04.3 LTS\n{processors(model)}\nMemTotal: 2113445432 kB\n"


def _gpus(gpu: Gpu) -> Iterator[tuple[str, str]]:
    if gone := BUSES[gpu.count :]:
        any_case, last = "|".join((*gone, *map(str.upper, gone))), f"[{gpu.count}-7]"
        yield rf'(?s)\t<gpu id="00000000:(?:{any_case}):00\.0">.*?\n\t</gpu>\n', ""
        yield rf"<attached_gpus>[{gpu.count + 1}-8]<", f"<attached_gpus>{gpu.count}<"
        yield rf"(?m)^GPU {last}: .*\n(?:\s.*\n|\n)*", ""
        yield rf"(?m)^0000:(?:{any_case}):00\.0 (?:0302:|nvidia).*\n", ""
    if gpu.pci_ids:
        yield r"(?i)2335(?=10de|-885)|(?<=10de:)2335|(?<=0x)2335", gpu.pci_ids[0]
    yield "NVIDIA H200", gpu.model
    yield "143771 MiB", f"{gpu.memory_mib} MiB"
    if gpu.clocks:
        yield "3201 MHz", f"{gpu.clocks.memory_max_mhz} MHz"
    if gpu.pcie_generation == 4:
        yield r"(_link_gen>)5<", r"\g<1>4<"
        yield r"\b32(\.0 |)GT/s", r"16\1GT/s"
    if gpu.nvlink:
        yield r"26\.562 GB/s", f"{gpu.nvlink.gb_per_s_per_link * 1.0625:.3f} GB/s"
        if gpu.nvlink.links < 18:
            more = "|".join(map(str, range(gpu.nvlink.links, 18)))
            yield rf"(?m)^\s+Link (?:{more}): .*\n", ""
            yield r"\bNV18\b", f"NV{gpu.nvlink.links}"
    if switches := SWITCHES.get(gpu.topology or ""):
        id_, number = switches
        lines = "".join(f"0000:{bus}:00.0 0680: 10de:{id_} (rev a1)\n" for bus in range(86, 86 + number))
        yield r"(?m)(?:^0000:8\d:00\.0 0680: 10de:22a3.*\n)+", lines


def _adapters(nic: Nic) -> Iterator[tuple[str, str]]:
    slots = "|".join(SLOTS[nic.purpose])
    if nic.model:
        yield rf"(?m)^(0000:(?:{slots}):00\.0 .*\[0200\]: ).*$", rf"\1Mellanox Technologies {ADAPTERS[nic.model]}"
    if nic.purpose == "in_band":
        yield r"(?m)^eno1/speed:25000$", f"eno1/speed:{nic.speed_gbps * 1000:.0f}"
        if nic.count == 2:
            yield r"(?m)^eno1(/.*)$", r"\g<0>\neno2\1"
            yield r"(?m)^eno2/ifindex:2$", "eno2/ifindex:3"
            yield r"(?m)^(eno2/device/uevent:PCI_SLOT_NAME=0000:04:00)\.0$", r"\1.1"
            yield r"(?m)^(0000:04:00)\.0( Ethernet .*)$", r"\1.1\2\n\g<0>"
            yield r"(?m)^devices 85$", "devices 86"
        return
    interface, device = PORTS[nic.purpose]
    yield rf"(?m)^({device}/ports/1/rate):.*$", rf"\1:{RATES[int(nic.speed_gbps or 0)]}"
    yield rf"(?m)^({interface}/speed):.*$", rf"\1:{(nic.speed_gbps or 0) * 1000:.0f}"
    if nic.link_layer == "InfiniBand":
        yield rf"(?m)^({device}/ports/1)/link_layer:Ethernet$", r"\1/link_layer:InfiniBand"
        yield rf"(?m)^({device}/ports/1/)lid:0x0$", r"\1lid:0x11"
        yield rf"(?m)^({device}/ports/1/)sm_lid:0x0$", r"\1sm_lid:0x1"
        yield rf"(?m)^({interface})/type:1$", r"\1/type:32"
        yield rf"(?m)^({interface})/mtu:9000$", r"\1/mtu:4092"
        yield rf"(\"ifname\":\"{interface}\",[^}}]*?\"mtu\":)9000", r"\g<1>4092"
    if nic.purpose == "compute" and nic.count < 8:
        yield rf"(?m)^(?:rail|mlx5_rail)[{nic.count}-7]/.*\n", ""


def _processors(cpu: Cpu) -> Iterable[tuple[str, str]]:
    name, threads = PROCESSORS[cpu.model or ""]
    cores, sockets = cpu.cores or 0, cpu.sockets or 1
    return (
        (r"Intel\(R\) Xeon\(R\) Platinum 8480C", name),
        (r'("field": "CPU\(s\):",\s*"data": )"224"', rf'\1"{cores * threads}"'),
        (r'("field": "On-line CPU\(s\) list:",\s*"data": )"0-223"', rf'\1"0-{cores * threads - 1}"'),
        (r'("field": "Core\(s\) per socket:",\s*"data": )"56"', rf'\1"{cores // sockets}"'),
        (r'("field": "Thread\(s\) per core:",\s*"data": )"2"', rf'\1"{threads}"'),
    )
