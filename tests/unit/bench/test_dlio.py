"""DLIO where it is installed: a number only with its own figures and with the bytes of every epoch.

The kit's program really runs; ``dlio_benchmark`` and ``mpirun`` are stand-ins that write what the recorded summary has.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.ingest import steps as ingest
from rackproof.bench.ingest.dlio import read_dlio
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.reading import Reading
from rackproof.bench.step import BenchContext
from rackproof.bench.user import SETUP
from rackproof.core.architecture import DlioRun, IngestProfile, Profile
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.refusals import refuses
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(13)

RECORDED = Path(__file__).parents[2] / "data/tools/dlio-2.0-summary.json"
POINT = "/mnt/nfs-tcp"
RUN = DlioRun.model_validate(
    {"workload": "unet3d", "config": "unet3d_h100", "storage": "nfs-tcp", "accelerators": 2, "batch": 2, "files": 24,
     "epochs": 2, "limit_s": 60, "options": {"dataset.record_length": 4096, "train.computation_time": 0.01}}
)  # fmt: skip
STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, socket, sys, time
own = dict(word.lstrip("+").split("=", 1) for word in sys.argv[1:])
fault = os.environ.get("STAND_IN_FAULT", "")
folder = pathlib.Path(own["workload.dataset.data_folder"])
count, epochs = int(own["workload.dataset.num_files_train"]), int(own["workload.train.epochs"])
if own["workload.workflow.generate_data"] == "True":
    (folder / "train").mkdir()
    for number in range(count):
        name = own["workload.dataset.file_prefix"] + f"_{{number}}.npz"
        (folder / "train" / name).write_bytes(b"x" * int(own["workload.dataset.record_length"]))
    sys.exit(0)
if fault == "status":
    print("Traceback (most recent call last):\\nFileNotFoundError: no data", file=sys.stderr)
    sys.exit(1)
if fault == "hangs":
    time.sleep(600)
summary = json.loads(pathlib.Path("{RECORDED}").read_text())
summary["hostname"], summary["num_accelerators"] = socket.gethostname(), int(os.environ["STAND_IN_RANKS"])
summary["num_hosts"] = int(os.environ["STAND_IN_HOSTS"])
summary["num_files_train"] = count
scale = 1000
for key, value in summary["metric"].items():
    if "samples_per_second" in key:
        value = [one * scale for one in value] if isinstance(value, list) else value * scale
        summary["metric"][key] = value
output = pathlib.Path(own["hydra.run.dir"])
output.mkdir()
if fault != "silent":
    (output / "summary.json").write_text(json.dumps(summary))
"""
MPIRUN = """#!/bin/sh
export STAND_IN_HOSTS=1
while :; do
  case $1 in
    -np | -n) export STAND_IN_RANKS="$2"; shift 2 ;;
    --host) STAND_IN_HOSTS=$(echo "$2" | tr , '\\n' | grep -c :); shift 2 ;;
    --map-by | --bind-to) shift 2 ;;
    --mca) shift 3 ;;
    /*) exec "$@" ;;
    *) exit 9 ;;
  esac
done
"""
Change = Callable[[dict[str, Any]], object]


