"""What each domain downloads, for ``rackproof mirror list``.

A domain whose inputs have URLs names its model in ``INPUTS``; one that knows of more (images by tag, wheels) adds a
function to ``CONTRIBUTORS``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from rackproof.configure.packages import declared_packages
from rackproof.configure.settings import Inputs, inputs
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node
from rackproof.core.versions import VersionSet
from rackproof.core.versions.consistency import is_rhel
from rackproof.core.versions.mirror import MirrorItem, of_distribution, of_inputs, of_versions

INPUTS: Final[Mapping[str, str]] = {
    # key of the inventory's data: model whose URLs, its defaults included, a node asks for
    "gpu_stack": "rackproof.configure.gpu.inputs:GpuStack",
    "nic_stack": "rackproof.configure.nic.inputs:NicStack",
    "storage_clients": "rackproof.configure.storage.inputs:StorageClients",
    "slurm": "rackproof.configure.slurm.inputs:SlurmInputs",
    "containers": "rackproof.configure.containers.inputs:ContainerInputs",
    "health_check": "rackproof.configure.health.inputs:HealthInputs",
}

Contributor = Callable[[Architecture, Node], Iterable[MirrorItem]]
CONTRIBUTORS: Final[dict[str, Contributor]] = {}
"""Key of the inventory's data: what else a node downloads for it; see ``contributes``."""


def contributes(key: str) -> Callable[[Contributor], Contributor]:
    """Register a function that names what a node downloads beyond the URLs of its inputs."""

    def register(function: Contributor) -> Contributor:
        CONTRIBUTORS[key] = function
        return function

    return register


def items_of(architecture: Architecture, node: Node, versions: VersionSet | None) -> Iterator[MirrorItem]:
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
        yield from contributor(architecture, node)


def _model(named: str) -> type[Inputs]:
    module, _, name = named.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return found  # type: ignore[no-any-return]
