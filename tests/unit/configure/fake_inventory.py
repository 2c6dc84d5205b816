"""An inventory of nodes that are not there: pyinfra's fake connector answers every fact.

Its answers are those of nodes with nothing on them. ``RACKPROOF_FAKE`` names a change: ``no-drive`` (the storage node
has none), ``foreign`` (a client's drive has foreign data).
"""

import os as _os
import shlex as _shlex
import time as _time
from typing import Any as _Any

from rackproof.configure.facts import END as _END
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.rack import Node as _Node
from tests.unit.configure.rack import rack as _rack

_LINKS = (
    '[{"ifindex": 2, "operstate": "UP", "ifname": "enp0s16", "link_type": "ether", "flags": ["UP"], "mtu": 1500,'
    ' "address": "MAC", "addr_info": []}]'
)
_UNIT = ["Id=x", "LoadState=loaded", "ActiveState=inactive", "UnitFileState=disabled", "NeedDaemonReload=no"]
_SPACE = [f"{path} /dev/vda 8000000 2000000 6000000 25% /" for path in ("/", "/boot", "/var")]
_MACHINE = [
    "ID=debian",
    "VERSION_ID=13",
    "VERSION_CODENAME=trixie",
    "--",
    "6.12.48+deb13-amd64",
    "x86_64",
    "--",
    "root=/dev/vda ro",
    "--",
    "0000:00:02.0 0x1af4 0x1000 0x020000",
    "--",
    "bios",
    "--",
    "vendor_id : GenuineIntel",
    "MemTotal: 1600000 kB",
    "2",
]
_HARDWARE = "NodeName=x CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1536"
_FOREIGN = ["device=/dev/nvme0n1", "kind=disk", "type=ext4", "label=data"]
_BLANK = ["device=/dev/nvme0n1", "kind=disk", "zero=yes"]


def _units(count: int) -> list[str]:
    """For a question about so many units; what they are called does not matter to the answer's form."""
    return ["--", *([*_UNIT, ""] * count), "--", "--", "--", _END]


def _responses(node: _Node) -> dict[str, _Any]:
    foreign = _os.environ.get("RACKPROOF_FAKE") == "foreign" and node.name == "gpu-01"
    return {
        "is-system-running": [
            node.name,
            str(int(_time.time())),
            "--",
            *_SPACE,
            "--",
            "--",
            "dpkg",
            "--",
            "running",
            "",
            "--",
            "/dev/vda / ext4 rw 0 0",
            "--",
            _END,
        ],
        "/sys/bus/pci/devices": [*_MACHINE, _END],
        "read -r line </proc/cmdline": ["running root=/dev/vda ro", "tool grub", _END],
        "/etc/modprobe.d/rackproof-node.conf": [_END],
        "read -r id </proc/sys/kernel/random/boot_id": ["boot 0f8a", "kernel 6.12.48+deb13-amd64", _END],
        # A refusal is a command that fails; to the fake connector every command succeeds unless it is told.
        "nothing was done": {"success": False, "stderr": "refused"},
        "slurmd -C": ["1795284000.5", "--", _HARDWARE, "--", "--", "--", "--", _END],
        "State|Reason": [_END],
        "cut -d: -f1": ["--", "--", "--", "--", _END],
        "rackproof/host-root": ["no", _END],
        "dpkg-query -W": [_END],
        "stat -c": ["--", "--", _END],
        "grep -sH": [_END],
        "ip -j addr show": [_LINKS.replace("MAC", node.data["fabric_macs"][0]), "--", _END],
        "ssh_host_": ["host ssh-ed25519 AAAA", _END],
        "readlink -f": [*(_FOREIGN if foreign else _BLANK), _END],
        "/proc/self/mounts": ["/dev/vda / ext4 rw,relatime 0 0", "--", "--", "--", _END],
        "rackproof-bootstrap": [_END],
        "command -v": [_END],
        **_unit_responses(node.name),
    }


def _unit_responses(name: str) -> dict[str, list[str]]:
    from rackproof.configure.base import plan as base
    from rackproof.configure.ceph import plan as ceph
    from rackproof.configure.fabric import plan as fabric
    from rackproof.configure.fabric import soft_roce
    from rackproof.configure.gpu import simulated as gpu
    from rackproof.configure.node import plan as node
    from rackproof.configure.slurm import plan as slurm
    from rackproof.configure.storage_client import plan as storage_client
    from rackproof.configure.storage_server import plan as storage_server
    from tests.unit.configure.rack import site

    here = site(name)
    own = node.units(here, read_inputs(here.node, NodeInputs))
    sets = [base.units(here), base.updates(masked=True), own, fabric.units(here.ports), soft_roce.units(here)]
    if name.startswith("storage"):
        plan = here.ceph_plan()
        sets += [storage_server.units(here), ceph.units(plan), slurm.controller_units()]
    else:
        sets += [storage_client.units(here), slurm.node_units(), gpu.units(here.architecture.gpu)]
    responses = {}
    for units in sets:
        names = [unit.name for unit in units]
        # The command begins with the names, which tell the questions apart.
        asked = " ".join(_shlex.quote(name) for name in names)
        responses[f"printf '%s\\n' {asked};"] = [*names, *_units(len(names))]
    return responses


def _host(node: _Node) -> tuple[str, dict[str, _Any]]:
    data = dict(node.data)
    if _os.environ.get("RACKPROOF_FAKE") == "no-drive":
        data.pop("nfs_drive", None)
    return f"@fake/{node.name}", {
        **data,
        "architecture": "virtual-rack",
        "fake_responses": _responses(node),
        "fake_delay": 0,
        "fake_delay_jitter": 0,
    }


gpu = [_host(node) for node in _rack().group("gpu")]
storage = [_host(node) for node in _rack().group("storage")]
