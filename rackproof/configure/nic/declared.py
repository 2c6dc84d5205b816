"""Declaration of the adapters of a node, from architecture, inventory and version set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rackproof.configure.machine import machine_here
from rackproof.configure.network import Manager, Port
from rackproof.configure.nic.declared_ports import DeclaredPort, declared_ports
from rackproof.configure.nic.devices import FUNCTIONS, KINDS, NETWORK, OLD, VENDOR
from rackproof.configure.nic.inputs import Image, NicInputs
from rackproof.configure.nic.locked_firmware import Locked, known_models, may_be_meant, unknown_models
from rackproof.configure.nic.stack import INBOX, Source
from rackproof.configure.packages import names_for
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site, here
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.configure.versions.repositories import mirrored
from rackproof.configure.versions.site import platform_here
from rackproof.core.architecture import Architecture, Nic
from rackproof.core.architecture.expectations import role_with
from rackproof.core.machine import Machine
from rackproof.core.port_names import names_by_purpose
from rackproof.core.rack import Node
from rackproof.core.versions.models import Components, NetworkStack
from rackproof.core.versions.select import applies
from rackproof.errors import DeclarationError

FirmwareWanted = tuple[str, tuple[str, ...], str | None, Mapping[str, str] | None]
"""Purpose, names or PCI addresses of the adapter, version, settings."""


@dataclass(frozen=True, slots=True)
class Declared:
    stack: NicInputs
    source: Source
    ofed: str | None
    """Version of the declared OFED; None where it is not declared."""
    dkms: tuple[str, ...]
    locked: Locked
    """Firmware of the version set, and images that may be written."""
    family: str
    """``debian`` or ``rhel``."""
    rail_nic: Nic | None
    """The architecture's entry for the rails' ports."""
    acs: str | None
    ports: tuple[DeclaredPort, ...] = ()
    """Rails, then the inventory's other ports; empty where only software is planned (``declare``)."""
    drivers: bool = True
    """Whether the deploy installs drivers; a node that has only other makers' ports needs none of NVIDIA's."""

    @property
    def nvidia(self) -> bool:
        """Whether the drivers are NVIDIA's packages, which can do more than the distribution's."""
        return self.source != "inbox"

    @property
    def inbox_packages(self) -> tuple[str, ...]:
        """The distribution's own RDMA stack, by the names of the node's family; empty where the drivers are NVIDIA's,
        which come with the version set, or with the image."""
        subnet_manager = ("opensm",) if self.stack.subnet_manager else ()
        return () if self.nvidia else names_for((*INBOX, *subnet_manager), self.family)

    def is_infiniband(self, name: str) -> bool:
        """Whether a port is InfiniBand; a bond never is."""
        return any(declared_port.infiniband for declared_port in self.ports if declared_port.port.name == name)

    def addressed(self) -> tuple[Port, ...]:
        """Ports with an address: rails, and others."""
        return tuple(declared_port.port for declared_port in self.ports if declared_port.port.address)

    @property
    def manager(self) -> Manager:
        return "NetworkManager" if self.family == "rhel" else "networkd"


def declared_here() -> Declared:
    """Declaration for the node that pyinfra is at. Raises DeclarationError, one line, for a contradiction."""
    site = here()
    machine = machine_here()
    if machine is not None and machine.family not in ("debian", "rhel"):
        raise DeclarationError(f"{machine.label}: adapters are set up on Debian, Ubuntu and RHEL's family only")
    platform = platform_here()
    components, family = platform.components if platform else None, machine.family if machine else "debian"
    declared = declare(site, read_inputs(site.node, NicInputs), components, family, machine)
    fabric, nics = site.architecture.fabric, nics_of(site.architecture, site.node)
    ports = declared_ports(fabric, declared.stack, site.ports, nics, declared.rail_nic) if fabric else ()
    return replace(declared, ports=ports, drivers=needs_drivers(declared.stack, ports, machine))


def needs_drivers(stack: NicInputs, ports: Sequence[DeclaredPort], machine: Machine | None) -> bool:
    """Whether a port or a service needs NVIDIA's drivers, or the machine has an adapter of NVIDIA's."""
    declared = stack.subnet_manager or any(declared_port.of_nvidia for declared_port in ports)
    return declared or machine is None or bool(machine.devices(VENDOR))


def network_of(components: Components | None, site: Site, machine: Machine | None) -> NetworkStack | None:
    """The version set's network stack, where the set applies to the node. An unknown machine is taken to have the
    adapters."""
    network = components.network if components else None
    if network is None or (machine is not None and not applies("network", network, machine, site.node.groups)):
        return None
    return network


def declare(
    site: Site, stack: NicInputs, components: Components | None, family: str, machine: Machine | None
) -> Declared:
    """Declared software, without ports. Raises DeclarationError where inventory and version set contradict."""
    network = network_of(components, site, machine)
    if stack.source and network and stack.source != network.stack:
        raise DeclarationError(f"nic.source is {stack.source}, the version set has {network.stack}: correct one")
    source: Source = stack.source or (network.stack if network else "inbox")
    nics = nics_of(site.architecture, site.node)
    role = role_with(site.architecture, site.node.groups, "pcie")
    expected = site.architecture.roles[role].expect if role else None
    return Declared(
        stack=stack,
        source=source,
        ofed=(network.ofed or (network.version if network.stack == "mlnx_ofed" else None)) if network else None,
        dkms=network.dkms if network else (),
        locked=locked_firmware(site.node, stack, components),
        family=family,
        rail_nic=rail_nic(nics, site.ports, site.node),
        acs=expected.pcie.acs if expected and expected.pcie else None,
    )


