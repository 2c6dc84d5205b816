from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml

from rackproof.core.architecture import Architecture
from rackproof.core.versions import Components
from rackproof.core.versions.choices import Choices
from rackproof.core.versions.conflicts import RULES, find_conflicts
from tests.unit.core.versions.sets import Change, changed

BASE = """\
apiVersion: refarch/v1
metadata:
  id: conflicts
  version: 1.0.0
  title: For tests of conflicts
  scope: Says nothing about any rack.
  sources: {written: {doc: Written for the tests, status: proposed}}
roles:
  gpu: {count: {min: 1}, source: written}
fabric:
  kind: roce
  rails: 1
  mtu: 9000
  lossless: {pfc_priority: 3, cnp_dscp: 48, tos: 106, traffic_class: 106}
  source: written
gpu: {count: 8, model: NVIDIA H200, memory_mib: null, fabric_manager: active, source: written}
storage: {}
"""
RACK: dict[str, Any] = yaml.safe_load(BASE)
WEKA = {"class": "parallel", "mountpoint": "/mnt/w", "fstype": "wekafs", "source": "fs", "managed": False}
NFS = {"class": "nfs", "mountpoint": "/mnt/n", "fstype": "nfs", "source": "/e", "transport": "rdma",
       "servers": ["192.0.2.1"], "managed": False}  # fmt: skip


GDS = {"version": "1.15.1", "nvidia_fs": "2.26.6", "nvidia_fs_for": "open", "packages": {"nvidia-fs-dkms": "2.26.6-1"},
       "dkms": ["nvidia-fs"]}  # fmt: skip


def architecture(changes: Change) -> Architecture:
    data = deepcopy(RACK)
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = data
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = value
    return Architecture.model_validate(data)


def components(changes: Change | None) -> Components:
    if changes is None:
        return Components()
    return changed(changes).platforms["ubuntu-24.04"].components


def ids(arch: Change, versions: Change | None = None, choices: Choices | None = None) -> set[str]:
    return {conflict.id for conflict in find_conflicts(architecture(arch), components(versions), choices)}


def _nic(**keys: Any) -> Change:
    nic = {"purpose": "compute", "count": 1, "speed_gbps": 400, "link_layer": "Ethernet", "source": "written", **keys}
    return {"roles/gpu/expect": {"nics": [nic]}}


def _acs(word: str) -> Change:
    return {"roles/gpu/expect": {"pcie": {"acs": word, "source": "written"}}}


