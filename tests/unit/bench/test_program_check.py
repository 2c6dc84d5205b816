"""The programs that are checked before measuring are those that measure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rackproof.bench.links import gpu_memory
from rackproof.bench.plan import plan_steps
from rackproof.bench.programs import results
from rackproof.bench.reread import disproven
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement
from rackproof.core.judging.judge import judge_records
from rackproof.core.programs import CHECK, PERFTEST, launcher_in
from rackproof.core.rack import Rack
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from tests.unit.bench.test_bench import LAB
from tests.unit.bench.test_launchers import HPCX, LIB4, LIB5, RHEL
from tests.unit.bench.test_link_gpu import architecture as with_gpu_memory
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.judging import architecture as one_criterion
from tests.unit.judging import criterion, measurement, verdicts, whole
from tests.unit.load_answers import Machine

pytestmark = pytest.mark.few(7)

WRITE = f"{PERFTEST}/ib_write_bw"
PATH = HPCX.split()[1]
V5 = "default /usr/bin/mpirun\nmpirun /usr/bin/mpirun mpirun (Open MPI) 5.0.7\n"


def checked(
    folder: Path,
    steps: Sequence[Step],
    nodes: FabricNodes,
    made: Architecture,
    rack: Rack | None = None,
    machine: Machine | None = None,
) -> tuple[dict[str, str], list[Measurement]]:
    """Outcome and message of gpu-01's programs, and the numbers; the recorded answers must give the same again."""
    rack = rack or lab_rack()
    with scripted(folder, nodes.answer, rack, made) as session:
        if machine is not None:
            session.fleet.machines.update({node.name: machine for node in rack.nodes})  # type: ignore[attr-defined]
        run_steps(session, steps, set(), lambda text: None)
    records = list(read_records(folder))
    assert not disproven(records, partial(read_raw, folder), made, "lab", node_infos(rack))
    checks = [CheckResult.model_validate(record.body) for record in records if record.kind is Kind.CHECK]
    of_node = [one for one in checks if (one.check, one.node) == (CHECK, "gpu-01")]
    return (
        {one.item: f"{one.outcome.value}: {one.message}" for one in of_node},
        [Measurement.model_validate(record.body) for record in records if record.kind is Kind.MEASUREMENT],
    )


@pytest.mark.parametrize(
    ("machine", "item", "words"),
    [
        (Machine(), "ib_write_bw", "passed: /usr/bin/ib_write_bw of ib_write_bw, as installed"),
        (Machine(built={WRITE: "0" * 64}), WRITE, f"passed: {WRITE}, as built from sources"),
        (Machine(built={WRITE: "1" * 64}), WRITE, f"failed: expected {WRITE} as the deploy built it"),
    ],
    ids=["packaged", "built", "changed"],
)
def test_with_gpu_memory_the_built_program_is_checked_where_it_is(
    tmp_path: Path, machine: Machine, item: str, words: str
) -> None:
    made = with_gpu_memory()
    steps = gpu_memory.plan(made, LAB.links, lab_rack())  # type: ignore[arg-type]
    programs, taken = checked(tmp_path, steps, FabricNodes(built=bool(machine.built)), made, machine=machine)
    assert set(programs) == {item, "numactl"}
    assert programs[item].startswith(words)
    assert all(m.samples for m in taken)


def test_an_answer_that_is_cut_off_is_about_the_packaged_program() -> None:
    answer = reply("gpu-01", "x", Machine(built={WRITE: "0" * 64}).programs(f"set -- {WRITE} numactl")[:-2])
    unread = list(results("gpu-01", (WRITE, "numactl"), answer, ()))
    assert [(one.item, one.outcome) for one in unread] == [
        ("ib_write_bw", CheckOutcome.UNMEASURED), ("numactl", CheckOutcome.UNMEASURED),
    ]  # fmt: skip


MPI = f"mpi4py {LIB5}\nsrun none\n"
MPI4 = f"mpi4py {LIB4}\nsrun none\n"


