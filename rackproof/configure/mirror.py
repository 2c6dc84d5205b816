"""Downloads of each domain, for ``rackproof mirror list``.

Every domain that installs something has a function here, which calls the planning functions of its deploy. A test
compares the list with every installation of the golden plans. Downloads that depend on unknown hardware are listed as
``unlisted`` items, so that the list shows its gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rackproof.configure.containers import daemon
from rackproof.configure.gpu import packages as gpu
from rackproof.configure.gpu.driver import choose
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.runtimes import handing_out
from rackproof.configure.health_check import kit
from rackproof.configure.known_inputs import MODELS
from rackproof.configure.nic.declared import declare, network_of, set_means, uses_adapters
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.packages import VERSION_LOCK, declared_packages
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site, settings_of
from rackproof.configure.slurm.cluster import cluster_of, is_member, package_names
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.storage_client import catalogue, weka
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.core.architecture import Architecture, Gpu
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.machine import Machine
from rackproof.core.rack import Node, Rack
from rackproof.core.versions import VersionSet
from rackproof.core.versions.finding import is_rhel
from rackproof.core.versions.mirror import MirrorItem, of_inputs, of_names, of_versions, unlisted
from rackproof.core.versions.models import DISTRIBUTION, Platform
from rackproof.core.versions.select import platform_name, stage_components
from rackproof.errors import DeclarationError, InventoryError, VersionSetError

INPUTS: Final = {key: model for key, model in MODELS.items() if model.DOWNLOADS}
FURTHER: Final = ("scratch_drives", "simulated_gpus", "versions", "virtual")
"""Further keys of a node's data that decide about packages."""
KERNEL: Final = "$(uname -r)"
DEPENDENCIES: Final = (
    "dependencies of these packages: the package manager of the node decides; mirror whole repositories, or find them"
    " with apt-get --download-only or dnf download --resolve"
)


@dataclass(frozen=True, slots=True)
class Target:
    """One node with one operating system that it may run."""

    site: Site
    family: str
    platform: str
    """``ubuntu-24.04``; the family where the operating system is unknown."""
    machine: Machine | None = None
    """None: hardware and kernel are unknown."""
    versions: Platform | None = None
    """Entry of the version set for the platform."""

    def locked(self, stage: str = "all") -> dict[str, str]:
        """Packages of a stage of the version set, with their versions."""
        if self.versions is None:
            return {}
        components = stage_components(self.versions, stage, self.machine, self.site.node.groups)
        return {package: version for _, component in components for package, version in component.packages.items()}

    @property
    def kernel(self) -> str | None:
        """Release of the kernel that clients are built for: that of the version set, which runs after the reboot."""
        kernel = self.versions.components.kernel if self.versions else None
        return kernel.version if kernel else self.machine.kernel if self.machine else None

    def named(self, names: Iterable[str], needed_by: str, where: str = DISTRIBUTION) -> Iterator[MirrorItem]:
        """Items for packages by name, without those of the version set, which are listed with their versions."""
        locked = self.locked()
        yield from of_names((name for name in names if name not in locked), self.platform, needed_by, where)

    def unlisted(self, what: str, needed_by: str) -> MirrorItem:
        return unlisted(what, self.platform, needed_by)


Contributor = Callable[[Target], Iterable[MirrorItem]]


def _of_base(target: Target) -> Iterator[MirrorItem]:
    site = target.site
    yield from target.named(declared_packages(site.architecture, site.node, target.family), "base")


def _of_versions(target: Target) -> Iterator[MirrorItem]:
    if target.versions is not None and target.family == "rhel" and read_inputs(target.site.node, VersionInputs).hold:
        yield from target.named(VERSION_LOCK, "holds")


def _of_adapters(target: Target) -> Iterator[MirrorItem]:
    site, fabric = target.site, target.site.architecture.fabric
    if fabric is None or fabric.kind == "soft-roce":
        return
    stack = read_inputs(site.node, NicInputs)
    components = target.versions.components if target.versions else None
    meant = components and target.machine and set_means(components, site, stack, target.machine)
    if not meant and not uses_adapters(site, stack):
        return
    declared = declare(site, stack, components, target.family, target.machine)
    yield from target.named(declared.inbox_packages, "nic")
    if declared.nvidia and network_of(components, site, target.machine) is None:
        yield target.unlisted(
            "NVIDIA's network drivers: nic.source declares them, the version set does not name their packages",
            "nic",
        )


