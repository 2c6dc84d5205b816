"""RDMA on real adapters (RoCE and InfiniBand): drivers, firmware, names, and what ports forget at every boot.

``adapters`` goes before the ports get their names and addresses, ``rdma_connectx`` after it. How is the inventory's
business (``nic_stack``), what is the architecture's. Everything is set through a unit, so that it comes back at boot
and when a port reappears, and a port whose settings are not in force is set again by the next run.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from deploys import templates, versions
from rackproof.configure import operations as common
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.network import Port
from rackproof.configure.nic import declared_ports, infiniband, links, operations, ports, stack
from rackproof.configure.nic.declared import Declared, declared_here, firmware_wanted
from rackproof.configure.nic.declared_ports import DeclaredPort
from rackproof.configure.nic.packages import inbox_packages
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit

NAMES = "/usr/local/sbin/rackproof-rdma-names"
NAMES_UNIT = "rackproof-rdma-names.service"
ACS = "/usr/local/sbin/rackproof-acs"
ACS_UNIT = "rackproof-acs.service"
INSTALL_TIMEOUT_S = 1800
FIRMWARE_TIMEOUT_S = 3600
"""Eight adapters, a few minutes each."""


@deploy("ConnectX: drivers and firmware")
def adapters() -> None:
    site = here()
    declared = declared_here()
    said = declared.stack
    others = tuple(each for each in declared.ports if not each.rail)
    operations.adapters(name="Adapters", wanted=site.ports, declared=said.adapters, others=others)
    if declared.drivers:
        _drivers(site, declared)
    wanted = firmware_wanted(site, said)
    if wanted or declared.locked:
        operations.adapter_firmware(
            name="Firmware", wanted=wanted, rails=[each.port for each in declared.ports], locked=declared.locked,
            _timeout=FIRMWARE_TIMEOUT_S,
        )  # fmt: skip


def _drivers(site: Site, declared: Declared) -> None:
    said = declared.stack
    operations.remove_drivers(
        name="Other drivers", source=declared.source, version=declared.ofed, allowed=said.remove_old,
        _timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    if declared.source == "inbox":
        common.packages(name="Packages", names=inbox_packages(declared), family=declared.family)
    else:
        versions.network_stack()
    common.files(name="Driver files", entries=driver_files(site, declared))
    operations.drivers(
        name="Drivers", source=declared.source, dkms=declared.dkms, restart=said.drivers_by == "restart"
    )  # fmt: skip


@deploy("ConnectX: ports")
def rdma_connectx() -> None:
    site = here()
    declared = declared_here()
    said = declared.stack
    settings = port_settings(site, declared)
    if uppers := links.uppers(said):
        operations.upper_links(name="Bonds and VLANs", wanted=uppers, manager=declared.manager)
    common.units(name="Services", wanted=units(site, declared))
    if said.rdma_names and (named := rdma_ports(declared)):
        operations.rdma_devices(name="RDMA devices", wanted=named)
    for is_infiniband in (False, True):
        if wanted := {name: settings[name] for name in settings if declared.is_infiniband(name) == is_infiniband}:
            operations.port_settings(name="Port settings", wanted=wanted, infiniband=is_infiniband)
    names = [each.port.name for each in declared.ports if each.of_nvidia]
    if said.zero_link_counters and names:
        operations.zero_link_counters(name="Link counters", names=names)


def port_settings(site: Site, declared: Declared) -> dict[str, dict[str, str]]:
    """What ports, and bonds that RoCE runs over, forget at boot, by name; those that forget something only.

    Raises DeployError where architecture and inventory contradict.
    """
    fabric = site.architecture.fabric
    runs = declared.stack.subnet_manager
    if fabric.subnet_manager is not None and fabric.subnet_manager != runs and (site.ports or runs):
        # Where it runs is the inventory's business; that it runs nowhere, or everywhere, the architecture's.
        raise DeployError(
            f"{site.node.name}: fabric.subnet_manager is {str(fabric.subnet_manager).lower()}, the inventory's"
            f" nic_stack.subnet_manager {str(runs).lower()}: correct one"
        )
    try:
        return declared_ports.settings(declared.ports, fabric, declared.stack, declared.nvidia)
    except ports.Contradiction as error:
        raise DeployError(f"{site.node.name}: {error}") from None


def rdma_ports(declared: Declared) -> tuple[Port, ...]:
    """Those whose RDMA device gets a name."""
    return tuple(each.port for each in declared.ports if each.port.rdma)


def acs_unit(site: Site, declared: Declared) -> str | None:
    """What the unit has to do about PCIe access control; None where nobody asked, or the kernel's command line does.

    ``disable_acs_redir`` takes away redirection only: an architecture that wants all of it off gets the unit, too.
    """
    if declared.acs == "disabled":
        return "disabled"
    by_kernel = any("disable_acs_redir" in word for word in site.architecture.system.cmdline_required)
    return "no_redirect" if declared.acs == "no_redirect" and not by_kernel else None


def driver_files(site: Site, declared: Declared) -> tuple[Entry, ...]:
    """What drivers read when they are loaded, and what must not be there before their packages are."""
    is_infiniband = any(each.infiniband for each in declared.ports)
    modules = ("ib_uverbs", "rdma_cm", "rdma_ucm", *(("ib_umad", "ib_ipoib") if is_infiniband else ()))
    entries: list[Entry] = [
        # No restart: while other drivers wait for the reboot, these would not fit to what is loaded.
        RemoteFile(
            "/etc/modules-load.d/rackproof-rdma.conf",
            templates.text("/etc/modules-load.d/rackproof.conf", purpose="RDMA", modules=modules),
        )
    ]
    if declared.nvidia:
        conf = stack.openibd_conf(is_infiniband)
        entries += [
            RemoteDirectory("/etc/systemd/system/openibd.service.d"),
            RemoteFile(stack.OPENIBD, templates.text(stack.OPENIBD)),
            RemoteDirectory("/etc/infiniband"),
            RemoteFile(stack.OPENIB, "".join(f"{key}={value}\n" for key, value in conf.items()), block=True),
        ]
    if any(each.infiniband and ports.ipoib_mode(declared.stack, each.nic) == "connected" for each in declared.ports):
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
    """What lands together with the fabric's own files."""
    entries: list[Entry] = [RemoteDirectory("/etc/rackproof"), RemoteDirectory(ports.DECLARED)]
    settings = port_settings(site, declared)
    if settings:
        entries.append(RemoteFile(ports.SCRIPT, ports.script("port"), mode="755"))
        for is_infiniband in sorted({declared.is_infiniband(name) for name in settings}):
            text = templates.text(
                "/etc/systemd/system/rackproof-port@.service", what="InfiniBand" if is_infiniband else "RoCE"
            )
            entries.append(RemoteFile(f"/etc/systemd/system/{ports.unit_of('', is_infiniband)}", text))
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
            RemoteFile(
                f"/etc/systemd/system/{NAMES_UNIT}",
                templates.text(f"/etc/systemd/system/{NAMES_UNIT}", names=names),
            ),
        ]
    if wanted := acs_unit(site, declared):
        entries += [
            RemoteFile(ACS, ports.script("acs"), mode="755"),
            RemoteFile(
                f"/etc/systemd/system/{ACS_UNIT}",
                templates.text(f"/etc/systemd/system/{ACS_UNIT}", wanted=wanted),
                restart=(ACS_UNIT,),
            ),
        ]
    if declared.stack.subnet_manager:
        path = "/etc/opensm/partitions.conf" if declared.nvidia else infiniband.PARTITIONS[declared.family]
        service = "opensmd.service" if declared.nvidia else "opensm.service"
        content = infiniband.partitions(declared.stack.partitions)
        entries += [RemoteDirectory(path.rpartition("/")[0]), RemoteFile(path, content, restart=(service,))]
    return (*entries, *link_files(site, declared))


