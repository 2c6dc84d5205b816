"""Every configured port of a node with what is declared about it: rails, and the inventory's other ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from rackproof.configure.network import ETHERNET_MAC_LENGTH, GUID_LENGTH, Port
from rackproof.configure.nic import ports
from rackproof.configure.nic.inputs import NO_INFINIBAND_BONDS, NicInputs, NodePort
from rackproof.core.architecture import Fabric, Nic
from rackproof.core.nearest import suggestion
from rackproof.errors import DeclarationError

Value = TypeVar("Value")

LOST_AT_BOOT: Final = ("max_read_request", "relaxed_ordering", "ipoib_mode")
"""Keys of ``nics`` that only this deploy sets, port by port."""


@dataclass(frozen=True, slots=True)
class DeclaredPort:
    port: Port
    infiniband: bool
    nic: Nic | None
    """The architecture's entry for the port's purpose."""
    lossless: bool
    """Whether ``fabric.lossless`` applies to this port."""
    entry: NodePort | None = None
    """The inventory's entry; None for a rail."""

    @property
    def rail(self) -> bool:
        return self.entry is None

    @property
    def of_nvidia(self) -> bool:
        """Whether what is declared needs an adapter of NVIDIA's."""
        return self.rail or self.infiniband or self.lossless or bool(self.port.rdma)


def declared_ports(
    fabric: Fabric, stack: NicInputs, rails: Sequence[Port], nics: Sequence[Nic], rail_nic: Nic | None
) -> tuple[DeclaredPort, ...]:
    """Rails first. Raises DeclarationError, one line, where inventory and architecture contradict.

    ``rail_nic``: the entry of ``nics`` that is about the rails.
    """
    infiniband, lossless = fabric.kind == "infiniband", fabric.lossless is not None
    declared = [DeclaredPort(port, infiniband, rail_nic, lossless and not infiniband) for port in rails]
    bond_of = _members(stack)
    for name, node_port in stack.ports.items():
        try:
            declared.append(
                _other(fabric, stack, name, node_port, _nic_of(node_port, nics, rail_nic), bond_of.get(name))
            )
        except DeclarationError as error:
            raise DeclarationError(f"nic.ports.{name}: {error}") from None
    _once(declared, stack)
    _bonds_agree(declared)
    _all_named(declared, nics, rail_nic)
    return tuple(declared)


def adapter_paths(declared: Iterable[DeclaredPort]) -> dict[str, str]:
    """Path by port, for ports other than rails that must be functions of NVIDIA's adapters."""
    return {
        declared_port.port.name: declared_port.port.path
        for declared_port in declared
        if not declared_port.rail and declared_port.of_nvidia and declared_port.port.path
    }


def _members(stack: NicInputs) -> dict[str, str]:
    """Bond by port."""
    names: dict[str, str] = {}
    for name, bond in stack.bonds.items():
        for port in bond.ports:
            if port not in stack.ports:
                raise DeclarationError(f"nic.bonds.{name}.ports: {port}: {suggestion(port, stack.ports)}")
            if port in names:
                raise DeclarationError(f"nic.bonds.{name}.ports: {port} is a member of {names[port]}, too")
            names[port] = name
        again = [
            port
            for port, node_port in stack.ports.items()
            if (node_port.mac and node_port.mac in bond.macs) or (node_port.path and node_port.path in bond.paths)
        ]
        if again:
            raise DeclarationError(
                f"nic.bonds.{name}: {', '.join(again)} of nic.ports is a member: name the members there"
                f" (bonds: {{{name}: {{ports: [{', '.join(again)}, …]}}}})"
            )
    return names


def _nic_of(node_port: NodePort, nics: Sequence[Nic], rail_nic: Nic | None) -> Nic | None:
    if node_port.purpose is None:
        return None
    by_purpose = {nic.purpose: nic for nic in nics}
    nic = by_purpose.get(node_port.purpose)
    if nic is None:
        raise DeclarationError(
            f"purpose: the architecture has no {node_port.purpose} in its nics"
            f" ({suggestion(node_port.purpose, by_purpose)}); leave it out where the architecture names no port"
        )
    if nic is rail_nic:
        raise DeclarationError(f"purpose: {node_port.purpose} is reserved for the rails (fabric_paths, fabric_macs)")
    return nic


