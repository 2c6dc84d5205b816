"""A whole rack: ``pyinfra inventories/lab.py deploys/cluster.py``.

Servers come before clients. Look at the plan first (``--dry --diff``): it also finds what cannot work before any
node is touched.
"""

from pyinfra.context import host

from deploys.base import base, clock_source
from deploys.ceph import ceph_server
from deploys.container_toolkit import container_toolkit
from deploys.containers import containers
from deploys.driver_swap import driver_swap
from deploys.fabric import fabric
from deploys.gpu import gpu
from deploys.gpu_driver import gpudirect_storage
from deploys.health_check import health_check
from deploys.node import node
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.slurm import slurm
from deploys.storage_client import storage_client
from deploys.storage_server import storage_server
from deploys.tools import tools
from deploys.versions import hold_and_read_back, kernel, promised_holds, repositories_and_freeze, rest
from rackproof.configure import operations
from rackproof.configure.site import here

site = here()

preflight()
base()
repositories_and_freeze()
kernel()
node()
driver_swap()
if site.architecture.fabric:
    fabric()

if site.served("nfs"):
    storage_server()
if site.architecture.ceph and site.served("parallel"):
    ceph_server()
operations.meet(name="Servers before clients")

# Drivers of the adapters come first, because the GPU's link to them; clients of file systems link to both; and only
# with a client there can be seen that its data goes straight to a GPU.
if "gpu" in host.groups:
    gpu(prove_storage=False)
if site.client_storage():
    storage_client()
if "gpu" in host.groups:
    gpudirect_storage()

if site.architecture.containers:
    containers()
if "gpu" in host.groups:
    container_toolkit()
if site.architecture.slurm:
    health_check()
    slurm()

rest()
hold_and_read_back()
promised_holds()
clock_source()

tools()
reboot()
