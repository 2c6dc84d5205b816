"""A dry run names every command that a run sends: both are compared, step by step, on nodes in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackproof.architectures import load
from rackproof.bench import firewall
from rackproof.bench.announced import Sent, announced
from rackproof.bench.links.fan_in_reader import at_once
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.step import Step
from rackproof.bench.storage.commands import DROP
from rackproof.bench.storage.fio_clients import STATES
from rackproof.bench.storage.fio_launch import launches
from rackproof.bench.user import OWN_MOUNT
from rackproof.cli import runs
from rackproof.core.architecture import Architecture
from rackproof.core.fiojob import command_line
from rackproof.core.rack import Rack
from rackproof.remote import clocks
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from rackproof.run.display import Display
from rackproof.run.stages import Run
from tests.unit.drive_nodes import DriveNodes, drives_of
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import Answer, FakeConnection, FakeFleet, FakePipe, lab_rack, reply, scripted
from tests.unit.false_certificates.test_connections import ConnectionNodes
from tests.unit.false_certificates.test_gds import GdsNodes
from tests.unit.false_certificates.test_ingest_legs import IngestNodes
from tests.unit.false_certificates.test_several_mounts import MountNodes
from tests.unit.file_nodes import FileNodes
from tests.unit.storage_nodes import StorageNodes

IN_DEPTH, INGEST = (load(f"virtual-rack-{name}").model for name in ("storage", "ingest"))
ADDRESSES = {"10.77.0.11": "storage-01", "10.77.0.21": "gpu-01", "10.77.0.22": "gpu-02"}
OF_LEG: dict[str, Callable[..., StorageNodes]] = {
    "connections": ConnectionNodes, "transports": ConnectionNodes, "mounts": MountNodes, "gds": GdsNodes,
    "small-files": FileNodes, "metadata": FileNodes,
}  # fmt: skip
"""Clients by the last part of a storage step's id."""


def rack() -> Rack:
    made = lab_rack()
    made.node("storage-01").data["fabric_second_addresses"] = ["10.77.0.12/24"]
    return made


RACK = rack()


def planned(architecture: Architecture, profile: str) -> tuple[list[Step], list[Sent]]:
    steps = plan_steps(architecture, profile, RACK)
    return steps, list(announced(architecture, profile, RACK, steps))


NETWORK = [{"ifindex": 1, "ifname": "lo", "mtu": 1500, "operstate": "UP", "flags": [], "addr_info": [
    {"family": "inet", "local": "10.77.0.21", "prefixlen": 24, "scope": "global"}]}]  # fmt: skip
UNSEEN = ("true", "bench/state.sh", clocks.READ, STATES)
"""Commands that nodes in memory, or healthy ones, do not get."""
COMPLETE = re.compile(r"dataset_node\.py (?:distinct|copies) ")
"""Data sets are there."""


def nodes_of(step: Step, architecture: Architecture = IN_DEPTH) -> tuple[Answer, StorageNodes]:
    kind, name, leg = (parts := step.id.split("/"))[0], parts[1], parts[-1]
    made = OF_LEG.get(leg, StorageNodes) if kind == "storage" else StorageNodes if kind != "ingest" else IngestNodes
    storage = made(architecture, name=name if kind == "storage" else "", servers=20 if leg == "knee" else None)
    fabric, drives = FabricNodes(dict(ADDRESSES)), DriveNodes({node.name: drives_of(node.name) for node in RACK.nodes})

    def answer(node: str, command: str) -> CommandResult | None:
        if command == firewall.ADDRESSES:
            return reply(node, command, json.dumps(NETWORK))
        own = drives.answer(node, command) if kind in ("drives", "osds") else None
        return own or fabric.answer(node, command) or storage.answer(node, command)

    return answer, storage


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch, storage: StorageNodes) -> Iterator[list[str]]:
    """Commands that are sent through pipes; the storage sees its own mounts."""
    every = list[str]()
    plain = FakeConnection.pipe

    def pipe(connection: FakeConnection, command: str, timeout_s: float, user: str = "") -> FakePipe:
        every.append(command)
        if OWN_MOUNT in command and isinstance(storage, ConnectionNodes):
            storage.pipes.append(command)
        return plain(connection, command, timeout_s, user)

    with monkeypatch.context() as patch:
        patch.setattr(FakeConnection, "pipe", pipe)
        yield every


