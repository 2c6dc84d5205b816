"""Preflight on the current node: read facts, check them, and stop before anything is changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import host

from rackproof.configure import facts
from rackproof.configure.driver_swap import pending
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.machine import machine_here
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.nic.declared import declared_here
from rackproof.configure.nic.facts import StackState
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.nic.stack import StackState as Drivers
from rackproof.configure.nic.stack import plan_removal
from rackproof.configure.node.declared import checked_only
from rackproof.configure.operation import note, operation, record_problems
from rackproof.configure.preflight import node as node_checks
from rackproof.configure.preflight import security
from rackproof.configure.preflight.claims import Claims, claimed, of_ports
from rackproof.configure.preflight.conflicts import choices_of, conflict_problems, contradiction_problems
from rackproof.configure.preflight.problem import (
    OTHER_DRIVERS,
    ROOM,
    UNREAD,
    PreflightInputs,
    check_accepted,
    divided,
    sentence,
    unread,
)
from rackproof.configure.preflight.rack import overlapping_storage, rack_problems
from rackproof.configure.preflight.state import NodeState, parse_state, state_command
from rackproof.configure.reboot.facts import DriverUse
from rackproof.configure.reboot.gpu_users import BUSY, obstacle
from rackproof.configure.rollback.run import TAKE_OVER, take_node, take_over_of, this_run
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.versions.facts import PackageStates
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.configure.versions.install import plan_install
from rackproof.configure.versions.site import packages_here, platform_here, versions_here
from rackproof.configure.versions.state import PackageState
from rackproof.core.machine import Machine
from rackproof.core.plan import Problem
from rackproof.core.versions import stage_components
from rackproof.core.versions.conflicts import RULES
from rackproof.errors import Refused

RECORDED = "recording_file"
"""Key of a node's data in recorded racks."""


PreflightState = facts.answer("PreflightState", state_command, parse_state)
"""Facts of preflight that no other operation reads."""

Security = facts.answer("Security", security.COMMAND, security.parse_state)
"""SELinux, firewalld and AppArmor."""


def preflight_inputs(site: Site) -> PreflightInputs:
    """The inventory's ``preflight``. Raises DeclarationError, one line."""
    inputs = read_inputs(site.node, PreflightInputs)
    check_accepted(inputs.accept, RULES)
    return inputs


_rack_problems: WeakKeyDictionary[Inventory, tuple[Problem, ...]] = WeakKeyDictionary()


def of_rack(site: Site) -> tuple[Problem, ...]:
    """Contradictions within the inventory, checked once in a run."""
    inventory: Inventory = host.inventory
    if inventory not in _rack_problems:
        servers = {address: name for name, storage in site.architecture.storage.items() for address in storage.servers}
        problems = (*rack_problems(site.rack, site.architecture), *overlapping_storage(servers, site.rack))
        _rack_problems[inventory] = problems
    return _rack_problems[inventory]


def of_vendors(site: Site) -> tuple[Problem, ...]:
    """Conflicts between architecture, version set and the inventory's choices. Raises DeclarationError."""
    platform = platform_here()
    choices = choices_of(site.node, machine_here(), site.architecture)
    return tuple(conflict_problems(site.architecture, platform.components if platform else None, choices))


def of_versions() -> tuple[Problem, ...]:
    """Contradictions within the current node's version set. Raises DeclarationError when it cannot be read."""
    versions = versions_here()
    return tuple(contradiction_problems(versions)) if versions is not None else ()


def of_node(site: Site, given: PreflightInputs, claims: Claims) -> tuple[Problem, ...]:
    """All problems of the current node; an unreadable fact is a problem too.

    Raises DeclarationError when the inventory contradicts itself.
    """
    machine = machine_here()
    mounts = site.client_mounts()
    # Sorted, so that nodes of one kind run the same fact command.
    state = host.get_fact(
        PreflightState, paths=sorted(given.free_mib), mountpoints=sorted(mount.where for mount in mounts)
    )
    return (
        *judged(site, given, machine, state, mounts),
        *_in_the_way(site, machine, claims),
        *_forbidden(site, machine),
    )


def _forbidden(site: Site, machine: Machine | None) -> tuple[Problem, ...]:
    """Problems with SELinux, firewalld and AppArmor. Raises DeclarationError."""
    if machine is None or not security.concerned(machine, site.architecture, site.node):
        return ()
    answer = host.get_fact(Security)
    if answer is None:
        return (unread("SELinux, firewalld and AppArmor"),)
    slurm = read_inputs(site.node, SlurmInputs)
    ports = declared_here().addressed() if pending.has_adapters(site) else site.ports
    return tuple(security.problems(answer, site.architecture, site.node, ports, slurm))


