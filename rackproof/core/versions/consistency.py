"""Contradictions inside a version set, whatever the rack. Pure."""

from __future__ import annotations

from rackproof.core.versions import gpu_rules, system_rules
from rackproof.core.versions.finding import Contradiction, Rule
from rackproof.core.versions.models import VersionSet


def contradictions(versions: VersionSet) -> tuple[Contradiction, ...]:
    """All contradictions, platform by platform, in the order of the rules."""
    return tuple(
        finding._replace(id=id, platform=name)
        for name, platform in versions.platforms.items()
        for id, rule in RULES.items()
        for finding in rule(name, platform)
    )


RULES: dict[str, Rule] = {
    # id: rule; ids are used in messages and in tests
    "repository-kind": system_rules.repository_kind,
    "fabric-manager-version": gpu_rules.fabric_manager_version,
    "fabric-manager-name": gpu_rules.fabric_manager_name,
    "fabric-manager-repository": gpu_rules.one_repository_a_driver,
    "package-version": gpu_rules.package_versions,
    "driver-packages": gpu_rules.driver_packages,
    "cuda-driver": gpu_rules.cuda_driver,
    "nccl-cuda": gpu_rules.nccl_cuda,
    "dcgm-cuda": gpu_rules.dcgm_cuda,
    "gds-driver": gpu_rules.gds_flavour,
    "kernel-headers": system_rules.kernel_headers,
    "kernel-missing": system_rules.kernel_for_dkms,
    "ofed-version": system_rules.ofed_end,
    "client-build": system_rules.client_builds,
    "mft-repository": system_rules.mft_follows_doca,
}
