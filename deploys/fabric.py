"""The network between nodes: port names, addresses, MTU, RDMA, names and ssh between nodes.

Ports are renamed and configured at once; the same names and settings come back at boot through udev and
systemd-networkd. RDMA is a matter of its own for each kind of fabric: see ``rdma_soft`` and ``rdma_connectx``.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from deploys import templates
from deploys.rdma_connectx import rdma_connectx
from deploys.rdma_soft import files as rdma_soft_files
from deploys.rdma_soft import rdma_soft
from rackproof.configure import operations, rack_operations
from rackproof.configure.files import Entry, RemoteFile
from rackproof.configure.network import Port, hosts_block
from rackproof.configure.site import Site, here
from rackproof.configure.units import Unit


@deploy("Fabric")
def fabric() -> None:
    site = here()
    soft = site.architecture.fabric.kind == "soft-roce"
    operations.files(name="Files", entries=(*files(site), *(rdma_soft_files(site) if soft else ())))
    operations.units(name="Services", wanted=units(site.ports))
    operations.ports(name="Ports", wanted=site.ports)
    operations.kernel_values(name="Kernel values", sysctl=port_sysctl(site.ports), patterns={})
    if soft:
        rdma_soft()
    else:
        rdma_connectx()
    rack_operations.own_key(name="Own ssh key")
    rack_operations.ssh_trust(
        name="ssh between nodes",
        names=known_names(site),
        mpi_nodes=[node.name for node in site.rack.group("gpu")],
    )


def files(site: Site) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for port in site.ports:
        entries += [
            RemoteFile(
                f"/etc/systemd/network/10-{port.name}.{kind}",
                templates.text(f"/etc/systemd/network/10-fabric.{kind}", port=port),
            )
            for kind in ("link", "network")
        ]
    entries += [
        RemoteFile(
            "/etc/sysctl.d/61-rackproof-fabric.conf",
            templates.text("/etc/sysctl.d/61-rackproof-fabric.conf", sysctl=port_sysctl(site.ports)),
        ),
        RemoteFile("/etc/hosts", hosts_block(site.fabric_addresses()), block=True),
    ]
    return tuple(entries)


def port_sysctl(ports: tuple[Port, ...]) -> dict[str, str]:
    """Several ports in one host, possibly in one subnet: each answers and speaks for its own address only, and a
    packet may come in on another port than the answer would leave by (loose reverse-path filter)."""
    values: dict[str, str] = {}
    for port in ports:
        prefix = f"net.ipv4.conf.{port.name}"
        values |= {f"{prefix}.rp_filter": "2", f"{prefix}.arp_ignore": "1", f"{prefix}.arp_announce": "2"}
    return values


def units(ports: tuple[Port, ...]) -> tuple[Unit, ...]:
    """At boot, "network is online" includes every rail; it does not wait for other interfaces."""
    waiting = (Unit(f"systemd-networkd-wait-online@{port.name}.service", running=None) for port in ports)
    return (Unit("systemd-networkd.service"), *waiting)


def known_names(site: Site) -> dict[str, list[str]]:
    """Every node and what else it is called: its name on every rail, and the addresses there."""
    return {
        name: [*(f"{name}-fabric{rail}" for rail in range(len(addresses))), *addresses]
        for name, addresses in site.fabric_addresses().items()
    }