@pytest.mark.parametrize(
    ("mpi", "declared", "item", "measured"),
    [
        (V5 + HPCX + MPI, None, "mpirun", True),
        (f"mpirun {RHEL} mpirun (Open MPI) 4.1.4\n{MPI4}", None, RHEL, True),
        (HPCX + MPI4, None, PATH, True),
        (V5 + HPCX + MPI4, None, PATH, True),
        (HPCX + V5 + MPI4, PATH, PATH, True),
        (HPCX + MPI, None, PATH, False),
        (MPI, None, "mpirun", False),
        (V5 + MPI, PATH, PATH, False),
        ("odd\n", None, "mpirun", False),
    ],
    ids=["on PATH", "RHEL", "HPC-X", "HPC-X suits", "declared", "unsuitable", "none", "no such path", "unreadable"],
)
def test_the_launcher_that_is_checked_starts_the_ranks(
    tmp_path: Path, mpi: str, declared: str | None, item: str, measured: bool
) -> None:
    rack, made = lab_rack(), virtual_rack()
    for node in rack.group("gpu"):
        node.data["collectives"] = {"mpirun": declared} if declared else {}  # type: ignore[index]
    steps = [step for step in plan_steps(made, "lab", rack) if step.id.startswith("collectives/")]
    programs, taken = checked(tmp_path, steps, FabricNodes(mpi=mpi), made, rack)
    assert [name for name in programs if name.endswith("mpirun")] == [item]
    assert {launcher_in(m.conditions["command"]) for m in taken if m.samples} == ({item} if measured else set())


GPU_MEMORY = f"numactl {WRITE} -d mlx5_0"
HOST_PROGRAM = GPU_MEMORY.replace(WRITE, "ib_write_bw")
HPCX_COMMAND = f"env A=1 {PATH} -n 2 all_reduce_perf"


@pytest.mark.parametrize(
    ("metric", "command", "used", "item", "status"),
    [
        ("link.rdma_write_bandwidth_gpu", GPU_MEMORY, WRITE, WRITE, "PASS"),
        ("link.rdma_write_bandwidth_gpu", GPU_MEMORY, WRITE, "ib_write_bw", "UNMEASURED"),
        ("link.rdma_write_bandwidth_gpu", HOST_PROGRAM, "ib_write_bw", WRITE, "UNMEASURED"),
        (
            "link.rdma_write_bandwidth_gpu",
            GPU_MEMORY.replace(WRITE, "ib_write_bw"),
            "ib_write_bw",
            "ib_write_bw",
            "PASS",
        ),
        ("link.rdma_write_bandwidth", GPU_MEMORY, WRITE, "ib_write_bw", "UNMEASURED"),
        ("collective.busbw", HPCX_COMMAND, PATH, PATH, "PASS"),
        ("collective.busbw", HPCX_COMMAND, PATH, "mpirun", None),  # an older kit's
        ("collective.busbw", HPCX_COMMAND, PATH, "/usr/bin/mpirun", "UNMEASURED"),
        ("collective.busbw", HPCX_COMMAND.replace(PATH, "mpirun"), "mpirun", PATH, "UNMEASURED"),
    ],
)
def test_the_judge_asks_for_the_program_that_measured(
    metric: str, command: str, used: str, item: str, status: str | None
) -> None:
    """``item``: what was checked in the place of the program that was used."""
    labels = {"engine": "nccl-tests", "op": "all_reduce"} if metric.startswith("collective") else {}
    number = measurement(
        ("gpu-01", "gpu-02"), 1.0, metric=metric, unit="Gb/s", conditions={"command": command}, **labels
    )
    made = one_criterion(criterion())
    records = [
        record.model_copy(update={"body": record.body | {"item": item}})
        if (record.body.get("check"), record.body.get("item")) == (CHECK, used)
        else record
        for record in whole(made, number)
    ]
    judged = verdicts(judge_records(made, records), f"{CHECK}[{used}]")
    assert {verdict.status.value for verdict in judged.values()} == ({status} if status else set())
