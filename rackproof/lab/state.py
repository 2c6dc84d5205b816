"""State of the virtual rack on disk, as inventories/lab.py reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rackproof.atomic_write import replace_file
from rackproof.errors import LabError
from rackproof.lab.keeper import PIDFILE
from rackproof.lab.recipe import host_data_of
from rackproof.lab.spec import SCRATCH, NodeSpec, RackSpec

FOLDER = ".lab"
RACK = "rack.json"
FAULTS = "faults.json"
START = "start it with `rackproof lab up`"


def lab_folder() -> Path:
    """``.lab`` in the nearest folder upwards with pyproject.toml and inventories."""
    working = Path.cwd()
    for folder in (working, *working.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "inventories").is_dir():
            return folder / FOLDER
    return working / FOLDER


def read_spec(folder: Path) -> RackSpec | None:
    """The rack of the last ``lab up``, running or not; None before the first."""
    try:
        text = (folder / RACK).read_text()
    except FileNotFoundError:
        return None
    try:
        return RackSpec.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{folder / RACK} is unreadable ({error}); remove {folder} and {START}") from error


def write_spec(folder: Path, spec: RackSpec) -> None:
    replace_file(folder / RACK, json.dumps(spec.to_json(), indent=2) + "\n")


def keeper_alive(folder: Path) -> bool:
    """Whether the rack's keeper runs. Its command line is checked, because pids are reused."""
    try:
        pid = int((folder / PIDFILE).read_text())
        return b"rackproof.lab.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False


COMMAND_TIMEOUT_S = 300.0
"""For each command of a check: emulated nodes on a busy host are slow by tens of seconds."""
MOUNT_TIMEOUT_S = 120
"""For one attempt to mount; same reason."""


def host_data(folder: Path, spec: RackSpec, node: NodeSpec) -> dict[str, Any]:
    """pyinfra host data of one lab node."""
    by_id = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{}"
    data: dict[str, Any] = {
        "ssh_hostname": "127.0.0.1",
        "ssh_port": spec.wiring.ssh_port[node.name],
        "ssh_user": "root",
        "ssh_key": str(folder / "id_ed25519"),
        "ssh_known_hosts_file": str(folder / "known_hosts"),
        "ssh_strict_host_key_checking": "yes",
        "fabric_addresses": [node.fabric_address(rail) for rail in range(node.rails)],
        "fabric_macs": [node.mac("fabric", rail) for rail in range(node.rails)],
        "virtual": True,
        "command_timeout_s": COMMAND_TIMEOUT_S,
        "mount_timeout_s": MOUNT_TIMEOUT_S,
        "simulated_gpus": node.role == "gpu",
        "slurm": {"return_to_service": 2},  # `lab down` and `up` are reboots that Slurm did not start
        **host_data_of(node.release, (other.release for other in spec.nodes)),
    }
    if node.role == "gpu":
        data["data_drive"] = by_id.format("rplocal")
        data["scratch_drives"] = [by_id.format(drive.serial) for drive in SCRATCH]
    else:
        data["nfs_drive"] = by_id.format("rpnfs")
        data["ceph_drive"] = by_id.format("rpceph")
        data["fabric_second_addresses"] = [node.second_address(rail) for rail in range(node.rails)]
    return data


def inventory_groups(folder: Path | None = None) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Groups for inventories/lab.py. Raises LabError if the rack is down."""
    folder = folder or lab_folder()
    spec = read_spec(folder)
    if spec is None or not keeper_alive(folder):
        raise LabError(f"the virtual rack is down: {START}")
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {"gpu": [], "storage": []}
    for node in spec.nodes:
        groups[node.role].append((node.name, host_data(folder.resolve(), spec, node)))
    return groups


def private_folder(folder: Path) -> None:
    """Create ``.lab``, readable by its owner only: it contains the lab's private key."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o700)
