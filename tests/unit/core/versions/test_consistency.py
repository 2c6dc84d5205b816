from __future__ import annotations

import pytest

from rackproof.core.versions.consistency import RULES, contradictions
from tests.unit.core.versions.sets import Change, changed, example

C = "components"
DRIVER_570 = {"version": "570.172.08", "flavour": "open", "repository": "cuda", "dkms": ["nvidia"],
              "packages": {"nvidia-open": "570.172.08-1"}}  # fmt: skip

FIRES: list[tuple[str, Change, str]] = [
    ("repository-kind", {"repositories/cuda": {"kind": "dnf", "url": "https://x.example/y", "exclude": ["mft*"],
                                               "key": {"url": "https://x.example/k"}}}, "expected apt on ubuntu-24.04"),
    ("fabric-manager-version", {f"{C}/fabric_manager/version": "580.126.16",
                                f"{C}/fabric_manager/packages": {"nvidia-fabricmanager": "580.126.16-1"}},
     "expected exactly the driver's 580.126.20, actual 580.126.16"),
    ("fabric-manager-name", {f"{C}/fabric_manager/packages": {"nvidia-fabricmanager-580": "580.126.20-1"}},
     "expected nvidia-fabricmanager for branch 580, actual nvidia-fabricmanager-580"),
    ("fabric-manager-name", {f"{C}/fabric_manager/packages": {"something": "580.126.20-1"}}, "actual something"),
    ("fabric-manager-repository", {f"{C}/fabric_manager/repository": "distribution"},
     "comes from distribution, the driver from cuda"),
    ("package-version", {f"{C}/nccl/packages": {"libnccl2": "2.27.7-1+cuda13.0"}},
     "expected a version that begins with 2.30.4"),
    ("package-version", {f"{C}/driver/packages": {"nvidia-open": "580.126.205-1"}}, "begins with 580.126.20"),
    ("driver-packages", {f"{C}/driver/flavour": "proprietary"}, "brings the open modules, flavour is proprietary"),
    ("driver-packages", {f"{C}/driver/packages": {"cuda-drivers": "580.126.20-1"}}, "brings the proprietary modules"),
    ("driver-packages", {f"{C}/driver/packages": {"nvidia-headless-570-server-open": "580.126.20-1"}},
     "is of branch 570"),
    ("driver-packages", {f"{C}/driver/packages": {"nvidia-driver-pinning-580.95.05": "1"}}, "pins 580.95.05"),
    ("driver-packages", {f"{C}/driver/precompiled": True}, "precompiled modules, and modules that DKMS builds"),
    ("driver-packages", {f"{C}/driver/dkms": []}, "neither precompiled nor built by DKMS"),
    ("cuda-driver", {f"{C}/driver": DRIVER_570}, "CUDA 13.0 needs driver 580 or newer, actual 570.172.08"),
    ("cuda-driver", {f"{C}/driver": DRIVER_570, f"{C}/cuda/version": "14.1"}, "CUDA 14.1 needs driver 580"),
    ("nccl-cuda", {f"{C}/nccl/packages": {"libnccl2": "2.30.4-1+cuda12.9"}}, "built for CUDA 12.9, the set has"),
    ("nccl-cuda", {f"{C}/nccl/packages": {"libnccl2": "2.30.4-1+cuda13.0", "libnccl-dev": "2.30.4-1+cuda13.1"}},
     "expected one version for all"),
    ("nccl-cuda", {f"{C}/driver": DRIVER_570, f"{C}/cuda": None}, "built for CUDA 13, which needs driver 580"),
    ("dcgm-cuda", {f"{C}/dcgm/packages": {"datacenter-gpu-manager-4-cuda12": "1:4.5.2-1"}},
     "is for CUDA 12, the set has CUDA 13.0"),
    ("gds-driver", {f"{C}/gds/nvidia_fs_for": "proprietary"}, "built for the proprietary modules, the driver is open"),
    ("gds-driver", {f"{C}/gds/dkms": []}, "a module without a dkms or kmod package"),
    ("gds-driver", {f"{C}/driver": None}, "without a driver"),
    ("kernel-headers", {f"{C}/kernel/packages": {"linux-image-6.8.0-87-generic": "1"}}, "linux-headers-6.8.0-87-"),
    ("kernel-headers", {f"{C}/kernel/version": "6.8.0-90-generic"}, "expected linux-image-6.8.0-90-generic"),
    ("kernel-missing", {f"{C}/kernel": None}, "the set has no kernel to build them for"),
    ("ofed-version", {f"{C}/network": {"version": "25.04-0.6.1.0", "stack": "mlnx_ofed"}}, "24.10 is the last"),
    ("ofed-version", {f"{C}/network/ofed": "24.10"}, "DOCA 3.2.1 has OFED 25.10 inside, actual 24.10"),
    ("ofed-version", {f"{C}/network/stack": "inbox"}, "the stack is inbox, and packages of OFED are listed"),
    ("client-build", {f"{C}/clients/lustre/ofed": "24.10"}, "built against OFED 24.10, the set has 25.10"),
    ("client-build", {f"{C}/clients/lustre/ofed": "inbox"}, "built against OFED inbox"),
    ("client-build", {f"{C}/clients/lustre/kernel": "6.8.0-51-generic"}, "its modules are for kernel 6.8.0-51-generic"),
    ("mft-repository", {"repositories/cuda/exclude": []}, "they must match DOCA"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "changes", "says"), FIRES, ids=[f"{rule}-{k}" for k, (rule, _, _) in enumerate(FIRES)]
)
def test_a_contradiction_is_found_and_said(rule: str, changes: Change, says: str) -> None:
    by_rule = {finding.id: finding for finding in contradictions(changed(changes))}
    assert rule in by_rule
    assert any(says in finding.sentence for finding in contradictions(changed(changes)) if finding.id == rule)
    assert by_rule[rule].source
    assert "\n" not in by_rule[rule].sentence


def test_every_rule_is_seen_to_fire() -> None:
    assert {rule for rule, _, _ in FIRES} == set(RULES)


def test_a_set_that_fits_together_has_none() -> None:
    assert contradictions(example()) == ()


OLD_570 = {"version": "570.172.08", "repository": "cuda"}


@pytest.mark.parametrize(
    ("platform", "package", "wrong"),
    [
        ("ubuntu-24.04", "nvidia-fabricmanager-570", False),
        ("ubuntu-24.04", "nvidia-fabricmanager", True),
        ("rocky-9", "nvidia-fabric-manager", False),
        ("rocky-9", "nvidia-fabricmanager", True),
    ],
)
def test_the_fabric_manager_is_called_otherwise_before_branch_580(platform: str, package: str, wrong: bool) -> None:
    changes = {f"{C}/fabric_manager": {**OLD_570, "packages": {package: "570.172.08-1"}}}
    rules = {finding.id for finding in contradictions(changed(changes, platform))}
    assert ("fabric-manager-name" in rules) is wrong


def test_kernels_of_rhel_are_found_by_their_version() -> None:
    base = "5.14.0-611.5.1.el9_7"
    packages = {"kernel-core": base, "kernel-devel": base}
    good = {f"{C}/kernel": {"version": f"{base}.x86_64", "packages": packages}}
    assert "kernel-headers" not in {finding.id for finding in contradictions(changed(good, "rocky-9"))}
    bad = {f"{C}/kernel": {"version": f"{base}.x86_64", "packages": packages | {"kernel-devel": "5.14.0-1.el9"}}}
    assert "kernel-headers" in {finding.id for finding in contradictions(changed(bad, "rocky-9"))}