def _other(
    fabric: Fabric, stack: NicInputs, name: str, node_port: NodePort, nic: Nic | None, bond: str | None
) -> DeclaredPort:
    layer = _one("link_layer", node_port.link_layer, nic.link_layer if nic else None) or "Ethernet"
    infiniband = layer == "InfiniBand"
    _one("max_read_request", node_port.max_read_request, nic.max_read_request if nic else None)
    _one("relaxed_ordering", node_port.relaxed_ordering, nic.relaxed_ordering if nic else None)
    if bond is not None:
        _may_be_member(node_port, bond, infiniband)
    if infiniband and node_port.lossless:
        raise DeclarationError("lossless: RoCE needs an Ethernet port; this port is InfiniBand")
    if node_port.lossless and fabric.lossless is None:
        raise DeclarationError("lossless: the architecture says nothing in fabric.lossless; say it there")
    lossless = bool(node_port.rdma) if node_port.lossless is None else node_port.lossless
    mtu = None
    if not infiniband:
        of_purpose = nic.mtu if nic else None
        mtu_said = _one(f"mtu of {bond}", stack.bonds[bond].mtu, node_port.mtu) if bond else node_port.mtu
        mtu = _one("mtu", mtu_said, of_purpose)
    vlans = [vlan for vlan, settings in stack.vlans.items() if settings.parent == name]
    for vlan in vlans:
        if infiniband or bond:
            what = "InfiniBand has partitions (pkeys), no VLANs" if infiniband else f"say parent: {bond}"
            raise DeclarationError(f"it is the parent of nic.vlans.{vlan}: {what}")
        if mtu and (stack.vlans[vlan].mtu or 0) > mtu:
            raise DeclarationError(f"MTU {stack.vlans[vlan].mtu} of nic.vlans.{vlan} is more than its {mtu}")
    port = Port(
        name=name,
        rdma=node_port.rdma or "",
        address=str(node_port.address) if node_port.address else "",
        mtu=mtu,
        mac=_mac(node_port.mac, infiniband),
        path=node_port.path,
        bond=bond,
    )
    return DeclaredPort(port, infiniband, nic, lossless and not infiniband and fabric.lossless is not None, node_port)


def _mac(mac: str | None, infiniband: bool) -> str | None:
    """MAC address of a port; of an InfiniBand port its GUID: the bytes before it change at every boot."""
    if mac is None:
        return None
    if infiniband and len(mac) > ETHERNET_MAC_LENGTH:
        return mac[-GUID_LENGTH:]
    if infiniband or len(mac) != ETHERNET_MAC_LENGTH:
        raise DeclarationError(
            f"mac: {mac} is no address of {'an InfiniBand' if infiniband else 'an Ethernet'} port; link_layer says"
            " which it is (Ethernet: six bytes, InfiniBand: the GUID, eight)"
        )
    return mac


def ipoib_mtu(declared_port: DeclaredPort, fabric: Fabric) -> int:
    """Bytes, of an InfiniBand port's interface. The architecture's MTU is the path's, which the subnet manager sets."""
    if declared_port.entry is not None and declared_port.entry.mtu:
        return declared_port.entry.mtu
    return fabric.mtu if fabric.kind == "infiniband" else ports.DATAGRAM_MTU_MAX


def _may_be_member(node_port: NodePort, bond: str, infiniband: bool) -> None:
    if infiniband:
        raise DeclarationError(f"it is a member of {bond}: {NO_INFINIBAND_BONDS}")
    if node_port.address:
        raise DeclarationError(f"address: it is a member of {bond}, which has the address: leave it out, or the bond")
    if node_port.rdma:
        raise DeclarationError(
            f"rdma: it is a member of {bond}, whose ports have one RDMA device together, named by the driver:"
            " leave it out, and say lossless: true where RoCE runs over the bond"
        )


def _one(key: str, inventory: Value | None, architecture: Value | None) -> Value | None:
    """The value of one or both sides. Raises DeclarationError where both have one and they differ."""
    if inventory is not None and architecture is not None and inventory != architecture:
        raise DeclarationError(f"{key}: {inventory} here, {architecture} for its purpose or port: correct one")
    return architecture if inventory is None else inventory


