"""An inventory from Slurm: ``scontrol show nodes > inventories/data/slurm-nodes.txt`` (or with ``--json``).

Names and addresses come from Slurm, the rest follows the nodes' numbers.
"""

from pathlib import Path as _Path

from rackproof.inventories import from_slurm as _from_slurm
from rackproof.inventories import nodes as _nodes

_fabric = dict(_nodes("gpu-[01-02]", fabric=["198.51.100.{n+20}/26"], fabric_paths=["pci-0000:18:00.0"]))
_rack = _from_slurm(_Path(__file__).with_name("data") / "slurm-nodes.txt", groups={"h200": "gpu"})

gpu = [(name, {**data, **_fabric[name]}) for name, data in _rack["gpu"]]
