"""Nodes of an inventory file from other sources: CSV, NetBox, Slurm, Terraform, node sets.

::

    from rackproof.inventories import from_csv as _from_csv

    _rack = _from_csv(Path(__file__).with_name("rack.csv"))
    gpu, storage = _rack["gpu"], _rack["storage"]

Each function returns groups as a pyinfra inventory file has them: name: list of ``(node, data)``. Errors are one line
with the source's file and line or record, and the remedy.
"""

from rackproof.core.secret import Secret
from rackproof.inventories.netbox import from_netbox
from rackproof.inventories.nodesets import nodes
from rackproof.inventories.records import Groups, SourceError
from rackproof.inventories.secrets import secret
from rackproof.inventories.slurm import from_slurm
from rackproof.inventories.table import from_csv
from rackproof.inventories.terraform import from_terraform

__all__ = [
    "Groups",
    "Secret",
    "SourceError",
    "from_csv",
    "from_netbox",
    "from_slurm",
    "from_terraform",
    "nodes",
    "secret",
]
