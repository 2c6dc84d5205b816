"""Operations: ask one fact, plan, and send one command.

An operation sends nothing to a node that is as declared. It refuses a node that could not be read, or on which it would
overwrite what is not the kit's; the other nodes go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from weakref import WeakKeyDictionary

from pyinfra.api.command import StringCommand
from pyinfra.api.state import State
from pyinfra.context import host, state

from rackproof.configure import carriers, clock, facts, kernel
from rackproof.configure import drives as drive_plans
from rackproof.configure import files as file_plans
from rackproof.configure import mounts as mount_plans
from rackproof.configure import network as network_plans
from rackproof.configure import packages as package_plans
from rackproof.configure import units as unit_plans
from rackproof.configure.carriers import Touched
from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.declarations import Declared
from rackproof.configure.operation import Commands, ask, note, operation, operation_here, record
from rackproof.configure.rollback.journal import file_line, unit_line
from rackproof.configure.rollback.run import carried_out, journal_here, journaled
from rackproof.configure.versions.site import policy_here
from rackproof.core.plan import Change
from rackproof.core.programs import PACKAGED
from rackproof.errors import Refused

_declared: WeakKeyDictionary[State, defaultdict[str, Declared]] = WeakKeyDictionary()
"""Declarations of a run while it is planned, by node: a contradiction ends it before anything is touched."""
CARRIED = "sessions, routes and addresses of the network devices"
"""Name of ``facts.Carriers`` in messages."""


@operation()
def refused(reason: str) -> Commands:
    """Refuse this node; other nodes go on.

    + reason: one line

    **Example:**

    .. code:: python

        operations.refused(name="Machine", reason="PCI devices could not be read")
    """
    raise Refused(reason)


@operation()
def packages(names: Sequence[str], family: str = "debian") -> Commands:
    """Install missing packages in one transaction. Installed packages stay at their version.

    + names: packages
    + family: ``debian`` or ``rhel``

    **Example:**

    .. code:: python

        operations.packages(name="Packages", names=["chrony", "fio"])
    """
    installed = ask(facts.InstalledPackages, "the list of installed packages", packages=names, family=family)
    missing = [name for name in names if name not in installed]
    script = package_plans.install_script(missing, family, policy_here()) if missing else ""
    changes = [Change(what=name, why="not installed") for name in missing]
    yield from carried_out(script, changes, f"all {len(names)} packages are installed")


@operation()
def files(entries: Sequence[file_plans.Entry]) -> Commands:
    """Bring files, directories and blocks to their declared content, mode and owner.

    Units named by a file are marked; the next ``units`` or ``mounted`` operation restarts them.

    + entries: files, directories, blocks of files, and paths that must not exist

    **Example:**

    .. code:: python

        operations.files(name="Message", entries=[RemoteFile("/etc/motd", "Node of a test rack\\n")])
    """
    yield from write_files(entries)


def file_states(
    entries: Sequence[file_plans.Entry], what: str = "the state of the files"
) -> dict[str, file_plans.FileState]:
    """States at the entries' paths, with the content that planning and differences need. Raises ``Unreadable``."""
    texts = [
        entry.path
        for entry in entries
        if isinstance(entry, file_plans.RemoteFile) and (entry.block or (state.config.DIFF and not entry.secret))
    ]
    return ask(facts.FileStates, what, paths=[entry.path for entry in entries], texts=texts)


def write_files(
    entries: Sequence[file_plans.Entry], states: Mapping[str, file_plans.FileState] | None = None
) -> Commands:
    """The body of ``files``, for operations that compute the content at run time."""
    if not host.state.is_executing:
        _declared.setdefault(host.state, defaultdict(Declared))[host.name].add(entries, operation_here())
    states = file_states(entries) if states is None else states
    plan = file_plans.plan_files(entries, states)
    if not plan:
        host.noop(f"all {len(entries)} files are as declared")
        return
    record(file_plans.changes(plan, states, shown=state.config.DIFF))
    yield StringCommand(file_plans.apply_script(plan, journal_here()), _stdin=file_plans.archive(plan))


@operation()
def kernel_values(sysctl: Mapping[str, str], patterns: Mapping[str, str]) -> Commands:
    """Set values of the running kernel. ``operations.files`` writes the files that set them at boot.

    + sysctl: value by key
    + patterns: value by path below /sys or /proc; the path may be a shell pattern

    **Example:**

    .. code:: python

        operations.kernel_values(name="Kernel", sysctl={"vm.swappiness": "1"}, patterns={})
    """
    actual = ask(facts.KernelValues, "the kernel's values", sysctl=list(sysctl), patterns=list(patterns))
    plan = kernel.write_plan(kernel.plan_values(sysctl, patterns, actual))
    yield from journaled(plan, "the kernel has all values")


