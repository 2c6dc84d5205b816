"""What every node needs: packages, time, limits, kernel settings, and nothing that changes it behind our back.

Takes effect at once; memory limits in logins and services that start afterwards. The same values are in files that
apply at boot. Swap is left as it is: whether a node has any is a question for its installation.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from deploys import templates
from rackproof.configure import operations, packages
from rackproof.configure.files import Absent, Entry, RemoteFile
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit

APT_TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
KERNEL_SERVICE = "rackproof-kernel.service"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"

DEFAULTS = {
    # Time servers outside the rack, for the node that serves the time inside. None: the rack keeps its own time.
    "time_upstreams": (),
}


@deploy("Base", data_defaults=DEFAULTS)
def base() -> None:
    site = here()
    operations.packages(
        name="Packages",
        names=packages.declared_packages(site.architecture, site.node),
    )
    operations.files(name="Files", entries=files(site, tuple(host.data.time_upstreams)))
    operations.kernel_values(
        name="Kernel values", sysctl=site.architecture.system.sysctl, patterns=kernel_patterns(site)
    )
    operations.units(name="Services", wanted=units(site), manager={"DefaultLimitMEMLOCK": manager_memlock(site)})


def files(site: Site, time_upstreams: tuple[str, ...] = ()) -> tuple[Entry, ...]:
    system = site.architecture.system
    server = site.first(system.time.server_role)
    serves = server == site.node or server is None
    apt = "/etc/apt/apt.conf.d/99-rackproof"
    frozen = system.unattended_upgrades == "frozen"
    return (
        RemoteFile(
            "/etc/chrony/chrony.conf",
            templates.text(
                "/etc/chrony/chrony.conf",
                serves=serves,
                server=server.fabric_address() if server else None,
                upstreams=time_upstreams,
                subnets=site.fabric_subnets,
                virtual=site.settings.virtual,
            ),
            restart=("chrony.service",),
        ),
        RemoteFile(
            "/etc/security/limits.d/60-rackproof.conf",
            templates.text("/etc/security/limits.d/60-rackproof.conf", memlock=system.limits_memlock),
        ),
        RemoteFile(
            "/etc/systemd/system.conf.d/60-rackproof.conf",
            templates.text("/etc/systemd/system.conf.d/60-rackproof.conf", memlock=_systemd_memlock(site)),
        ),
        RemoteFile(
            "/etc/sysctl.d/60-rackproof.conf",
            templates.text(
                "/etc/sysctl.d/60-rackproof.conf",
                architecture=site.architecture.metadata.id,
                sysctl=system.sysctl,
            ),
        ),
        RemoteFile(
            f"/etc/systemd/system/{KERNEL_SERVICE}",
            templates.text(f"/etc/systemd/system/{KERNEL_SERVICE}", values=kernel_patterns(site)),
        ),
        RemoteFile(apt, templates.text(apt)) if frozen else Absent(apt),
    )


def kernel_patterns(site: Site) -> dict[str, str]:
    """Files below /sys by shell pattern; what matches nothing (no frequency scaling in a guest) is left alone."""
    system = site.architecture.system
    values: dict[str, str] = {THP: system.transparent_hugepages}
    if system.cpu_governor:
        values[GOVERNOR] = system.cpu_governor
    return values


def units(site: Site) -> tuple[Unit, ...]:
    frozen = site.architecture.system.unattended_upgrades == "frozen"
    timers = tuple(Unit(timer, enabled=None, running=None, masked=frozen) for timer in APT_TIMERS)
    return (Unit("chrony.service"), Unit(KERNEL_SERVICE), *timers)


def _systemd_memlock(site: Site) -> str:
    """As systemd reads it."""
    memlock = site.architecture.system.limits_memlock
    return "infinity" if memlock == "unlimited" else f"{memlock}K"


def manager_memlock(site: Site) -> str:
    """As systemd reports it: bytes."""
    memlock = site.architecture.system.limits_memlock
    return "infinity" if memlock == "unlimited" else str(memlock * 1024)
