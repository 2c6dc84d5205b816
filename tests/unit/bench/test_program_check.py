"""The programs that are checked before measuring are those that measure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rackproof.bench.ingest import steps as ingest
from rackproof.bench.links import gpu_memory
from rackproof.bench.plan import plan_steps
from rackproof.bench.programs import check_programs, results
from rackproof.bench.reread import disproven
from rackproof.bench.runner import run_steps
from rackproof.bench.step import BenchContext, Step
from rackproof.core.architecture import Architecture, IngestProfile
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement
from rackproof.core.judging.judge import judge_records
from rackproof.core.programs import CHECK, PERFTEST, launcher_in
from rackproof.core.rack import Rack
from rackproof.evidence.folder import node_infos
from rackproof.evidence.store import read_raw, read_records
from tests.unit.bench.test_bench import LAB
from tests.unit.bench.test_ingest import profile
from tests.unit.bench.test_launchers import HPCX, LIB4, LIB5, RHEL
from tests.unit.bench.test_link_gpu import architecture as with_gpu_memory
from tests.unit.bench.test_real_accelerators import REAL
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
    planned = gpu_memory.plan(made, LAB.links, lab_rack())  # type: ignore[arg-type]
    steps = [step for step in planned if step.expects[0].metric == made.criteria[0].metric]
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


def asked_programs(folder: Path, machine: Machine, part: IngestProfile, image: str | None) -> dict[str, str]:
    """Outcome and message of gpu-01's programs before the steps of these jobs."""
    rack, made = lab_rack(1), virtual_rack()
    for node in rack.group("gpu"):
        node.data["ingest"] = {"image": image} if image else {}  # type: ignore[index]
    with scripted(folder, lambda node, command: None, rack, made) as session:
        session.fleet.machines.update({node.name: machine for node in rack.nodes})  # type: ignore[attr-defined]
        check_programs(BenchContext(session, str), ingest.plan(made, part, rack))
    records = list(read_records(folder))
    assert not disproven(records, partial(read_raw, folder), made, "lab", node_infos(rack))
    checks = [CheckResult.model_validate(record.body) for record in records if record.kind is Kind.CHECK]
    return {one.item: f"{one.outcome.value}: {one.message}" for one in checks}


ID = "a1" * 32
INSIDE = "python3 in image a1a1a1a1a1a1"
PUBLISHED = f"registry.example/torch@sha256:{'b2' * 32}"


@pytest.mark.parametrize(
    ("listed", "item", "words"),
    [
        (f"{ID} {PUBLISHED}", INSIDE, f"passed: python3 in container image {PUBLISHED}"),
        (
            f"{ID} localhost/torch@sha256:{'c3' * 32} {PUBLISHED}",
            INSIDE,
            "passed: python3 in container image registry",
        ),
        (ID, INSIDE, "unmeasured: the image a1a1a1a1a1a1 is of no registry, and may hold any: push it"),
        (f"{ID} localhost/torch@sha256:{'c3' * 32}", INSIDE, "unmeasured: the image a1a1a1a1a1a1 is of no registry"),
        ("", "ingest.image", "unmeasured: no image that ingest.image names"),
    ],
    ids=["published", "published and tagged", "built", "built by podman", "absent"],
)
def test_the_python_that_measures_in_an_image_is_the_images(tmp_path: Path, listed: str, item: str, words: str) -> None:
    """The node's own, which may be any, measures nothing there; figures of data sets alone are its."""
    machine = Machine(image=listed, unowned={"python3"})
    made = asked_programs(tmp_path, machine, profile(train=REAL), "registry.example/torch:2.9")
    assert made.keys() - {"nvidia-smi", "python3"} == {item}
    assert made[item].startswith(words)


def test_jobs_without_pytorch_and_nodes_without_an_image_use_the_nodes_python(tmp_path: Path) -> None:
    machine = Machine(image=f"{ID} {PUBLISHED}", unowned={"python3"})
    for name, part, image in (("a", profile(), "registry.example/torch:2.9"), ("b", profile(train=REAL), None)):
        made = asked_programs(tmp_path / name, machine, part, image)
        assert made.keys() - {"nvidia-smi"} == {"python3"}
        assert made["python3"].startswith("unmeasured: /usr/bin/python3 belongs to no package")


def judged(made: Architecture, number: Measurement, used: str, item: str) -> set[str]:
    """Statuses of the check of the program that measured, where the evidence has the check of another ``item``."""
    records = [
        record.model_copy(update={"body": record.body | {"item": item}})
        if (record.body.get("check"), record.body.get("item")) == (CHECK, used)
        else record
        for record in whole(made, number)
    ]
    return {verdict.status.value for verdict in verdicts(judge_records(made, records), f"{CHECK}[{used}]").values()}


@pytest.mark.parametrize(
    ("image", "item", "status"),
    [
        (ID, INSIDE, "PASS"), (ID, "python3", "UNMEASURED"), (ID, INSIDE.replace("a1", "b2"), "UNMEASURED"),
        (None, "python3", "PASS"), (None, INSIDE, "UNMEASURED"),
    ],
)  # fmt: skip
def test_the_judge_asks_for_the_python_of_the_image_that_measured(image: str | None, item: str, status: str) -> None:
    conditions = {"image": image} if image else {}
    number = measurement("gpu-01", 1.0, metric="ingest.samples_rate", unit="1/s", conditions=conditions)
    made, used = one_criterion(criterion()), INSIDE if image else "python3"
    assert judged(made, number, used, item) == {status}


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
    assert judged(made, number, used, item) == ({status} if status else set())
