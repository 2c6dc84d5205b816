"""Runtimes that give GPUs to containers, and the unit that writes the CDI specification."""

from __future__ import annotations

from rackproof.configure.files import RemoteFile
from rackproof.configure.gpu import runtimes
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site


def applies(site: Site) -> bool:
    """Whether the node has real GPUs and hands them out to containers. Raises DeclarationError."""
    if not site.has_role("gpu"):
        return False
    stack = read_inputs(site.node, GpuInputs)
    runtimes_with_gpus = handing_out(site, stack)
    return site.real_gpus is not None and bool(runtimes_with_gpus or stack.container_toolkit is not None)


def handing_out(site: Site, stack: GpuInputs) -> tuple[str, ...]:
    """Runtimes that give GPUs to containers on this node. Raises DeclarationError."""
    return runtimes.handing_out(site.architecture.containers, site.node.groups, stack)


def owned(site: Site) -> tuple[str, ...]:
    """The runtime that the architecture promises with GPUs; the deploy of containers writes its configuration."""
    return runtimes.owned(site.architecture.containers, site.node.groups)


def cdi_unit() -> RemoteFile:
    return rendered(f"/etc/systemd/system/{runtimes.CDI_SERVICE}")
