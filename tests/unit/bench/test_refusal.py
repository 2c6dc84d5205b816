"""A job that Slurm gives no nodes: its reason names nodes, states and the way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.bench.collectives import launch as collective_launch
from rackproof.bench.collectives.command import requested_by
from rackproof.bench.collectives.group_reader import SETS, launches
from rackproof.bench.collectives.refusal import asking, is_asking, is_refused, out_of_service, why_failed
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.core.evidence import CommandRecord, Kind
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from tests.unit.bench.test_collectives import measured
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import reply
from tests.unit.false_certificates.test_groups import measure, unknown
from tests.unit.group_racks import nodes_of, rack_of

NAMES = [f"gpu-{number:02d}" for number in range(1, 9)]
BUSY = (
    "srun: Required node not available (down, drained or reserved)\nsrun: job 41 queued and waiting for resources\n"
    "srun: error: Unable to allocate resources: Requested nodes are busy\n"
)
JOB = "env A=1 srun --nodes=2 --nodelist=gpu-01,gpu-02 --job-name=rackproof all_reduce_perf -b 8"


def shown(name: str, state: str, reason: str = "") -> str:
    """A line of ``scontrol --oneliner show node``."""
    why = f" Reason={reason} [slurm@2026-11-21T12:00:00]" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=2 CPUAlloc=0 CPUTot=2 CPULoad=0.35 Gres=gpu:2 NodeAddr=10.0.0.1 "
        f"NodeHostName={name} Version=24.11.5 OS=Linux 6.12.57 #1 SMP RealMemory=1700 State={state} ThreadsPerCore=1 "
        f"Partitions=main BootTime=2026-11-21T11:00:00 CfgTRES=cpu=2,mem=1700M,gres/gpu=2{why}\n"
    )


@pytest.mark.parametrize(
    ("state", "reason", "line"),
    [
        ("DOWN*", "Not responding", "DOWN+NOT_RESPONDING (Not responding), start slurmd there; if it stays out of "
         "service then, scontrol update NodeName=gpu-02 State=RESUME"),
        ("IDLE*", "", "IDLE+NOT_RESPONDING, start slurmd there; if it stays out of service then, scontrol update"),
        ("IDLE+NOT_RESPONDING", "", "IDLE+NOT_RESPONDING, start slurmd there"),
        ("DOWN", "Node unexpectedly rebooted",
         "DOWN (Node unexpectedly rebooted), mend the cause, then scontrol update NodeName=gpu-02 State=RESUME"),
        ("IDLE+DRAIN", "rackproof: gpu.count", "IDLE+DRAIN (rackproof: gpu.count), mend the cause, then scontrol"),
        ("MIXED+DRAIN", "Kill task failed", "MIXED+DRAIN (Kill task failed), mend the cause, then scontrol update"),
        ("DOWN+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured (1 < 2)",
         "(gres/gpu count reported lower than configured (1 < 2)), mend the cause, then scontrol update NodeName="),
        ("IDLE+RESERVED", "", "IDLE+RESERVED, a reservation keeps it: scontrol show reservation"),
        ("MAINT", "", "MAINT, a reservation keeps it: scontrol show reservation"),
        ("IDLE+MAINTENANCE+RESERVED", "", "a reservation keeps it: scontrol show reservation"),
        ("ALLOCATED", "", "ALLOCATED, other jobs use it: squeue --nodelist=gpu-02"),
        ("IDLE+COMPLETING", "", "IDLE+COMPLETING, other jobs use it: squeue --nodelist=gpu-02"),
        ("IDLE+PLANNED", "", "IDLE+PLANNED, a waiting job comes first: squeue"),
        ("IDLE+POWERED_DOWN", "", "IDLE+POWERED_DOWN, see scontrol show node gpu-02"),
    ],
)  # fmt: skip
def test_a_node_out_of_service_is_named_with_its_state_and_the_way_out(state: str, reason: str, line: str) -> None:
    text = out_of_service(shown("gpu-01", "IDLE") + shown("gpu-02", state, reason))
    assert text.startswith("gpu-02: Slurm has ")
    assert line in text


@pytest.mark.parametrize("state", ["IDLE", "IDLE+CLOUD", "IDLE+DYNAMIC_NORM"])
def test_nodes_that_take_jobs_are_not_named(state: str) -> None:
    assert out_of_service(shown("gpu-01", "IDLE") + shown("gpu-02", state)) == ""


def test_nodes_in_the_same_state_are_one_line() -> None:
    names = NAMES[:6]
    text = out_of_service("".join(shown(name, "DOWN*", "Not responding") for name in names))
    assert text.startswith("gpu-[01-06]: Slurm has DOWN+NOT_RESPONDING (Not responding), ")
    assert text.endswith("NodeName=gpu-[01-06] State=RESUME")
    assert out_of_service(shown("@x[", "DOWN")).startswith("@x[: Slurm has DOWN, ")
    states = ["DOWN", "IDLE+DRAIN", "ALLOCATED", "MAINT", "IDLE*"]
    assert out_of_service("".join(map(shown, names, states))).endswith("; and 2 more")


@pytest.mark.parametrize(
    "output",
    ["", "Node gpu-02 not found\n", "slurm_load_node error: Unable to contact slurm controller (connect failure)\n",
     "NodeName=gpu-02\n", shown("gpu-02", "down"), shown("gpu-02", "DOWN*")[:-5]],
)  # fmt: skip
def test_what_is_no_answer_of_slurm_names_no_node(output: str) -> None:
    assert out_of_service(output) == ""


def test_only_a_job_without_nodes_asks_for_their_states() -> None:
    failed = CommandResult("gpu-01", JOB, 1, b"", BUSY.encode())
    assert is_refused(failed)
    for words in (
        "srun: error: Unable to allocate resources: Requested node configuration is not available",
        "srun: error: Job allocation 41 has been revoked",
        f"srun: Force Terminated job 7\n{BUSY}",
    ):
        assert is_refused(replace(failed, stderr=words.encode()))
    for other in (
        replace(failed, rc=0), replace(failed, rc=None), replace(failed, stderr=b""),
        replace(failed, stderr=b"srun: error: gpu-02: task 1: Exited with exit code 3\n"),
        replace(failed, stderr=b"gpu-02: cannot allocate memory\n"),
        replace(failed, command=JOB.replace("srun", "mpirun")),
    ):  # fmt: skip
        assert not is_refused(other)


def test_a_reason_has_the_states_only_where_they_were_asked_for() -> None:
    failed = CommandResult("gpu-01", JOB, 1, b"", BUSY.encode())
    states = reply("gpu-01", asking(["gpu-01", "gpu-02"]), shown("gpu-01", "IDLE") + shown("gpu-02", "DOWN*"))
    plain = "srun: error: Unable to allocate resources: Requested nodes are busy (exit status 1)"
    assert is_asking(states.command)
    assert why_failed(failed, [failed, states]).reason.startswith(f"{plain}; gpu-02: Slurm has DOWN+NOT_RESPONDING, ")
    assert why_failed(failed, [failed]).reason == plain
    assert why_failed(failed, [failed, replace(states, rc=1)]).reason == plain
    crashed = replace(failed, stderr=b"srun: error: gpu-02: task 1: Aborted\n")
    assert "Slurm has" not in why_failed(crashed, [crashed, states]).reason


@pytest.mark.parametrize("engine", ["mpi", "nccl-tests"])
def test_a_collective_without_nodes_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(collective_launch, "inputs_of", lambda rack, nodes: CollectiveInputs(launcher="srun"))
    nodes = FabricNodes(status={"srun": 1}, complaints={"srun": [BUSY] * 9})
    plain, asked = nodes.answer, []

    def answer(node: str, command: str) -> CommandResult | None:
        if is_asking(command):
            asked.append(command)
            return reply(node, command, shown("gpu-01", "IDLE") + shown("gpu-02", "IDLE+DRAIN", "bad fan"))
        return plain(node, command)

    monkeypatch.setattr(nodes, "answer", answer)
    made = measured(tmp_path, f"collectives/{engine}/all_reduce", nodes, engine)
    assert made
    assert {command.rpartition(" ")[2] for command in asked} == {"gpu-01,gpu-02"}
    for measurement in made.values():
        assert not measurement.samples
        assert "gpu-02: Slurm has IDLE+DRAIN (bad fan), mend the cause, then scontrol" in (measurement.reason or "")


def test_group_testing_names_no_fault_of_a_node_that_slurm_keeps_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = rack_of(8, launcher="srun")
    nodes = nodes_of(rack)

    def answer(node: str, command: str) -> CommandResult | None:
        if is_asking(command):
            return reply(node, command, "".join(shown(name, "IDLE*" if name == "gpu-02" else "IDLE") for name in NAMES))
        if SETS in command and "gpu-02" in requested_by(command.partition(SETS)[0]).hosts:
            return reply(node, command, rc=1, err=BUSY)
        return plain(node, command)

    plain = nodes.answer
    monkeypatch.setattr(nodes, "answer", answer)
    made = measure(tmp_path, nodes, rack, engine="torch")
    assert unknown(made) == {"gpu-02"}, [one.reason for one in made.values()]
    assert "gpu-02: Slurm has IDLE+NOT_RESPONDING, start slurmd there" in (made["gpu-02"].reason or "")
    assert {one.samples for node, one in made.items() if node != "gpu-02"} == {(0.0,)}
    jobs = launches(_answers(tmp_path))
    refused = [any(is_asking(one.command) for one in job.beside) for job in jobs]
    assert any(refused)
    assert [job.complete for job in jobs] == [not one for one in refused], "a resumed search tries it again"


def _answers(folder: Path) -> list[CommandRecord]:
    return [CommandRecord.model_validate(r.body) for r in read_records(folder) if r.kind is Kind.COMMAND]
