"""Bonds, VLANs and interfaces of partitions as files of systemd-networkd or NetworkManager."""

from __future__ import annotations

from collections.abc import Mapping

from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.network import connection_id
from rackproof.configure.nic import links, ports
from rackproof.configure.nic.declared import Declared
from rackproof.configure.nic.declared_ports import DeclaredPort
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.errors import DeclarationError


def link_files(site: Site, declared: Declared) -> tuple[Entry, ...]:
    """Bonds, VLANs and interfaces of partitions, for the node's network service."""
    stack = declared.stack
    links.check_parents(stack, site.ports)
    render = _keyfiles if declared.manager == "NetworkManager" else _networkd
    return (*render(declared), *_children(site, declared))


def _networkd(declared: Declared) -> list[Entry]:
    stack, folder = declared.stack, "/etc/systemd/network"
    entries: list[Entry] = []
    for name, bond in stack.bonds.items():
        entries += [
            rendered(
                f"{folder}/20-{name}.{kind}", template=f"{folder}/20-bond.{kind}", name=name, bond=bond,
                vlans=links.vlans_of(stack, name),
            )
            for kind in ("netdev", "network")
        ]  # fmt: skip
        entries += [
            rendered(
                # Sorts before the bond's and every rail's file: systemd-networkd applies the first that matches.
                f"{folder}/09-{name}-{k}.network", template=f"{folder}/20-member.network", mac=mac, id_path=path,
                bond=name, mtu=bond.mtu,
            )
            for k, (mac, path) in enumerate(stack.members(name), 1)
        ]  # fmt: skip
    for name, vlan in stack.vlans.items():
        entries += [
            rendered(f"{folder}/20-{name}.{kind}", template=f"{folder}/20-vlan.{kind}", name=name, vlan=vlan)
            for kind in ("netdev", "network")
        ]
    return entries


def _keyfiles(declared: Declared) -> list[Entry]:
    stack = declared.stack
    entries: list[Entry] = []
    for name, bond in stack.bonds.items():
        settings = {"mode": bond.mode, "miimon": str(bond.miimon_ms)}
        if bond.mode == "802.3ad":
            settings["lacp_rate"] = bond.lacp_rate
        if bond.mode != "active-backup":
            settings["xmit_hash_policy"] = bond.hash_policy
        sections = {"bond": settings, "ethernet": {"mtu": str(bond.mtu)}}
        entries.append(keyfile(name, "bond", sections, interface=name, address=str(bond.address or "")))
        for k, (mac, path) in enumerate(stack.members(name), 1):
            match = {"ethernet": {"mtu": str(bond.mtu)}}
            if mac:
                match["ethernet"]["mac-address"] = mac.upper()
            else:
                match["match"] = {"path": f"{path};"}
            entries.append(keyfile(f"{name}-{k}", "ethernet", match, bond=name))
    for name, vlan in stack.vlans.items():
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
            raise DeclarationError(
                f"nic.pkeys: expected {len(site.ports)} addresses, one a rail, actual {len(child.addresses)}"
            )
        for port, address in zip(site.ports, child.addresses, strict=False):
            name = f"{port.name}.{ports.full_key(child.pkey)}"
            if declared.manager == "NetworkManager":
                key = {"p-key": str(child.pkey | 0x8000), "parent": port.name}
                key["transport-mode"] = ports.ipoib_mode(declared.stack, declared.rail_nic)
                entries.append(keyfile(name, "infiniband", {"infiniband": key}, interface=name, address=str(address)))
            else:
                folder = "/etc/systemd/network"
                path, template = f"{folder}/20-{name}.network", f"{folder}/20-child.network"
                entries.append(rendered(path, template=template, name=name, address=address))
    return entries


def port_keyfile(declared: Declared, declared_port: DeclaredPort, route: links.RailRoute | None) -> RemoteFile:
    """NetworkManager's file of a port."""
    sections: Mapping[str, Mapping[str, str]]
    port = declared_port.port
    if declared_port.infiniband:
        kind, sections = (
            "infiniband",
            {"infiniband": {"transport-mode": ports.ipoib_mode(declared.stack, declared_port.nic)}},
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
    return rendered(
        links.keyfile(name), template="/etc/NetworkManager/system-connections/rackproof.nmconnection",
        mode="600",  # NetworkManager ignores files that others can read
        id=connection_id(name), uuid=links.connection_uuid(name), type=kind, interface=interface,
        sections=sections, address=address, bond=bond, route=route,
    )  # fmt: skip
