"""Racks of stand-in programs, certified by the real command against the published architectures of DGX, HGX and GB200:
from the command line to the page. One fault at a time, in one family of criteria at a time, is named and nothing else.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import load
from rackproof.bench.announced import announced
from rackproof.bench.collectives.command import launcher_of, requested_by
from rackproof.bench.gpu.reader import is_program
from rackproof.bench.ingest.dlio import PROGRAM as DLIO
from rackproof.bench.links.figures import BOTH_WAYS, USE_GPU
from rackproof.bench.plan import plan_steps
from rackproof.cli.main import cli
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind
from rackproof.evidence.store import read_records
from rackproof.parse.nvlink_domain import DOMAIN
from rackproof.remote.command import NOT_FINISHED, CommandResult, program
from tests.unit.bench.test_announced import like, unnamed_in
from tests.unit.certify.figures import FIGURES
from tests.unit.certify.rack import BUSES, Certified, WrittenRack
from tests.unit.fakes import reply

pytestmark = pytest.mark.exhaustive

ARCHITECTURES = Path(__file__).parents[3] / "architectures"
SAYS = "No node of this rack was measured: stand-in programs print every answer and number"


JUDGED_AGAIN = ("nvidia-dgx-h100", "nvidia-dgx-a100")
"""From the evidence alone, against the stored text: a whole file, and one that extends another and drops entries."""


def is_rack_wide(command: str) -> bool:
    """Whether it is the all-reduce over all nodes and rails."""
    if launcher_of(command) != "mpirun":
        return False
    asked = requested_by(command)
    return asked.op == "all_reduce" and len(asked.hosts) > 1 and asked.rail is None


def alone_writes(command: str) -> bool:
    """Whether it is a write of one adapter alone, one way: those of all begin at a given date."""
    return program(command) == "ib_write_bw" and "date" not in command and BOTH_WAYS not in command.split()


def hangs(node: str, command: str) -> CommandResult | None:
    """One tool of each family does not end, each on one node."""
    hung = (
        (node == "gpu-02" and program(command) == "nvbandwidth")
        or (node == "gpu-03" and is_program(command) and " product " in command)
        or (node == "gpu-04" and USE_GPU in command and "-d mlx5_rail0 " in command and alone_writes(command))
        or is_rack_wide(command)
        or (f"/{DLIO} " in command and '"accelerators": 64' in command and '"train"' in command)
    )
    return reply(node, command, rc=None, error=f"{NOT_FINISHED}60 s") if hung else None


HUNG = {
    "gpu.h2d", "gpu.d2h", "gpu.peer", "gpu.matmul", "gpu.correct[product]", "rdma.gdr", "nccl.rack", "ingest.resnet50",
    *(f"nccl.correct[all_reduce,{size}]" for size in (65536, 1048576, 268435456, 8589934592)),
}  # fmt: skip


@cache
def scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rackproof-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def one_rail() -> str:
    """The published architecture with one rail instead of eight, which is measured in a third of the time: with all of
    its criteria but that of the single rails."""
    text = (ARCHITECTURES / "nvidia-dgx-h100.yaml").read_text()
    for old, new in (
        ("  id: nvidia-dgx-h100\n", "  id: dgx-h100-one-rail\n"),
        ("  rails: 8\n", "  rails: 1\n"),
        ("      nics:\n(        .*\n)+", ""),  # a node has as many adapters to measure as it has ports for computing
        ("rail: \\[0, 1, 2, 3, 4, 5, 6, 7\\]", "rail: [0]"),
        ("      rails: \\{min_bytes: 8589934592, max_bytes: 8589934592\\}\n", ""),
        ("  - id: nccl.rail\n(    .*\n)+", ""),
    ):
        text, count = re.subn(old, new, text)
        assert count, old
    path = scratch() / "dgx-h100-one-rail.yaml"
    path.write_text(text)
    return str(path)


@cache
def gaps() -> Certified:
    """A run in which those tools hung; made once."""
    return WrittenRack(one_rail(), instead=hangs).certify(scratch() / "reports")


def resumed(folder: Path, rack: WrittenRack) -> Certified:
    """The run with gaps, continued on this rack."""
    before = gaps().folder
    shutil.copytree(before, folder / before.name)
    return rack.certify(folder, "--resume", str(folder / before.name))


def unannounced(rack: WrittenRack, run: Certified) -> list[str]:
    """Recorded commands of the measuring stage that a dry run does not name."""
    steps = plan_steps(rack.architecture, "full", rack.rack)
    entries = list(announced(rack.architecture, "full", rack.rack, steps))
    records = read_records(run.folder)
    begin = next(at for at, r in enumerate(records) if r.kind is Kind.STAGE and r.body["stage"] == "bench")
    sent = dict.fromkeys(r.body["command"] for r in records[begin:] if r.kind is Kind.COMMAND)
    shown = {like(command) for step in steps for command in step.commands}
    further = {"  # sets of nodes"} if any(line.startswith("# further jobs ") for line in shown) else set[str]()
    return unnamed_in(sent, entries, shown | further)


@pytest.mark.parametrize("id_", FIGURES)
def test_a_healthy_rack_is_certified_and_its_page_says_what_it_is(tmp_path: Path, id_: str) -> None:
    rack = WrittenRack(id_)
    run = rack.certify(tmp_path)
    assert run.open() == {}
    assert (run.outcome, run.result.exit_code) == ("CERTIFIED", 0), run.result.output
    verdicts = run.certificate["verdicts"]
    judged = {v["id"].partition("[")[0] for v in verdicts}
    required = {entry.id for entry in rack.architecture.criteria if entry.severity == "required"}
    grouped = len(rack.names) >= 9  # group testing is of nine nodes and more
    assert required - judged == (set() if grouped else {"fabric.groups"} & required)
    advisory = {e.id for e in rack.architecture.criteria if e.metric.startswith(("link.", "collective."))} - required
    assert advisory <= judged
    for entry in (required & judged) | advisory:
        own = [v for v in verdicts if v["id"].partition("[")[0] == entry]
        assert all(v["status"] == "PASS" and v["simulated"] for v in own), entry
    assert run.certificate["simulated"][0].startswith(SAYS)
    first = run.page.partition("<main>")[0]
    assert SAYS in first.partition("<strong>Stand-ins</strong>")[2]
    assert unannounced(rack, run) == []
    if id_ in JUDGED_AGAIN:
        again = CliRunner().invoke(cli, ["judge", str(run.folder), "--json"])
        assert json.loads(again.stdout)["outcome"] == "CERTIFIED", again.output


def test_tools_that_hang_leave_gaps_of_their_own_and_are_measured_again(tmp_path: Path) -> None:
    assert (gaps().outcome, gaps().result.exit_code) == ("INCOMPLETE", 2)
    assert gaps().open().keys() == HUNG
    for by_subject in gaps().open().values():
        assert all(text.startswith("UNMEASURED: ") and NOT_FINISHED in text for text in by_subject.values())
    run = resumed(tmp_path, WrittenRack(one_rail()))
    assert run.open() == {}
    assert (run.outcome, run.result.exit_code) == ("CERTIFIED", 0)
    assert run.certificate["simulated"][0].startswith(SAYS)
    steps = [r.body["step"] for r in read_records(run.folder) if r.kind is Kind.STEP]
    assert len(steps) - len(set(steps)) == 6, "steps with gaps, and no other; perftest hangs as client and as server"


Fault = Callable[[WrittenRack], object]


def slow_copies(rack: WrittenRack) -> None:
    rack.gpus["gpu-02"].to_device[3] = 26.2


def missing_tool(rack: WrittenRack) -> None:
    def absent(node: str, command: str) -> CommandResult | None:
        gone = node == "gpu-02" and program(command) == "nvbandwidth"
        return reply(node, command, rc=127, err="sh: 1: nvbandwidth: not found\n") if gone else None

    rack.instead = absent


def throttled(rack: WrittenRack) -> None:
    """For heat, on one GPU of a node."""
    gpus = rack.gpus["gpu-03"]
    hot, cold = "0x0000000000000048", "0x0000000000000004"
    lines = gpus.samples.splitlines(keepends=True)
    gpus.samples = "".join(line.replace(cold, hot) if line.startswith(BUSES[2]) else line for line in lines)


def wrong_product(rack: WrittenRack) -> None:
    rack.gpus["gpu-03"].edit["program"] = lambda made: made["what"] == "product" and made["gpus"][5].update(wrong=3)


def slow_adapter(rack: WrittenRack) -> None:
    rack.fabric.rate = lambda node, device: 196.0 if (node, device) == ("gpu-04", "mlx5_rail0") else 392.0


def not_sampled(rack: WrittenRack) -> None:
    rack.gpus["gpu-03"].samples = ""


def wrong_values(rack: WrittenRack, size: int = 1048576) -> None:
    """777 elements of one size, in place; nccl-tests then ends with status 1."""

    def edit(program: str, text: str) -> str:
        if "Group" not in text or " float " not in text:
            return text
        lines = [f"{line[:-1]}777" if line.startswith(f"{size} ") else line for line in text.splitlines()]
        return "\n".join(lines).replace("values : 0 OK", "values : 1 FAILED") + "\n"

    rack.fabric.edit, rack.fabric.status = edit, {"mpirun": 1}


def wrong_values_of_a_size_without_a_criterion(rack: WrittenRack) -> None:
    wrong_values(rack, 4194304)


def over_sockets(rack: WrittenRack) -> None:
    rack.fabric.spoken = lambda node, lines: [
        line.replace("NET/IB/", "NET/Socket/").replace("/GDRDMA", "") for line in lines
    ]


def through_host_memory(rack: WrittenRack) -> None:
    rack.fabric.spoken = lambda node, lines: [line.replace("/GDRDMA", "") for line in lines]


def fewer_ranks(rack: WrittenRack) -> None:
    """The last node's ranks do not take part."""
    rack.fabric.absent = rack.fabric.gpus