@operation()
def units(wanted: Sequence[unit_plans.Unit], manager: Mapping[str, str] | None = None) -> Commands:
    """Enable, mask, start and restart units, then test that they work.

    + wanted: desired states
    + manager: properties of systemd itself, such as ``DefaultLimitMEMLOCK``

    **Example:**

    .. code:: python

        operations.units(name="Units", wanted=[Unit("chrony.service")])
    """
    states = ask(facts.UnitStates, "the state of the units", units=list(wanted), manager=list(manager or {}))
    yield from journaled(unit_plans.plan_units(wanted, states, manager), f"all {len(wanted)} units are as declared")


@operation()
def time_followed() -> Commands:
    """Wait until the clock follows a time source; fail when it does not. Changes nothing.

    **Example:**

    .. code:: python

        operations.time_followed(name="Clock")
    """
    script = "" if ask(facts.Synchronised, "the state of chrony") else clock.wait_script()
    yield from carried_out(script, (), "the clock follows a time source")


def keep_up(touched: Touched, declared: Collection[str]) -> None:
    """Refuse a change that would take down a device that carries an ssh session, the default route or an address that
    is not among ``declared``. Every network change asks this before it begins. Raises Refused, also for an unreadable
    node."""
    if not touched:
        return
    actual = ask(facts.Carriers, CARRIED)
    if problem := carriers.needs(touched, actual, declared):
        raise Refused(problem)


@operation()
def addressed(wanted: Sequence[network_plans.Port]) -> None:
    """Refuse a node on which ports lack their addresses. Changes nothing.

    + wanted: ports of the fabric

    **Example:**

    .. code:: python

        operations.addressed(name="Addresses", wanted=here().ports)
    """
    links = ask(facts.Links, "the network interfaces", with_paths=any(port.path for port in wanted))
    addresses = {address for link in links for address in link.addresses}
    missing = [f"{port.name} {port.address}" for port in wanted if port.address and port.address not in addresses]
    if missing:
        raise Refused(f"the fabric's addresses are missing ({', '.join(missing)}): run deploys/fabric.py first")
    host.noop("all rails have their addresses")


@operation()
def mounts_needed(paths: Sequence[str]) -> None:
    """Refuse a node on which nothing is mounted at a path: folders made there would be on its own drive. Changes
    nothing.

    + paths: mount points of storage clients

    **Example:**

    .. code:: python

        operations.mounts_needed(name="Shared storage", paths=["/mnt/shared"])
    """
    table = ask(facts.MountTable, "the mount table")
    if missing := [path for path in paths if path not in table.mounted]:
        raise Refused(f"not mounted: {', '.join(missing)}: run deploys/storage_client.py first")
    host.noop(f"{len(paths)} mounts are there")


@operation()
def programs_needed(names: Sequence[str], by: str) -> None:
    """Refuse a node that lacks a program which another deploy installs. Changes nothing.

    + names: programs that should be on PATH
    + by: the deploy file that installs them

    **Example:**

    .. code:: python

        operations.programs_needed(name="GPU driver", names=["nvidia-smi"], by="deploys/gpu.py")
    """
    present = ask(facts.Programs, "the programs on PATH", programs=names, family="debian")
    if missing := [name for name in names if name not in present]:
        raise Refused(f"not installed: {', '.join(missing)}: run {by} first")
    host.noop(f"{', '.join(names)}: installed")


@operation()
def filesystem(drive: drive_plans.Drive) -> Commands:
    """Make a file system on a blank drive. A drive that holds anything else is refused.

    + drive: device, label and type of the file system

    **Example:**

    .. code:: python

        operations.filesystem(name="Scratch", drive=Drive("/dev/nvme0n1", "scratch", "xfs"))
    """
    actual = ask(facts.DriveState, f"the drive {drive.device}", device=drive.device)
    script = drive_plans.mkfs_script(drive, actual.devices[0]) if drive_plans.needs_mkfs(drive, actual) else ""
    device, content = actual.devices[0], f"{drive.fstype} '{drive.label}'"
    yield from carried_out(
        script, [Change(what=device, why=f"blank, becomes {content}")], f"{device} carries {content}"
    )


