"""Conflicts between requirements of vendors, given the choices of the inventory for a node."""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.node.cmdline import proposals
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.preflight.problem import CONTRADICTION
from rackproof.configure.settings import read_inputs
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.plan import Problem
from rackproof.core.rack import Node
from rackproof.core.versions.choices import Choices
from rackproof.core.versions.conflicts import find_conflicts
from rackproof.core.versions.consistency import contradictions
from rackproof.core.versions.models import Components, VersionSet


def choices_of(node: Node, machine: Machine | None, architecture: Architecture) -> Choices:
    """Choices of the inventory for a node that matter for conflicts. Raises InventoryError."""
    given = read_inputs(node, NodeInputs)
    stack = read_inputs(node, GpuInputs)
    clients = read_inputs(node, StorageClientInputs)
    nic = read_inputs(node, NicInputs)
    proposed = proposals(machine, given.proposals) if machine is not None else ()
    mounted = [storage for role in node.groups for storage in architecture.client_storage(role).values()]
    asked = {"beegfs": clients.beegfs.gds, "gpfs": clients.scale.gds}
    cmdline = (*given.kernel_arguments, *proposed)
    weka = clients.weka if any(storage.fstype == "wekafs" for storage in mounted) else None
    slurm = architecture.slurm
    works = slurm is not None and slurm.set_up_on(node.groups)
    return Choices(
        cmdline=cmdline,
        driver_options={key: str(value) for key, value in stack.module_options.items()},
        nccl={key: str(value) for key, value in stack.nccl_conf.items()},
        switch_cnp_dscp=nic.switch_cnp_dscp,
        gds=any(asked.get(storage.fstype, False) for storage in mounted),
        secure_boot=machine.secure_boot if machine is not None else None,
        nfs_driver=clients.nfs.driver if any(storage.class_ == "nfs" for storage in mounted) else None,
        virtualised=given.passthrough or any(word.startswith("vfio-pci.ids=") for word in cmdline),
        weka_cores=(len(weka.cores) or weka.num_cores) if weka else 0,
        weka_cores_named=bool(weka and weka.cores),
        slurm_kept=len(read_inputs(node, SlurmInputs).cpu_spec_list) if works else None,
        roles=tuple(node.groups),
        nic_source=nic.source,
        pci_settings=tuple(key for key in ("max_read_request", "relaxed_ordering") if getattr(nic, key) is not None),
    )


def conflict_problems(architecture: Architecture, components: Components | None, choices: Choices) -> Iterator[Problem]:
    """One problem per conflict, with the id of its rule."""
    for conflict in find_conflicts(architecture, components, choices):
        one, other = conflict.one, conflict.other
        what = f"{one.party} wants {one.wants}, {other.party} wants {other.wants}: {conflict.consequence}"
        yield Problem(conflict.id, what, conflict.remedy)


def contradiction_problems(versions: VersionSet) -> Iterator[Problem]:
    """Contradictions within the version set, which no node can satisfy."""
    for contradiction in contradictions(versions):
        yield Problem(
            CONTRADICTION,
            f"versions_lock: {contradiction.platform}: {contradiction.key}: {contradiction.message}",
            contradiction.remedy,
        )
