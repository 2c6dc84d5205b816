"""Operations: ask with one fact, plan, and carry the plan out with one command.

Each yields nothing when the node already is as it shall be. Each refuses, on the one node that is concerned and with
one line that says why, when the node could not be read or when what it would overwrite is not the kit's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from pyinfra import logger
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host, state

from rackproof.configure import clock, facts, kernel
from rackproof.configure import drives as drive_plans
from rackproof.configure import files as file_plans
from rackproof.configure import mounts as mount_plans
from rackproof.configure import network as network_plans
from rackproof.configure import packages as package_plans
from rackproof.configure import units as unit_plans
from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.rollback.journal import file_line, unit_line, value_line
from rackproof.configure.rollback.run import journal_here

Commands = Generator[StringCommand, None, None]


def refuse(reason: str) -> Commands:
    """Fail this operation on this node. Raising would end the run for every node."""
    host.log(reason, logger.error)
    yield StringCommand("echo", QuoteString(reason), ">&2;", "exit 1")


def unreadable(what: str) -> Commands:
    return refuse(f"{what} could not be read, so nothing was changed")


@operation()
def packages(names: Sequence[str], family: str = "debian") -> Commands:
    """Install what is missing, all in one go. Nothing is ever upgraded or removed."""
    installed = host.get_fact(facts.InstalledPackages, packages_wanted=names, family=family)
    if installed is None:
        yield from unreadable("the list of installed packages")
        return
    missing = [name for name in names if name not in installed]
    if missing:
        yield StringCommand(package_plans.install_script(missing, family))
    else:
        host.noop(f"all {len(names)} packages are installed")


@operation()
def files(entries: Sequence[file_plans.Entry]) -> Commands:
    """Bring files, directories and blocks to their declared content, mode and owner.

    Units named by a file are marked; the next ``units`` or ``mounted`` operation restarts them.
    """
    yield from write_files(entries)


def file_states(entries: Sequence[file_plans.Entry]) -> dict[str, file_plans.FileState] | None:
    """What is at the entries' paths, with as much content as planning and showing them need."""
    texts = [
        entry.path
        for entry in entries
        if isinstance(entry, file_plans.RemoteFile) and (entry.block or (state.config.DIFF and not entry.secret))
    ]
    return host.get_fact(facts.FileStates, paths=[entry.path for entry in entries], texts=texts)


def write_files(
    entries: Sequence[file_plans.Entry], states: Mapping[str, file_plans.FileState] | None = None
) -> Commands:
    """The body of ``files``, for operations that learn their content at run time."""
    states = file_states(entries) if states is None else states
    if states is None:
        yield from unreadable("the state of the files")
        return
    try:
        plan = file_plans.plan_files(entries, states)
    except ValueError as error:
        yield from refuse(str(error))
        return
    if not plan:
        host.noop(f"all {len(entries)} files are as declared")
        return
    if state.config.DIFF:
        for line in file_plans.differences(plan, states):
            logger.info("  %s", line)
    for path in plan.paths:
        logger.debug("%s: %s changes", host.name, path)
    yield StringCommand(file_plans.apply_script(plan, journal_here()), _stdin=file_plans.archive(plan))


@operation()
def kernel_values(sysctl: Mapping[str, str], patterns: Mapping[str, str]) -> Commands:
    """Set values of the running kernel; the files that set them at boot are another operation's."""
    actual = host.get_fact(facts.KernelValues, sysctl=list(sysctl), patterns=list(patterns))
    if actual is None:
        yield from unreadable("the kernel's values")
        return
    plan = kernel.plan_values(sysctl, patterns, actual)
    if plan:
        kept = [value_line(setting.path, setting.expected) for setting in plan]
        yield StringCommand(journal_here().before(kept, kernel.write_script(plan)))
    else:
        host.noop("the kernel has all values")


@operation()
def units(wanted: Sequence[unit_plans.Unit], manager: Mapping[str, str] | None = None) -> Commands:
    """Enable, mask, start and restart units, and see to it that they have their effect."""
    found = host.get_fact(facts.UnitStates, wanted=list(wanted), manager=list(manager or {}))
    if found is None:
        yield from unreadable("the state of the units")
        return
    plan = unit_plans.plan_units(wanted, found, manager)
    if not plan:
        host.noop(f"all {len(wanted)} units are as declared")
        return
    for reason in plan.reasons:
        logger.debug("%s: %s", host.name, reason)
    yield StringCommand(journal_here().before(map(unit_line, plan.touched), plan.script))


@operation()
def time_followed() -> Commands:
    """Wait until the clock follows a time source; fail where it goes by itself. Changes nothing."""
    found = host.get_fact(facts.Synchronised)
    if found is None:
        yield from unreadable("the state of chrony")
    elif found:
        host.noop("the clock follows a time source")
    else:
        yield StringCommand(clock.wait_script())


