"""nccl.conf, cufile.json, gdscheck, container runtimes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.configure.gpu import nccl, runtimes, storage
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.runtimes import RuntimeState
from rackproof.core.architecture import Fabric, Nic
from rackproof.errors import Refused
from rackproof.parse.gdscheck import parse_gdscheck
from tests.unit.configure.gpu.machines import declared_gpu
from tests.unit.configure.gpu.node import FakeNode

ROOT = Path(__file__).parents[4]
ROCE = Fabric.model_validate(
    {"kind": "roce", "rails": 2, "mtu": 9000, "rdma_prefix": "mlx5_", "lossless": {"tos": 106, "gid_index": 3}}
)
NICS = [
    Nic.model_validate(
        {"purpose": purpose, "count": 2, "ports": ports, "speed_gbps": 400, "link_layer": "Ethernet", "source": "s"}
    )
    for purpose, ports in (("compute", ["mlx5_1", "mlx5_4"]), ("storage", ["mlx5_0", "mlx5_5"]))
]


def test_collectives_leave_the_front_end_alone() -> None:
    settings = nccl.settings(ROCE, NICS, None, {})
    assert settings == {"NCCL_IB_HCA": "=mlx5_1,mlx5_4", "NCCL_IB_TC": "106", "NCCL_IB_GID_INDEX": "3"}


def test_the_driver_s_traffic_class_goes_before_the_type_of_service() -> None:
    assert ROCE.lossless is not None
    fabric = ROCE.model_copy(update={"lossless": ROCE.lossless.model_copy(update={"traffic_class": 41})})
    assert nccl.settings(fabric, (), ("mlx5_9",), {})["NCCL_IB_TC"] == "41"
    assert nccl.settings(fabric, (), ("mlx5_9",), {})["NCCL_IB_HCA"] == "=mlx5_9"


def test_infiniband_marks_nothing_and_a_rack_without_fabric_has_no_file() -> None:
    infiniband = Fabric.model_validate({"kind": "infiniband", "rails": 2, "mtu": 4092, "rdma_prefix": "mlx5_"})
    assert nccl.settings(infiniband, (), None, {}) == {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    assert nccl.settings(None, (), None, {}) == {}


def test_the_inventory_is_laid_over_it() -> None:
    settings = nccl.settings(ROCE, NICS, None, {"NCCL_IB_TC": "", "NCCL_CUMEM_ENABLE": "0"})
    assert "NCCL_IB_TC" not in settings
    assert settings["NCCL_CUMEM_ENABLE"] == "0"


def test_cufile_may_fall_back_only_where_declared() -> None:
    stack = GpuInputs(cufile={"properties": {"max_direct_io_size_kb": 16384}})
    content = json.loads(storage.cufile(declared_gpu(8, gds="NVMe"), stack, ("10.0.0.1",)))
    assert content["properties"] == {
        "allow_compat_mode": False,
        "use_pci_p2pdma": False,
        "rdma_dev_addr_list": ["10.0.0.1"],
        "max_direct_io_size_kb": 16384,
    }
    lenient = json.loads(storage.cufile(declared_gpu(8, gds="NVMe", gds_fallback=True), GpuInputs(gds_method="p2pdma")))
    assert lenient["properties"] == {"allow_compat_mode": True, "use_pci_p2pdma": True}
    assert lenient["block"] == {"nvme": {"use_pci_p2pdma": True}}
    over_nfs = json.loads(storage.cufile(declared_gpu(8, gds="NFS"), GpuInputs(gds_method="p2pdma")))
    assert (over_nfs["properties"]["use_pci_p2pdma"], "block" in over_nfs) == (False, False)


GDSCHECK = (ROOT / "tests/data/written/hgx-h200-roce/gpu-01/gpu/gdscheck.txt").read_text().removesuffix("status 0\n")


@pytest.mark.parametrize(
    ("old", "new", "declared", "problem"),
    [
        ("", "", {"gds": ["NVMe", "NFS"], "gds_fallback": False}, None),
        ("NFS                : Supported", "NFS                : compat", {"gds": "NFS"}, "NFS: expected Supported"),
        ("", "", {"gds": "BeeGFS"}, "BeeGFS: expected Supported, actual Unsupported"),
        ("", "", {"gds": "Lustre"}, "actual not listed"),
        ("compat_mode : false", "compat_mode : true", {"gds": "NVMe", "gds_fallback": False}, "allow_compat_mode"),
        ("compat_mode : false", "compat_mode : false\n properties.force_compat_mode : true", {"gds": "NVMe"},
         "force_compat_mode"),
        ("verification succeeded", "verification failed", {"gds": "NVMe"}, "did not verify"),
        ("GPU index 7 NVIDIA H200 bar:1 bar size (MiB):262144 supports", "GPU index 7 NVIDIA H200 does not support",
         {"gds": "NVMe"}, "expected 8, actual 7"),
    ],
)  # fmt: skip
def test_gdscheck_is_a_gate(old: str, new: str, declared: dict[str, object], problem: str | None) -> None:
    problems = storage.problems(parse_gdscheck(GDSCHECK.replace(old, new)), declared_gpu(8, **declared), GpuInputs())
    assert any(problem in line for line in problems) if problem else problems == ()


def test_p2pdma_asks_for_its_own_line() -> None:
    problems = storage.problems(parse_gdscheck(GDSCHECK), declared_gpu(8, gds="NVMe"), GpuInputs(gds_method="p2pdma"))
    assert problems == ("NVMe P2PDMA: expected Supported, actual Unsupported",)


V = "580.126.20"
GOOD = RuntimeState(True, True, True, V, V)


def test_runtimes_that_hand_out_gpus() -> None:
    assert not runtimes.plan(["docker", "containerd", "podman"], GOOD)
    assert not runtimes.plan(["podman"], replace(GOOD, docker=None, containerd=None))


def test_what_is_missing_is_configured_and_proven() -> None:
    plan = runtimes.plan(["docker"], replace(GOOD, docker=False))
    assert "nvidia-ctk runtime configure --runtime=docker" in plan.script
    assert "systemctl restart docker" in plan.script
    assert plan.reasons == ("docker hands out GPUs",)
    plan = runtimes.plan(["containerd"], replace(GOOD, containerd_systemd=False))
    assert "SystemdCgroup" in plan.script


def test_a_file_with_another_writer_is_left_alone() -> None:
    plan = runtimes.plan(["docker"], replace(GOOD, docker=False), owned=["docker"])
    assert "nvidia-ctk" not in plan.script
    assert "systemctl restart docker" in plan.script
    plan = runtimes.plan(["containerd"], replace(GOOD, containerd=False), owned=["containerd"])
    assert "sed" not in plan.script
    assert "systemctl restart containerd" in plan.script


def test_a_new_driver_needs_a_new_cdi_specification() -> None:
    plan = runtimes.plan(["podman"], replace(GOOD, cdi_version="570.172.08"))
    assert plan.reasons == (f"CDI specification for driver {V} instead of 570.172.08",)
    assert "systemctl restart rackproof-cdi.service" in plan.script


def test_a_declared_runtime_that_is_not_there() -> None:
    with pytest.raises(Refused, match="docker is to hand out GPUs and does not answer"):
        runtimes.plan(["docker"], replace(GOOD, docker=None))
    assert runtimes.plan(["docker"], replace(GOOD, docker=None), installing=True)


def test_runtimes_are_asked_by_a_real_shell(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.program("docker", 'case "$*" in *Runtimes*) echo \'{"nvidia":{},"runc":{}}\';; *) echo systemd;; esac')
    node.program(
        "containerd",
        "echo '  [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]'; echo '  SystemdCgroup = true'",
    )
    node.program("nvidia-ctk")
    node.file("/etc/cdi/nvidia.yaml", f"  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{V}\n")
    node.file("/sys/module/nvidia/version", f"{V}\n")
    actual = runtimes.parse_state(node.run(runtimes.state_command()).stdout.splitlines())
    assert actual == GOOD
    for name in ("docker", "containerd", "nvidia-ctk"):
        (node.bin / name).unlink()
    actual = runtimes.parse_state(node.run(runtimes.state_command()).stdout.splitlines())
    assert (actual.docker, actual.containerd) == (None, None)
