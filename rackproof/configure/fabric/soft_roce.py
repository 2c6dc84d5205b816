"""Soft-RoCE on every fabric port: files and units."""

from __future__ import annotations

from rackproof.configure.files import Entry
from rackproof.configure.shared_files import boot_modules, rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit

MODULES = ("rdma_rxe", "ib_uverbs", "rdma_ucm")


def files(site: Site) -> tuple[Entry, ...]:
    fabric = site.fabric
    return (
        boot_modules("rdma", "Soft-RoCE", MODULES, load_now=True),
        rendered(
            "/etc/systemd/system/rackproof-rxe@.service",
            rdma_prefix=fabric.rdma_prefix,
            interface_prefix=fabric.interface_prefix,
        ),
    )


def units(site: Site) -> tuple[Unit, ...]:
    loaded = " && ".join(f"test -e /sys/module/{module}" for module in MODULES)
    return (
        Unit("systemd-modules-load.service", enabled=None, proof=loaded),
        *(
            Unit(f"rackproof-rxe@{rail}.service", proof=f"test -e /sys/class/infiniband/{port.rdma}")
            for rail, port in enumerate(site.ports)
        ),
    )
