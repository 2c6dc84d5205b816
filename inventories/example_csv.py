"""An inventory from a CSV table: ``data/rack.csv``.

Columns are named as in the header; ``data`` is common to all nodes.
"""

from pathlib import Path as _Path

from rackproof.inventories import from_csv as _from_csv

_rack = _from_csv(
    _Path(__file__).with_name("data") / "rack.csv",
    name="Hostname",
    role="Role",
    roles={"GPU server": "gpu", "Storage": "storage", "Switch": None},
    columns={"ssh_hostname": "Management", "fabric_addresses": ["Rail 0"], "data_drive": "Scratch"},
    data={"fabric_paths": ["pci-0000:18:00.0"]},
)

gpu = _rack["gpu"]
storage = _rack["storage"]