def _of_gpus(target: Target) -> Iterator[MirrorItem]:
    site, machine = target.site, target.machine
    declared = site.architecture.gpu
    if declared is None or declared.count == 0 or site.settings.simulated_gpus:
        return
    stack = read_inputs(site.node, GpuInputs)
    wanted = handing_out(site.architecture.containers, site.node.groups, stack)
    if "gpu" in site.node.groups:
        yield from _listed(target, gpu.container_toolkit(stack, wanted))
        yield from _of_driver(target, machine, declared, stack) if machine else _of_unknown_gpus(target)
        if target.family == "rhel" and stack.hold:
            yield from target.named(VERSION_LOCK, "holds")


def _of_driver(target: Target, machine: Machine, declared: Gpu, stack: GpuInputs) -> Iterator[MirrorItem]:
    components = target.versions.components if target.versions else None
    component = components.driver if components else None
    try:
        choice = choose(machine, declared, stack, component)
    except UnsupportedGpu as error:
        yield target.unlisted(f"GPU driver and tools: {error}", "gpu")
        return
    stack = gpu.with_dcgm(stack, choice, target.site.architecture.tools.programs, component is not None)
    locked = {**target.locked("gpu"), **(target.locked("gds") if declared.gds else {})} if component else None
    kernel = components.kernel.version if components and components.kernel else machine.kernel
    planned = gpu.node_packages(
        machine, choice, stack, declared, locked, None if kernel == machine.kernel else kernel
    )  # fmt: skip
    yield from _listed(target, (*planned.headers, *planned.driver, *planned.tools))
    if choice.dkms and target.family == "rhel":
        yield from target.named(("dkms",), "gpu", "EPEL")
    if choice.source == "distribution" and machine.os_id == "debian":
        yield MirrorItem(
            "repository", "contrib non-free non-free-firmware", target.platform, machine.codename, DISTRIBUTION,
            needed_by="gpu",
        )  # fmt: skip


def _of_unknown_gpus(target: Target) -> Iterator[MirrorItem]:
    locked = target.versions is not None and target.versions.components.driver is not None
    what = "GPU tools that the version set does not name" if locked else "GPU driver, fabric manager, DCGM, CUDA, NCCL"
    yield target.unlisted(
        f"{what}, and headers of the kernel: their names depend on PCI devices, operating system and kernel",
        "gpu",
    )


def _listed(target: Target, packages: Iterable[Package]) -> Iterator[MirrorItem]:
    locked = target.locked()
    for package in packages:
        if package.name not in locked:
            yield MirrorItem(
                "package", package.name, target.platform, package.version or "", needed_by="gpu"
            )  # fmt: skip


def _of_storage(target: Target) -> Iterator[MirrorItem]:
    """Packages of clients, and installers that a storage's own servers hand out."""
    site = target.site
    client_node = replace(site.client_node, locked=target.locked("clients"))
    clients = catalogue.clients_of(site.named_storage(), client_node, target.family, site.own_fsid)
    whole = catalogue.merge_clients(clients)
    locked = target.locked()
    for step in (*whole.install, *whole.ready, *whole.proofs):
        for name, version in step.brings:
            package, exact = _of_kernel(name, target.kernel), _of_kernel(version, target.kernel)
            if package is None or exact is None:
                full = f"{name}-{version}" if version else name
                yield target.unlisted(f"{full}: depends on the running kernel", "storage_client")
            elif package not in locked:
                yield MirrorItem("package", package, target.platform, exact, needed_by="storage_client")
    for named in site.named_storage():
        if named.storage.fstype == "wekafs":
            download = weka.installer(named, client_node.inputs.weka)
            yield MirrorItem(
                "file", "install", "", "", "", download.url, download.sha256,
                f"storage {named.name}, from its own servers",
            )  # fmt: skip


def _of_kernel(text: str, release: str | None) -> str | None:
    """The text with the kernel release filled in; None when the kernel is unknown.

    RHEL's kernel releases end with the processor architecture, package versions do not.
    """
    if KERNEL not in text:
        return text
    return text.replace(KERNEL, re.sub(r"(\.el\d\w*)\.\w+$", r"\1", release)) if release else None


def _of_slurm(target: Target) -> Iterator[MirrorItem]:
    site = target.site
    cluster = cluster_of(site.architecture, site.rack, read_inputs(site.node, SlurmInputs))
    if cluster is not None and is_member(cluster, site.node):
        # RHEL has no Slurm packages: they come from EPEL or the inventory's repository.
        where = "" if target.family == "rhel" else DISTRIBUTION
        yield from target.named(package_names(cluster, site.node, target.family), "slurm", where)


