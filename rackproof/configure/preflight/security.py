"""Default restrictions of operating systems that prevent the declared state: SELinux, firewalld, AppArmor.

Read only where they matter: RHEL's family enables the first two, Ubuntu from 24.04 on the last.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell
from rackproof.configure.network import Port
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.plan import Problem
from rackproof.core.rack import Node
from rackproof.core.version_numbers import numbers
from rackproof.parse.firewalld import Zone, parse_active_zones
from rackproof.parse.sections import sections_of

USERNS: Final = "kernel.apparmor_restrict_unprivileged_userns"
_USERNS_FROM: Final = (24, 4)
"""First release of Ubuntu that restricts user namespaces by default."""
_USERNS_RUNTIMES: Final = ("enroot", "podman")
"""Container runtimes that need user namespaces for unprivileged users."""
COMMAND: Final = shell.script(__name__, "security", userns=USERNS.replace(".", "/"))
"""Five sections, divided by ``--``."""

SERVED: Final = {
    # class or type of a storage: ports of its server
    "nfs": "NFS TCP 2049, RDMA 20049, and for NFSv3 rpcbind 111 and mountd",
    "ceph": "Ceph TCP 3300, 6789, 6800-7568",
}
CALLED: Final = {
    # type of a storage: ports of its clients that servers connect to
    "beegfs": "BeeGFS's client UDP 8004",
    "gpfs": "Storage Scale TCP 1191",
    "lustre": "LNet TCP 988",
    "wekafs": "WEKA TCP and UDP 14000-14100",
}
"""Default ports, from the vendors' documentation."""
BETWEEN: Final = "MPI, NCCL and the benchmarks between nodes (any port)"


@dataclass(frozen=True, slots=True)
class SecurityState:
    enforcing: bool
    """Whether SELinux enforces."""
    default_zone: str | None
    """firewalld's default zone; empty when it gives no answer, None when it does not run."""
    zones: Mapping[str, Zone]
    userns_restricted: bool
    """User namespaces need privileges, or an AppArmor profile that allows them."""
    podman_profile: bool
    """Whether that profile is loaded for podman; Ubuntu's package apparmor contains it."""


def concerned(machine: Machine, architecture: Architecture, node: Node) -> bool:
    """Whether these facts are read on a node."""
    return machine.family == "rhel" or (
        machine.os_id == "ubuntu" and numbers(machine.os_version) >= _USERNS_FROM and bool(_runtime(architecture, node))
    )


def _runtime(architecture: Architecture, node: Node) -> str | None:
    """Container runtime of unprivileged users on this node."""
    declared = architecture.containers
    here = declared is not None and set(declared.roles) & set(node.groups)
    return declared.runtime if declared and here and declared.runtime in _USERNS_RUNTIMES else None


def parse_state(lines: Sequence[str]) -> SecurityState:
    """Answer of ``COMMAND``. Raises ValueError on anything else."""
    selinux, firewall, zones, userns, profiles = sections_of(lines, 5)
    if len(selinux) != 1 or len(userns) != 1 or firewall[:1] not in ([], ["active"]):
        raise ValueError("no answer about SELinux, firewalld or user namespaces")
    return SecurityState(
        enforcing=selinux == ["1"],
        default_zone=(firewall[1] if len(firewall) > 1 else "") if firewall else None,
        zones=parse_active_zones(zones),
        userns_restricted=userns[0] not in ("", "0"),
        podman_profile=bool(profiles),
    )