def slow_collective(rack: WrittenRack) -> None:
    rack.fabric.bus["rack"] = 301.0


def idle_accelerators(rack: WrittenRack) -> None:
    rack.storage.utilisation = 81.0


@dataclass(frozen=True)
class Case:
    fault: Fault
    outcome: str
    blamed: dict[str, set[str]]
    """Ids, and the subjects of each."""
    says: str


ALL_REDUCE = {f"nccl.correct[all_reduce,{size}]": {"rack"} for size in (65536, 1048576, 268435456, 8589934592)}
COPIES = {name: {f"gpu-02/gpu{number}" for number in range(8)} for name in ("gpu.h2d", "gpu.d2h", "gpu.peer")}
CASES = [
    Case(slow_copies, "NOT CERTIFIED", {"gpu.h2d": {"gpu-02/gpu3"}}, "expected ≥ 52 GB/s, actual 26."),
    Case(missing_tool, "INCOMPLETE", COPIES, "nvbandwidth"),
    Case(
        throttled, "NOT CERTIFIED",
        {f"load.gpu_clocks[{step}]": {"gpu-03"}
         for step in ("gpu/copies", "gpu/product/bf16", "collectives/nccl-tests/all_reduce")},
        "hardware thermal slowdown in 4 of 4 samples under load",
    ),
    Case(
        wrong_product, "NOT CERTIFIED",
        {"gpu.correct[product]": {"gpu-03/gpu5"}, "gpu.matmul": {"gpu-03/gpu5"}}, "actual 3",
    ),
    Case(slow_adapter, "NOT CERTIFIED", {"rdma.gdr": {"gpu-04/nic0"}}, "actual 19"),
    Case(
        wrong_values, "NOT CERTIFIED",
        {"nccl.correct[all_reduce,1048576]": {"rack"}, "nccl.rack": {"rack"}}, "actual 777",
    ),
    Case(
        wrong_values_of_a_size_without_a_criterion, "NOT CERTIFIED",
        {"content[collective.wrong_values]": {"rack"}, "nccl.rack": {"rack"}}, "actual 777 (bytes=4194304,",
    ),
    Case(
        not_sampled, "INCOMPLETE",
        {f"load.gpu_{what}[gpu/product/bf16]": {"gpu-03"} for what in ("clocks", "links")}, "exit status",
    ),
    Case(over_sockets, "INCOMPLETE", {"nccl.rack": {"rack"}} | ALL_REDUCE, "expected RDMA, actual NET/Socket"),
    Case(
        through_host_memory, "INCOMPLETE", {"nccl.rack": {"rack"}} | ALL_REDUCE,
        "expected GPUDirect RDMA (dmabuf), actual copies through host memory",
    ),
    Case(fewer_ranks, "INCOMPLETE", {"nccl.rack": {"rack"}} | ALL_REDUCE, "expected ranks 32, actual 24"),
    Case(slow_collective, "NOT CERTIFIED", {"nccl.rack": {"rack"}}, "expected ≥ 360 GB/s, actual 30"),
    Case(idle_accelerators, "NOT CERTIFIED", {"ingest.resnet50": {"rack"}}, "actual 81"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.fault.__name__ for case in CASES])