def units(site: Site, declared: Declared) -> tuple[Unit, ...]:
    """All are enabled here; ports and names are started by operations of their own, which say what differs."""
    found: list[Unit] = []
    if declared.stack.rdma_names and rdma_ports(declared):
        found.append(Unit(NAMES_UNIT, running=None))
    if wanted := acs_unit(site, declared):
        found.append(Unit(ACS_UNIT, proof=f"{ACS} check {wanted}"))
    names = port_settings(site, declared)
    found += [Unit(ports.unit_of(name, declared.is_infiniband(name)), running=None) for name in names]
    if any(each.infiniband for each in declared.ports):
        found += infiniband.subnet_manager_units(declared.stack.subnet_manager, declared.nvidia)
    return tuple(found)


def link_files(site: Site, declared: Declared) -> tuple[Entry, ...]:
    """Bonds, VLANs and interfaces of partitions, for the node's network service."""
    said = declared.stack
    try:
        links.check_parents(said, site.ports)
    except ValueError as error:
        raise DeployError(f"{site.node.name}: {error}") from None
    render = _keyfiles if declared.manager == "NetworkManager" else _networkd
    return (*render(site, declared), *_children(site, declared))


def _networkd(site: Site, declared: Declared) -> list[Entry]:
    said, folder = declared.stack, "/etc/systemd/network"
    entries: list[Entry] = []
    for name, bond in said.bonds.items():
        entries += [
            RemoteFile(
                f"{folder}/20-{name}.{kind}",
                templates.text(f"{folder}/20-bond.{kind}", name=name, bond=bond, vlans=links.vlans_of(said, name)),
            )
            for kind in ("netdev", "network")
        ]
        entries += [
            RemoteFile(
                # Before the bond's and every rail's: the first file that fits is the only one.
                f"{folder}/09-{name}-{k}.network",
                templates.text(f"{folder}/20-member.network", mac=mac, id_path=path, bond=name, mtu=bond.mtu),
            )
            for k, (mac, path) in enumerate(said.members(name), 1)
        ]
    for name, vlan in said.vlans.items():
        entries += [
            RemoteFile(f"{folder}/20-{name}.{kind}", templates.text(f"{folder}/20-vlan.{kind}", name=name, vlan=vlan))
            for kind in ("netdev", "network")
        ]
    return entries


