"""RDMA from GPU memory: what is started, what is read, and what is no number."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.links import gpu_memory as link_gpu
from rackproof.bench.links import steps as links
from rackproof.bench.links.figures import is_server
from rackproof.bench.links.placement import Placement, is_question, placement_command, placements
from rackproof.bench.links.reader import read_links
from rackproof.bench.reread import disproven
from rackproof.bench.step import Step, expected
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.programs import PERFTEST, used_programs
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.perftest import GpuMemory, parse_gpu_memory
from rackproof.remote.command import CommandResult
from tests.unit.bench.test_bench import LAB, lab_rack, measure, virtual_rack
from tests.unit.fabric import CUDA, DMABUF, NO_NUMA, PCI, FabricNodes
from tests.unit.fakes import reply
from tests.unit.judging import bar, criterion

pytestmark = pytest.mark.few(14)

METRIC, LATENCY = "link.rdma_write_bandwidth_gpu", "link.rdma_read_latency_gpu"
BOUND = "numactl --cpunodebind=netdev:fabric0 --membind=netdev:fabric0 "


def architecture(gpudirect: str | None = None, scope: str = "nic", metric: str = METRIC) -> Architecture:
    """The virtual rack with a criterion for GPU memory."""
    made = virtual_rack()
    entry = criterion(id="gdr", metric=metric, scope=scope, bar=bar("ge", 0.1, "Gb/s"))
    document = made.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    asked = Architecture.model_validate(document | {"criteria": [entry], "curves": [], "outliers": []})
    return asked.model_copy(update={"gpu": made.gpu.model_copy(update={"gpudirect": gpudirect})}) if made.gpu else asked


def planned(made: Architecture | None = None) -> list[Step]:
    """Steps of the metric that the criterion is about."""
    made = made or architecture()
    steps = link_gpu.plan(made, LAB.links, lab_rack())  # type: ignore[arg-type]
    return [step for step in steps if step.expects[0].metric == made.criteria[0].metric]


def measured(tmp_path: Path, nodes: FabricNodes, made: Architecture | None = None) -> list[Measurement]:
    return measure(tmp_path, planned(made), nodes.answer)


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


@pytest.mark.parametrize("has", ["/usr/bin/numactl", "no numactl"])
@pytest.mark.parametrize("built", [False, True])
def test_the_program_that_was_built_with_cuda_is_started_where_it_is(tmp_path: Path, built: bool, has: str) -> None:
    """By both ends, and its answers are read as those of the packaged program."""
    nodes = FabricNodes(built=built, pci=PCI.replace("/usr/bin/numactl", has))
    started: list[str] = []

    def answer(node: str, command: str) -> Any:
        started.append(command)
        return nodes.answer(node, command)

    program = f"{PERFTEST}/ib_write_bw" if built else "ib_write_bw"
    for m in measure(tmp_path, planned(), answer):
        assert m.samples == pytest.approx([80 * 2**20 * 8 / 1e9] * len(m.samples)), m.reason
        assert m.samples
        assert program in m.conditions["command"].split()
        assert used_programs(m.metric, m.labels, m.conditions["command"]) == (program, "numactl")
    servers = [command for command in started if command.startswith("bind=")]
    assert servers
    assert all(f"! {program} --help" in command and f" {program} -d" in command for command in servers)


def test_host_memory_takes_the_packaged_program(tmp_path: Path) -> None:
    planned = links.plan(architecture(), LAB.links, lab_rack())  # type: ignore[arg-type]
    steps = [step for step in planned if step.id.endswith("rdma-bandwidth")]
    taken = measure(tmp_path, steps, FabricNodes(built=True).answer)
    assert taken
    assert all(m.samples and PERFTEST not in m.conditions["command"] for m in taken)


@pytest.mark.parametrize("line", ["", "built perftes", "built perftest\nbuilt perftest"])
def test_an_odd_answer_about_the_built_program_is_no_answer(line: str) -> None:
    with pytest.raises(ParseError):
        placements(reply("gpu-01", "x", PCI.replace("no built perftest", line)), ["fabric0"], gpus=True)
    assert not placements(reply("gpu-01", "x", PCI), ["fabric0"], gpus=True)[0].built


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
    (
        "no GPU on PCI",
        {"pci": "".join(PCI.splitlines(True)[:3] + PCI.splitlines(True)[-3:])},
        "no NVIDIA GPU on PCI",
    ),
    ("a virtual port", {"pci": NO_NUMA}, "the port fabric0 is no PCI device"),
]


@pytest.mark.parametrize(("what", "changes", "reason"), BROKEN, ids=[case[0] for case in BROKEN])
def test_what_is_no_number(tmp_path: Path, what: str, changes: dict[str, Any], reason: str) -> None:
    taken = measured(tmp_path, FabricNodes(**changes))
    assert len(taken) == 2
    for m in taken:
        assert not m.samples, what
        assert reason in (m.reason or "")


MANAGED = CUDA.replace("pointer=", "for type CUDA_MEM_MANAGED pointer=")
SERVED: list[tuple[str, Callable[[CommandResult], CommandResult], str]] = [
    ("host memory", lambda made: replace(made, stdout=b"PSN 0x1\n"), "memory of the server gpu-0.* actual host"),
    ("another way", lambda made: replace(made, stdout=(CUDA + DMABUF).encode()), "actual DMA-BUF"),
    ("managed memory", lambda made: replace(made, stdout=MANAGED.encode()), "CUDA_MEM_MANAGED"),
    ("cut off", lambda made: replace(made, stdout=made.stdout[:40]), "actual host"),
    ("killed", lambda made: replace(made, rc=143), "the server on gpu-0"),
    ("no end", lambda made: replace(made, rc=None, error="did not end by itself"), "did not end by itself"),
]  # fmt: skip


@pytest.mark.parametrize("metric", [METRIC, LATENCY])
@pytest.mark.parametrize(("what", "change", "reason"), SERVED, ids=[case[0] for case in SERVED])
def test_a_server_without_the_gpus_memory_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, what: str, change: Any, reason: str
) -> None:
    """The client says what it used itself; the other end may have used its host's memory."""
    monkeypatch.setattr(links, "END_S", 0.0)
    nodes = FabricNodes()

    def answer(node: str, command: str) -> CommandResult | None:
        made = nodes.answer(node, command)
        return change(made) if made is not None and is_server(command) else made

    taken = measure(tmp_path, planned(architecture(metric=metric)), answer)
    assert len(taken) == 2
    for m in taken:
        assert not m.samples, what
        assert re.search(reason, m.reason or ""), m.reason


