"""Settings, files and units of real adapters."""

from __future__ import annotations

from pyinfra import logger

from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.network import Port
from rackproof.configure.nic import declared_ports, infiniband, link_files, links, ports, stack
from rackproof.configure.nic.declared import Declared, uses_adapters_here
from rackproof.configure.shared_files import boot_modules, rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError

NAMES = "/usr/local/sbin/rackproof-rdma-names"
NAMES_UNIT = "rackproof-rdma-names.service"
ACS = "/usr/local/sbin/rackproof-acs"
ACS_UNIT = "rackproof-acs.service"


def why_nothing(site: Site) -> str | None:
    """Raises DeclarationError where the inventory contradicts itself."""
    fabric = site.architecture.fabric
    if fabric is None or fabric.kind == "soft-roce":
        return f"the architecture has {'Soft-RoCE' if fabric else 'no fabric'}, no adapters"
    return None if uses_adapters_here(site) else "declares no adapters"


def port_settings(site: Site, declared: Declared) -> dict[str, dict[str, str]]:
    """Settings, by name, that ports and bonds that RoCE runs over forget at boot; those without any are left out.

    Raises DeclarationError where architecture and inventory contradict.
    """
    fabric = site.fabric
    runs = declared.stack.subnet_manager
    if fabric.subnet_manager is not None and fabric.subnet_manager != runs and (site.ports or runs):
        # The inventory decides where it runs; the architecture only that it runs nowhere, or everywhere.
        raise DeclarationError(
            f"fabric.subnet_manager is {str(fabric.subnet_manager).lower()}, the inventory's"
            f" nic.subnet_manager {str(runs).lower()}: correct one"
        )
    return declared_ports.settings(declared.ports, fabric, declared.stack, declared.nvidia)


def settings_by_link_layer(site: Site, declared: Declared) -> list[tuple[bool, dict[str, dict[str, str]]]]:
    """``port_settings`` of Ethernet ports, then of InfiniBand; neither where it has none. First: whether InfiniBand."""
    settings = port_settings(site, declared)
    parts = [
        (infiniband, {name: settings[name] for name in settings if declared.is_infiniband(name) == infiniband})
        for infiniband in (False, True)
    ]
    return [(infiniband, part) for infiniband, part in parts if part]


def counted_ports(declared: Declared) -> list[str]:
    """Ports whose link counters begin at zero: NVIDIA's, where the inventory asks for it."""
    ports = declared.ports if declared.stack.zero_link_counters else ()
    return [declared_port.port.name for declared_port in ports if declared_port.of_nvidia]


def addresses(declared: Declared) -> tuple[str, ...]:
    """All addresses that the inventory declares for ports, bonds, VLANs and partitions of the node."""
    stack = declared.stack
    own = [port.address for port in declared.addressed()]
    own += [upper.address for upper in links.uppers(stack) if upper.address]
    return (*own, *(str(address) for child in stack.pkeys for address in child.addresses))


def rdma_ports(declared: Declared) -> tuple[Port, ...]:
    """Ports whose RDMA device is named."""
    return tuple(declared_port.port for declared_port in declared.ports if declared_port.port.rdma)


def acs_unit(site: Site, declared: Declared) -> str | None:
    """PCIe access control that the unit sets; None where nothing is declared, or the kernel command line does it.

    ``disable_acs_redir`` takes away redirection only: an architecture that wants all of it off gets the unit, too.
    """
    if declared.acs == "disabled":
        return "disabled"
    by_kernel = any("disable_acs_redir" in word for word in site.architecture.system.cmdline_required)
    return "no_redirect" if declared.acs == "no_redirect" and not by_kernel else None