def _in_the_way(site: Site, machine: Machine | None, claims: Claims) -> list[Problem]:
    """Problems at which later operations of the deploy would stop, from their own facts."""
    problems: list[Problem] = []
    if machine is None or machine.family not in ("debian", "rhel"):
        return problems
    problems += claimed(claims)
    packages = packages_here("all")
    state: PackageState | None = None
    drivers: Drivers | None = None
    if packages:
        policy = read_inputs(site.node, VersionInputs).policy
        state = host.get_fact(PackageStates, names=[package.name for package in packages], family=machine.family)
        problems += (
            [unread("installed packages")]
            if state is None
            else node_checks.refusal(ROOM, plan_install, packages, state, machine.family, policy)
        )
    if pending.has_adapters(site):
        declared = declared_here()
        problems += of_ports(declared.ports, machine, declared.stack.adapters)
        if declared.drivers:
            drivers = host.get_fact(StackState)
            source, ofed, allowed = declared.source, declared.ofed, declared.stack.remove_old
            problems += (
                [unread("drivers of the adapters")]
                if drivers is None
                else node_checks.refusal(OTHER_DRIVERS, plan_removal, source, ofed, drivers, allowed)
            )
    if any(problem.id == UNREAD for problem in problems):
        return problems
    return [*problems, *_busy(site, pending.pending_swaps(site, machine, state, drivers))]


def _busy(site: Site, due: Sequence[str] | None) -> list[Problem]:
    """Programs and jobs that use drivers that would be replaced; read only when something would be."""
    if not due:
        return [unread("driver and network stack")] if due is None else []
    use = host.get_fact(DriverUse, node=site.node.name)
    if use is None:
        return [unread("programs and jobs that use the GPUs")]
    busy = obstacle(use, due, site.in_slurm)
    return [Problem(BUSY, *busy)] if busy else []


def judged(
    site: Site, given: PreflightInputs, machine: Machine | None, state: NodeState | None, mounts: Sequence[DesiredMount]
) -> list[Problem]:
    problems: list[Problem] = []
    if machine is None:
        problems.append(unread("operating system and PCI devices"))
    else:
        problems += node_checks.os_problems(machine)
        problems += node_checks.secure_boot_problems(machine, site.architecture)
        problems += _hardware(site, machine)
        if site.in_slurm:
            problems += node_checks.slurm_problems(machine, site.architecture, packages_here("all"))
    if state is None:
        problems.append(unread("name, clock, free space, package manager and mounts"))
    else:
        now = None if site.node.data.get(RECORDED) else time.time()
        problems += node_checks.state_problems(site.node.name, state, given, now)
        problems += node_checks.mount_problems(mounts, state)
        own = (this_run(), take_over_of(site.node.data.get(TAKE_OVER)))
        problems += node_checks.run_problems(state, own)
    return problems


def _hardware(site: Site, machine: Machine) -> list[Problem]:
    problems: list[Problem] = []
    if declared := site.real_gpus:
        stack = read_inputs(site.node, GpuInputs)
        platform = platform_here()
        locked = platform.components.driver if platform else None
        problems += node_checks.gpu_problems(machine, declared, stack, locked)
    if pending.has_adapters(site):
        nic = read_inputs(site.node, NicInputs)
        problems += node_checks.nic_problems(machine, site.architecture, site.node, nic.adapters)
    return problems


_logged: WeakKeyDictionary[State, set[str]] = WeakKeyDictionary()
"""Lines that concern many nodes and are logged once in a run."""


def _checked_only(site: Site) -> tuple[str, ...]:
    """A line with the properties that the architecture declares but no deploy sets on this node."""
    system, groups = site.architecture.system, site.node.groups
    machine, platform = machine_here(), platform_here()
    components = stage_components(platform, "all", machine, groups) if platform and machine else ()
    files = {file.path for _, component in components for file in component.files}
    dkms = {name for _, component in components for name in component.dkms}
    if site.real_gpus:
        dkms.add("nvidia")
    line = checked_only(system, {package.name for package in packages_here("all")}, files, dkms)
    return (line,) if line else ()


def _once(lines: Sequence[str]) -> list[str]:
    """Lines that were not logged in this run yet."""
    shown = _logged.setdefault(host.state, set())
    new = [line for line in lines if line not in shown]
    shown.update(new)
    return new


@operation()
def checks(site: Site, given: PreflightInputs, claims: Claims, accepted_of_rack: Sequence[Problem] = ()) -> None:
    """Refuse a node that has a problem which the inventory does not accept, or that another run holds. Changes nothing.

    + site: the node, its rack and its architecture
    + given: the inventory's ``preflight``
    + claims: drives that the deploys write to
    + accepted_of_rack: accepted problems of the whole rack

    **Example:**

    .. code:: python

        operations.checks(name="Checks", site=site, given=inputs, claims=claims_of(site))
    """
    if host.state.is_executing and (reason := take_node()):
        raise Refused(f"not begun: {reason}")
    stopping, accepted = divided(of_node(site, given, claims), given.accept)
    if not host.state.is_executing:
        for problem in (*accepted_of_rack, *accepted):
            note(problem.line)
        for line in _once(_checked_only(site)):
            note(line)
    record_problems((*stopping, *accepted_of_rack, *accepted))
    if stopping:
        raise Refused(f"not begun: {sentence(stopping)}")
    else:
        host.noop(f"no problems{f', {len(accepted)} accepted' if accepted else ''}")
