"""Links of GPUs: PCIe, NVLink, NVSwitches and their fabric manager, GPUDirect RDMA and Storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import shares_gpu_memory
from rackproof.core.architecture.gpu import Nvlink
from rackproof.core.gpu_links import FULL_SPEED, IDLE
from rackproof.core.nvlink_domain import COMMAND, canonical, declared_domains, domain_problem, imex_addresses
from rackproof.core.rack import Node, Rack, fold
from rackproof.core.topology import links_between, same_topology
from rackproof.parse.answer import STATUS
from rackproof.parse.gdscheck import parse_gdscheck
from rackproof.parse.imex import ImexDomain, ImexNode, parse_imex, parse_nodes_config
from rackproof.parse.kernel import parse_loaded_modules
from rackproof.parse.nvidia_driver import (
    SWITCH_CLASS,
    parse_fabric_manager_version,
    parse_kernel_module,
    parse_nvidia_devices,
)
from rackproof.parse.nvidia_smi import Gpu
from rackproof.parse.nvidia_topology import GpuLinks, parse_nvlink_status, parse_topology
from rackproof.parse.nvlink_domain import DOMAIN, parse_compared, parse_gpu_domains
from rackproof.parse.nvlink_errors import parse_nvlink_errors
from rackproof.parse.systemctl import parse_systemctl_show
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read
from rackproof.validation.checks import shown
from rackproof.validation.gpus import DEVICES, KERNEL_MODULE, QUERY, driver_version, expect_each, gpu_of, real_gpus

MATRIX = "nvidia-smi topo -m"
LINK_STATUS = "nvidia-smi nvlink -s"
LINK_ERRORS = "nvidia-smi nvlink -e"
FABRIC_MANAGER = "systemctl show nvidia-fabricmanager.service -p LoadState,ActiveState,SubState"
FABRIC_MANAGER_VERSION = f"nv-fabricmanager --version 2>&1{STATUS}"
MODULES = f"grep -E '^nvidia' /proc/modules{STATUS}"
DMABUF = f"grep -c -w -E 'ib_umem_dmabuf_get(_pinned)?' /proc/kallsyms{STATUS}"
IMEX_NODES = f"cat /etc/nvidia-imex/nodes_config.cfg{STATUS}"
IMEX_STATE = f"timeout 30 nvidia-imex-ctl -N -j{STATUS}"
GDSCHECK = f'PATH="$PATH:/usr/local/cuda/gds/tools" gdscheck -p{STATUS}'

HEALTHY_FABRIC = frozenset({"Healthy", "Full", "False", "No", "None", "Not Supported"})
"""Good values of the fabric health fields of newer drivers: summary, bandwidth and four conditions."""
SPEED_TOLERANCE = 0.999
"""nvidia-smi prints three decimals."""


@check(
    "gpu.pcie_generation",
    reads="gpu.pcie_generation",
    protects="A link one generation lower halves the bandwidth to host memory, storage and network.",
    hint="lspci -vv: compare LnkSta with LnkCap; reseat the card or its riser, check the BIOS setting of the slot.",
)
def test_pcie_generation(host: Host, arch: Architecture) -> None:
    def speed(gpu: Gpu) -> int | None:
        # An idle GPU reduces its link speed to save power: its maximum can be wrong, its speed cannot be judged.
        idle = gpu.performance_state != FULL_SPEED and (gpu.pcie_generation or 0) < (gpu.pcie_generation_max or 0)
        if idle and gpu.pcie_generation_max == expected:
            slow[gpu.bus_id] = f"{gpu.performance_state or 'no state'}, generation {gpu.pcie_generation or 'unknown'}"
            return expected
        return gpu.pcie_generation_max if idle else gpu.pcie_generation

    expected, slow = gpu_of(arch).pcie_generation, dict[str, str]()
    expect_each(host, expected, speed)
    if slow:
        listed = ", ".join(f"{state} on {bus}" for bus, state in slow.items())
        raise Unmeasured(f"{IDLE}: {listed}")


@check(
    "gpu.pcie_width",
    reads="gpu.pcie_width",
    protects="Eight lanes instead of sixteen halve the bandwidth to host memory, storage and network.",
    hint="lspci -vv: compare LnkSta with LnkCap; reseat the card or its riser.",
)
def test_pcie_width(host: Host, arch: Architecture) -> None:
    expect_each(host, gpu_of(arch).pcie_width, lambda gpu: gpu.pcie_width)


@check(
    "gpu.topology",
    reads="gpu.topology",
    protects="A pair of GPUs without NVLink communicates over PCIe and delays every collective of the node.",
    hint="nvidia-smi nvlink -s on the GPUs named; behind NVSwitch also nvidia-fabricmanager's log; reseat or exchange.",
)
def test_topology(host: Host, arch: Architecture) -> None:
    matrix = parse_topology(read(host, MATRIX))
    mismatch = same_topology(links_between(matrix.gpus, matrix.paths), gpu_of(arch).topology or "", matrix.gpus)
    if mismatch is not None:
        raise AssertionError(str(mismatch))


def nvlink_of(arch: Architecture) -> Nvlink:
    """Raises Unmeasured without any."""
    if (nvlink := gpu_of(arch).nvlink) is None:
        raise Unmeasured("the architecture has no gpu.nvlink")
    return nvlink


@check(
    "gpu.nvlink",
    reads="gpu.nvlink",
    protects="Every missing or slow NVLink lowers the bandwidth of every collective of the node.",
    hint="nvidia-smi nvlink -s and dmesg for Xid 74; reset all GPUs of the node together; then exchange the GPU.",
)
def test_nvlink(host: Host, arch: Architecture) -> None:
    gpu, nvlink = gpu_of(arch), nvlink_of(arch)
    gpus = parse_nvlink_status(read(host, LINK_STATUS))
    expect(len(gpus), gpu.count, "GPUs that nvidia-smi nvlink lists")

    def problem(links: GpuLinks) -> str | None:
        good = [
            link for link in links.links if (link.gb_per_s or 0) >= nvlink.gb_per_s_per_link * SPEED_TOLERANCE
        ]  # fmt: skip
        if len(good) == nvlink.links == len(links.links):
            return None
        bad = [f"link {link.index} {_speed(link.gb_per_s)}" for link in links.links if link not in good]
        details = f" ({', '.join(bad)})" if bad else f" ({links.note})" if links.note else ""
        listed = f"{len(good)} of {len(links.links) or nvlink.links}"
        return (
            f"GPU {links.index}: expected {nvlink.links} links of {nvlink.gb_per_s_per_link:g} GB/s, "
            f"actual {listed}{details}"
        )

    expect_all(text for links in gpus if (text := problem(links)))


def _speed(gb_per_s: float | None) -> str:
    return "is inactive" if gb_per_s is None else f"at {gb_per_s:g} GB/s"


@check(
    "gpu.nvlink_errors",
    reads="gpu.nvlink",
    protects="A link with replays is slow before it fails, and its failure kills the job.",
    hint="nvidia-smi nvlink -e before and after a load; if errors grow, reseat or exchange the GPU.",
)
def test_nvlink_errors(host: Host, arch: Architecture) -> None:
    gpu, nvlink = gpu_of(arch), nvlink_of(arch)
    gpus = parse_nvlink_errors(read(host, LINK_ERRORS))
    expect_all(
        f"GPU {counted.index} link {link.link}: expected {kind} of at most {nvlink.errors_max}, actual {count}"
        for counted in gpus
        for link in counted.links
        for kind, count in link.counters.items()
        if count is not None and count > nvlink.errors_max
    )
    if len(gpus) != gpu.count:
        raise Unmeasured(f"nvidia-smi nvlink lists {len(gpus)} of {gpu.count} GPUs")
    for counted in gpus:
        whole = [link for link in counted.links if link.counters and None not in link.counters.values()]
        if len(whole) < nvlink.links:
            raise Unmeasured(f"GPU {counted.index} has error counters for {len(whole)} of {nvlink.links} links")


@check(
    "gpu.nvswitches",
    reads="gpu.nvswitches",
    protects="Without one of its NVSwitches a node has no NVLink fabric, or a quarter less bandwidth.",
    hint="lspci -d 10de::0680; (rev ff) means off the bus: power-cycle the node once, then exchange the baseboard.",
)
def test_nvswitches(host: Host, arch: Architecture) -> None:
    answer = answered(host, DEVICES, "lspci")
    switches = [device for device in parse_nvidia_devices(answer.body) if device.device_class == SWITCH_CLASS]
    gone = [device.address for device in switches if not device.answers]
    if gone:
        raise AssertionError(f"expected every NVSwitch to answer on the bus, actual gone: {', '.join(gone)}")
    expect(len(switches), gpu_of(arch).nvswitches, "NVSwitches")


@check(
    "gpu.fabric",
    reads="gpu.fabric",
    protects="No CUDA program starts on a GPU outside the NVLink fabric, although nvidia-smi shows no error.",
    hint="systemctl status nvidia-fabricmanager and its log; In Progress for minutes means that it does not answer.",
)
def test_fabric(host: Host, arch: Architecture) -> None:
    expected = gpu_of(arch).fabric

    def state(gpu: Gpu) -> str | None:
        if gpu.fabric_state is None or (gpu.fabric_state == expected and gpu.fabric_status is None):
            return None
        bad = [f"{name} {value}" for name, value in gpu.fabric_health.items() if value not in HEALTHY_FABRIC]
        if gpu.fabric_status not in (None, "Success"):
            bad.insert(0, gpu.fabric_status)
        return ", ".join([gpu.fabric_state, *bad])

    expect_each(host, expected, state)


@check(
    "gpu.fabric_manager",
    reads="gpu.fabric_manager",
    protects="Fabric manager and driver must have the same version; otherwise it does not start and CUDA finds no GPU.",
    hint="Install nvidia-fabricmanager of exactly the driver's version, pin both together, enable the unit.",
)
def test_fabric_manager(host: Host) -> None:
    announce(host, FABRIC_MANAGER, FABRIC_MANAGER_VERSION, QUERY)
    units = parse_systemctl_show(read(host, FABRIC_MANAGER))
    if len(units) != 1 or {"LoadState", "ActiveState", "SubState"} - set(units[0]):
        raise Unmeasured("systemctl reports no state of nvidia-fabricmanager.service")
    unit = units[0]
    if unit["LoadState"] != "loaded":
        raise AssertionError(f"nvidia-fabricmanager.service: expected loaded, actual {unit['LoadState']}")
    expect(f"{unit['ActiveState']} ({unit['SubState']})", "active (running)", "nvidia-fabricmanager.service")
    answer = answered(host, FABRIC_MANAGER_VERSION, "nv-fabricmanager")
    expect(
        parse_fabric_manager_version(answer.body), driver_version(host), "fabric manager's version against the driver's"
    )


def in_nvlink_domain(arch: Architecture, node: Node, rack: Rack) -> bool:
    return real_gpus(arch, node, rack) and shares_gpu_memory(arch, node.groups)


@check(
    "gpu.nvlink_domain",
    reads="roles.{role}.expect.services",
    roles=("gpu",),
    when=in_nvlink_domain,
    protects="Jobs on nodes of two NVLink domains start, and fail when they import each other's GPU memory.",
    hint="nvidia-smi -q: ClusterUUID and CliqueId of the nodes named; correct gpu.imex.domain, partition or cables.",
)
def test_nvlink_domain(host: Host, arch: Architecture, node: Node, rack: Rack) -> None:
    announce(host, DOMAIN, COMMAND)
    gpus = parse_gpu_domains(read(host, DOMAIN))
    if outside := gpus.count(None):
        raise AssertionError(f"expected all GPUs in an NVLink domain, actual {outside} of {len(gpus)} in none")
    if len(gpus) != gpu_of(arch).count:
        raise Unmeasured(f"nvidia-smi reports the NVLink domain of {len(gpus)} of {gpu_of(arch).count} GPUs")
    reported = parse_compared(read(host, COMMAND)) | {node.name: frozenset(domain for domain in gpus if domain)}
    declared = declared_domains(rack)
    if problem := domain_problem(node.name, declared, reported):
        raise AssertionError(f"expected the NVLink domain of gpu.imex, actual {problem}")
    if silent := [name for name in declared if not reported.get(name)]:
        raise Unmeasured(f"{fold(silent)}: the NVLink domain was not read")


@check(
    "gpu.imex",
    reads="roles.{role}.expect.services",
    roles=("gpu",),
    when=in_nvlink_domain,
    protects="GPU memory of a node that IMEX does not know, or does not reach, cannot be imported by any other.",
    hint="nvidia-imex-ctl -N, /var/log/nvidia-imex.log; one list and driver on all nodes, port 50000; restart IMEX.",
)
def test_imex(host: Host, arch: Architecture, node: Node, rack: Rack) -> None:
    announce(host, IMEX_NODES, IMEX_STATE)
    expected = [canonical(name) for name in imex_addresses(rack, node, gpu_of(arch).count)]
    listed = [canonical(name) for name in parse_nodes_config(answered(host, IMEX_NODES, "cat").printed)]
    expect(sorted(listed), sorted(expected), "nodes_config.cfg")
    domain = parse_imex(answered(host, IMEX_STATE, "nvidia-imex-ctl").printed)
    problems = [f"IMEX domain: expected UP, actual {domain.status}"] if domain.status != "UP" else []
    if len(domain.nodes) != len(expected):
        problems.append(f"expected {len(expected)} nodes in the running service, actual {len(domain.nodes)}")
    if len(versions := {peer.version for peer in domain.nodes if peer.version}) > 1:
        problems.append(f"expected one version of IMEX, actual {', '.join(sorted(versions))}")
    expect_all([*problems, *(text for peer in domain.nodes for text in _peer_problems(peer, domain))])
    hosts = {canonical(peer.host) for peer in domain.nodes}
    if all(_is_address(name) for name in expected) and hosts != set(expected):
        raise AssertionError(
            f"expected {shown(sorted(expected))} in the running service, actual {shown(sorted(hosts))}"
        )


def _peer_problems(peer: ImexNode, domain: ImexDomain) -> Iterator[str]:
    if peer.status != "READY":
        yield f"{peer.host}: expected READY, actual {peer.status}"
        return
    if missing := sorted({canonical(other.host) for other in domain.nodes} - set(map(canonical, peer.connections))):
        yield f"{peer.host}: expected a connection to every node, actual none to {', '.join(missing)}"
    if broken := [f"{host} {status}" for host, status in peer.connections.items() if status != "CONNECTED"]:
        yield f"{peer.host}: expected CONNECTED to every node, actual {', '.join(broken)}"


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        ip_address(name)
        return True
    return False


@check(
    "gpu.gpudirect",
    reads="gpu.gpudirect",
    protects="Without GPUDirect RDMA messages are copied through host memory at a fraction of the bandwidth.",
    hint="peermem: modprobe nvidia-peermem after the RDMA drivers. dmabuf: the open kernel module and Linux 5.12.",
)
def test_gpudirect(host: Host, arch: Architecture) -> None:
    if gpu_of(arch).gpudirect == "peermem":
        answer = answered(host, MODULES, "grep", good=(0, 1))
        modules = parse_loaded_modules(answer.lines)
        expect(modules.get("nvidia_peermem", "not loaded"), "Live", "module nvidia_peermem")
        return
    announce(host, KERNEL_MODULE, DMABUF)
    answer = answered(host, KERNEL_MODULE, "cat", good=None)
    if answer.status != 0:
        raise Unmeasured("the kernel module nvidia is not loaded; see gpu.kernel_module")
    expect(parse_kernel_module(answer.body).open, True, "open kernel module")
    symbols = answered(host, DMABUF, "grep", good=(0, 1))
    if symbols.status == 1:
        raise AssertionError("expected DMA-BUF in the kernel's RDMA core, actual none")


@check(
    "gpu.gds",
    reads="gpu.gds",
    protects="Without GPUDirect Storage, cuFile silently copies through host memory.",
    hint="gdscheck -p; nvidia-fs or the kernel's P2PDMA, the file system's own driver, IOMMU off or passthrough.",
)
def test_gds(host: Host, arch: Architecture) -> None:
    answer = answered(host, GDSCHECK, "gdscheck", good=None)
    if answer.timed_out:
        raise Unmeasured(answer.failure)
    gds = parse_gdscheck(answer.printed)
    problems = [
        f"{driver}: expected Supported, actual {gds.drivers.get(driver, 'not listed')}"
        for driver in gpu_of(arch).gds
        if gds.drivers.get(driver) != "Supported"
    ]
    able = sum(gds.gpus.values())
    if able != gpu_of(arch).count:
        problems.append(f"GPUs that support GDS: expected {gpu_of(arch).count}, actual {able}")
    if gds.verified is not True:
        problems.append("expected the platform verified, actual not")
    if gds.forced:
        problems.append("expected GPUDirect Storage, actual copies of everything (force_compat_mode)")
    expect_all(problems)
    if answer.status != 0:
        raise Unmeasured(answer.failure)


@check(
    "gpu.gds_fallback",
    reads="gpu.gds_fallback",
    protects="With the fallback allowed, cuFile silently copies through host memory when GDS is unavailable.",
    hint="allow_compat_mode in /etc/cufile.json, or in the file that CUFILE_ENV_PATH_JSON names.",
)
def test_gds_fallback(host: Host, arch: Architecture) -> None:
    answer = answered(host, GDSCHECK, "gdscheck", good=None)
    if answer.timed_out:
        raise Unmeasured(answer.failure)
    allowed = parse_gdscheck(answer.printed).compat_mode
    if allowed is None:
        raise Unmeasured("gdscheck does not report whether cuFile may fall back")
    expect(allowed, gpu_of(arch).gds_fallback, "cuFile may copy through host memory")