def test_a_fault_is_named_and_nothing_else_is(tmp_path: Path, case: Case) -> None:
    rack = WrittenRack(one_rail())
    case.fault(rack)
    run = resumed(tmp_path, rack)
    open_ = run.open()
    assert {id_: set(by_subject) for id_, by_subject in open_.items()} == case.blamed, open_
    assert (run.outcome, run.result.exit_code) == (case.outcome, 1 if case.outcome == "NOT CERTIFIED" else 2)
    assert any(case.says in text for by_subject in open_.values() for text in by_subject.values()), open_
    assert run.certificate["simulated"][0].startswith(SAYS)


def test_rdma_outside_the_lossless_priority_has_no_rate(tmp_path: Path) -> None:
    rack = WrittenRack("hgx-h100-roce")
    rack.fabric.priority = lambda options: 0
    run = rack.command("bench", tmp_path)
    open_ = run.open()
    assert {id_.partition("[")[0] for id_ in open_} == {"rdma.pair", "rdma.both", "rdma.gdr", "rdma.all-rails"}
    for by_subject in open_.values():
        assert all("in priority 3, which has PFC" in text for text in by_subject.values()), by_subject
    assert (run.outcome, run.result.exit_code) == ("INCOMPLETE", 2)


def test_collectives_outside_the_lossless_priority_have_no_rate(tmp_path: Path) -> None:
    """One port of one node is set to another priority, and only its counters say so."""
    rack = WrittenRack("hgx-h100-roce")
    rack.fabric.nccl_priority = lambda node, port: 0 if (node, port) == ("gpu-03", "rail5") else 3
    run = rack.command("bench", tmp_path)
    open_ = run.open()
    assert {id_.partition("[")[0] for id_ in open_} == {"nccl.rack", "nccl.rail", "nccl.correct"}, open_
    for by_subject in open_.values():
        assert all("expected gpu-03 rail5 to have sent" in text for text in by_subject.values()), by_subject
    assert (run.outcome, run.result.exit_code) == ("INCOMPLETE", 2)


