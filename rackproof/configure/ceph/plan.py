"""Files and units of the Ceph server."""

from __future__ import annotations

from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.files import Entry, RemoteDirectory
from rackproof.configure.mounts import CEPH_CLIENT, CEPH_SECRET
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit


def serves_ceph(site: Site) -> bool:
    return site.architecture.ceph is not None and bool(site.served("parallel"))


def why_nothing(site: Site) -> str | None:
    return None if serves_ceph(site) else "the architecture gives this node no Ceph server"


def files(plan: ceph.CephPlan) -> tuple[Entry, ...]:
    patient = "/etc/systemd/system/ceph-daemon.service.d/rackproof.conf"
    osd = "/etc/systemd/system/ceph-osd@.service.d/rackproof.conf"
    return (
        RemoteDirectory("/etc/ceph"),
        RemoteDirectory(ceph.NO_MODULES),
        rendered(
            "/etc/ceph/ceph.conf",
            restart=tuple(f"{service}.service" for service in plan.services),
            plan=plan,
            no_modules=ceph.NO_MODULES,
        ),
        rendered(
            ceph.BOOTSTRAP,
            mode="755",
            plan=plan,
            client=CEPH_CLIENT,
            client_keyring=ceph.CLIENT_KEYRING,
            secret=CEPH_SECRET,
            osd_directory=ceph.OSD_DIRECTORY,
            done=ceph.DONE,
        ),
        rendered(osd),
        *(
            rendered(f"/etc/systemd/system/ceph-{daemon}@.service.d/rackproof.conf", template=patient)
            for daemon in ("mon", "mgr", "mds")
        ),
    )


def units(plan: ceph.CephPlan) -> tuple[Unit, ...]:
    return (
        *(Unit(f"{service}.service") for service in plan.services),
        # Collects crash reports for a cluster's operators; it needs a key of its own, which the kit does not make.
        Unit("ceph-crash.service", enabled=False, running=False),
    )