class Clients:
    """A client of an export, whose program runs; ``share`` of the bytes come from the server."""

    def __init__(self, folder: Path, share: float = 1.0, change: Change = lambda summary: None) -> None:
        self.export, self.share, self.change = folder, share, change
        self.bin = folder.parent / "bin"
        self.clients = {"gpu-01": 1.0}
        """Share of the samples that each of them reads."""
        self.nodes = StorageNodes(virtual_rack(), name="nfs-tcp")
        self.answers: list[CommandResult] = []

    def install(self) -> Clients:
        self.bin.mkdir()
        for name, text in (("dlio_benchmark", STAND_IN), ("mpirun", MPIRUN)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        return self

    def answer(self, node: str, command: str) -> CommandResult | None:
        result = self._answer(node, command)
        if result is not None:
            self.answers.append(result)
        return result

    def _answer(self, node: str, command: str) -> CommandResult | None:
        if "/dlio_node.py" not in command:
            if "uid=990" in command:  # folders.sh
                (self.export / "rackproof-data/dlio-seg").mkdir(parents=True, exist_ok=True)
                return reply(node, command)
            answer = self.nodes.answer(node, command)
            return self._with_tree(answer) if answer is not None and "echo -- tree" in command else answer
        (config,) = node_programs.configs(command, "dlio_node.py")
        local = json.dumps(config).replace(f'"{POINT}/', f'"{self.export}/')
        done = node_programs.run("dlio_node.py", local, cwd=self.export.parent)
        document = json.loads(done.stdout)
        if "summary" in document:
            summary = json.loads(document["summary"])
            self.change(summary)
            document["summary"] = json.dumps(summary)
        if config["action"] == "train":
            whole = self.share * config["epochs"] * sum(file.stat().st_size for file in self.files())
            for client, own in self.clients.items():
                self.nodes.moved.setdefault((client, POINT), [0, 0])[0] += int(own * whole)
        return reply(node, command, json.dumps(document), done.returncode)

    def files(self) -> list[Path]:
        return list((self.export / "rackproof-data/dlio-seg/train").glob("rackproof.*"))

    def _with_tree(self, answer: CommandResult) -> CommandResult:
        head = answer.stdout.decode().partition("-- files\n")[0]
        lines = [line for line in head.splitlines() if not line.startswith("cached_bytes")]
        sizes = [file.stat().st_size for file in self.files()]
        lines = [f"cached_bytes 0 {len(sizes)}", *lines, "-- tree", f"{len(sizes)} {sum(sizes)}", "-- end", ""]
        return replace(answer, stdout="\n".join(lines).encode())


@pytest.fixture
def export(tmp_path: Path) -> Path:
    (tmp_path / "export").mkdir()
    return tmp_path / "export"


def profile(run: DlioRun = RUN) -> IngestProfile:
    return IngestProfile(dlio={"seg": run})


def measured(tmp_path: Path, made: Clients, run: DlioRun = RUN) -> list[Measurement]:
    rack = lab_rack(2)
    rack.node("gpu-01").data["ingest"] = {"dlio": str(made.bin)}
    with scripted(tmp_path / "run", made.answer, rack) as session:
        (step,) = ingest.plan(virtual_rack(), profile(run), session.rack)
        return list(step.execute(BenchContext(session, lambda line: None)))


def test_a_proven_run_has_both_figures_and_names_its_engine(tmp_path: Path, export: Path) -> None:
    made = Clients(export).install()
    rate, busy = measured(tmp_path, made, RUN.model_copy(update={"runs": 2}))
    assert rate.samples == pytest.approx((34550.105, 34550.105)), rate.reason
    assert busy.samples == pytest.approx((96.195, 96.195), abs=1e-3)
    assert busy.labels["engine"] == "dlio"
    assert busy.members == ("gpu-01",)
    assert busy.conditions["accelerator"] == "emulated by dlio_benchmark (unet3d_h100); no MLPerf submission"
    assert busy.conditions["steps"] == 6
    assert busy.companions["application_bytes"] == (2 * 24 * 4096,) * 2
    assert busy.companions["counter_bytes"] == (2 * 24 * 4096,) * 2
    own = Reading(busy.samples, (), busy.conditions)
    assert profile_mismatch(busy, own, Profile(ingest=profile())) is None
    other = RUN.model_copy(update={"options": {"dataset.record_length": "8192"}})
    assert "options: the profile asks for" in (profile_mismatch(busy, own, Profile(ingest=profile(other))) or "")
    assert profile_mismatch(busy, own, Profile(ingest=IngestProfile())) == (
        "dlio: the profile asks for none, the run had None"
    )
    assert sum('"action": "make"' in answer.command for answer in made.answers) == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_samples_from_memory_are_no_number(tmp_path: Path, export: Path, share: float) -> None:
    """Half: the second epoch came from the cache."""
    for result in measured(tmp_path, Clients(export, share).install()):
        assert (result.samples, result.invalid) == ((), True)
        assert "of 196608 B that it read came from the client's memory: the mount counted" in (result.reason or "")


def test_without_the_tool_the_reason_names_it(tmp_path: Path, export: Path) -> None:
    for result in measured(tmp_path, Clients(export)):
        assert result.samples == ()
        assert "is not installed in" in (result.reason or "")
        assert "ingest.dlio of the inventory" in (result.reason or "")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("status", "ended with status 1: FileNotFoundError: no data"),
        ("silent", "left no summary.json"),
        ("hangs", "did not end in 10 s; see limit_s"),
    ],
)
def test_a_tool_that_fails_is_no_number(
    tmp_path: Path, export: Path, fault: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAULT", fault)
    for result in measured(tmp_path, Clients(export).install(), RUN.model_copy(update={"limit_s": 10})):
        assert result.samples == ()
        assert why in (result.reason or "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: s["metric"].update(train_au_meet_expectation="fail"), "it calls its run a failure: 96.2 %"),
        (lambda s: s.update(num_accelerators=1), "num_accelerators: expected 2, actual 1"),
        (lambda s: s.update(num_hosts=2), "num_hosts: expected 1, actual 2"),
        (lambda s: s.update(hostname="elsewhere"), "hostname: expected"),
        (lambda s: s.update(num_files_train=25), "samples of one file less: expected 0"),
        (lambda s: s.update(num_files_train=240000), "its epochs took"),
        (lambda s: s["metric"].pop("train_au_percentage"), "train_au_percentage is no list"),
        (lambda s: s.pop("metric"), "metric is missing"),
        (lambda s: s.update(epochs=1), "is no list of 1 epochs"),
    ],
)
def test_a_summary_that_is_not_of_this_run_is_no_number(tmp_path: Path, export: Path, change: Change, why: str) -> None:
    for result in measured(tmp_path, Clients(export, change=change).install()):
        assert result.samples == ()
        assert why in (result.reason or "")


