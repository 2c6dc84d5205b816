"""RDMA from GPU memory: what is started, what is read, and what is no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.links import gpu_memory as link_gpu
from rackproof.bench.links.placement import Placement, placements
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError
from rackproof.parse.perftest import GpuMemory, parse_gpu_memory
from tests.unit.bench.test_bench import LAB, lab_rack, measure, virtual_rack
from tests.unit.fabric import CUDA, DMABUF, PCI, FabricNodes
from tests.unit.fakes import reply
from tests.unit.judging import bar, criterion

METRIC = "link.rdma_write_bandwidth_gpu"


def architecture(gpudirect: str | None = None, scope: str = "nic", metric: str = METRIC) -> Architecture:
    """The virtual rack with a criterion for GPU memory."""
    made = virtual_rack()
    entry = criterion(id="gdr", metric=metric, scope=scope, bar=bar("ge", 0.1, "Gb/s"))
    document = made.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    asked = Architecture.model_validate(document | {"criteria": [entry], "curves": [], "outliers": []})
    return asked.model_copy(update={"gpu": made.gpu.model_copy(update={"gpudirect": gpudirect})}) if made.gpu else asked


def measured(tmp_path: Path, nodes: FabricNodes, made: Architecture | None = None) -> list[Measurement]:
    steps = link_gpu.plan(made or architecture(), LAB.links, lab_rack())  # type: ignore[arg-type]
    return measure(tmp_path, steps, nodes.answer)


def test_every_adapter_sends_once_and_its_number_is_in_gigabits(tmp_path: Path) -> None:
    taken = measured(tmp_path, FabricNodes())
    assert sorted(m.members for m in taken) == [("gpu-01/nic0",), ("gpu-02/nic0",)]
    for m in taken:
        assert m.scope is Scope.NIC
        assert m.samples == pytest.approx([80 * 2**20 * 8 / 1e9] * len(m.samples)), m.reason
        assert m.conditions["memory"] == "peer memory"
        assert m.conditions["gpu"] == "NVIDIA H100 80GB HBM3"
        words = m.conditions["command"].split()
        assert words[:3] == ["numactl", "--cpunodebind=netdev:fabric0", "--membind=netdev:fabric0"]
        assert words[words.index("--use_cuda_bus_id") + 1] == "0000:29:00.0"


def test_without_a_criterion_or_a_partner_nothing_is_planned() -> None:
    assert link_gpu.plan(virtual_rack(), LAB.links, lab_rack()) == []  # type: ignore[arg-type]
    assert link_gpu.plan(architecture(), LAB.links, lab_rack(1)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("count", range(2, 8))
def test_every_node_is_a_client_once_and_in_one_pair_of_a_round(count: int) -> None:
    names = [f"n{k}" for k in range(count)]
    sends = link_gpu.sends(names)
    assert sorted(client for pairs in sends for _, client in pairs) == names
    for pairs in sends:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))


def other_size(text: str) -> str:
    return text.replace("8388608    20 ", "65536      20 ").replace("80.00", " 0.62")


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("a bad status after a good table", {"status": {"ib_write_bw": 1}}, "ib_write_bw"),
    ("memory of the host", {"gpu_memory": ""}, "expected memory peer memory, actual host"),
    ("another way to the GPU", {"gpu_memory": CUDA + DMABUF}, "expected memory peer memory, actual DMA-BUF"),
    ("another size", {"edit": lambda program, text: other_size(text)}, "expected message size in B 8388608"),
    ("managed memory", {"gpu_memory": CUDA.replace("pointer=", "for type CUDA_MEM_MANAGED pointer=")}, "CUDA_MEM_MAN"),
    ("no table", {"edit": lambda program, text: CUDA}, "no result table"),
    ("other ports", {"way": lambda port: "fabric9"}, "another path"),
    ("no GPU on PCI", {"pci": "\n".join([*PCI.splitlines()[:2], "end\n"])}, "no NVIDIA GPU on PCI"),
    ("a virtual port", {"pci": "none\n-1\nend\n"}, "the port fabric0 is no PCI device"),
]


@pytest.mark.parametrize(("what", "changes", "reason"), BROKEN, ids=[case[0] for case in BROKEN])
def test_what_is_no_number(tmp_path: Path, what: str, changes: dict[str, Any], reason: str) -> None:
    taken = measured(tmp_path, FabricNodes(**changes))
    assert len(taken) == 2
    for m in taken:
        assert not m.samples, what
        assert reason in (m.reason or "")


def test_a_test_that_hangs_is_unmeasured(tmp_path: Path) -> None:
    nodes = FabricNodes()
    plain = nodes.answer

    def answer(node: str, command: str) -> Any:
        if command.startswith("numactl"):
            return reply(node, command, rc=None, error="no answer within 47 s")
        return plain(node, command)

    steps = link_gpu.plan(architecture(), LAB.links, lab_rack())  # type: ignore[arg-type]
    for m in measure(tmp_path, steps, answer):
        assert not m.samples
        assert "no answer within 47 s" in (m.reason or "")


def test_the_declared_way_is_asked_for_and_must_be_the_one_in_use(tmp_path: Path) -> None:
    made = architecture("dmabuf")
    assert made.gpu is not None
    (tmp_path / "a").mkdir()
    taken = measured(tmp_path / "a", FabricNodes(gpu_memory=CUDA + DMABUF), made)
    assert all(m.samples and m.conditions["memory"] == "DMA-BUF" for m in taken)
    assert all("--use_cuda_dmabuf" in m.conditions["command"] for m in taken)
    (tmp_path / "b").mkdir()
    for m in measured(tmp_path / "b", FabricNodes(), made):
        assert "expected memory DMA-BUF, actual peer memory" in (m.reason or "")


def test_the_gpu_behind_the_adapters_switch_is_the_nearest() -> None:
    def placed(text: str) -> list[Placement]:
        return placements(reply("gpu-01", "x", text), ["rail0"], gpus=True)

    assert placed(PCI) == [Placement("rail0", 0, "0000:29:00.0")]
    for end in range(len(PCI) - 1):
        with pytest.raises(ParseError):
            placed(PCI[:end])


def test_adapters_behind_one_switch_share_its_gpus(tmp_path: Path) -> None:
    """As in a DGX A100: two adapters and two GPUs below each switch."""
    switch = "/sys/devices/pci0000:15/0000:15:01.0"
    text = f"{switch}/0000:18:00.0\n1\n{switch}/0000:19:00.0\n1\n{switch}/0000:29:00.0\n{switch}/0000:2a:00.0\nend\n"
    made = placements(reply("gpu-01", "x", text), ["rail0", "rail1"], gpus=True)
    assert made == [Placement("rail0", 1, "0000:29:00.0"), Placement("rail1", 1, "0000:2a:00.0")]


def test_a_port_without_a_numa_node_is_not_bound() -> None:
    """One socket, or a virtual port: numactl would end with an error."""
    (placed,) = placements(reply("gpu-01", "x", "none\n-1\nend\n"), ["fabric0"], gpus=False)
    assert placed.bound("ib_write_bw -d x") == "ib_write_bw -d x"
    with pytest.raises(ParseError, match="no NUMA node: 'none'"):
        placements(reply("gpu-01", "x", "none\nnone\nend\n"), ["fabric0"], gpus=False)


def test_every_pair_where_a_criterion_asks_for_pairs(tmp_path: Path) -> None:
    taken = measured(tmp_path, FabricNodes(), architecture(scope="pair"))
    assert [m.members for m in taken] == [("gpu-01", "gpu-02")]
    assert taken[0].samples == pytest.approx([80 * 2**20 * 8 / 1e9] * len(taken[0].samples)), taken[0].reason
    assert taken[0].conditions["memory"] == "peer memory"


def test_one_adapter_against_its_own_node_is_refused() -> None:
    made = virtual_rack().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    entry = criterion(id="loop", metric="link.rdma_write_bandwidth", scope="nic", bar=bar("ge", 0.1, "Gb/s"))
    model = Architecture.model_validate(made | {"criteria": [entry], "curves": [], "outliers": []})
    messages = [problem.message for problem in problems(model)]
    assert "link.rdma_write_bandwidth is measured for pair, not for nic" in messages


def test_every_truncation_is_the_same_memory_no_memory_or_refused() -> None:
    text = CUDA + DMABUF
    whole = parse_gpu_memory(text)
    assert whole == GpuMemory("NVIDIA H100 80GB HBM3", "DMA-BUF")
    for end in range(len(text)):
        try:
            memory = parse_gpu_memory(text[:end])
        except ParseError:
            continue
        assert memory in (None, whole, GpuMemory(whole.gpu, "peer memory"))
