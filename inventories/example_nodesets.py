"""An inventory of numbered nodes whose names and addresses follow one rule."""

from rackproof.inventories import nodes as _nodes

gpu = _nodes(
    "gpu-[01-32]",
    address="192.0.2.{n+20}",
    fabric=["10.60.0.{n}/24"],
    fabric_paths=["pci-0000:18:00.0"],
    data_drive="/dev/disk/by-id/nvme-SCRATCH_MODEL_*_1",
)
storage = _nodes(
    "storage-[01-02]",
    address="192.0.2.{n+10}",
    fabric=["10.60.0.{n+200}/24"],
    fabric_paths=["pci-0000:18:00.0"],
    nfs_drive="/dev/disk/by-id/nvme-EXPORT_MODEL_*_1",
)
