"""Files and units of the Ceph server."""

from __future__ import annotations

from rackproof.configure.ceph import cluster as ceph
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.mounts import CEPH_CLIENT, CEPH_SECRET
from rackproof.configure.render import templates
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError


def serves_ceph(site: Site) -> bool:
    return site.architecture.ceph is not None and bool(site.served("parallel"))


def why_nothing(site: Site) -> str | None:
    return None if serves_ceph(site) else "serves no Ceph by the architecture"


def cluster_plan(site: Site) -> ceph.CephPlan:
    if site.architecture.ceph is None:
        raise DeclarationError("the architecture has no section ceph")
    return site.ceph_plan(site.architecture.ceph)


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
        RemoteFile(
            ceph.BOOTSTRAP,
            templates.text(
                ceph.BOOTSTRAP,
                plan=plan,
                client=CEPH_CLIENT,
                client_keyring=ceph.CLIENT_KEYRING,
                secret=CEPH_SECRET,
                osd_directory=ceph.OSD_DIRECTORY,
                done=ceph.DONE,
            ),
            mode="755",
        ),
        rendered(osd),
        *(
            RemoteFile(f"/etc/systemd/system/ceph-{daemon}@.service.d/rackproof.conf", templates.text(patient))
            for daemon in ("mon", "mgr", "mds")
        ),
    )


def units(plan: ceph.CephPlan) -> tuple[Unit, ...]:
    return (
        *(Unit(f"{service}.service") for service in plan.services),
        # Collects crash reports for a cluster's operators; it needs a key of its own, which the kit does not make.
        Unit("ceph-crash.service", enabled=False, running=False),
    )
