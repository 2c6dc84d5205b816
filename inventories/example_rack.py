"""A real rack: four GPU servers and one storage server.

The addresses are reserved for documentation. Copy the file, enter your own, and read the plan first::

    pyinfra --dry --diff inventories/my_rack.py deploys/cluster.py

Groups are roles. Host keys must be in ``known_hosts`` before the first run (from the vendor's list, or with
``ssh-keyscan`` on a trusted network): ``group_data/all.py`` refuses unknown ones.
"""

_ARCHITECTURE = "virtual-rack"  # a file of architectures/; replace it with your own
_RAILS = 1  # as the architecture says


def _node(name, number, **data):
    return name, {
        "ssh_hostname": f"192.0.2.{number}",
        "architecture": _ARCHITECTURE,
        # Address of rail k with its prefix length; one network per rail.
        "fabric_addresses": [f"198.51.100.{64 * rail + number}/26" for rail in range(_RAILS)],
        # NIC of rail k: udev's ID_PATH, the same in all servers of one model. If slots differ, use
        # fabric_macs instead: ["b8:3f:d2:00:00:01", ...].
        "fabric_paths": ["pci-0000:18:00.0", "pci-0000:9a:00.0"][:_RAILS],
        **data,
    }


gpu = [
    # Drives are named by id: /dev/nvme0n1 may be another drive after a boot. A pattern must match exactly one drive.
    # A drive with foreign data is never formatted.
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