def driver_files(declared: Declared) -> tuple[Entry, ...]:
    """Files that drivers read when they are loaded, and that must not exist before their packages."""
    is_infiniband = any(declared_port.infiniband for declared_port in declared.ports)
    modules = ("ib_uverbs", "rdma_cm", "rdma_ucm", *(("ib_umad", "ib_ipoib") if is_infiniband else ()))
    entries: list[Entry] = [
        # No restart: while other drivers wait for the reboot, these settings would not fit the loaded ones.
        boot_modules("rdma", "RDMA", modules)
    ]
    if declared.nvidia:
        load = "yes" if is_infiniband else "no"  # IPoIB only where there is InfiniBand
        entries += [
            RemoteDirectory("/etc/systemd/system/openibd.service.d"),
            rendered(stack.OPENIBD),
            RemoteDirectory("/etc/infiniband"),
            RemoteFile(stack.OPENIB, f"IPOIB_LOAD={load}\n", block=True),
        ]
    if any(
        declared_port.infiniband and ports.ipoib_mode(declared.stack, declared_port.nic) == "connected"
        for declared_port in declared.ports
    ):
        entries.append(
            RemoteFile(
                "/etc/modprobe.d/rackproof-ipoib.conf",
                "# Managed by rackproof. The enhanced mode of IPoIB knows datagrams only.\n"
                "options ib_ipoib ipoib_enhanced=0\n",
                reboot="IPoIB in connected mode",
            )
        )
    return tuple(entries)


def files(site: Site, declared: Declared) -> tuple[Entry, ...]:
    """Files that are written together with the fabric's own."""
    entries: list[Entry] = [RemoteDirectory("/etc/rackproof"), RemoteDirectory(ports.DECLARED)]
    settings = port_settings(site, declared)
    if settings:
        entries.append(RemoteFile(ports.SCRIPT, ports.script("port"), mode="755"))
        for is_infiniband in sorted({declared.is_infiniband(name) for name in settings}):
            template, what = "/etc/systemd/system/rackproof-port@.service", "InfiniBand" if is_infiniband else "RoCE"
            unit = f"/etc/systemd/system/{ports.unit_of('', is_infiniband)}"
            entries.append(rendered(unit, template=template, what=what))
        entries += [
            RemoteFile(
                f"{ports.DECLARED}/{name}",
                ports.declaration(values),
                restart=(ports.unit_of(name, declared.is_infiniband(name)),),
            )
            for name, values in settings.items()
        ]
    if declared.stack.rdma_names and (named := rdma_ports(declared)):
        names = [ports.instance(port.name) for port in named]
        entries += [
            RemoteFile(NAMES, ports.script("rdma-names"), mode="755"),
            RemoteFile("/etc/rackproof/rdma-names", ports.rdma_names(named)),
            rendered(f"/etc/systemd/system/{NAMES_UNIT}", names=names),
        ]
    if wanted := acs_unit(site, declared):
        entries += [
            RemoteFile(ACS, ports.script("acs"), mode="755"),
            rendered(f"/etc/systemd/system/{ACS_UNIT}", restart=(ACS_UNIT,), wanted=wanted),
        ]
    if declared.stack.subnet_manager:
        path = "/etc/opensm/partitions.conf" if declared.nvidia else infiniband.PARTITIONS[declared.family]
        restart = (infiniband.service(declared.nvidia),)
        content = infiniband.partitions(declared.stack.partitions)
        entries += [RemoteDirectory(path.rpartition("/")[0]), RemoteFile(path, content, restart=restart)]
    return (*entries, *link_files.link_files(site, declared))


def units(site: Site, declared: Declared) -> tuple[Unit, ...]:
    """All are enabled here; ports and names are started by operations of their own, which log the differences."""
    all_units: list[Unit] = []
    if declared.stack.rdma_names and rdma_ports(declared):
        all_units.append(Unit(NAMES_UNIT, running=None))
    if wanted := acs_unit(site, declared):
        all_units.append(Unit(ACS_UNIT, proof=f"{ACS} check {wanted}"))
    names = port_settings(site, declared)
    all_units += [Unit(ports.unit_of(name, declared.is_infiniband(name)), running=None) for name in names]
    if any(declared_port.infiniband for declared_port in declared.ports):
        all_units += infiniband.subnet_manager_units(declared.stack.subnet_manager, declared.nvidia)
    return tuple(all_units)


def warn_of_shared_subnets(site: Site, declared: Declared) -> None:
    for subnet, names in links.shared_subnets(declared.addressed()).items():
        logger.warning(
            "%s: %s are in one subnet (%s): each gets a routing table of its own; a subnet a port needs none",
            site.node.name, ", ".join(names), subnet,
        )  # fmt: skip
