"""Conflicting requirements of two vendors, reported before anything is installed, with both sides named. Pure.

A conflict has an id. A site can accept it in the inventory, with a reason that is recorded::

    preflight: {accept: {weka-iommu: "WEKA support confirmed iommu=pt for this release, case 00123"}}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackproof.core.architecture import Architecture
from rackproof.core.versions import tables
from rackproof.core.versions.choices import Choices, Plan, Rule, Side
from rackproof.core.versions.lockdown_rules import SOURCE as LOCKDOWN_SOURCE
from rackproof.core.versions.lockdown_rules import secure_boot_lockdown
from rackproof.core.versions.models import Components, major
from rackproof.core.versions.system_rules import ofed_of


@dataclass(frozen=True, slots=True)
class Conflict:
    id: str
    one: Side
    other: Side
    consequence: str
    """Effect on a node that has both."""
    remedy: str
    source: str

    @property
    def sentence(self) -> str:
        return (
            f"{self.id}: {self.one.party} wants {self.one.wants}, {self.other.party} wants {self.other.wants}:"
            f" {self.consequence}; {self.remedy}"
        )


def find_conflicts(
    architecture: Architecture, components: Components | None = None, choices: Choices | None = None
) -> tuple[Conflict, ...]:
    """Every conflict between architecture, version set and the site's choices, in the order of the rules."""
    plan = Plan(architecture, components or Components(), choices or Choices())
    return tuple(
        Conflict(id, one, other, consequence, remedy, source)
        for id, (rule, source) in RULES.items()
        for one, other, consequence, remedy in rule(plan)
    )


