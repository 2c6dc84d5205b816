"""Select the parts of a version set that apply to one machine, stage by stage. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rackproof.core.gpu_generations import NVIDIA, NVLINK5_GPUS, gpus
from rackproof.core.machine import Machine
from rackproof.core.versions.models import DISTRIBUTION, Component, Platform, VersionSet
from rackproof.errors import VersionSetError

STAGES: Final[dict[str, tuple[str, ...]]] = {
    "kernel": ("kernel",),
    "network": ("network",),
    "driver": ("driver", "fabric_manager", "nvlsm", "imex"),
    "gpu": ("cuda", "nccl", "dcgm", "container_toolkit"),
    "gds": ("gds",),
    "clients": ("clients",),
    "others": ("others",),
}
"""Stage: keys of its components, in the order of installation. A GPU driver links to symbols of the network stack,
nvidia-fs to both, and clients are built against all of them."""


MELLANOX: Final = "15b3"

SWITCH_KIND: Final = "0680"
RACK_SCALE: Final = ("294", "31c")
"""PCI device ids of GB200 and GB300, whose NVLink connects nodes."""
OF_GPUS: Final = ("driver", "fabric_manager", "nvlsm", "imex", "cuda", "nccl", "dcgm", "container_toolkit", "gds")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of the set, as the package manager names it."""

    name: str
    version: str
    component: str
    """Key of its component: ``driver``, ``clients.weka``."""
    repository: str = DISTRIBUTION


def platform_name(versions: VersionSet, os_id: str, os_version: str, family: str = "") -> str:
    """The key of ``platforms`` for an operating system, ``ID`` and ``VERSION_ID`` of os-release.

    Exact version first, then the major one, then for rebuilds of RHEL ``rhel-9``. Raises VersionSetError, one line.
    """
    major = os_version.partition(".")[0]
    candidates = [f"{os_id}-{os_version}", f"{os_id}-{major}"]
    if family == "rhel":
        candidates.append(f"rhel-{major}")
    for candidate in candidates:
        if candidate in versions.platforms:
            return candidate
    raise VersionSetError(
        f"version set {versions.name} has no platform for {os_id} {os_version}, only"
        f" {', '.join(sorted(versions.platforms))} (add the platform, or remove the node from this inventory)"
    )


def platform_of(versions: VersionSet, machine: Machine) -> Platform:
    """The set's platform for this machine. Raises VersionSetError, one line."""
    return versions.platforms[platform_name(versions, machine.os_id, machine.os_version, machine.family)]


def applies(key: str, component: Component, machine: Machine, groups: Collection[str] | None = None) -> bool:
    """Whether a component applies to this machine: it has the hardware, and one of the component's roles if ``groups``
    is given."""
    if component.roles and groups is not None and not set(component.roles) & set(groups):
        return False
    ids = [device.device for device in gpus(machine)]
    if key in OF_GPUS and not ids:
        return False
    behind_bridge = any(id_.startswith(NVLINK5_GPUS) for id_ in ids)
    if key == "fabric_manager":
        return behind_bridge or bool(machine.devices(NVIDIA, SWITCH_KIND))
    if key == "nvlsm":
        return behind_bridge
    if key == "imex":
        return any(id_.startswith(RACK_SCALE) for id_ in ids)
    return key != "network" or bool(machine.devices(MELLANOX))


def stage_components(
    platform: Platform, stage: str, machine: Machine | None = None, groups: Collection[str] | None = None
) -> tuple[tuple[str, Component], ...]:
    """Components of a stage by key; ``all`` is every stage. With ``machine``, only those that apply to it."""
    keys = tuple(key for keys in STAGES.values() for key in keys) if stage == "all" else STAGES[stage]
    return tuple(
        (name, component)
        for name, component in platform.components.named()
        if name.partition(".")[0] in keys and (machine is None or applies(name, component, machine, groups))
    )


def stage_packages(
    versions: VersionSet, machine: Machine, stage: str, groups: Collection[str] | None = None
) -> tuple[LockedPackage, ...]:
    """Packages of a stage (``kernel``, ``network``, ``driver``, ``gpu``, ``gds``, ``clients``, ``others``, ``all``).

    Only of components that apply to the machine and its ``groups``. Raises VersionSetError where the set has no
    platform for this operating system.
    """
    return tuple(
        LockedPackage(package, version, name, component.repository)
        for name, component in stage_components(platform_of(versions, machine), stage, machine, groups)
        for package, version in component.packages.items()
    )


def component_packages(
    versions: VersionSet, machine: Machine, component: str, groups: Collection[str] | None = None
) -> tuple[LockedPackage, ...]:
    """Packages of one component, by its key: ``driver``, ``clients.lustre``. Raises VersionSetError."""
    return tuple(
        package for package in stage_packages(versions, machine, "all", groups) if package.component == component
    )


def stage_dkms(
    versions: VersionSet, machine: Machine, stage: str, groups: Collection[str] | None = None
) -> tuple[str, ...]:
    """DKMS modules that the components of a stage build."""
    chosen = stage_components(platform_of(versions, machine), stage, machine, groups)
    return tuple(dict.fromkeys(name for _, component in chosen for name in component.dkms))