def sent_in(fleet: Any, pipes: list[str]) -> list[str]:
    """All commands that nodes were sent, and files."""
    copies = (f"umask 077; cat >{path}.part" for _, path in fleet.files)
    return list(dict.fromkeys([*(command for _, command in fleet.asked), *pipes, *copies]))


def sent_by(
    step: Step, folder: Path, monkeypatch: pytest.MonkeyPatch, architecture: Architecture = IN_DEPTH
) -> list[str]:
    """All commands of a step with the stage's own around it."""
    answer, storage = nodes_of(step, architecture)
    with scripted(folder, answer, RACK, architecture) as session, piped(monkeypatch, storage) as pipes:
        run_steps(session, [step], set(), str)
        return sent_in(session.fleet, pipes)


def like(command: str) -> str:
    """A command as it would be on the first client, at any time, with any seed."""
    text = re.sub(r"gpu-\d\d", "gpu-01", at_once(command))
    text = re.sub(r"10(?:\.\d+){3}", "10.77.0.21", text).partition("  # to ")[0]
    text = re.sub(r"GPU-[\w-]+(?: GPU-[\w-]+)*", "UUID", re.sub(r"(--use_cuda_bus_id) \S+", r"\1 GPU", text))
    if "-layout" in text:  # the first attempt has a limit
        text = re.sub(r" --runtime=\d+", "", text)
    text = re.sub(r"/dev/nvme\w+", "/dev/DEVICE", re.sub(r" -p \d+", " -p 15201", text))
    text = re.sub(r'"seed": "\w+"|"start_file": "[^"]*"|"start_limit_s": [\d.]+', "", text)
    text = re.sub(r'"node": \d+', '"node": 0', text)
    return re.sub(r"tree-(?:SEED|\w{16})", "tree-", re.sub(r"[, ]*([{}])[, ]*", r"\1", text))


def lines_of(command: str) -> Iterator[str]:
    """Lines of a dry run about a command: fio's job files as command lines."""
    every = list(launches([reply("gpu-01", command)]))
    for job in (job for launch in every for job in launch.jobs.values()):
        yield command_line("\n".join([f"[{job['name']}]", *(f"{k}={v}" for k, v in job.items() if k != "name")]))
    if not every:
        yield command


def folders_in(command: str) -> list[str]:
    """Folders that a script makes or removes, without the mount point, which may be the step's own."""
    words = re.findall(r"^set -- (.*)$", command, re.MULTILINE)
    tails = (re.search(r"/rackproof-(?!own).*", word) for line in words for word in like(line).split())
    return [tail[0] for tail in tails if tail]


def unannounced(step: Step, sent: list[str], entries: list[Sent], shown: set[str]) -> list[str]:
    """Commands that neither the step nor an entry names."""
    own = [entry for entry in entries if entry.of(step.id)]
    for folder in (folder for command in sent if "stem=" in command for folder in folders_in(command)):
        assert any(folder in like(entry.text) for entry in own), f"{step.id}: {folder}"
    loads = {f"--name={step.id.split('/')[1]}-knee"} if any(line.startswith("# ") for line in step.commands) else set()
    return unnamed_in(sent, own, shown | loads)


def unnamed_in(sent: Iterable[str], entries: Iterable[Sent], shown: Iterable[str]) -> list[str]:
    """Commands that none of the entries has, and that have none of the programs in ``shown``."""
    others = [command for command in sent if not any(entry.has(command) for entry in entries)]
    programs = ((command, [like(line) for line in lines_of(command)]) for command in others)
    return [command for command, lines in programs if not all(any(one in line for one in shown) for line in lines)]