def _of_containers(target: Target) -> Iterator[MirrorItem]:
    declared = target.site.architecture.containers
    if declared is not None and set(declared.roles) & set(target.site.node.groups):
        for name in daemon.packages(declared.runtime, target.family):
            where = "" if name in daemon.FOREIGN.get(target.family, ()) else DISTRIBUTION
            yield from target.named((name,), "containers", where)


def _of_health_check(target: Target) -> Iterator[MirrorItem]:
    """Python, and every wheel that the kit needs on nodes."""
    site = target.site
    given = kit.inputs_of(site.node, site.settings.virtual)
    if not given.install or not kit.applies(site.architecture.slurm, site.node):
        return
    yield from target.named(kit.packages(given, target.family), "health_check")
    where = given.wheelhouse or "the package index"
    for requirement in kit.wheels():
        for file, sha256 in requirement.wheels:
            yield MirrorItem(
                "wheel", file, "", requirement.version, where, given.index_url or "", sha256, "health_check"
            )


CONTRIBUTORS: Final[Mapping[str, Contributor]] = {
    "base": _of_base,
    "versions": _of_versions,
    "nic": _of_adapters,
    "gpu": _of_gpus,
    "storage_client": _of_storage,
    "slurm": _of_slurm,
    "containers": _of_containers,
    "health_check": _of_health_check,
}
"""By domain: lists what a node installs and downloads beyond the URLs of its inputs.

A contributor may read the node's groups, the architecture, the machine, and the keys of ``INPUTS`` and ``FURTHER`` in
the inventory's data, but nothing else of the node: it is called once for all nodes that agree in these.
"""


def items_of(
    architecture: Architecture,
    node: Node,
    versions: VersionSet | None,
    rack: Rack | None = None,
    machine: Machine | None = None,
) -> Iterator[MirrorItem]:
    """Everything that a node may download. Raises InventoryError for inputs that cannot be used."""
    if versions:
        yield from of_versions(versions)
    for key, model in INPUTS.items():
        if key in node.data:
            yield from of_inputs(read_inputs(node, model).model_dump(mode="json"), key)
    try:
        site = Site(rack or Rack("", (node,)), architecture, node, settings_of(node, architecture))
        for target in _targets(site, versions, machine):
            for contributor in CONTRIBUTORS.values():
                yield from contributor(target)
    except VersionSetError as error:
        raise InventoryError(str(error)) from None
    except DeclarationError as error:
        raise InventoryError(f"{node.name}: {error}") from None
    yield unlisted(DEPENDENCIES, "", "packages")
    if machine is None and versions is None:
        yield unlisted(
            "the operating system is unknown: packages are listed with Debian's and with RHEL's names; versions_lock or"
            " a recording names it", "", "packages",
        )  # fmt: skip


def _targets(site: Site, versions: VersionSet | None, machine: Machine | None) -> Iterator[Target]:
    """Raises VersionSetError when the set has no platform for the machine."""
    if machine:
        name = f"{machine.os_id}-{machine.os_version}"
        if versions:
            name = platform_name(versions, machine.os_id, machine.os_version, machine.family)
        if not machine.family:
            raise DeclarationError(f"{machine.label}: no package manager is known for it")
        yield Target(site, machine.family, name, machine, versions.platforms[name] if versions else None)
    elif versions:
        for name, platform in versions.platforms.items():
            yield Target(site, "rhel" if is_rhel(name) else "debian", name, None, platform)
    else:
        yield from (Target(site, family, family) for family in ("debian", "rhel"))


def items_of_rack(
    rack: Rack,
    architecture_of: Callable[[Node], Architecture],
    versions_of: Callable[[Node], VersionSet | None],
    machine_of: Callable[[Node], Machine | None] = lambda _: None,
) -> Iterator[MirrorItem]:
    """Everything that a rack downloads; nodes that download the same are listed once. Raises InventoryError."""
    seen = set()
    for node in rack.nodes:
        architecture, versions, machine = architecture_of(node), versions_of(node), machine_of(node)
        inputs = {key: node.data[key] for key in (*INPUTS, *FURTHER) if key in node.data}
        like = (id(architecture), id(versions), node.groups, machine, json.dumps(inputs, sort_keys=True, default=str))
        if like not in seen:
            seen.add(like)
            yield from items_of(architecture, node, versions, rack, machine)
