"""Files, units, kernel values and limits that every node gets."""

from __future__ import annotations

from rackproof.configure.files import Absent, Entry
from rackproof.configure.kernel import CLOCK_SOURCE
from rackproof.configure.node import declared
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.node.settings import hugepages_at_boot
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.core.machine import Machine
from rackproof.core.updaters import UPDATERS

CHRONY = {"debian": ("/etc/chrony/chrony.conf", "chrony.service"), "rhel": ("/etc/chrony.conf", "chronyd.service")}
"""File and service by family."""
LEAP_LIST_SINCE_DEBIAN = 13
"""The first Debian with chrony 4.6."""
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
KERNEL_SERVICE = "rackproof-kernel.service"
SMT_CONTROL = "/sys/devices/system/cpu/smt/control"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"


def frozen(site: Site) -> bool:
    return site.architecture.system.unattended_upgrades == "frozen"


def leap_seconds(machine: Machine | None) -> str:
    """chrony's directive for the source of leap seconds, as the release's own chrony.conf has it.

    ``leapseclist`` came with chrony 4.6 (chrony's NEWS); an older chronyd does not start with it. Debian 12 has 4.3,
    Ubuntu 22.04 4.2 and 24.04 4.5, RHEL 9 began with 4.1. Every chronyd knows ``leapsectz``, and ignores, with a
    warning, a time zone that tzdata lacks; Debian 13's tzdata lacks ``right/UTC``.
    """
    if machine is not None and machine.os_id == "debian" and int(machine.major or 0) >= LEAP_LIST_SINCE_DEBIAN:
        return "leapseclist /usr/share/zoneinfo/leap-seconds.list"
    return "leapsectz right/UTC"


def time_files(site: Site, family: str, machine: Machine | None) -> tuple[Entry, ...]:
    """Without a time server in the rack and without upstreams chrony.conf is left to the site."""
    path, service = CHRONY[family]
    server, upstreams = site.first(site.architecture.system.time.server_role), site.settings.time_upstreams
    if server is None and not upstreams:
        return ()
    alone = {node.name for node in site.rack.nodes if not node.fabric_address()}
    conf = rendered(
        path,
        template=CHRONY["debian"][0],
        restart=(service,),
        serves=server == site.node,
        # By name, which the site resolves, where one of the two has no rail.
        server=server and (server.name if alone & {server.name, site.node.name} else server.fabric_address()),
        upstreams=upstreams,
        subnets=("all",) if alone else site.fabric_subnets,
        virtual=site.settings.virtual,
        leap_seconds=leap_seconds(machine),
    )
    return (conf,)


def files(
    site: Site, family: str = "debian", inputs: NodeInputs | None = None, machine: Machine | None = None
) -> tuple[Entry, ...]:
    system = site.architecture.system
    inputs = inputs or NodeInputs()
    apt = "/etc/apt/apt.conf.d/99-rackproof"
    own: tuple[Entry, ...] = ()
    if family == "debian":
        own = (rendered(apt) if frozen(site) else Absent(apt),)
    return (
        *time_files(site, family, machine),
        rendered("/etc/security/limits.d/60-rackproof.conf", limits=declared.login_limits(system, inputs)),
        rendered("/etc/systemd/system.conf.d/60-rackproof.conf", limits=declared.service_limits(system, inputs)),
        rendered("/etc/sysctl.d/60-rackproof.conf", sysctl=system.sysctl),
        rendered(
            f"/etc/systemd/system/{KERNEL_SERVICE}",
            values=kernel_patterns(site, inputs)
            | hugepages_at_boot(system.hugepages or {})
            | ({CLOCK_SOURCE: system.clock_source} if system.clock_source else {}),
        ),
        *own,
    )


def kernel_patterns(site: Site, inputs: NodeInputs | None = None) -> dict[str, str]:
    """Values by shell pattern below /sys; a pattern without a match (no frequency scaling in a guest) is ignored."""
    system = site.architecture.system
    values: dict[str, str] = {THP: system.transparent_hugepages}
    if system.cpu_governor:
        values[GOVERNOR] = system.cpu_governor
    if inputs and inputs.smt is not None:
        values[SMT_CONTROL] = "on" if inputs.smt else "off"
    return values


def updates(*, masked: bool, family: str = "debian") -> tuple[Unit, ...]:
    return tuple(Unit(name, enabled=None, running=None, masked=masked) for name in UPDATERS[family])


def units(site: Site, family: str = "debian") -> tuple[Unit, ...]:
    """Includes the updaters where they are allowed, so that they are unmasked again."""
    allowed = () if frozen(site) else updates(masked=False, family=family)
    return (Unit(CHRONY[family][1]), Unit(KERNEL_SERVICE), *allowed)


def manager_limits(site: Site, inputs: NodeInputs) -> dict[str, str]:
    """Properties of systemd's manager."""
    limits = declared.service_limits(site.architecture.system, inputs)
    return {f"DefaultLimit{name}": value for name, value in limits.items()}