TWO = RUN.model_copy(update={"clients": 2})


def two_clients(
    export: Path, first: float = 0.5, second: float = 0.5, change: Change = lambda summary: None
) -> Clients:
    made = Clients(export, change=change).install()
    made.clients = {"gpu-01": first, "gpu-02": second}
    return made


def test_several_clients_share_the_accelerators(tmp_path: Path, export: Path) -> None:
    made = two_clients(export)
    rate, busy = measured(tmp_path, made, TWO)
    assert rate.reason is None, rate.reason
    assert rate.members == busy.members == ("gpu-01", "gpu-02")
    assert (busy.labels["nodes"], busy.labels["gpus"], busy.conditions["nodes"]) == ("2", "2", 2)
    assert busy.companions["counter_bytes"] == (2 * 24 * 4096,)
    assert busy.companions["client_ram_bytes"][0] > 0
    own = Reading(busy.samples, (), busy.conditions)
    assert profile_mismatch(busy, own, Profile(ingest=profile(TWO))) is None
    one = busy.model_copy(update={"conditions": {"dlio": {**busy.conditions["dlio"], "clients": 1}}})
    assert profile_mismatch(one, Reading(one.samples, (), one.conditions), Profile(ingest=profile(TWO)))
    (train,) = [answer for answer in made.answers if '"action": "train"' in answer.command]
    assert "--host gpu-01:1,gpu-02:1" in train.command.replace('", "', " ")
    assert train.node == "gpu-01"
    assert sum("storage-state before" in answer.command for answer in made.answers) == 2
    rack = lab_rack(2)
    rack.node("gpu-01").data["ingest"] = {"dlio": str(made.bin)}
    (step,) = ingest.plan(virtual_rack(), profile(TWO), rack)
    asked = [answer.command for answer in made.answers]
    assert [json.loads(shlex.split(command)[-1])["action"] for command in step.commands] == ["make", "train"]
    assert all(any(text.endswith(command) for text in asked) for command in step.commands)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (0.5, 0.0, "50 % of 196608 B that it read came from the client's memory: the mount counted 98304 B"),
        (1.0, 0.0, "gpu-02, one of 2 clients: 100 % of "),
        (0.9, 0.1, "gpu-02, one of 2 clients: "),
    ],
)
def test_a_client_that_reads_no_share_is_no_number(
    tmp_path: Path, export: Path, first: float, second: float, why: str
) -> None:
    """Bytes that others read beyond their share do not stand for it."""
    for result in measured(tmp_path, two_clients(export, first, second), TWO):
        assert result.samples == ()
        assert why in (result.reason or "")


def test_ranks_that_all_ran_on_one_client_are_no_number(tmp_path: Path, export: Path) -> None:
    for result in measured(tmp_path, two_clients(export, change=lambda s: s.update(num_hosts=1)), TWO):
        assert result.samples == ()
        assert "num_hosts: expected 2, actual 1" in (result.reason or "")


def test_too_few_nodes_are_named(tmp_path: Path, export: Path) -> None:
    three = RUN.model_copy(update={"clients": 3, "accelerators": 3})
    for result in measured(tmp_path, two_clients(export), three):
        assert "it needs 3 clients, the group has 2" in (result.reason or "")


def test_accounts_with_two_numbers_are_named(tmp_path: Path, export: Path) -> None:
    made = two_clients(export)
    plain = made.answer

    def answer(node: str, command: str) -> CommandResult | None:
        if command == SETUP and node == "gpu-02":
            return reply(node, command, "uid 777 gid 777\n")
        return plain(node, command)

    made.answer = answer  # type: ignore[method-assign]
    for result in measured(tmp_path, made, TWO):
        assert "990:991 on gpu-01 and 777:777 on gpu-02" in (result.reason or "")


