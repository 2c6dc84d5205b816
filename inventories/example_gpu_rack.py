"""A rack of 32 HGX servers with RoCE, a Lustre client, Slurm and one version set.

The addresses are reserved for documentation. Copy the file, enter your own, and start with::

    rackproof preflight inventories/my_rack.py      # problems on every node, before any change
    rackproof plan      inventories/my_rack.py      # what a deploy would change, nodes folded

Groups are roles of the architecture. The mapping after a group's nodes is data of all of them, one key per concern;
``rackproof inputs`` lists every key with its default.
"""

from rackproof.inventories import nodes as _nodes

_MIRROR = "http://mirror.example.org"
# sha256 of the file on your mirror, as the vendor publishes it. With zeros the download is refused.
_SHA256 = "0" * 64

_gpu = {
    # The version set has the driver's version. The architecture decides which other components are installed.
    "module_options": {"NVreg_RestrictProfilingToAdminUsers": "0"},
    "nccl_conf": {"NCCL_DEBUG": "WARN"},
    "runtimes": ["containerd"],
    # Programs of the architecture's benchmarks that no package has, built on the nodes with the version set's CUDA and
    # NCCL; without them a rack ends INCOMPLETE. 26.07 is the first perftest that can be built with CUDA 13.
    "tools": {
        "nvbandwidth": {"url": f"{_MIRROR}/tools/nvbandwidth-0.8.tar.gz", "sha256": _SHA256},
        "nccl_tests": {"url": f"{_MIRROR}/tools/nccl-tests-2.17.9.tar.gz", "sha256": _SHA256},
        "perftest": {"url": f"{_MIRROR}/tools/perftest-26.07.8.tar.gz", "sha256": _SHA256},
    },
}

_nic = {
    "source": "doca",
    "drivers_by": "reboot",
    # Two storage ports of each server, with RoCE. {n} is the number in the node's name.
    "ports": {
        "stor0": {"path": "pci-0000:29:00.0", "lossless": True},
        "stor1": {"path": "pci-0000:29:00.1", "lossless": True},
    },
    "bonds": {"bond0": {"ports": ["stor0", "stor1"], "address": "10.60.40.{n}/24"}},
}

_node = {
    "scratch_path": "/scratch",
    "limited_services": ["containerd.service", "slurmd.service"],
    # No password hashes here: password_from names an environment variable.
    "users": [{"name": "ada", "uid": 2001, "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample ada@desk"]}],
}

_storage_client = {
    "lustre": {
        "repository": {
            "source": f"{_MIRROR}/lustre/2.16/ubuntu2404/client ./",
            "key": {"url": f"{_MIRROR}/lustre/key.asc", "sha256": _SHA256},
        },
        "interfaces": ["rail0", "rail4"],
    },
}

_slurm = {
    "cluster_name": "hgx",
    "partition_options": {"gpu": {"MaxTime": "2-00:00:00"}},
}

gpu = (
    _nodes(
        "gpu-[01-32]",
        address="192.0.2.{n+20}",
        # What the nodes' names mean to each other: control traffic stays off the rails.
        management_address="192.0.2.{n+20}",
        # One network per rail.
        fabric=[f"10.60.{rail}.{{n}}/24" for rail in range(8)],
        # Port of rail k: udev's ID_PATH, the same in all servers of one model.
        fabric_paths=[
            *("pci-0000:1a:00.0", "pci-0000:3c:00.0", "pci-0000:4d:00.0", "pci-0000:5e:00.0"),
            *("pci-0000:9c:00.0", "pci-0000:bc:00.0", "pci-0000:cc:00.0", "pci-0000:dc:00.0"),
        ],
        # Each pattern must match exactly one drive. A drive with foreign data is never formatted.
        scratch_drives=[f"/dev/disk/by-id/nvme-SCRATCH_MODEL_*_{slot}" for slot in range(1, 5)],
        data_drive="/dev/disk/by-id/nvme-CACHE_MODEL_*_1",
        nic=_nic,
    ),
    {
        # To extend it: architectures/README.md.
        "architecture": "hgx-h100-roce",
        # A draft, refused until `rackproof versions lock` has written your own lock.
        "versions_lock": "inventories/versions/ubuntu-24.04.yaml",
        "versions": {"mirrors": {"https://developer.download.nvidia.com": f"{_MIRROR}/nvidia"}},
        "gpu": _gpu,
        "node": _node,
        "storage_client": _storage_client,
        "slurm": _slurm,
        "health_check": {"wheelhouse": "/mnt/hps/rackproof/wheels"},
        "reboot": {"serial": 4},
        # Accepted problems with reasons: {"clock.offset": "no time server before Tuesday"}.
        "preflight": {"accept": {}, "free_mib": {"/": 20480, "/var": 20480, "/boot": 512}},
        "ssh_user": "root",
        "ssh_strict_host_key_checking": "yes",
    },
)
