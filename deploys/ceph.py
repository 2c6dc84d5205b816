"""A Ceph cluster on one node, for the virtual rack: a real parallel file system with a real kernel client.

Without containers and without cephadm: four daemons, one drive, one file system. It exists so that everything above
it can be tried; a production cluster is set up by its own tools, and then only its clients are ours.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from rackproof.configure import operations
from rackproof.configure.ceph import plan
from rackproof.configure.site import here


@deploy("Ceph server")
def ceph_server() -> None:
    cluster = plan.cluster_plan(here())
    operations.files(name="Files", entries=plan.files(cluster))
    operations.ceph_cluster(name="Cluster", plan=cluster)
    operations.units(name="Services", wanted=plan.units(cluster))