@cache
def nvlink_domain() -> str:
    """The published architecture of GB200 NVL72, of which only the collectives over all trays are measured."""
    document = load("nvidia-gb200-nvl72").model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    collectives = document["profiles"]["full"]["collectives"]
    over_all = {key: value for key, value in collectives.items() if key not in ("node", "rails")}
    document |= {
        "metadata": document["metadata"] | {"id": "gb200-nvlink-domain"},
        "profiles": {"full": {"collectives": over_all}},
        "criteria": [entry for entry in document["criteria"] if entry["id"] in ("nccl.domain", "nccl.correct")],
        "curves": [],
        "outliers": [],
    }
    path = scratch() / "gb200-nvlink-domain.yaml"
    path.write_text(json.dumps(document))
    return str(path)


def over_the_ports(rack: WrittenRack) -> None:
    """IMEX does not join the trays, and NCCL takes their adapters, at their rate."""
    rack.fabric.nvlink, rack.fabric.bus["rack"] = False, 188.0


@pytest.mark.parametrize(
    ("fault", "outcome", "blamed", "says"),
    [
        (fewer_ranks, "INCOMPLETE", {"nccl.domain", "nccl.correct"}, "expected ranks 72, actual 68"),
        (over_the_ports, "NOT CERTIFIED", {"nccl.domain"}, "expected ≥ 750 GB/s, actual 18"),
    ],
)
def test_an_nvlink_domain_has_all_its_gpus(
    tmp_path: Path, fault: Fault, outcome: str, blamed: set[str], says: str
) -> None:
    rack = WrittenRack(nvlink_domain(), like="nvidia-gb200-nvl72")
    fault(rack)
    run = rack.command("bench", tmp_path)
    open_ = run.open()
    assert {id_.partition("[")[0] for id_ in open_} == blamed, open_
    assert run.outcome == outcome
    assert says in open_["nccl.domain"]["rack"]


def test_a_tray_of_another_nvlink_domain_is_named(tmp_path: Path) -> None:
    rack = WrittenRack("nvidia-gb200-nvl72")
    node = rack.checked["gpu-07"]
    whole = node.alike.answer(DOMAIN)
    other = replace(whole, stdout=whole.stdout.replace(b"5b0c1f7e", b"6c1d2f8e"))
    rack.checked["gpu-07"] = replace(node, alike=replace(node.alike, known={DOMAIN: other}))
    run = rack.command("validate", tmp_path, "-k", "nvlink_domain")
    checks = [CheckResult.model_validate(r.body) for r in read_records(run.folder) if r.kind is Kind.CHECK]
    bad = [(c.check, c.node, c.outcome) for c in checks if c.outcome is not CheckOutcome.PASSED]
    assert bad == [("gpu.nvlink_domain", "gpu-07", CheckOutcome.FAILED)]
    assert run.result.exit_code == 1