def _change_mounts(plan: mount_plans.MountPlan) -> Commands:
    """A rollback restores mounts that change, and units that are removed."""
    record(Change(what=mount.where, why="; ".join(reasons)) for mount, reasons in plan.changes)
    record(Change(what=where, why="not declared") for where in plan.gone.values())
    gone = [line for unit in plan.gone for line in (unit_line(unit), file_line(f"/etc/systemd/system/{unit}", None))]
    kept = [*(unit_line(mount.unit) for mount, _ in plan.changes), *gone]
    yield StringCommand(journal_here().before(kept, mount_plans.apply_script(plan)))


@operation()
def mounted(wanted: Sequence[mount_plans.DesiredMount], complete: bool = False) -> Commands:
    """Mount declared mounts, and remount those that the kernel has with other options.

    + wanted: desired states of mounts
    + complete: ``wanted`` lists all network mounts of the node; the kit's other mounts are unmounted

    **Example:**

    .. code:: python

        operations.mounted(name="Mounts", wanted=here().client_mounts(), complete=True)
    """
    table = ask(facts.MountTable, "the mount table")
    plan = mount_plans.plan_mounts(wanted, table, complete)
    if not plan:
        host.noop(f"all {len(wanted)} mounts are in force")
        return
    yield from _change_mounts(plan)
    # The kernel may have applied other options than requested.
    table = host.get_fact(facts.MountTable) or mount_plans.Table()
    wrong = [
        f"{mount.where}: {'; '.join(differences)}"
        for mount, _ in plan.changes
        if (differences := mount_plans.mount_differences(mount, table.mounted.get(mount.where), table.transports))
    ]
    if wrong:
        raise Refused(" | ".join(wrong))


@operation()
def unmounted(keep: Sequence[mount_plans.DesiredMount]) -> Commands:
    """Unmount the kit's network mounts that are not declared, and remove their units.

    + keep: declared mounts

    **Example:**

    .. code:: python

        operations.unmounted(name="Old mounts", keep=here().client_mounts())
    """
    table = ask(facts.MountTable, "the mount table")
    gone = mount_plans.plan_mounts(keep, table, complete=True).gone
    if gone:
        yield from _change_mounts(mount_plans.MountPlan(gone=gone))
    else:
        host.noop("nothing is mounted that should not be")


@operation()
def ceph_cluster(plan: ceph.CephPlan) -> Commands:
    """Make the Ceph cluster, or complete one that was interrupted. The bootstrap script must be installed.

    + plan: node, drive and settings of the cluster

    **Example:**

    .. code:: python

        operations.ceph_cluster(name="Cluster", plan=cluster_plan(here()))
    """
    actual = ask(facts.CephState, "the state of Ceph")
    if ceph.is_set_up(plan, actual):
        host.noop(f"Ceph cluster {plan.fsid} is there")
        return
    drive = ask(facts.DriveState, f"the drive {plan.drive}", device=plan.drive)
    ceph.check_drive(plan, actual, drive)
    record([Change(what=f"Ceph cluster {plan.fsid}", why="not set up")])
    yield StringCommand(ceph.bootstrap_command(plan.drive, drive))


@operation()
def meet() -> Commands:
    """Barrier: operations before it finish on all nodes before those after it begin. Changes nothing.

    pyinfra keeps the order of the operations of one node; operations without a node in common may run in any order.

    **Example:**

    .. code:: python

        operations.meet(name="All nodes are ready")
    """
    yield from ()


@operation()
def programs(names: Sequence[str], family: str = "debian") -> None:
    """Name the declared programs that a node lacks after its packages are installed. Changes and refuses nothing.

    A node without them is deployed, can reboot and be used; the check ``tools.present`` fails, and what they measure
    stays UNMEASURED.

    + names: programs that should be on PATH
    + family: ``debian`` or ``rhel``, whose packages install some outside PATH

    **Example:**

    .. code:: python

        operations.programs(name="Programs", names=["fio", "iperf3"])
    """
    present = ask(facts.Programs, "the programs on PATH", programs=names, family=family)
    missing = [name for name in names if name not in present]
    # While planning, the packages with these programs may not be installed yet.
    if missing and state.is_executing:
        packaged = [name for name in missing if name in PACKAGED]
        sources = [name for name in missing if name not in PACKAGED]
        hints = (
            f"{', '.join(packaged)}: add the package to tools.packages of the architecture" if packaged else "",
            f"{', '.join(sources)}: no package has it; build it, and link it into /usr/local/bin" if sources else "",
        )
        note(f"not on PATH: {'; '.join(filter(None, hints))}")
    host.noop(f"{len(names) - len(missing)} of {len(names)} programs are there")