def _weka_iommu(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    wants = plan.wants_iommu() or ("iommu=pt" if plan.roce and not plan.wants_no_iommu() else "")
    if "weka" in plan.clients and wants:
        party = "system.cmdline_required" if plan.wants_iommu() else "the RoCE profile"
        yield (
            Side("WEKA", "the IOMMU off"),
            Side(party, wants),
            "WEKA's client may refuse to start its DPDK cores",
            "ask WEKA whether this release takes iommu=pt and accept it, or set iommu=off for the nodes that mount it",
        )


def _weka_ofed(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    ofed = ofed_of(plan.components)
    if "weka" in plan.clients and ofed is not None and ofed > tables.WEKA_OFED_LAST:
        network = plan.components.network
        shown = f"{network.stack} {network.version}" if network else ""
        yield (
            Side("WEKA", "an OFED of its list, 24.04 at most"),
            Side("the version set", f"{shown} (OFED {'.'.join(f'{part:02d}' for part in ofed)})"),
            "the installer refuses, or the client runs over UDP without high availability",
            "lock an OFED of WEKA's list, or its release that names this one",
        )


def _weka_secure_boot(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    if "weka" in plan.clients and plan.secure_boot:
        yield (
            Side("WEKA", "Secure Boot off"),
            Side("system.secure_boot", "Secure Boot on"),
            "its modules are not signed and are refused by the kernel",
            "switch Secure Boot off in the firmware of the nodes that mount WEKA",
        )


def _weka_kernel(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    kernel = plan.components.kernel
    if "weka" in plan.clients and kernel and kernel.flavour == "hwe":
        yield (
            Side("WEKA", "the GA kernel of the release"),
            Side("the version set", f"the HWE kernel {kernel.version}"),
            "the client's modules do not build",
            "lock the GA kernel (linux-image-generic)",
        )


def _weka_slurm(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    cores, kept = plan.choices.weka_cores, plan.choices.slurm_kept
    if not cores or kept is None:
        return
    weka = Side("WEKA", f"{cores} core(s) for itself, on which its client polls")
    spoilt = "jobs share cores with a polling loop, and both are slow"
    if kept < cores:
        yield (
            weka,
            Side("slurm.cpu_spec_list", f"{kept or 'no'} processor(s) reserved from jobs"),
            spoilt,
            "name the cores (storage_client.weka.cores) and reserve them (slurm.cpu_spec_list, by Slurm's own numbers)",
        )
    elif not plan.choices.weka_cores_named:
        yield (
            Side("WEKA", f"{cores} core(s) of its own choice (storage_client.weka.num_cores)"),
            Side("slurm.cpu_spec_list", f"{kept} given processor(s) reserved from jobs"),
            spoilt,
            "name the cores (storage_client.weka.cores)",
        )


def _roce_ofed(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    network = plan.components.network
    if plan.roce and network and network.stack == "mlnx_ofed":
        yield (
            Side("the RoCE profile", "DOCA-OFED 3.x"),
            Side("the version set", f"MLNX_OFED {network.version}"),
            "24.10 is the last MLNX_OFED: no fixes for newer adapters and kernels",
            "lock DOCA-OFED",
        )
    if plan.roce and plan.lossless and network and network.stack == "inbox":
        yield (
            Side("fabric.lossless", "mlnx_qos and the adapter's ECN settings in sysfs"),
            Side("the version set", "the kernel's own drivers"),
            "PFC and ECN cannot all be set or read back",
            "lock DOCA-OFED, or remove the keys of fabric.lossless that the inbox driver cannot set",
        )


def _roce_iommu(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    off = plan.wants_no_iommu()
    if plan.roce and off and "weka" not in plan.clients:
        yield (
            Side("the RoCE profile", "iommu=pt"),
            Side("the command line", off),
            "RDMA works, SR-IOV and device isolation do not",
            "set iommu=pt; accept it where GPUDirect Storage requires it",
        )


def _gsp_open(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    driver = plan.components.driver
    if plan.choices.driver_options.get("NVreg_EnableGpuFirmware") == "0" and driver and driver.flavour == "open":
        yield (
            Side("NVreg_EnableGpuFirmware=0", "the GPU System Processor off"),
            Side("the open kernel modules", "its firmware, which they require"),
            "No devices were found",
            "leave the option out, or take the proprietary modules where the GPU allows them",
        )


def _driver_generation(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    driver, generation = plan.components.driver, plan.generation
    gpu = plan.architecture.gpu
    if driver is None or generation is None or gpu is None:
        return
    if generation.modules == "proprietary" and driver.flavour == "open":
        yield (
            Side(gpu.model, "the proprietary modules: it has no GPU System Processor"),
            Side("the version set", "the open modules"),
            "No devices were found",
            "lock the driver with flavour: proprietary",
        )
    if generation.modules == "open" and driver.flavour == "proprietary":
        yield (
            Side(gpu.model, "the open modules"),
            Side("the version set", "the proprietary modules"),
            "No devices were found",
            "lock the driver with flavour: open",
        )


def _driver_branch(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    driver, generation, gpu = plan.components.driver, plan.generation, plan.architecture.gpu
    branch = major(driver.version) if driver else None
    if branch is None or generation is None or gpu is None:
        return
    oldest, last = generation.first, generation.last
    if branch < oldest:
        yield (
            Side(gpu.model, f"branch {oldest} or newer"),
            Side("the version set", f"branch {branch}"),
            "the driver does not support the GPU",
            f"lock a driver of branch {oldest} or newer",
        )
    if last and branch > last:
        yield (
            Side(gpu.model, f"branch {last} or older"),
            Side("the version set", f"branch {branch}"),
            "the driver no longer supports the GPU",
            f"lock a driver of branch {last}",
        )
    cuda = major(plan.components.cuda.version) if plan.components.cuda else None
    newest = tables.CUDA_LAST.get(generation.name)
    if cuda and newest and cuda > newest:
        yield (
            Side(gpu.model, f"CUDA {newest} or older"),
            Side("the version set", f"CUDA {cuda}"),
            "programs compiled with it do not run on the GPU",
            f"lock CUDA {newest}",
        )


def _secure_boot_dkms(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    built = [key for key, component in plan.components.named() if component.dkms]
    if plan.secure_boot and built:
        yield (
            Side("Secure Boot", "modules that are signed with an enrolled key"),
            Side("the version set", f"modules that DKMS builds on the node ({', '.join(built)})"),
            "Key was rejected by service, until a key is enrolled at the console of every node",
            "precompiled, signed modules (they cover the GPU driver only), enrol a machine owner key by hand and"
            " accept this, or switch Secure Boot off",
        )


def _cnp(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    lossless = plan.lossless
    if lossless is None or lossless.cnp_dscp is None:
        return
    switches = plan.choices.switch_cnp_dscp
    if switches is not None and switches != lossless.cnp_dscp:
        yield (
            Side("fabric.lossless.cnp_dscp", f"congestion notifications with DSCP {lossless.cnp_dscp}"),
            Side("the switches", f"DSCP {switches}"),
            "notifications wait behind the data that they should slow down",
            "set the value of the switches (switch guides use 48, NVIDIA's NIC operator 4)",
        )
    in_firmware = _firmware_cnp(plan.architecture)
    if in_firmware is not None and in_firmware != lossless.cnp_dscp:
        yield (
            Side("fabric.lossless.cnp_dscp", f"DSCP {lossless.cnp_dscp}"),
            Side("firmware_settings CNP_DSCP_P1", f"DSCP {in_firmware}"),
            "the port starts with one and is set to the other after each boot",
            "give both the same value",
        )


def _firmware_cnp(architecture: Architecture) -> int | None:
    for role in architecture.roles.values():
        for nic in role.expect.nics:
            value = (nic.firmware_settings or {}).get("CNP_DSCP_P1", "")
            if value.isdigit():
                return int(value)
    return None


def _tos(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    lossless = plan.lossless
    traffic_class = plan.choices.nccl.get("NCCL_IB_TC")
    if lossless is None or traffic_class is None or not traffic_class.isdigit():
        return
    forced = lossless.traffic_class if lossless.traffic_class is not None else lossless.tos
    if forced is None or forced == int(traffic_class):
        return
    if forced == 0 or lossless.traffic_class is None:
        consequence = "NCCL's traffic and that of the RDMA connection manager are in different classes"
    else:
        consequence = "the driver's value wins, and NCCL's has no effect"
    yield (
        Side("NCCL_IB_TC", f"traffic class {traffic_class}"),
        Side("fabric.lossless", f"traffic class {forced}"),
        consequence,
        "set one value in both places (106 is DSCP 26 with ECN), or leave NCCL_IB_TC out",
    )


def _gds_iommu(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    on = plan.wants_iommu()
    if plan.gds and on and on not in ("iommu=pt", "iommu.passthrough=1") and "iommu=pt" not in plan.cmdline:
        yield (
            Side("GPUDirect Storage", "the IOMMU off, or in pass-through"),
            Side("system.cmdline_required", on),
            "transfers between drive and GPU go through the processor, or fail",
            "set iommu=pt (NVIDIA: fine on DGX A100 and H100)",
        )


def _gds_acs(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    for name, role in plan.architecture.roles.items():
        pcie = role.expect.pcie
        if plan.gds and pcie is not None and pcie.acs == "enabled":
            yield (
                Side("GPUDirect Storage", "ACS off on every bridge"),
                Side(f"roles.{name}.expect.pcie.acs", "devices isolated for virtual machines"),
                "every transfer between devices goes up to the root complex and back",
                "set acs: disabled, or do without GPUDirect Storage",
            )
            return
    if plan.gds and plan.choices.virtualised:
        yield (
            Side("GPUDirect Storage", "ACS off on every bridge"),
            Side("virtual machines with passed-through devices", "ACS on"),
            "every transfer between devices goes up to the root complex and back",
            "do one of the two on these nodes",
        )


def _gds_nvme(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    gpu, network, gds = plan.architecture.gpu, plan.components.network, plan.components.gds
    if gpu is None or "NVMe" not in gpu.gds or network is None or gds is None or gds.nvidia_fs is None:
        return
    if not any("mlnx-nvme" in package for package in network.packages):
        yield (
            Side("GPUDirect Storage on NVMe drives", "an nvme driver that knows nvidia-fs"),
            Side("the version set", f"{network.stack} without it"),
            "gdscheck says NVMe: Unsupported, and nothing reads from a drive into a GPU",
            "lock mlnx-nvme-dkms (RHEL: kmod-mlnx-nvme), or gpu: {gds_method: p2pdma} with a kernel and driver for it",
        )


def _grace_iommu(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    gpu, off = plan.architecture.gpu, plan.wants_no_iommu()
    if gpu and off and gpu.count and any(name in gpu.model for name in ("GH200", "GB200", "GB300")):
        yield (
            Side(gpu.model, "the IOMMU on: Grace shares its memory through it"),
            Side("the command line", off),
            "GPUDirect Storage and address translation of the GPU do not work",
            "leave the IOMMU on; iommu.passthrough=1 is the pass-through of arm",
        )


def _peermem(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    gpu, network = plan.architecture.gpu, plan.components.network
    if gpu and gpu.gpudirect == "peermem" and network and network.stack == "inbox":
        yield (
            Side("gpu.gpudirect: peermem", "the peer memory interface of OFED"),
            Side("the version set", "the kernel's own drivers, which have none"),
            "nvidia-peermem is refused with Invalid argument",
            "set gpudirect: dmabuf (open modules, kernel 5.12 or newer), or lock DOCA-OFED",
        )
    driver = plan.components.driver
    if gpu and gpu.gpudirect == "dmabuf" and driver and driver.flavour == "proprietary":
        yield (
            Side("gpu.gpudirect: dmabuf", "the open modules"),
            Side("the version set", "the proprietary modules"),
            "adapters do not reach GPU memory, and traffic goes through the processor",
            "set gpudirect: peermem, or lock the open modules where the GPU allows them",
        )


def _nfs_rdma(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    network, own = plan.components.network, plan.replaced_nfs
    if own and network and network.nfsrdma:
        yield (
            Side(own, "its own sunrpc, nfs and rpcrdma modules"),
            Side("DOCA with NFS over RDMA", "its own sunrpc and rpcrdma modules"),
            "whichever is loaded first decides, and the other's mounts fail with unknown symbols",
            "lock DOCA without its modules for NFS over RDMA (nfsrdma: false)",
        )
    if own and plan.choices.nfs_driver == "kernel":
        yield (
            Side(f"the version set ({own})", "to replace the kernel's NFS modules"),
            Side("storage_client.nfs.driver: kernel", "them"),
            "there is one set of NFS modules on a node",
            f"set driver: {own}, which works with other servers too, or remove it from the version set",
        )


def _nfs_rdma_missing(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    network = plan.components.network
    rdma = [n for n, s in plan.architecture.storage.items() if s.class_ == "nfs" and s.transport == "rdma"]
    if rdma and network and network.stack != "inbox" and not network.nfsrdma and not plan.replaced_nfs:
        yield (
            Side(f"storage {', '.join(rdma)}", "NFS over RDMA"),
            Side("the version set", f"{network.stack} without its modules for NFS over RDMA"),
            "the kernel's own rpcrdma does not fit the stack's ib_core, and the mount fails or falls back to TCP",
            "lock the stack with them (mlnx-nfsrdma-dkms, nfsrdma: true), or vastnfs",
        )


def _client_ofed(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    network = plan.components.network
    for kind in ("lustre", "beegfs"):
        client = plan.components.clients.get(kind)
        if client is None or network is None or network.stack == "inbox":
            continue
        if client.ofed is None and not client.dkms and client.packages:
            yield (
                Side({"lustre": "Lustre", "beegfs": "BeeGFS"}[kind], "modules built against the kernel's own ib_core"),
                Side("the version set", f"{network.stack} {network.version}, which replaces it"),
                "o2ib and RDMA do not load: unknown symbols or a silent fall-back to TCP",
                "build the client with /usr/src/ofa_kernel/default and set ofed in its component",
            )


def _nvlsm(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    gpu = plan.architecture.gpu
    needs = gpu and gpu.count >= 8 and gpu.fabric_manager and any(name in gpu.model for name in ("B200", "B300"))
    if needs and gpu and plan.components.fabric_manager and plan.components.nvlsm is None:
        if any(name in gpu.model for name in ("GB200", "GB300")):
            return
        yield (
            Side(gpu.model, "NVLSM beside the fabric manager: its switches are managed through an adapter"),
            Side("the version set", "a fabric manager without it"),
            "the fabric manager does not start, and no GPU reaches another one",
            "lock nvlsm as well",
        )


RULES: dict[str, tuple[Rule, str]] = {
    # id: rule, and the sources of both sides
    "weka-iommu": (_weka_iommu, f"{tables.WEKA_SOURCE}; NVIDIA multi-node tuning (iommu=pt)"),
    "weka-ofed": (_weka_ofed, tables.WEKA_SOURCE),
    "weka-secure-boot": (_weka_secure_boot, f"{tables.WEKA_SOURCE}; bios_tool/bios_settings.yml"),
    "weka-kernel": (_weka_kernel, tables.WEKA_SOURCE),
    "weka-slurm-cores": (_weka_slurm, "stackhpc slurm appliance README, WEKA (CPUSpecList); slurm.conf(5)"),
    "roce-ofed": (_roce_ofed, tables.OFED_LAST_SOURCE),
    "roce-iommu": (_roce_iommu, "oci-hpc-images group_vars/kernel_parameters.yml; NVIDIA nv-iommu-pt of DGX OS"),
    "gsp-open-modules": (_gsp_open, "oci-hpc-images ansible/roles/nvidia_driver/tasks/main.yml; open modules README"),
    "driver-generation": (_driver_generation, tables.GENERATION_SOURCE),
    "driver-branch": (_driver_branch, tables.BRANCH_SOURCE),
    "secure-boot-dkms": (_secure_boot_dkms, "dell/dkms issue 429; NVIDIA driver installation guide, Secure Boot"),
    "secure-boot-lockdown": (secure_boot_lockdown, LOCKDOWN_SOURCE),
    "cnp-dscp": (_cnp, "Mellanox nic-configuration-operator README (4); NVIDIA switch guides (48)"),
    "traffic-class": (_tos, "nic-configuration-operator README (ToS 0); Mellanox community DOC-2792 (106)"),
    "gds-iommu": (_gds_iommu, "NVIDIA GPUDirect Storage installation guide, IOMMU"),
    "gds-acs": (_gds_acs, "NVIDIA GPUDirect Storage installation guide, ACS; NCCL user guide, troubleshooting"),
    "gds-nvme": (_gds_nvme, "NVIDIA GPUDirect Storage troubleshooting guide, 15.1 and 15.3 (storage transport, DOCA)"),
    "grace-iommu": (_grace_iommu, "NVIDIA GPUDirect Storage installation guide, Grace"),
    "gpudirect": (_peermem, "NVIDIA GPU Operator documentation, GPUDirect RDMA (peermem, DMA-BUF)"),
    "nfs-modules": (_nfs_rdma, "VAST vastnfs documentation; Mellanox doca-driver-build entrypoint.sh"),
    "nfs-rdma-missing": (_nfs_rdma_missing, "Mellanox doca-driver-build entrypoint.sh (ENABLE_NFSRDMA)"),
    "client-ofed": (_client_ofed, "slurm-appliance roles/lustre; BeeGFS client autobuild (OFED_INCLUDE_PATH)"),
    "nvlsm": (_nvlsm, tables.NVLSM_SOURCE),
}
