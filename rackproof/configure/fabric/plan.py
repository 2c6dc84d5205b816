"""Port files, sysctl, routes, units and names of the fabric."""

from __future__ import annotations

from typing import Any

from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.network import Port, hosts_block
from rackproof.configure.nic import link_files
from rackproof.configure.nic.declared import Declared
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.nic.links import RailRoute, rail_routes, vlans_of
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.core.machine import Machine
from rackproof.core.port_names import rail_alias
from rackproof.errors import DeclarationError

IPOIB_RULES = "/etc/udev/rules.d/70-rackproof-ipoib.rules"


def check_soft_roce(site: Site) -> None:
    """Raises DeclarationError where the inventory declares ports, bonds or VLANs, which Soft-RoCE does not have."""
    stack = read_inputs(site.node, NicInputs)
    if wanted := [key for key in ("ports", "bonds", "vlans") if getattr(stack, key)]:
        raise DeclarationError(
            f"nic.{wanted[0]}: only fabrics of real adapters (roce, infiniband) have such;"
            " this one is soft-roce: take it out, or correct the architecture"
        )


def why_nothing(site: Site) -> str | None:
    return None if site.architecture.fabric else "the architecture has no fabric"


WAIT_UNIT = "/etc/systemd/system/systemd-networkd-wait-online@.service"
WAIT_UNIT_SINCE = 251
"""The first systemd with the unit for one port (its NEWS)."""
OLDER_SYSTEMD = {("ubuntu", "22.04"): 249}
"""Supported releases without it."""


def files(site: Site, declared: Declared | None = None, machine: Machine | None = None) -> tuple[Entry, ...]:
    """``declared``: real adapters; None for Soft-RoCE."""
    entries: list[Entry] = []
    if machine and OLDER_SYSTEMD.get((machine.os_id, machine.os_version), WAIT_UNIT_SINCE) < WAIT_UNIT_SINCE:
        entries.append(rendered(WAIT_UNIT))
    if declared:
        entries += _real_ports(site, declared)
    else:
        for port in site.ports:
            entries += [_network_file(port, "link"), _network_file(port, "network", route=None, vlans=())]
    if sysctl := port_sysctl(declared.addressed() if declared else site.ports):
        conf = "/etc/sysctl.d/61-rackproof-fabric.conf"
        entries.append(rendered(conf, sysctl=sysctl))
    if site.ports:
        # Without rails some names would lead to addresses that the node does not reach: they are left to the site.
        names = hosts_block(site.fabric_addresses(), _control_addresses(site), site.fabric.interface_prefix)
        entries.append(RemoteFile("/etc/hosts", names, block=True))
    return tuple(entries)


def _real_ports(site: Site, declared: Declared) -> list[Entry]:
    entries: list[Entry] = []
    named_by_guid = []
    routes = rail_tables(site, declared)
    for declared_port in declared.ports:
        port = declared_port.port
        if declared_port.infiniband and port.mac:
            named_by_guid.append(port)
        else:
            entries.append(_network_file(port, "link"))
        if port.bond:
            continue  # its other file is written with the bond's
        route = routes.get(port.name)
        if declared.manager == "NetworkManager":
            entries.append(link_files.port_keyfile(declared, declared_port, route))
        else:
            vlans = vlans_of(declared.stack, port.name)
            entries.append(_network_file(port, "network", route=route, vlans=vlans))
    if named_by_guid:
        entries.append(rendered(IPOIB_RULES, ports=named_by_guid))
    return entries


def rail_tables(site: Site, declared: Declared) -> dict[str, RailRoute]:
    """Routes by port. Raises DeclarationError when the inventory's gateways do not fit the rails."""
    others = [
        declared_port.port for declared_port in declared.ports if not declared_port.rail and declared_port.port.address
    ]
    return rail_routes(site.ports, declared.stack, bool(site.fabric.rail_tables), others)


def _network_file(port: Port, kind: str, **values: Any) -> RemoteFile:
    folder = "/etc/systemd/network"
    return rendered(f"{folder}/10-{port.name}.{kind}", template=f"{folder}/10-fabric.{kind}", port=port, **values)


def port_sysctl(ports: tuple[Port, ...]) -> dict[str, str]:
    """Several ports in one host, possibly in one subnet: each answers and sends for its own address only, and a packet
    may arrive on another port than the answer would leave by (loose reverse-path filter)."""
    values: dict[str, str] = {}
    for port in ports:
        prefix = f"net.ipv4.conf.{port.name}"
        values |= {f"{prefix}.rp_filter": "2", f"{prefix}.arp_ignore": "1", f"{prefix}.arp_announce": "2"}
    return values


def units(ports: tuple[Port, ...], declared: Declared | None = None) -> tuple[Unit, ...]:
    """At boot, "network is online" includes every port with an address; it does not wait for other interfaces."""
    if declared and declared.manager == "NetworkManager":
        return (Unit("NetworkManager.service"), Unit("NetworkManager-wait-online.service", running=None))
    waiting = (Unit(f"systemd-networkd-wait-online@{port.name}.service", running=None) for port in ports)
    return (Unit("systemd-networkd.service"), *waiting)


def known_names(site: Site) -> dict[str, list[str]]:
    """Every node with its other names: its name on every rail, and its addresses."""
    prefix, control = site.fabric.interface_prefix, _control_addresses(site)
    return {
        name: [
            *(rail_alias(name, prefix, rail) for rail in range(len(addresses))),
            *dict.fromkeys((*addresses, *filter(None, (control[name],)))),
        ]
        for name, addresses in site.fabric_addresses().items()
    }


def _control_addresses(site: Site) -> dict[str, str | None]:
    return {node.name: node.control_address(site.fabric.kind) for node in site.rack.nodes}