def test_without_the_servers_output_there_is_no_number(tmp_path: Path) -> None:
    (taken, *_) = measured(tmp_path, FabricNodes())
    assert (taken.conditions["server_memory"], taken.conditions["server_gpu"]) == (
        "peer memory",
        taken.conditions["gpu"],
    )
    records = read_records(tmp_path)
    assert disproven(records, partial(read_raw, tmp_path), architecture(), "lab", node_infos(lab_rack())) == {}
    cut = [record for record in records if not is_server(str(record.body.get("command", "")))]
    faults = disproven(cut, partial(read_raw, tmp_path), architecture(), "lab", node_infos(lab_rack()))
    assert faults
    assert all("outputs of the server" in fault for fault in faults.values())


def test_a_test_that_hangs_is_unmeasured(tmp_path: Path) -> None:
    nodes = FabricNodes()
    plain = nodes.answer

    def answer(node: str, command: str) -> Any:
        if command.startswith("numactl"):
            return reply(node, command, rc=None, error="no answer within 47 s")
        return plain(node, command)

    for m in measure(tmp_path, planned(), answer):
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

    assert placed(PCI) == [Placement("rail0", 0, "0000:29:00.0", "0-31,64-95")]


def test_adapters_behind_one_switch_share_its_gpus(tmp_path: Path) -> None:
    """As in a DGX A100: two adapters and two GPUs below each switch."""
    switch = "/sys/devices/pci0000:15/0000:15:01.0"
    text = f"{switch}/0000:18:00.0\n1\n8-15\n{switch}/0000:19:00.0\n1\n8-15\n"
    text += f"{switch}/0000:29:00.0\n{switch}/0000:2a:00.0\n/usr/bin/numactl\nno built perftest\nend\n"
    made = placements(reply("gpu-01", "x", text), ["rail0", "rail1"], gpus=True)
    assert made == [Placement("rail0", 1, "0000:29:00.0", "8-15"), Placement("rail1", 1, "0000:2a:00.0", "8-15")]


def test_a_port_without_a_numa_node_is_not_bound() -> None:
    """One socket, or a virtual port: numactl would end with an error."""
    (placed,) = placements(reply("gpu-01", "x", NO_NUMA), ["fabric0"], gpus=False)
    assert placed.bound("ib_write_bw -d x") == "ib_write_bw -d x"
    assert placed.conditions == {}
    with pytest.raises(ParseError, match=r"^PCI devices: gpu-01: no NUMA node: 'none'"):
        placements(reply("gpu-01", "x", NO_NUMA.replace("-1", "none")), ["fabric0"], gpus=False)


