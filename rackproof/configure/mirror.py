"""What each domain downloads, for ``rackproof mirror list``.

A domain whose inputs have URLs names its model in ``INPUTS``; one that downloads more (from a storage's own servers,
from a package index) has a function here that ``contributes``.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from rackproof.configure.health.inputs import HealthInputs
from rackproof.configure.health.kit import requirements
from rackproof.configure.packages import declared_packages
from rackproof.configure.settings import Inputs, inputs
from rackproof.configure.storage import weka
from rackproof.configure.storage.client import Named, NoClient
from rackproof.configure.storage.inputs import StorageClients
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.core.versions import VersionSet
from rackproof.core.versions.consistency import is_rhel
from rackproof.core.versions.mirror import MirrorItem, of_distribution, of_inputs, of_versions
from rackproof.errors import InventoryError

INPUTS: Final[Mapping[str, str]] = {
    # key of the inventory's data: model whose URLs, its defaults included, a node asks for
    "gpu_stack": "rackproof.configure.gpu.inputs:GpuStack",
    "nic_stack": "rackproof.configure.nic.inputs:NicStack",
    "storage_clients": "rackproof.configure.storage.inputs:StorageClients",
    "slurm": "rackproof.configure.slurm.inputs:SlurmInputs",
    "containers": "rackproof.configure.containers.inputs:ContainerInputs",
    "health_check": "rackproof.configure.health.inputs:HealthInputs",
}

Contributor = Callable[[Architecture, Node, Rack], Iterable[MirrorItem]]
CONTRIBUTORS: Final[dict[str, Contributor]] = {}
"""Key of the inventory's data: what else a node downloads for it; see ``contributes``."""


def contributes(key: str) -> Callable[[Contributor], Contributor]:
    """Register a function that names what a node downloads beyond the URLs of its inputs.

    It may look at the node's groups, the architecture and the inputs under its key, at nothing else of the node.
    """

    def register(function: Contributor) -> Contributor:
        CONTRIBUTORS[key] = function
        return function

    return register


@contributes("storage_clients")
def _of_storage(architecture: Architecture, node: Node, rack: Rack) -> Iterator[MirrorItem]:
    """Installers that a storage's own servers hand out."""
    given = inputs(node, "storage_clients", StorageClients)
    for name, storage in architecture.storage.items():
        if storage.fstype != "wekafs" or not any(role in node.groups for role in storage.client_roles):
            continue
        servers = rack.storage_addresses(storage.servers, storage.server_role, False)
        try:
            download = weka.installer(Named(name, storage, servers), given.weka)
        except NoClient as error:
            raise InventoryError(f"{node.name}: {error}") from None
        yield MirrorItem(
            "file", "install", "", "", "", download.url, download.sha256, f"storage {name}, by its own servers"
        )


@contributes("health_check")
def _of_health_check(architecture: Architecture, node: Node, rack: Rack) -> Iterator[MirrorItem]:
    """Wheels of the kit on the nodes, and what these need in turn, for the node's Python."""
    given = inputs(node, "health_check", HealthInputs)
    if architecture.slurm is None or not given.install:
        return
    where = given.wheelhouse or "the package index"
    for line in requirements():
        name, version = re.match(r"([A-Za-z0-9._-]+)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
        yield MirrorItem("wheel", name, "", version.strip(), where, given.index_url or "", "", "health_check")


def items_of(
    architecture: Architecture, node: Node, versions: VersionSet | None, rack: Rack | None = None
) -> Iterator[MirrorItem]:
    """Everything that a node may download. Raises InventoryError for inputs that cannot be used."""
    platforms = tuple(versions.platforms) if versions else ("",)
    for platform in platforms:
        family = "rhel" if is_rhel(platform) else "debian"
        locked: set[str] = set()
        if versions:
            components = versions.platforms[platform].components
            locked = {package for _, each in components.named() for package in each.packages}
        names = declared_packages(architecture, node, family)
        yield from of_distribution((name for name in names if name not in locked), platform)
    if versions:
        yield from of_versions(versions)
    for key, model in INPUTS.items():
        if key in node.data:
            yield from of_inputs(inputs(node, key, _model(model)).model_dump(mode="json"), key)
    for contributor in CONTRIBUTORS.values():
        yield from contributor(architecture, node, rack or Rack("", (node,)))


def items_of_rack(
    rack: Rack, architecture_of: Callable[[Node], Architecture], versions_of: Callable[[Node], VersionSet | None]
) -> Iterator[MirrorItem]:
    """Everything that a rack downloads, nodes that say the same looked at once. Raises InventoryError."""
    seen = set()
    for node in rack.nodes:
        architecture, versions = architecture_of(node), versions_of(node)
        said = {key: node.data[key] for key in (*INPUTS, *CONTRIBUTORS, "scratch_drives") if key in node.data}
        like = (id(architecture), id(versions), node.groups, json.dumps(said, sort_keys=True, default=str))
        if like not in seen:
            seen.add(like)
            yield from items_of(architecture, node, versions, rack)


def _model(named: str) -> type[Inputs]:
    module, _, name = named.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return found  # type: ignore[no-any-return]