def problems(
    state: SecurityState, architecture: Architecture, node: Node, ports: Sequence[Port], slurm: SlurmInputs
) -> Iterator[Problem]:
    """Problems from the node's answer. ``ports``: ports of the fabric."""
    yield from _firewall(state, ports, listening(architecture, node, slurm))
    mounted = [item for role in node.groups for item in architecture.client_storage(role).items()]
    lustre = dict.fromkeys(name for name, storage in mounted if storage.fstype == "lustre")
    if state.enforcing and lustre:
        yield Problem(
            "host.selinux",
            f"SELinux: expected permissive for Lustre ({', '.join(lustre)}), actual enforcing",
            "set SELINUX=permissive in /etc/selinux/config and setenforce 0, or accept it where the servers store"
            " labels",
        )
    runtime = _runtime(architecture, node)
    set_here = architecture.system.sysctl.get(USERNS, "").strip() == "0"
    if runtime and state.userns_restricted and not set_here and not (runtime == "podman" and state.podman_profile):
        remedy = f'add {USERNS}: "0" to system.sysctl of the architecture, which the deploy sets'
        if runtime == "podman":
            remedy += ", or load the profile podman of Ubuntu's package apparmor"
        else:
            remedy += ", or load an AppArmor profile with userns for enroot and accept this"
        what = f"{runtime}: expected user namespaces for users without privileges, actual {USERNS} is 1"
        yield Problem("host.userns", what, remedy)


def listening(architecture: Architecture, node: Node, slurm: SlurmInputs) -> tuple[str, ...]:
    """Services and ports of this node that other nodes must reach, as text."""
    closed_ports: list[str] = []
    declared, groups = architecture.slurm, set(node.groups)
    if declared and declared.controller_role in groups:
        closed_ports.append(f"slurmctld TCP {slurm.controller_port}")
    if declared and groups & set(declared.roles):
        closed_ports.append(f"slurmd TCP {slurm.node_port}, srun any")
    if architecture.system.time.server_role in groups:
        closed_ports.append("chrony UDP 123")
    for storage in architecture.storage.values():
        kind = "nfs" if storage.class_ == "nfs" else storage.fstype
        if storage.server_role in groups and kind in SERVED:
            closed_ports.append(SERVED[kind])
        if groups & set(storage.client_roles) and kind in CALLED:
            closed_ports.append(CALLED[kind])
    if architecture.fabric is not None:
        closed_ports.append(BETWEEN)
    return tuple(dict.fromkeys(closed_ports))


def _firewall(state: SecurityState, ports: Sequence[Port], wanted: Sequence[str]) -> Iterator[Problem]:
    if state.default_zone is None or not wanted:
        return
    networks_of = {port.name: str(ipaddress.ip_interface(port.address).network) for port in ports}
    closed = {name: network for name, network in networks_of.items() if not _trusted(state, name, network)}
    own = state.zones.get("trusted", Zone())
    # Without fabric ports the network between the nodes is unknown: any trusted zone counts.
    if not closed and (ports or state.default_zone == "trusted" or own.sources or own.interfaces):
        return
    names = ", ".join(closed) or "its network"
    networks = (
        " ".join(dict.fromkeys(f"--add-source={network}" for network in closed.values())) or "--add-source=NETWORK"
    )
    yield Problem(
        "host.firewall",
        f"firewalld: expected inactive, or {names} in its zone trusted, actual active with the default zone"
        f" {state.default_zone or 'unknown'}: closed to other nodes are {', '.join(wanted)}",
        f"firewall-cmd --permanent --zone=trusted {networks} (and the management network), then firewall-cmd"
        " --reload, or systemctl disable --now firewalld",
    )


def _trusted(state: SecurityState, interface: str, network: str) -> bool:
    """Whether traffic of a port is in the zone ``trusted``: sources precede interfaces, the rest is in the default
    zone."""
    trusted = state.zones.get("trusted", Zone())
    if any(_within(network, source) for source in trusted.sources):
        return True
    bound = next((name for name, zone in state.zones.items() if interface in zone.interfaces), state.default_zone)
    return bound == "trusted"


def _within(network: str, source: str) -> bool:
    try:
        return ipaddress.ip_network(network).subnet_of(ipaddress.ip_network(source, strict=False))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False  # a MAC address, an ipset, or a network of the other version of IP
