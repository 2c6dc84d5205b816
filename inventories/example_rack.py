"""An example of a real rack: four GPU servers and one storage server.

Nothing answers at these addresses (they are reserved for documentation). Copy the file, put in your own, and look at
the plan before anything is touched::

    pyinfra --dry --diff inventories/my_rack.py deploys/cluster.py

Groups are roles. A node's host key must be known before the first run (from the vendor's list, or with
``ssh-keyscan`` on a network that you trust): ``group_data/all.py`` refuses unknown ones.
"""

_ARCHITECTURE = "virtual-rack"  # a file of architectures/: yours says what you were promised
_RAILS = 1  # as the architecture says


def _node(name, number, **data):
    return name, {
        "ssh_hostname": f"192.0.2.{number}",
        "architecture": _ARCHITECTURE,
        # Address of rail k with its prefix length; every rail is a network of its own.
        "fabric_addresses": [f"198.51.100.{64 * rail + number}/26" for rail in range(_RAILS)],
        # Which NIC is rail k: udev's ID_PATH, the same in every server of one model. Where slots differ, give
        # fabric_macs instead: ["b8:3f:d2:00:00:01", ...].
        "fabric_paths": ["pci-0000:18:00.0", "pci-0000:9a:00.0"][:_RAILS],
        **data,
    }


gpu = [
    # A drive is named by its id: /dev/nvme0n1 may be another one after the next boot. A pattern must match exactly one
    # drive. A drive with anything on it that the kit did not put there is never formatted.
    _node(f"gpu-{n:02d}", 20 + n, data_drive="/dev/disk/by-id/nvme-SCRATCH_MODEL_*_1")
    for n in range(1, 5)
]

storage = [
    _node(
        "storage-01",
        10,
        nfs_drive="/dev/disk/by-id/nvme-EXPORT_MODEL_*_1",
        ceph_drive="/dev/disk/by-id/nvme-OSD_MODEL_*_1",
    ),
]