def test_without_numactl_the_processors_are_bound() -> None:
    text = PCI.replace("/usr/bin/numactl", "no numactl")
    (placed,) = placements(reply("gpu-01", "x", text), ["fabric0"], gpus=False)
    assert placed.bound("ib_write_bw -d x") == "taskset -c 0-31,64-95 ib_write_bw -d x"
    assert placed.conditions == {"numa_node": 0, "bound": "taskset: processors"}


@pytest.mark.parametrize("has", ["/usr/bin/numactl", "no numactl"])
@pytest.mark.parametrize("tool", ["rdma-bandwidth", "rdma-both-ways", "rdma-latency", "rdma-read-latency"])
def test_tests_of_host_memory_are_bound_and_their_conditions_name_it(tmp_path: Path, tool: str, has: str) -> None:
    nodes = FabricNodes(pci=PCI.replace("/usr/bin/numactl", has))
    asked = {"rdma_write_bandwidth_both": bar("ge", 1, "Gb/s"), "rdma_read_latency": bar("le", 9, "us")}
    entries = [criterion(id=name, metric=f"link.{name}", scope="pair", bar=of) for name, of in asked.items()]
    document = architecture().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    made = Architecture.model_validate(document | {"criteria": entries})
    steps = [step for step in links.plan(made, LAB.links, lab_rack()) if step.id.endswith(tool)]  # type: ignore[arg-type]
    assert all("numactl --cpunodebind=netdev:fabric0" in command for step in steps for command in step.commands)
    taken = measure(tmp_path, steps, nodes.answer)
    assert taken
    bound = "numactl: processors and memory" if has.startswith("/") else "taskset: processors"
    prefix = (
        "numactl --cpunodebind=netdev:fabric0 --membind=netdev:fabric0 ib_"
        if has.startswith("/")
        else "taskset -c 0-31,64-95 ib_"
    )
    for m in taken:
        assert m.samples, m.reason
        assert m.conditions["command"].startswith(prefix)
        assert (m.conditions["numa_node"], m.conditions["bound"]) == (0, bound)


def edited(old: str, new: str) -> Any:
    return lambda answers: [replace(answer, command=answer.command.replace(old, new)) for answer in answers]


UNBOUND: list[tuple[str, Any, str]] = [
    ("no answer", lambda answers: [a for a in answers if not is_question(a.command)], "no answer about the NUMA node"),
    ("not bound", edited(BOUND, ""), f"expected {BOUND}before the test of fabric0, actual ib_write_bw"),
    (
        "bound to another adapter's node",
        edited("membind=netdev:fabric0", "membind=netdev:fabric1"),
        f"expected {BOUND}",
    ),
    ("an answer about another adapter", edited("set -- fabric0\n", "set -- fabric1\n"), "leaves out fabric0"),
]


@pytest.mark.parametrize(("what", "change", "reason"), UNBOUND, ids=[case[0] for case in UNBOUND])
def test_evidence_of_a_test_that_was_not_bound_is_no_number(what: str, change: Any, reason: str) -> None:
    made, nodes = virtual_rack(), FabricNodes()
    assert made.fabric is not None
    near = Placement("fabric0", 0)
    ends = [links.end_of(node, made.fabric, 0) for node in lab_rack().group("gpu")]
    server, client = (replace(end, placement=near) for end in ends if end is not None)
    (tool, *_) = links._tools(made, made.fabric, LAB.links, 0)  # type: ignore[arg-type]
    readings = [("gpu-01", server.reading), ("gpu-02", client.reading)]
    test = ("gpu-02", tool.client(server, client))
    asked = [("gpu-02", placement_command(["fabric0"])), *readings, test, *readings]
    answers = [answer for node, command in asked if (answer := nodes.answer(node, command)) is not None]
    place = expected("link.rdma_write_bandwidth", Scope.PAIR, ("gpu-01", "gpu-02"), {"rail": "0"}, "x")
    assert read_links(answers, made)(place).samples
    with pytest.raises((ParseError, Mismatch), match=reason):
        read_links(change(answers), made)(place)


