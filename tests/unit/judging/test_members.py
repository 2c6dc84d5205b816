"""GPUs and NICs: how many there must be comes from the architecture."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Scope
from rackproof.core.judging.members import Members
from rackproof.core.status import Status
from tests.unit.judging import GPU, architecture, bar, criterion, judged, measurement, run_info, verdicts

GPU_SPEED = criterion(id="gpu.speed", metric="gpu.memory_bandwidth", where={}, scope="gpu", bar=bar("ge", 100, "GB/s"))
NIC_SPEED = criterion(
    id="nic.speed", metric="link.rdma_write_bandwidth_gpu", where={}, scope="nic", bar=bar("ge", 90, "Gb/s")
)
FABRIC = {"kind": "soft-roce", "mtu": 9000}


def with_gpus(count: int, *entries: dict[str, Any]) -> Architecture:
    return architecture(
        *entries or (GPU_SPEED,), gpu={"count": count, "model": "A", "memory_mib": None, "source": "us"}
    )


def nic(purpose: str, count: int) -> dict[str, Any]:
    return {"purpose": purpose, "count": count, "speed_gbps": 100, "link_layer": "Ethernet", "source": "us"}


def test_every_gpu_of_every_node_has_a_verdict() -> None:
    taken = measurement("gpu-01/gpu0", 120.0, metric="gpu.memory_bandwidth")
    slow = measurement("gpu-02/gpu1", 80.0, metric="gpu.memory_bandwidth")
    by_subject = verdicts(judged(with_gpus(2), taken, slow), "gpu.speed")
    assert {subject: v.status.value for subject, v in by_subject.items()} == {
        "gpu-01/gpu0": "PASS",
        "gpu-01/gpu1": "UNMEASURED",
        "gpu-02/gpu0": "UNMEASURED",
        "gpu-02/gpu1": "FAIL",
    }


def test_a_ninth_gpu_answers_nothing() -> None:
    taken = [measurement(f"gpu-01/gpu{n}", 120.0, metric="gpu.memory_bandwidth") for n in (0, 1, 2)]
    assert "gpu-01/gpu2" not in verdicts(judged(with_gpus(2), *taken), "gpu.speed")


@pytest.mark.parametrize("made", [with_gpus(0), architecture(GPU_SPEED)])
def test_without_gpus_nothing_passes(made: Architecture) -> None:
    taken = [measurement(f"{name}/gpu0", 120.0, metric="gpu.memory_bandwidth") for name in GPU]
    by_subject = verdicts(judged(made, *taken), "gpu.speed")
    assert set(by_subject) == set(GPU)
    for name, verdict in by_subject.items():
        assert verdict.status is Status.UNMEASURED
        assert verdict.message == f"by the architecture {name} has no GPU (gpu.count)"


def test_members_of_a_group_are_folded_with_their_devices() -> None:
    made = with_gpus(4, GPU_SPEED | {"reduce": "min"})
    taken = [measurement(f"gpu-01/gpu{n}", 120.0, metric="gpu.memory_bandwidth") for n in range(4)]
    (verdict,) = verdicts(judged(made, *taken), "gpu.speed").values()
    assert (verdict.subject, verdict.status) == ("rack", Status.UNMEASURED)
    assert verdict.message.startswith("unmeasured on gpu-02/gpu[0-3] (4 of 8): no measurement of")


def test_a_reduction_over_nodes_without_gpus_is_unmeasured() -> None:
    made = architecture(GPU_SPEED | {"reduce": "min"})
    (verdict,) = verdicts(judged(made), "gpu.speed").values()
    assert (verdict.status, verdict.subject) == (Status.UNMEASURED, "rack")
    assert verdict.message == "by the architecture gpu-[01-02] have no GPU (gpu.count)"


@pytest.mark.parametrize(
    ("nics", "rails", "ports"),
    [
        ([], 2, 2),
        ([nic("compute", 3)], 2, 3),
        ([nic("compute", 2), nic("storage", 1), nic("compute and storage", 1)], 8, 3),
        ([nic("storage", 2)], 1, 1),
    ],
)
def test_nics_are_the_compute_ports_of_the_role_or_the_rails(
    nics: list[dict[str, Any]], rails: int, ports: int
) -> None:
    roles = {"gpu": {"expect": {"nics": nics}}, "storage": {"count": {"min": 1, "max": 1}}}
    made = architecture(NIC_SPEED, roles=roles, fabric=FABRIC | {"rails": rails})
    by_subject = verdicts(
        judged(made, measurement("gpu-01/nic0", 95.0, metric="link.rdma_write_bandwidth_gpu")), "nic.speed"
    )
    assert set(by_subject) == {f"{name}/nic{port}" for name in GPU for port in range(ports)}
    assert [s for s, v in by_subject.items() if v.status is Status.PASS] == ["gpu-01/nic0"]


def test_without_a_fabric_and_without_ports_no_node_has_a_nic() -> None:
    made = architecture(NIC_SPEED | {"members": "all"}, fabric=None)
    by_subject = verdicts(judged(made), "nic.speed")
    assert set(by_subject) == {"gpu-01", "gpu-02", "sto-01"}
    assert {v.status for v in by_subject.values()} == {Status.UNMEASURED}


def test_an_empty_group_has_no_member_of_any_scope() -> None:
    members = Members(with_gpus(8), run_info("sto-01").nodes)
    for scope in (Scope.NODE, Scope.GPU, Scope.NIC, Scope.PAIR):
        assert list(members.subjects(scope, members.group("gpu"))) == []
        assert members.nothing(scope, members.group("gpu")) == "no node in the group"