def without(mark: str) -> Callable[[list[CommandResult]], list[CommandResult]]:
    return lambda answers: [answer for answer in answers if mark not in answer.command]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without("storage-state before"), "was not asked before"),
        (without("storage-state after"), "was not asked after"),
        (without('"action": "train"'), "no run of it"),
        (lambda a: [replace(x, command=x.command.replace("dlio-seg", "other")) for x in a], "expected a data set in"),
        (lambda a: [replace(x, stdout=x.stdout.replace(b"-- tree\n24 ", b"-- tree\n23 ")) for x in a], "expected 24"),
        (lambda a: [replace(x, stdout=x.stdout.replace(b"nfs-tcp", b"other")) for x in a], "not mounted"),
        (lambda a: [replace(x, stdout=x.stdout[:200]) if "dlio_node" in x.command else x for x in a], "cut off"),
    ],
)
def test_answers_that_lack_the_proof_give_no_number(
    tmp_path: Path, export: Path, change: Callable[[list[CommandResult]], list[CommandResult]], why: str
) -> None:
    made = Clients(export).install()
    measurement = measured(tmp_path, made)[0]
    assert read_dlio(made.answers, measurement, virtual_rack()).samples == measurement.samples
    with pytest.raises(ParseError, match=why):
        read_dlio(change(made.answers), measurement, virtual_rack())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: [x for x in a if x.node != "gpu-02" or "storage-state after" not in x.command], "not asked after"),
        (lambda a: [x for x in a if x.node != "gpu-02" or "storage-state before" not in x.command], "not asked before"),
        (lambda a: [replace(x, command=x.command.replace('"clients": 2, ', "")) for x in a], "num_hosts: expected 1"),
        (
            lambda a: [
                replace(x, stdout=x.stdout.replace(b"-- tree\n24 98304", b"-- tree\n24 98305"))
                if x.node == "gpu-02" else x
                for x in a
            ],
            "the data set of gpu-01 on every client",
        ),
    ],
)  # fmt: skip
def test_answers_that_lack_the_proof_of_a_client_give_no_number(
    tmp_path: Path, export: Path, change: Callable[[list[CommandResult]], list[CommandResult]], why: str
) -> None:
    made = two_clients(export)
    measurement = measured(tmp_path, made, TWO)[0]
    assert read_dlio(made.answers, measurement, virtual_rack()).samples == measurement.samples
    with pytest.raises(ParseError, match=why):
        read_dlio(change(made.answers), measurement, virtual_rack())


test_invalid_runs_are_refused = refuses(
    lambda change: DlioRun.model_validate(RUN.model_dump() | change),
    ({"options": {"workflow.train": "False"}}, "options"),
    ({"options": {"metric.au": 0.1}}, "options"),
    ({"options": {"dataset.data_folder": "/tmp"}}, "the kit sets it"),
    ({"options": {"train.computation_time": "1 $(id)"}}, "options"),
    ({"config": "../x"}, "config"),
    ({"accelerators": 0}, "accelerators"),
    ({"clients": 3}, "3 clients cannot share 2 accelerators"),
    error=ValueError,
)


def test_a_label_of_a_job_is_refused() -> None:
    job = {"workload": "unet3d", "dataset": "set", "accelerator": "h100", "model": "unet3d", "batch": 1, "seconds": 5}
    data = {"set": {"storage": "nfs-tcp", "format": "files", "samples": 1, "mean_bytes": 9000}}
    with pytest.raises(ValueError, match="workload unet3d is that of a job"):
        IngestProfile.model_validate({"jobs": {"own": job}, "datasets": data, "dlio": {"seg": RUN.model_dump()}})


def test_a_data_set_is_made_once(tmp_path: Path, export: Path) -> None:
    Clients(export).install()
    config = {"job": "seg", "action": "make", "bin": str(tmp_path / "bin"), "configs": "", "config": "unet3d_h100",
              "accelerators": 1, "batch": 1, "files": 3, "epochs": 1, "seconds": 30, "folder": str(export),
              "options": {"dataset.record_length": "10"}}  # fmt: skip

    def make(**changes: Any) -> bool:
        text = json.dumps(config | changes)
        return bool(node_programs.document("dlio_node.py", text, cwd=tmp_path)["made"])

    assert [make(), make(), make(files=4), make(files=4, options={"dataset.record_length": "9"})] == [
        True, False, True, True,
    ]  # fmt: skip
    assert len(os.listdir(export / "train")) == 4