def test_both_ways_from_gpu_memory_is_a_metric_of_its_own(tmp_path: Path) -> None:
    made = architecture(metric=f"{METRIC}_both")
    taken = measured(tmp_path, FabricNodes(), made)
    assert len(taken) == 2
    for m in taken:
        assert m.samples == pytest.approx([80 * 2**20 * 8 / 1e9] * len(m.samples)), m.reason
        assert "-b" in m.conditions["command"].split()
    for m in measured(tmp_path / "one", FabricNodes(one_way=True), made):
        assert not m.samples
        assert "sent" in (m.reason or "")


@pytest.mark.parametrize("scope", ["nic", "pair"])
def test_reads_are_measured_where_a_criterion_asks_for_writes_or_for_them(tmp_path: Path, scope: str) -> None:
    for metric in (METRIC, LATENCY):
        made = architecture("dmabuf", scope, metric)
        steps = link_gpu.plan(made, LAB.links, lab_rack())  # type: ignore[arg-type]
        taken = measure(tmp_path / metric, steps, FabricNodes(gpu_memory=CUDA + DMABUF, built=True).answer)
        assert {m.metric for m in taken} == {METRIC, LATENCY} & {metric, LATENCY}
        for m in (one for one in taken if one.metric == LATENCY):
            assert m.scope.value == scope
            assert set(m.samples) == {1.58}, m.reason
            assert (m.conditions["memory"], m.conditions["gpu"]) == ("DMA-BUF", "NVIDIA H100 80GB HBM3")
            words = m.conditions["command"].split()
            assert f"{PERFTEST}/ib_read_lat" in words
            assert words[words.index("--use_cuda_bus_id") + 1] == "0000:29:00.0"
            assert words[words.index("-n") + 1] == "200"
            assert used_programs(m.metric, m.labels, m.conditions["command"]) == (f"{PERFTEST}/ib_read_lat", "numactl")


NO_READS: list[tuple[str, dict[str, Any], str]] = [
    ("a bad status after a good table", {"status": {"ib_read_lat": 1}}, "ib_read_lat"),
    ("memory of the host", {"gpu_memory": ""}, "expected memory peer memory, actual host"),
    ("another way to the GPU", {"gpu_memory": CUDA + DMABUF}, "expected memory peer memory, actual DMA-BUF"),
    ("managed memory", {"gpu_memory": CUDA.replace("pointer=", "for type CUDA_MEM_MANAGED pointer=")}, "CUDA_MEM_MAN"),
    ("writes", {"edit": lambda program, text: text.replace("RDMA_Read", "RDMA_Write")}, "expected test RDMA_Read"),
    ("fewer reads", {"edit": lambda program, text: text.replace("200           ", "100           ")}, "iterations 200"),
    ("another size", {"edit": lambda program, text: text.replace("\n 2  ", "\n 64 ")}, "expected message size in B 2"),
    ("two tables", {"edit": lambda program, text: text * 2}, "expected one message size"),
    ("no table", {"edit": lambda program, text: CUDA}, "no result table"),
    ("other ports", {"way": lambda port: "fabric9"}, "another path"),
    (
        "no GPU on PCI",
        {"pci": "\n".join([*PCI.splitlines()[:3], "no numactl", "no built perftest", "end\n"])},
        "no NVIDIA GPU on PCI",
    ),
]


@pytest.mark.parametrize(("what", "changes", "reason"), NO_READS, ids=[case[0] for case in NO_READS])
def test_what_is_no_latency_of_gpu_memory(tmp_path: Path, what: str, changes: dict[str, Any], reason: str) -> None:
    taken = measured(tmp_path, FabricNodes(**changes), architecture(metric=LATENCY))
    assert len(taken) == 2
    for m in taken:
        assert not m.samples, what
        assert reason in (m.reason or "")


def test_reads_of_host_memory_are_no_latency_of_gpu_memory(tmp_path: Path) -> None:
    """Their command asks for no GPU; nor may its output come from one."""
    nodes = FabricNodes(edit=lambda program, text: CUDA + text if program == "ib_read_lat" else text)
    document = architecture().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    entry = criterion(id="r", metric="link.rdma_read_latency", scope="pair", bar=bar("le", 9, "us"))
    made = Architecture.model_validate(document | {"criteria": [entry]})
    steps = [step for step in links.plan(made, LAB.links, lab_rack()) if step.id.endswith("rdma-read-latency")]  # type: ignore[arg-type]
    (m,) = measure(tmp_path, steps, nodes.answer)
    assert "expected memory host, actual peer memory" in (m.reason or "")


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
