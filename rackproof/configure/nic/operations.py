"""Operations on adapters: ask, plan, carry out with one command, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof import shell
from rackproof.configure import facts as common
from rackproof.configure import kernel, network, operations
from rackproof.configure.carriers import Touched, of_driver
from rackproof.configure.files import REBOOT, reboot_mark
from rackproof.configure.machine import machine_here
from rackproof.configure.nic import devices, facts, links, ports, stack
from rackproof.configure.nic.declared_ports import DeclaredPort, adapter_paths
from rackproof.configure.operation import Commands, ask, operation, record, required
from rackproof.configure.rollback.run import carried_out, journaled
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.link_counters import BASELINE_FILE


@operation()
def adapters(
    wanted: Sequence[network.Port],
    declared: Mapping[str, str],
    others: Sequence[DeclaredPort] = (),
    uppers: Sequence[links.Upper] = (),
    addresses: Sequence[str] = (),
) -> None:
    """Refuse a node with an unknown adapter, without a rail's adapter, whose ports another tool manages as well, or
    that would lose an ssh session, the default route or an undeclared address.

    + wanted: ports of the rails
    + declared: kinds of adapters that the inventory names, by PCI ids (``nic.adapters``)
    + others: ports that are no rails; none of them may be in use under another name
    + uppers: bonds and VLANs
    + addresses: all declared addresses of the node

    Changes nothing.

    **Example:**

    .. code:: python

        nic.adapters(name="Adapters", wanted=site.ports, declared={"15b3:1021": "ConnectX-7"})
    """
    machine = required(machine_here(), "the machine")
    known = devices.adapters(machine, declared)
    missing = devices.missing_rails([port.path for port in wanted if port.path], machine, known)
    missing = missing or devices.missing_adapters(adapter_paths(others), "nic.ports", machine, known)
    if missing or (wanted and not known):
        raise Refused(missing or "no network adapter of NVIDIA's (15b3) in this machine; correct the inventory")
    everyone = (*wanted, *(declared_port.port for declared_port in others))
    by_path = any(port.path for port in everyone) or links.with_paths(uppers)
    present = ask(common.Links, "the network interfaces", with_paths=by_path)
    if problem := network.in_use([declared_port.port for declared_port in others], present):
        raise Refused(problem)
    with suppress(network.PortProblem):  # refused, or waited for, by the operation on ports
        operations.keep_up(network.touched(network.plan_ports(everyone, present)), addresses)
    with suppress(network.PortProblem):
        operations.keep_up(_touched_by(uppers, present), addresses)
    foreign = ask(facts.Foreign, "who else manages the ports", names=network.words_of(everyone, present))
    if problem := links.foreign_problem(foreign):
        raise Refused(problem)
    host.noop(f"{len(known)} adapter functions, all known")


def _touched_by(uppers: Sequence[links.Upper], present: Sequence[network.Link]) -> Touched:
    """Devices that bonds and VLANs disturb. Raises PortProblem."""
    if not uppers:
        return Touched()
    bonds = ask(facts.Bonds, "the bonds")
    return links.touched(links.plan_uppers(uppers, present, bonds))


@operation()
def remove_drivers(source: stack.Source, version: str | None, allowed: bool) -> Commands:
    """Remove an OFED that is not the declared one.

    + source: where the declared drivers come from (``doca``, ``mlnx_ofed``, ``inbox``)
    + version: the declared OFED release; None for any
    + allowed: False refuses the node instead of removing anything

    **Example:**

    .. code:: python

        nic.remove_drivers(name="Other drivers", source="doca", version="25.10", allowed=True)
    """
    installed = ask(facts.StackState, "the state of the adapters' drivers")
    plan = stack.plan_removal(source, version, installed, allowed)
    yield from journaled(plan, "no other drivers are installed")


@operation()
def drivers(source: stack.Source, dkms: Sequence[str], restart: bool, addresses: Sequence[str] = ()) -> Commands:
    """Load the drivers that are installed for the running kernel, or mark that a reboot loads them.

    + source: where the drivers come from
    + dkms: DKMS modules that must be built for the running kernel
    + restart: whether openibd may be restarted now, which ends every RDMA connection; otherwise the reboot loads them
    + addresses: all declared addresses of the node

    **Example:**

    .. code:: python

        nic.drivers(name="Drivers", source="doca", dkms=["mlnx-ofed-kernel"], restart=False)
    """
    installed = ask(facts.StackState, "the state of the adapters' drivers")
    try:
        plan = stack.plan_drivers(source, dkms, installed, restart)
    except Refused as error:
        if not state.is_executing:  # before the run the packages may be missing still
            host.noop(f"after the packages: {error}")
        elif not any(mark.startswith(f"{REBOOT}kernel ") for mark in installed.pending):
            raise
        elif f"{REBOOT}{stack.REASON}" not in installed.pending:
            # They are built for the kernel that the next start brings; the run after it says whether they fit.
            record([Change(what=str(error), why="another kernel comes with the reboot", reboot=stack.REASON)])
            yield StringCommand(reboot_mark(stack.REASON))
        else:
            host.noop(f"drivers ({source}) wait for the reboot, which brings another kernel")
        return
    if stack.restarts(source, installed, restart):
        carried = ask(common.Carriers, operations.CARRIED)
        operations.keep_up(of_driver(stack.DRIVER, carried), addresses)
    yield from journaled(plan, f"drivers ({source}) are in force")


@operation()
def rail_ports(
    wanted: Sequence[network.Port], manager: network.Manager = "networkd", addresses: Sequence[str] = ()
) -> Commands:
    """Name, size and address the rails and other ports, now and without a reboot.

    + wanted: ports as declared
    + manager: the node's network service (``networkd``, ``NetworkManager``)
    + addresses: declared addresses of the node beside the ports' own

    A port that only a reboot brings (another link type, other drivers) is waited for instead of refused.

    **Example:**

    .. code:: python

        nic.rail_ports(name="Ports", wanted=here().ports)
    """
    present = ask(common.Links, "the network interfaces", with_paths=any(port.path for port in wanted))
    try:
        changes = network.plan_ports(wanted, present)
    except network.PortProblem as error:
        if not _waits(f"{error}; the ports"):
            raise
        return
    operations.keep_up(network.touched(changes), [*addresses, *(port.address for port in wanted)])
    script = network.apply_script(changes, manager) if changes else ""
    yield from carried_out(script, [port.change for port in changes], "all ports are as declared")


@operation()
def rail_sysctl(wanted: Mapping[str, str]) -> Commands:
    """Set kernel values of ports; those of a port that only a reboot brings are left to the boot.

    + wanted: value by name

    **Example:**

    .. code:: python

        nic.rail_sysctl(name="Kernel values", wanted={"net.ipv4.conf.rail0.arp_ignore": "1"})
    """
    actual = ask(common.KernelValues, "the kernel's values", sysctl=list(wanted), patterns=[])
    plan = kernel.plan_values(wanted, {}, actual)
    if not (plan and state.is_executing and _waits("values of ports")):
        yield from journaled(kernel.write_plan(plan), "the kernel has all values")


def reboots(drivers_only: bool = False) -> tuple[str, ...]:
    """Reasons for a reboot that concern adapters."""
    marks = host.get_fact(common.Marks) or frozenset()
    about = tuple(f"{REBOOT}{begin}" for begin in (stack.REASON, *(() if drivers_only else ("NIC firmware",))))
    return tuple(sorted(mark.removeprefix(REBOOT) for mark in marks if mark.startswith(about)))


def _waits(what: str, drivers_only: bool = False) -> bool:
    """Whether a reboot that concerns adapters comes first; it is logged."""
    if waiting := reboots(drivers_only):
        host.noop(f"{what} wait for the reboot ({', '.join(waiting)})")
    return bool(waiting)


@operation()
def rail_tables(wanted: Mapping[str, links.RailRoute], manager: network.Manager) -> Commands:
    """Give each rail its routing table and its rule.

    + wanted: route by port name
    + manager: the node's network service

    **Example:**

    .. code:: python

        nic.rail_tables(name="Tables of rails", wanted=plan.rail_tables(site, declared), manager="NetworkManager")
    """
    tables = ask(facts.RailTables, "the routing tables")
    missing = links.missing_routes(wanted, *tables)
    if missing and state.is_executing and _waits("tables of rails"):
        return
    operations.keep_up(Touched(reconfigured=frozenset(missing)), ())
    script = links.apply_routes(missing, wanted, manager) if missing else ""
    changes = [Change(what=port, why=reason) for port, reason in missing.items()]
    yield from carried_out(script, changes, f"all {len(wanted)} rails have their tables")


@operation()
def upper_links(wanted: Sequence[links.Upper], manager: network.Manager, addresses: Sequence[str] = ()) -> Commands:
    """Bring bonds and VLANs up from files that an earlier operation wrote.

    + wanted: bonds and VLANs as declared
    + manager: the node's network service
    + addresses: declared addresses of the node beside those of bonds and VLANs

    **Example:**

    .. code:: python

        nic.upper_links(name="Bonds and VLANs", wanted=links.uppers(stack), manager="networkd")
    """
    present = ask(common.Links, "the network interfaces", with_paths=links.with_paths(wanted))
    bonds = ask(facts.Bonds, "the bonds")
    try:
        changes = links.plan_uppers(wanted, present, bonds)
    except network.PortProblem as error:
        if not _waits(f"{error}; bonds and VLANs"):
            raise
        return
    operations.keep_up(links.touched(changes), [*addresses, *(upper.address for upper in wanted if upper.address)])
    script = links.apply_uppers(changes, manager) if changes else ""
    shown = [Change(what=change.upper.name, why="; ".join(change.reasons)) for change in changes]
    yield from carried_out(script, shown, "all bonds and VLANs are as declared")


@operation()
def rdma_devices(wanted: Sequence[network.Port]) -> Commands:
    """Give RDMA devices the names of their ports, through the unit that does it at boot.

    + wanted: ports that name their RDMA device

    **Example:**

    .. code:: python

        nic.rdma_devices(name="RDMA devices", wanted=plan.rdma_ports(declared))
    """
    slots = ask(facts.Slots, "the RDMA devices")
    wrong = [port for port in wanted if slots.get(port.name) is None or slots.get(port.rdma) != slots.get(port.name)]
    if wrong and state.is_executing and _waits("RDMA devices"):
        return
    script = (
        "systemctl reset-failed rackproof-rdma-names.service 2>/dev/null; "
        "timeout 240 systemctl restart rackproof-rdma-names.service; /usr/local/sbin/rackproof-rdma-names check"
    )
    changes = [Change(what=port.name, why=f"its RDMA device becomes {port.rdma}") for port in wrong]
    yield from carried_out(script if wrong else "", changes, f"all {len(wanted)} RDMA devices have their names")


@operation()
def port_settings(wanted: Mapping[str, Mapping[str, str]], infiniband: bool = False) -> Commands:
    """Set what ports forget at every boot, through units that set it again at boot.

    + wanted: settings by port name
    + infiniband: whether the ports are InfiniBand's, which have a unit of their own

    **Example:**

    .. code:: python

        nic.port_settings(name="Port settings", wanted={"rail0": {"pfc": "0,0,0,1,0,0,0,0"}})
    """
    states = ask(facts.PortStates, "the state of the ports", ports=list(wanted))
    wrong = {
        name: reasons
        for name, values in wanted.items()
        if (reasons := ports.differences(name, values, states.get(name)))
    }
    absent = [name for name in wrong if name not in states or "absent" in states[name]]
    if wrong and state.is_executing and _waits(f"{', '.join(wrong)}: settings", drivers_only=not absent):
        return
    marks = ask(common.Marks, "what waits for a restart")
    stale = [name for name in wanted if f"restart:{ports.unit_of(name, infiniband)}" in marks]
    chosen = [name for name in wanted if name in wrong or name in stale]
    script = ports.apply_script(chosen, infiniband) if chosen else ""
    changes = [Change(what=reason) for reasons in wrong.values() for reason in reasons]
    yield from carried_out(script, changes, f"all {len(wanted)} ports have their settings")


@operation()
def zero_link_counters(names: Sequence[str]) -> Commands:
    """Start counting link errors and flaps at zero, once a boot: the present counts are kept, to be subtracted.

    + names: ports

    **Example:**

    .. code:: python

        nic.zero_link_counters(name="Link counters", names=["rail0", "rail1"])
    """
    baseline_kept = ask(facts.LinkBaseline, "the baseline of link counters")
    script = "" if baseline_kept else shell.script(__name__, "baseline", *names, baseline=BASELINE_FILE)
    changes = [Change(what="baseline of link counters", why="none since boot")]
    yield from carried_out(script, changes, "link counters began at zero in this boot")
