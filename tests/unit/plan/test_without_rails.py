"""Nodes that are not on the fabric, and racks that have none, planned to their end: a Slurm controller with one port
beside GPU servers with two rails, and the machine of ``h200-single``."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from rackproof.core.plan import NodePlan, RackPlan
from rackproof.run.plan import plan_deploys
from tests.unit.plan.golden import DEPLOY, PLANS, ROOT

pytestmark = pytest.mark.usefixtures("warm_python")

SOURCE = ROOT / PLANS / "debian13-l40s"
SLURM = ROOT / PLANS / "dgx-b200-rocky94-ib/gpu-01/slurm.yaml"
CONTROLLER = """\
slurm:
  roles: [gpu]
  controller_role: head
  gres: {gpu: 2}
  partitions: [gpu]
  source: written
roles:
  head:
    count: {min: 1}
    source: written
"""
ONE_GPU = """\
- match: /sys/bus/pci/devices
  stdout: |
    VERSION_ID="13"
    VERSION_CODENAME=trixie
    ID=debian
    --
    6.12.48+deb13-amd64
    x86_64
    --
    BOOT_IMAGE=/boot/vmlinuz-6.12.48+deb13-amd64 root=UUID=3f5d7b91-0c2e-4a68-9d1f-2b4c6e8a0d13 ro quiet
    --
    0000:02:00.0 0x8086 0x1563 0x020000
    0000:41:00.0 0x10de 0x2335 0x030200
    --
    efi
       0
    --
    vendor_id	: AuthenticAMD
    MemTotal:       394827164 kB
    64
    rackproof-end
"""


def with_controller(folder: Path, second_gpu: dict[str, list[str]] | None = None) -> Path:
    """The written rack and a head node without an adapter. ``second_gpu``: what gpu-02 says otherwise."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("golden"))
    shutil.copy(SLURM, folder / "gpu-01")
    rack = yaml.safe_load((folder / "rack.yaml").read_text())
    rack["nodes"]["head-01"] = {"groups": ["head"], "like": "gpu-01"}
    rack["nodes"]["gpu-02"]["data"].update(second_gpu or {})
    (folder / "rack.yaml").write_text(yaml.safe_dump(rack))
    (folder / "head-01").mkdir()
    bare = re.sub(r"(?m)^    0000:\w\w:00\.0 (0x10de|0x15b3) .*\n", "", (SOURCE / "gpu-01/zz-base.yaml").read_text())
    (folder / "head-01/machine.yaml").write_text(yaml.safe_dump(yaml.safe_load(bare)[:1]))
    document = yaml.safe_load((folder / "architecture.yaml").read_text())
    further = yaml.safe_load(CONTROLLER)
    document["roles"] |= further.pop("roles")
    (folder / "architecture.yaml").write_text(yaml.safe_dump(document | further, sort_keys=False))
    return folder


def single(folder: Path) -> Path:
    shutil.copytree(SOURCE / "gpu-01", folder / "gpu-01")
    (folder / "gpu-01/zz-a.yaml").write_text(ONE_GPU)
    (folder / "architecture.yaml").write_text((ROOT / "architectures/h200-single.yaml").read_text())
    drive = "/dev/disk/by-id/nvme-data"
    nodes = {"gpu-01": {"groups": ["gpu"], "data": {"data_drive": drive, "time_upstreams": ["192.0.2.1"]}}}
    (folder / "rack.yaml").write_text(yaml.safe_dump({"architecture": "architecture.yaml", "nodes": nodes}))
    return folder


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RackPlan]:
    folder = tmp_path_factory.mktemp("racks")
    lacking = {"fabric_addresses": ["10.65.0.2/24"], "fabric_paths": ["pci-0000:21:00.0"]}
    racks = {
        "controller": with_controller(folder / "controller"),
        "single": single(folder / "single"),
        "lacking": with_controller(folder / "lacking", lacking),
        "none": with_controller(folder / "none", {"fabric_addresses": [], "fabric_paths": []}),
    }
    before = Path.cwd()
    os.environ.setdefault("RACKPROOF_PLAN_SECRET", "not a secret")
    os.chdir(ROOT)
    try:
        made = plan_deploys([f"@recording/{rack}" for rack in racks.values()], DEPLOY)
    finally:
        os.chdir(before)
    return dict(zip(racks, made, strict=True))


def planned(plan: RackPlan, name: str) -> NodePlan:
    assert plan.error is None
    node = next(node for node in plan.nodes if node.node == name)
    assert node.lost is None
    assert [(operation.name, operation.refused) for operation in node.refusals] == []
    return node


def changed(node: NodePlan) -> set[str]:
    return {operation.name for operation in node.changing}


def written(node: NodePlan, path: str) -> str:
    """New lines of a file, of all operations."""
    lines = [line for operation in node.operations for line in operation.differences]
    start = lines.index(f"+++ {path}") + 1
    end = next((k for k, line in enumerate(lines[start:], start) if line.startswith("--- ")), len(lines))
    return "\n".join(line[1:] for line in lines[start:end] if line.startswith("+"))


def test_a_controller_without_rails_is_planned_to_its_end_beside_gpu_nodes_with_all(plans: dict[str, RackPlan]) -> None:
    head, gpu = planned(plans["controller"], "head-01"), planned(plans["controller"], "gpu-01")
    assert {"Slurm | Packages", "Slurm | Munge key", "Slurm | Configuration"} <= changed(head)
    assert {name for name in changed(head) if name.startswith("Fabric | ")} <= {
        "Fabric | Own ssh key",
        "Fabric | ssh between nodes",
    }
    assert not {name for name in changed(head) if "ConnectX" in name}
    assert {"Fabric | Ports", "Fabric | Files"} <= changed(gpu)


def test_a_controller_without_rails_is_reached_by_its_name(plans: dict[str, RackPlan]) -> None:
    gpu = planned(plans["controller"], "gpu-01")
    assert "\nSlurmctldHost=head-01\n" in written(gpu, "/etc/slurm/slurm.conf")
    hosts = written(gpu, "/etc/hosts")
    assert "10.65.0.2 gpu-02" in hosts
    assert "head-01" not in hosts
    # The names of GPU nodes would lead it to addresses that it has no way to.
    assert not [
        line
        for operation in planned(plans["controller"], "head-01").operations
        for line in operation.differences
        if "/etc/hosts" in line
    ]


@pytest.mark.parametrize(("name", "given"), [("lacking", 1), ("none", 0)])
def test_a_gpu_node_that_lacks_a_rail_is_refused_by_name(plans: dict[str, RackPlan], name: str, given: int) -> None:
    expected = f"gpu-02: fabric_addresses: the architecture has 2 rail(s), the inventory lists {given} address(es)"
    assert expected in str(plans[name].error)


def test_an_architecture_without_a_fabric_is_planned_to_its_end(plans: dict[str, RackPlan]) -> None:
    node = planned(plans["single"], "gpu-01")
    names = changed(node)
    assert {"Base | Files", "Storage client | Mounts"} <= names
    assert not [name for name in names if name.startswith(("Fabric", "ConnectX"))]
    assert "server 192.0.2.1 iburst" in written(node, "/etc/chrony/chrony.conf")
    assert "Base | Time" in names