@operation()
def ports(wanted: Sequence[network_plans.Port]) -> Commands:
    """Name, size and address the fabric ports, now and without a reboot."""
    links = host.get_fact(facts.Links, with_paths=any(port.path for port in wanted))
    if links is None:
        yield from unreadable("the network interfaces")
        return
    try:
        changes = network_plans.plan_ports(wanted, links)
    except network_plans.PortProblem as error:
        yield from refuse(str(error))
        return
    if changes:
        yield StringCommand(network_plans.apply_script(changes))
    else:
        host.noop("all fabric ports are as declared")


@operation()
def filesystem(drive: drive_plans.Drive) -> Commands:
    """Make a file system on a blank drive. A drive with anything else on it is never written to."""
    found = host.get_fact(facts.DriveState, device=drive.device)
    if found is None:
        yield from unreadable(f"the drive {drive.device}")
        return
    try:
        if drive_plans.needs_mkfs(drive, found):
            yield StringCommand(drive_plans.mkfs_script(drive, drive_plans.usable_device(drive.device, found)))
        else:
            host.noop(f"{found.devices[0]} carries {drive.fstype} '{drive.label}'")
    except drive_plans.ForeignDrive as error:
        yield from refuse(str(error))


def _kept_mounts(plan: mount_plans.MountPlan) -> list[str]:
    """What a rollback needs: what was mounted, and the units that go."""
    gone = [line for unit in plan.gone for line in (unit_line(unit), file_line(f"/etc/systemd/system/{unit}", None))]
    return [*(unit_line(mount.unit) for mount, _ in plan.changes), *gone]


@operation()
def mounted(wanted: Sequence[mount_plans.Mount], complete: bool = False) -> Commands:
    """Mount what is not mounted, and mount again what the kernel has with other options than declared.

    ``complete``: these are all network mounts of the node. What the kit has mounted beside them is unmounted.
    """
    table = host.get_fact(facts.MountTable)
    if table is None:
        yield from unreadable("the mount table")
        return
    plan = mount_plans.plan_mounts(wanted, table, complete)
    if not plan:
        host.noop(f"all {len(wanted)} mounts are in force")
        return
    for mount, reasons in plan.changes:
        logger.debug("%s: %s: %s", host.name, mount.where, "; ".join(reasons))
    for where in plan.gone.values():
        logger.debug("%s: %s: nobody declares it", host.name, where)
    yield StringCommand(journal_here().before(_kept_mounts(plan), mount_plans.apply_script(plan)))
    # The kernel may have mounted something else than it was asked for.
    table = host.get_fact(facts.MountTable) or mount_plans.Table()
    wrong = [
        f"{mount.where}: {'; '.join(found)}"
        for mount, _ in plan.changes
        if (found := mount_plans.mount_differences(mount, table.mounted.get(mount.where), table.transports))
    ]
    if wrong:
        yield from refuse(" | ".join(wrong))


@operation()
def unmounted(keep: Sequence[mount_plans.Mount]) -> Commands:
    """Unmount every network mount of the kit's that is not among those to keep, and remove its unit."""
    table = host.get_fact(facts.MountTable)
    if table is None:
        yield from unreadable("the mount table")
        return
    gone = mount_plans.plan_mounts(keep, table, complete=True).gone
    if gone:
        plan = mount_plans.MountPlan(gone=gone)
        yield StringCommand(journal_here().before(_kept_mounts(plan), mount_plans.apply_script(plan)))
    else:
        host.noop("nothing is mounted that should not be")


@operation()
def ceph_cluster(plan: ceph.CephPlan) -> Commands:
    """Make the Ceph cluster, or complete one whose making was interrupted. The bootstrap script must be there."""
    found = host.get_fact(facts.CephState)
    if found is None:
        yield from unreadable("the state of Ceph")
        return
    try:
        if ceph.is_set_up(plan, found):
            host.noop(f"Ceph cluster {plan.fsid} is there")
            return
        drive = host.get_fact(facts.DriveState, device=plan.drive)
        if drive is None:
            yield from unreadable(f"the drive {plan.drive}")
            return
        ceph.check_drive(plan, found, drive)
        yield StringCommand(ceph.bootstrap_command(plan.drive, drive))
    except (drive_plans.ForeignDrive, ceph.OtherCluster) as error:
        yield from refuse(str(error))


@operation()
def meet() -> Commands:
    """Nothing but an order: what stands before is finished on every node before what stands after begins.

    pyinfra keeps the order of what one node runs; operations that have no node in common may run in any order.
    """
    yield from ()


@operation()
def programs(names: Sequence[str]) -> Commands:
    """Fail on a node where a declared program is not there although its package is installed. Changes nothing."""
    found = host.get_fact(facts.Programs, programs=names)
    if found is None:
        yield from unreadable("the programs on PATH")
        return
    missing = [name for name in names if name not in found]
    # Before the run the packages may be missing still, and the programs with them.
    if missing and state.is_executing:
        yield from refuse(f"not on PATH: {', '.join(missing)}; add their package to the architecture")
    else:
        host.noop(f"all {len(names)} programs are there")
