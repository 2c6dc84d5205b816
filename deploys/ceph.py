"""A Ceph cluster on one node, for the virtual rack: a real parallel file system with a real kernel client.

Without containers and without cephadm: four daemons, one drive, one file system. It is for tests of everything that
uses it; production clusters are set up with their own tools, and the kit configures only their clients.
"""

from __future__ import annotations

from deploys.base import base
from deploys.fabric import fabric_needed
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations
from rackproof.configure.ceph import plan
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.site import here


@deploy("Ceph server", plan.why_nothing)
def ceph() -> None:
    site = here()
    cluster = site.ceph_plan()
    operations.files(name="Files", entries=plan.files(cluster))
    operations.ceph_cluster(name="Cluster", plan=cluster)
    operations.units(name="Services", wanted=plan.units(cluster))


if alone(__name__, plan.why_nothing):
    preflight()
    base()
    fabric_needed()
    ceph()
    reboot()