ON = {"system/secure_boot": True}
QUIET = {**ON, "fabric/lossless": {"pfc_priority": 3}}
"""Nothing of it is written to debugfs."""
REDIR = {"system/cmdline_required": ["pci=disable_acs_redir=pci:0:0"]}
C = "components"
CLOSED = {f"{C}/driver/flavour": "proprietary"}
V100 = {"gpu/model": "Tesla V100-SXM2-32GB"}
CASES: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    # id: what fires it, what is near to it and does not
    ("weka-iommu", ({"storage/w": WEKA},), ({"storage/w": WEKA, "system/cmdline_required": ["iommu=off"]},)),
    ("weka-ofed", ({"storage/w": WEKA}, {}),
     ({"storage/w": WEKA}, {f"{C}/network": {"version": "24.04-0.7.0.0", "stack": "mlnx_ofed"}})),
    ("weka-secure-boot", ({"storage/w": WEKA, "system/secure_boot": True},),
     ({"storage/w": WEKA, "system/secure_boot": False},)),
    ("weka-kernel", ({"storage/w": WEKA}, {f"{C}/kernel/flavour": "hwe"}), ({"storage/w": WEKA}, {})),
    ("weka-slurm-cores", ({}, None, Choices(weka_cores=2, weka_cores_named=True, slurm_kept=1)),
     ({}, None, Choices(weka_cores=2, weka_cores_named=True, slurm_kept=2))),
    ("weka-slurm-cores", ({}, None, Choices(weka_cores=2, slurm_kept=2)), ({}, None, Choices(weka_cores=2))),
    ("roce-ofed", ({}, {f"{C}/network": {"version": "24.10-1.1.4.0", "stack": "mlnx_ofed"}}), ({}, {})),
    ("roce-iommu", ({"system/cmdline_required": ["iommu=off"]},), ({"system/cmdline_required": ["iommu=pt"]},)),
    ("gsp-open-modules", ({}, {}, Choices(driver_options={"NVreg_EnableGpuFirmware": "0"})),
     ({}, CLOSED, Choices(driver_options={"NVreg_EnableGpuFirmware": "0"}))),
    ("driver-generation", (V100, {}), (V100, CLOSED)),
    ("driver-generation", ({"gpu/model": "NVIDIA B200"}, CLOSED), ({"gpu/model": "NVIDIA B200"}, {})),
    ("driver-branch", ({"gpu/model": "NVIDIA B200"}, {f"{C}/driver/version": "550.90.07"}),
     ({"gpu/model": "NVIDIA B200"}, {})),
    ("driver-branch", (V100, {f"{C}/driver/version": "610.57.04", f"{C}/cuda/version": "12.9"}),
     (V100, {f"{C}/cuda/version": "12.9"})),
    ("driver-branch", (V100, {f"{C}/cuda/version": "13.0"}), (V100, {f"{C}/cuda": None})),
    ("secure-boot-dkms", ({"system/secure_boot": True}, {}), ({"system/secure_boot": True}, None)),
    ("secure-boot-dkms", ({}, {}, Choices(secure_boot=True)), ({}, {}, Choices(secure_boot=False))),
    ("secure-boot-lockdown", ({**QUIET, **_nic(max_read_request=4096)},), (_nic(max_read_request=4096),)),
    ("secure-boot-lockdown", ({**QUIET, **_nic(relaxed_ordering=True)},), ({**QUIET, **_nic()},)),
    ("secure-boot-lockdown", ({**QUIET, **_nic(firmware_settings={"LINK_TYPE_P1": "ETH"})},),
     (_nic(firmware_settings={"LINK_TYPE_P1": "ETH"}), None, Choices(secure_boot=False))),
    ("secure-boot-lockdown", ({**QUIET, **_nic(firmware=">=28.39.1002")},),
     ({**QUIET, **_nic(firmware=">=28.39.1002")}, None, Choices(roles=("login",)))),
    ("secure-boot-lockdown", ({**QUIET, **_acs("disabled"), **REDIR},), ({**QUIET, **_acs("no_redirect"), **REDIR},)),
    ("secure-boot-lockdown", ({**QUIET, **_acs("no_redirect")},), ({**QUIET, **_acs("enabled")},)),
    ("secure-boot-lockdown", ({}, None, Choices(secure_boot=True)),
     ({}, None, Choices(secure_boot=True, nic_source="doca"))),
    ("secure-boot-lockdown", ({**QUIET}, None, Choices(pci_settings=("max_read_request",))),
     ({**QUIET, "fabric/kind": "soft-roce"}, None, Choices(pci_settings=("max_read_request",)))),
    ("secure-boot-lockdown",
     ({**QUIET}, {f"{C}/nic_firmware": [{"model": "ConnectX-7", "version": "28.45.1200"}]}), ({**QUIET}, {})),
    ("cnp-dscp", ({}, None, Choices(switch_cnp_dscp=4)), ({}, None, Choices(switch_cnp_dscp=48))),
    ("cnp-dscp", ({"fabric/lossless": {"cnp_dscp": 48}, "roles/gpu/expect": {"nics": [{
        "purpose": "compute", "count": 1, "speed_gbps": 400, "link_layer": "Ethernet", "source": "written",
        "firmware_settings": {"CNP_DSCP_P1": "4"}}]}},),
     ({"roles/gpu/expect": {"nics": [{
         "purpose": "compute", "count": 1, "speed_gbps": 400, "link_layer": "Ethernet", "source": "written",
         "firmware_settings": {"CNP_DSCP_P1": "48"}}]}},)),
    ("traffic-class", ({}, None, Choices(nccl={"NCCL_IB_TC": "41"})), ({}, None, Choices(nccl={"NCCL_IB_TC": "106"}))),
    ("traffic-class", ({"fabric/lossless": {"tos": 0}}, None, Choices(nccl={"NCCL_IB_TC": "106"})),
     ({"fabric/lossless": {"pfc_priority": 3}}, None, Choices(nccl={"NCCL_IB_TC": "106"}))),
    ("gds-iommu", ({"system/cmdline_required": ["intel_iommu=on"]}, {}),
     ({"system/cmdline_required": ["intel_iommu=on", "iommu=pt"]}, {})),
    ("gds-acs", ({"roles/gpu/expect": {"pcie": {"acs": "enabled", "source": "written"}}}, {}),
     ({"roles/gpu/expect": {"pcie": {"acs": "disabled", "source": "written"}}}, {})),
    ("gds-acs", ({}, None, Choices(gds=True, virtualised=True)), ({}, None, Choices(gds=True))),
    ("gds-nvme", ({"gpu/gds": ["NVMe"]}, {f"{C}/gds": GDS}),
     ({"gpu/gds": ["NVMe"]}, {f"{C}/gds": GDS, f"{C}/network/packages": {"mlnx-nvme-dkms": "25.10"}})),
    ("gds-nvme", ({"gpu/gds": ["NVMe", "NFS"]}, {f"{C}/gds": GDS}), ({"gpu/gds": ["NFS"]}, {f"{C}/gds": GDS})),
    ("gds-nvme", ({"gpu/gds": ["NVMe"]}, {f"{C}/gds": GDS}),
     ({"gpu/gds": ["NVMe"]}, {f"{C}/gds": {"version": "1.15.1"}})),
    ("grace-iommu", ({"gpu/model": "NVIDIA GB200", "system/cmdline_required": ["iommu=off"]},),
     ({"system/cmdline_required": ["iommu=off"]},)),
    ("gpudirect", ({"gpu/gpudirect": "peermem"}, {f"{C}/network": {"version": "inbox", "stack": "inbox"}}),
     ({"gpu/gpudirect": "peermem"}, {})),
    ("gpudirect", ({"gpu/gpudirect": "dmabuf"}, CLOSED), ({"gpu/gpudirect": "dmabuf"}, {})),
    ("nfs-modules", ({}, {f"{C}/clients/vastnfs": {"version": "4.0.33"}, f"{C}/network/nfsrdma": True}),
     ({}, {f"{C}/clients/vastnfs": {"version": "4.0.33"}})),
    ("nfs-modules", ({}, {f"{C}/network/nfsrdma": True}, Choices(nfs_driver="dellnfs")),
     ({}, {f"{C}/network/nfsrdma": True}, Choices(nfs_driver="kernel"))),
    ("nfs-modules", ({}, {f"{C}/clients/vastnfs": {"version": "4.0.33"}}, Choices(nfs_driver="kernel")),
     ({}, {f"{C}/clients/vastnfs": {"version": "4.0.33"}}, Choices(nfs_driver="vastnfs"))),
    ("nfs-rdma-missing", ({"storage/n": NFS}, {}, Choices(nfs_driver="kernel")),
     ({"storage/n": NFS}, {}, Choices(nfs_driver="vastnfs"))),
    ("nfs-rdma-missing", ({"storage/n": NFS}, {}), ({"storage/n": NFS}, {f"{C}/network/nfsrdma": True})),
    ("client-ofed", ({}, {f"{C}/clients/beegfs": {"version": "8.3.1", "packages": {"beegfs-client": "8.3.1"}}}),
     ({}, {f"{C}/clients/beegfs": {"version": "8.3.1", "ofed": "25.10", "packages": {"beegfs-client": "8.3.1"}}})),
    ("nvlsm", ({"gpu/model": "NVIDIA B200"}, {}),
     ({"gpu/model": "NVIDIA B200"}, {f"{C}/nvlsm": {"version": "2025.06"}})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "fires", "silent"), CASES, ids=[f"{rule}-{k}" for k, (rule, _, _) in enumerate(CASES)]
)
def test_a_conflict_is_found_where_it_is_and_not_beside_it(
    rule: str, fires: tuple[Any, ...], silent: tuple[Any, ...]
) -> None:
    assert rule in ids(*fires)
    assert rule not in ids(*silent)