def _once(declared: Sequence[DeclaredPort], stack: NicInputs) -> None:
    for what in ("name", "mac", "path", "rdma"):
        holders: dict[str, list[DeclaredPort]] = {}
        for declared_port in declared:
            if value := getattr(declared_port.port, what):
                holders.setdefault(value, []).append(declared_port)
        for value, those in holders.items():
            if len(those) > 1 and not all(declared_port.rail for declared_port in those):
                named = " and ".join(
                    f"rail {declared_port.port.name}" if declared_port.rail else declared_port.port.name
                    for declared_port in those
                )
                raise DeclarationError(f"nic.ports: {what} {value} is declared for {named}: correct one")
    for name in (*stack.bonds, *stack.vlans):
        if name in stack.ports:
            raise DeclarationError(f"nic: {name} is the name of a port and of a bond or a VLAN")


def _bonds_agree(declared: Iterable[DeclaredPort]) -> None:
    """RoCE over a bond needs all members on one adapter. Raises DeclarationError."""
    members: dict[str, list[DeclaredPort]] = {}
    for declared_port in declared:
        if declared_port.port.bond:
            members.setdefault(declared_port.port.bond, []).append(declared_port)
    for bond, those in members.items():
        without = [declared_port.port.name for declared_port in those if not declared_port.lossless]
        if without and len(without) < len(those):
            raise DeclarationError(
                f"nic.bonds.{bond}: lossless is not declared for {', '.join(without)}: declare it for all, or none"
            )
        adapters = {declared_port.port.path.rpartition(".")[0] for declared_port in those if declared_port.port.path}
        if not without and len(adapters) > 1:
            raise DeclarationError(
                f"nic.bonds.{bond}: lossless is declared, and its members are of {len(adapters)} adapters: RoCE"
                " runs over a bond of one adapter's ports only; bond those, or leave out lossless"
            )


def _all_named(declared: Sequence[DeclaredPort], nics: Sequence[Nic], rail_nic: Nic | None) -> None:
    """Every declared property of ports has a named port on which it is set. Raises DeclarationError."""
    for nic in nics:
        if nic is rail_nic:
            continue
        named = [declared_port.port.name for declared_port in declared if declared_port.nic is nic]
        if named and len(named) != nic.count:
            raise DeclarationError(
                f"nic.ports: {nic.purpose}: the architecture has {nic.count} of these ports, named are"
                f" {', '.join(named)}: name all of them, or leave out the purpose"
            )
        keys = [key for key in LOST_AT_BOOT if getattr(nic, key) is not None]
        if keys and not named:
            raise DeclarationError(
                f"nic.ports: {nic.purpose}: {nic.count} ports are declared to have {', '.join(keys)}, and"
                f" none is named: name each with purpose: {nic.purpose} (mac or path): no other deploy sets it; or,"
                " where these are the rails, name them in the architecture (nics.*.interfaces)"
            )


def settings(
    declared: Sequence[DeclaredPort], fabric: Fabric, stack: NicInputs, nvidia: bool
) -> dict[str, dict[str, str]]:
    """Settings that ports, and bonds that RoCE runs over, forget at boot; ports without any are left out.

    ``nvidia``: drivers of NVIDIA's packages. Raises DeclarationError.
    """
    values = {declared_port.port.name: _settings_of(declared_port, fabric, stack, nvidia) for declared_port in declared}
    values |= {
        declared_port.port.bond: {key: value for key, value in lossless.items() if key in ports.CONNECTIONS}
        for declared_port in declared
        if declared_port.port.bond and declared_port.lossless
        for lossless in [ports.lossless_settings(fabric.lossless, stack, nvidia)]
    }
    return {name: settings for name, settings in values.items() if settings}


def _settings_of(declared_port: DeclaredPort, fabric: Fabric, stack: NicInputs, nvidia: bool) -> dict[str, str]:
    if declared_port.entry is None:
        of_rail = ports.infiniband_settings if declared_port.infiniband else ports.roce_settings
        return of_rail(fabric, stack, declared_port.nic, nvidia)
    values: dict[str, str] = {}
    if declared_port.infiniband:
        key, mode = f"nic.ports.{declared_port.port.name}: mtu", ports.ipoib_mode(stack, declared_port.nic)
        values = ports.ipoib_settings(key, ipoib_mtu(declared_port, fabric), mode, nvidia)
    elif declared_port.lossless:
        values = ports.lossless_settings(fabric.lossless, stack, nvidia)
        if declared_port.port.bond:
            values = {key: value for key, value in values.items() if key not in ports.CONNECTIONS}
    nic = declared_port.nic
    request = declared_port.entry.max_read_request or (nic.max_read_request if nic else None)
    ordering = declared_port.entry.relaxed_ordering
    if ordering is None and nic:
        ordering = nic.relaxed_ordering
    return values | ports.pcie_values(request, ordering)