def compares_firmware(site: Site, machine: Machine) -> bool:
    """Whether the node has adapters whose firmware the kit compares. Raises DeclarationError."""
    return bool(machine.devices(VENDOR)) and uses_adapters_here(site)


def firmware(site: Site, components: Components) -> Locked:
    """``locked_firmware`` by the node's own inputs."""
    return locked_firmware(site.node, read_inputs(site.node, NicInputs), components)


def locked_firmware(node: Node, stack: NicInputs, components: Components | None) -> Locked:
    """Locked firmware of adapters, with URLs of the site's mirror. Raises DeclarationError for an unknown model."""
    entries = components.nic_firmware if components else ()
    version_settings = read_inputs(node, VersionInputs)
    images = {
        **{
            entry.psid: Image(version=entry.version, url=entry.file.url, sha256=entry.file.sha256)
            for entry in entries
            if entry.psid and entry.file and entry.file.sha256
        },
        **stack.firmware_images,
    }
    at_site = {
        psid: image.model_copy(update={"url": mirrored(image.url, version_settings.mirrors)})
        for psid, image in images.items()
    }
    locked = Locked(entries, at_site, stack.adapters, version_settings.proxy)
    if unknown := unknown_models(locked):
        raise DeclarationError(
            f"versions_lock: nic_firmware: no adapter is called {', '.join(unknown)}; known are"
            f" {known_models()} and the names in nic.adapters"
        )
    return locked


def uses_adapters(site: Site, stack: NicInputs) -> bool:
    """Whether a node uses adapters at all: a controller without rails need not have one."""
    declares = stack.ports or stack.bonds or stack.vlans or stack.subnet_manager
    return bool(site.ports or nics_of(site.architecture, site.node) or declares)


def uses_adapters_here(site: Site) -> bool:
    """``uses_adapters`` for the node that pyinfra is at, including adapters that its version set applies to.

    Raises DeclarationError.
    """
    stack = read_inputs(site.node, NicInputs)
    if uses_adapters(site, stack):
        return True
    platform, machine = platform_here(), machine_here()
    return platform is not None and machine is not None and set_means(platform.components, site, stack, machine)


def set_means(components: Components, site: Site, stack: NicInputs, machine: Machine) -> bool:
    """Whether the version set has drivers or firmware for a supported adapter of the machine.

    Raises DeclarationError for an unknown model.
    """
    functions = [
        device
        for device in machine.devices(VENDOR, NETWORK)
        if device.device not in OLD or device.ids in stack.adapters
    ]
    if functions and (network := network_of(components, site, machine)) and network.packages:
        return True
    locked = locked_firmware(site.node, stack, components)
    kinds = [
        stack.adapters.get(device.ids) or KINDS.get(device.device)
        for device in functions
        if device.device not in FUNCTIONS
    ]
    # Unknown adapters are reported by `operations.adapters`.
    return bool(locked) and any(kind is None or may_be_meant(kind, locked) for kind in kinds)


def nics_of(architecture: Architecture, node: Node) -> tuple[Nic, ...]:
    role = role_with(architecture, node.groups, "nics")
    expected = architecture.roles[role].expect if role else None
    return tuple(expected.nics) if expected else ()


def rail_nic(nics: Sequence[Nic], rails: Sequence[Port], node: Node) -> Nic | None:
    """The entry of ``nics`` for the rails: it names one of them, or its purpose is computing."""
    names = {name for port in rails for name in (port.name, port.rdma)}
    for nic in nics:
        if names & set(port_names(nic, node)):
            return nic
    return next((nic for nic in nics if nic.purpose == "compute" and nic.count == len(rails)), None)


def port_names(nic: Nic, node: Node) -> tuple[str, ...]:
    """Names of the ports in inventory and architecture. Raises DeclarationError."""
    try:
        named = names_by_purpose(node.data).get(nic.purpose, ())
    except ValueError as error:
        raise DeclarationError(str(error)) from None
    return named or nic.interfaces or nic.ports


def firmware_wanted(site: Site) -> tuple[FirmwareWanted, ...]:
    """Declared firmware, purpose by purpose.

    Only an entry for the rails may leave out which ports it is about: the inventory names the rails. Raises
    DeclarationError for any other entry that does.
    """
    nics = nics_of(site.architecture, site.node)
    rails = rail_nic(nics, site.ports, site.node)
    wanted: list[FirmwareWanted] = []
    for nic in nics:
        if nic.firmware is None and nic.firmware_settings is None:
            continue
        names: tuple[str, ...] = port_names(nic, site.node)
        if nic is rails:
            names = tuple(port.name for port in site.ports)
        elif nic.slots:
            names = nic.slots
        if not names:
            # Another maker's adapter, perhaps: validators read it, the deploy never writes to it.
            continue
        wanted.append((nic.purpose, names, nic.firmware, nic.firmware_settings))
    return tuple(wanted)
