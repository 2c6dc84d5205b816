"""Nodes for an inventory file from sources that list them already: CSV, NetBox, Slurm, Terraform, node sets.

::

    from rackproof.inventories import from_csv as _from_csv

    _rack = _from_csv(Path(__file__).with_name("rack.csv"))
    gpu, storage = _rack["gpu"], _rack["storage"]

Each helper returns groups: name: list of ``(node, data)``, as pyinfra has them in an inventory file. An
error in the source is one line with its file, line or record, and the remedy.
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