def test_every_rule_is_seen_to_fire() -> None:
    assert {rule for rule, _, _ in CASES} == set(RULES)


def test_both_sides_are_named_in_one_line_with_a_source() -> None:
    (conflict,) = [
        candidate for candidate in find_conflicts(architecture({"storage/w": WEKA})) if candidate.id == "weka-iommu"
    ]
    assert conflict.sentence.startswith("weka-iommu: WEKA wants the IOMMU off, the RoCE profile wants iommu=pt: ")
    assert conflict.source
    assert "\n" not in conflict.sentence


def test_a_locked_kernel_is_named_with_every_setting_that_it_refuses() -> None:
    arch = architecture({**ON, **_nic(max_read_request=4096, firmware=">=28.39.1002")})
    sentences = [conflict.sentence for conflict in find_conflicts(arch) if conflict.id == "secure-boot-lockdown"]
    for setting, sentence in zip(
        ("roles.gpu.expect.nics (compute): max_read_request", "roles.gpu.expect.nics (compute): firmware wants",
         "fabric.lossless.cnp_dscp wants"), sentences, strict=True,
    ):  # fmt: skip
        assert sentence.startswith("secure-boot-lockdown: Secure Boot wants a kernel in lockdown")
        assert setting in sentence
        assert "accept this where" in sentence


def test_a_rack_without_any_of_it_has_none() -> None:
    assert ids({}, {}) == set()
