"""A whole rack: ``pyinfra inventories/lab.py deploys/cluster.py``.

Servers come before clients. Review the plan first (``--dry --diff``): it also shows problems before any change. A
deploy that does not apply to a node adds no operations to it.
"""

from deploys.base import base, clock_source
from deploys.ceph import ceph
from deploys.containers import container_toolkit, containers
from deploys.driver_swap import driver_swap
from deploys.fabric import fabric
from deploys.gpu import gpu, gpudirect_storage
from deploys.health_check import health_check
from deploys.node import node
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.slurm import slurm
from deploys.storage_client import storage_client
from deploys.storage_server import storage_server
from deploys.tools import tools
from deploys.versions import hold_and_read_back, holds, kernel, repositories, rest
from rackproof.configure import operations

preflight()
base()
repositories()
kernel()
node()
driver_swap()
fabric()

storage_server()
ceph()
operations.meet(name="Servers before clients")

# The GPU driver links to the adapters' drivers, file-system clients to both; GPUDirect Storage can be verified only
# after the clients are installed.
gpu()
storage_client()
gpudirect_storage()

containers()
container_toolkit()
health_check()
slurm()

rest()
hold_and_read_back()
holds()
clock_source()

tools()
reboot()