def removes_files_of_fio(sent: Iterable[str]) -> bool:
    """Whether folders are emptied of them that are not written again."""
    emptied = (command for command in sent if re.search(r" stem=rackproof$", command, re.MULTILINE))
    of_fio = any(re.search(r"/rackproof-bench/gpu-\d+(?= |$)", command, re.MULTILINE) for command in emptied)
    return of_fio and not any("-layout" in command for command in sent)


def sent_by_stage(folder: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> list[str]:
    """All commands of ``rackproof bench`` with this one step."""
    answer, storage = nodes_of(step)
    fleets: list[FakeFleet] = []

    def fleet(rack: Rack) -> Any:
        fleets.append(FakeFleet(rack, answer))
        return fleets[-1]

    monkeypatch.setattr(stages, "Fleet", fleet)
    monkeypatch.setattr(stages, "plan_steps", lambda *_: [step])
    folder.mkdir()
    with piped(monkeypatch, storage) as pipes:
        Run(folder, RACK, load("virtual-rack-storage"), "depth", Display(), ("connect", "bench")).execute()
        return sent_in(fleets[-1], pipes)


@pytest.mark.parametrize(
    ("architecture", "profile", "whole"),
    [(IN_DEPTH, "lab", "storage/nfs-tcp/read"), (IN_DEPTH, "depth", "storage/nfs-tcp/read"), (INGEST, "ingest", "")],
    ids=["lab", "depth", "ingest"],
)
def test_no_command_is_sent_that_a_dry_run_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: Architecture, profile: str, whole: str
) -> None:
    """``whole``: the step of which the stage is executed, too."""
    steps, entries = planned(architecture, profile)
    all_sent: dict[str, list[str]] = {}
    for number, step in enumerate(steps):
        all_sent[step.id] = sent_by(step, tmp_path / str(number), monkeypatch, architecture)
        if step.id == whole:
            all_sent[step.id] += sent_by_stage(tmp_path / "stage", monkeypatch, step)
    written = {like(line) for step in steps for line in step.commands if "-layout" in line or "dataset_node" in line}
    unnamed, unsent, idle = dict[str, list[str]](), dict[str, list[str]](), {entry.line: entry for entry in entries}
    for step in steps:
        sent = all_sent[step.id]
        unnamed[step.id] = unannounced(step, sent, entries, written | set(map(like, step.commands)))
        lines = {like(line) for command in sent for line in lines_of(command)}
        shown = [line for line in step.commands if not line.startswith(("#", "mount ")) and not COMPLETE.search(line)]
        assert not removes_files_of_fio(sent), f"{step.id}: another step may be repeated and need them"
        unsent[step.id] = [line for line in shown if not any(like(line) in one for one in lines)]
        for entry in entries:
            if entry.of(step.id) and any(map(entry.has, sent)):
                idle.pop(entry.line, None)
    assert {step: several for step, several in unnamed.items() if several} == {}
    assert {step: several for step, several in unsent.items() if several} == {}
    assert [entry.line for entry in idle.values() if whole and entry.text not in UNSEEN] == []


def test_a_command_that_nothing_names_is_missed() -> None:
    steps, entries = planned(IN_DEPTH, "lab")
    step = next(step for step in steps if step.id == "storage/nfs-tcp/read")
    shown = set(map(like, step.commands))
    other = "rm -rf -- /mnt/nfs-tcp/data"
    assert unannounced(step, [other, DROP, *step.commands], entries, shown) == [other]
    for entry in entries:
        assert not entry.has(other)
        assert not entry.has("")


def test_a_dry_run_prints_each_on_a_line_of_its_own() -> None:
    lines = list(runs._forecast(RACK, load("virtual-rack-storage"), "depth"))
    _, entries = planned(IN_DEPTH, "depth")
    assert all("\n" not in entry.line for entry in entries)
    assert all(f"{'':10}{entry.line}" in lines for entry in entries)
    folders = "/mnt/nfs-tcp/rackproof-bench/gpu-01", "/mnt/nfs-tcp/rackproof-bench/gpu-01-connections-nfs-tcp"
    assert any("bench/storage/folders.sh" in line and all(folder in line for folder in folders) for line in lines)