def _keyfiles(site: Site, declared: Declared) -> list[Entry]:
    said = declared.stack
    entries: list[Entry] = []
    for name, bond in said.bonds.items():
        settings = {"mode": bond.mode, "miimon": str(bond.miimon_ms)}
        if bond.mode == "802.3ad":
            settings["lacp_rate"] = bond.lacp_rate
        if bond.mode != "active-backup":
            settings["xmit_hash_policy"] = bond.hash_policy
        sections = {"bond": settings, "ethernet": {"mtu": str(bond.mtu)}}
        entries.append(keyfile(name, "bond", sections, interface=name, address=str(bond.address or "")))
        for k, (mac, path) in enumerate(said.members(name), 1):
            match = {"ethernet": {"mtu": str(bond.mtu)}}
            if mac:
                match["ethernet"]["mac-address"] = mac.upper()
            else:
                match["match"] = {"path": f"{path};"}
            entries.append(keyfile(f"{name}-{k}", "ethernet", match, bond=name))
    for name, vlan in said.vlans.items():
        sections = {"vlan": {"id": str(vlan.id), "parent": vlan.parent, "flags": "1"}}
        if vlan.mtu:
            sections["ethernet"] = {"mtu": str(vlan.mtu)}
        entries.append(keyfile(name, "vlan", sections, interface=name, address=str(vlan.address)))
    return entries


def _children(site: Site, declared: Declared) -> list[Entry]:
    """Addresses of IPoIB interfaces of other partitions; ``rackproof-port`` makes the interfaces."""
    entries: list[Entry] = []
    for child in declared.stack.pkeys:
        if child.addresses and len(child.addresses) != len(site.ports):
            raise DeployError(
                f"{site.node.name}: nic_stack.pkeys: expected {len(site.ports)} addresses, one a rail, actual"
                f" {len(child.addresses)}"
            )
        for port, address in zip(site.ports, child.addresses, strict=False):
            name = f"{port.name}.{ports.full_key(child.pkey)}"
            if declared.manager == "NetworkManager":
                key = {"p-key": str(child.pkey | 0x8000), "parent": port.name}
                key["transport-mode"] = ports.ipoib_mode(declared.stack, declared.rail_nic)
                entries.append(keyfile(name, "infiniband", {"infiniband": key}, interface=name, address=str(address)))
            else:
                path = f"/etc/systemd/network/20-{name}.network"
                text = templates.text("/etc/systemd/network/20-child.network", name=name, address=address)
                entries.append(RemoteFile(path, text))
    return entries


def port_keyfile(declared: Declared, each: DeclaredPort, route: links.RailRoute | None) -> RemoteFile:
    """NetworkManager's file of a port."""
    sections: Mapping[str, Mapping[str, str]]
    port = each.port
    if each.infiniband:
        kind, sections = (
            "infiniband",
            {"infiniband": {"transport-mode": ports.ipoib_mode(declared.stack, each.nic)}},
        )
    else:
        kind, sections = "ethernet", {"ethernet": {"mtu": str(port.mtu)}} if port.mtu else {}
    return keyfile(port.name, kind, sections, interface=port.name, address=port.address, route=route)


def keyfile(
    name: str,
    kind: str,
    sections: Mapping[str, Mapping[str, str]],
    interface: str | None = None,
    address: str = "",
    bond: str | None = None,
    route: links.RailRoute | None = None,
) -> RemoteFile:
    text = templates.text(
        "/etc/NetworkManager/system-connections/rackproof.nmconnection",
        id=links.connection_id(name), uuid=links.connection_uuid(name), type=kind, interface=interface,
        sections=sections, address=address, bond=bond, route=route,
    )  # fmt: skip
    # NetworkManager ignores files that others can read.
    return RemoteFile(links.keyfile(name), text, mode="600")


def warn_of_shared_subnets(site: Site, declared: Declared) -> None:
    for subnet, names in links.shared_subnets(declared.addressed()).items():
        logger.warning(
            "%s: %s are in one subnet (%s): each gets a routing table of its own; a subnet a port needs none",
            site.node.name, ", ".join(names), subnet,
        )  # fmt: skip
