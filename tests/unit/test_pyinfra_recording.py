"""A deploy is planned on recordings: no node, no network, and nothing that was not recorded is made up.

In processes of their own: pyinfra's command patches the interpreter.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rackproof.cli import record as command
from rackproof.core.rack import Node, Rack
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import OUTPUT_LIMIT, CommandResult
from rackproof.remote.pyinfra_recording import _within_limit
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import read_folder, write_recordings
from rackproof.run.plan_questions import ask_plan
from rackproof.validation.context import Context
from tests.unit import warm_python
from tests.unit.fakes import FakeFleet, reply, virtual_rack
from tests.unit.test_recording_collect import Shell, Shells, Unreachable

pytestmark = pytest.mark.few(4)

DEPLOY = """\
from io import StringIO

from pyinfra.api import FactBase, operation
from pyinfra.context import host
from pyinfra.operations import files, server

class Colour(FactBase):
    def command(self):
        return "echo blue; echo of $((1 + 1)) >&2"
    def process(self, lines):
        return lines[0]

class Shade(FactBase):
    def command(self, colour):
        return f"printf 'dark %s\\\\n' {colour}"
    def process(self, lines):
        return lines[0]

@operation()
def paint(colour):
    if host.get_fact(Shade, colour=colour) != f"dark {colour}":
        yield f"paint {colour}"

colour = host.get_fact(Colour)
if colour:
    paint(name=f"Paint it {colour} for {host.data.purpose}", colour=colour)
if "gpu" in host.groups:
    server.shell(name="Always", commands=["touch /nowhere/at/all"])
"""
PUT = """\
from io import StringIO
from pyinfra.operations import files
files.put(name="Put", src=StringIO("x"), dest="/nowhere/at/all")
"""
NODES = tuple(
    Node(name, (group,), {"purpose": "tests", "ssh_hostname": "192.0.2.1", "architecture": "virtual-rack"})
    for name, group in (("gpu-01", "gpu"), ("gpu-02", "gpu"), ("storage-01", "storage"))
)


def context_of(*shells: Shell, nodes: tuple[Node, ...] = NODES) -> Context:
    fleet: Any = Shells(*shells)
    readers = {node.name: RecordingReader(node.name, fleet[node.name], timeout_s=60) for node in nodes}
    return Context(Rack("inv.py", nodes), virtual_rack(), readers, fleet)


def pyinfra(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run(
        [sys.executable, "-m", "pyinfra", *arguments],
        cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of the deploy's plan on three nodes, each a shell on this machine, recorded in ``rec``."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "deploy.py").write_text(DEPLOY)
    (folder / "put.py").write_text(PUT)
    shells = [Shell(node.name) for node in NODES]
    context = context_of(*shells)
    assert ask_plan(context, str(folder / "deploy.py")) is None
    # The second question needs the first one's answer: two round trips, and nothing is asked one by one.
    assert [shell.commands for shell in shells] == [["sh -s"] * 2] * 3
    write_recordings(folder / "rec", [Recording(node, context.readers[node.name].used) for node in NODES])
    return folder


def test_what_a_plan_asks_is_recorded_and_nothing_else(recorded: Path) -> None:
    for recording in read_folder(recorded / "rec"):
        asked = list(recording.results)
        assert len(asked) == 2
        assert "echo blue" in asked[0]
        assert "dark %s" in asked[1]
        assert recording.node.data["purpose"] == "tests"
        assert "ssh_hostname" not in recording.node.data


def test_a_deploy_is_planned_from_recordings_alone(recorded: Path) -> None:
    done = pyinfra(recorded, "--dry", "--json", "@recording/rec", "deploy.py")
    assert done.returncode == 0, done.stderr
    plan = {entry["name"]: entry["hosts_with_change"] for entry in json.loads(done.stdout)["plan"]}
    assert plan["Always"] == ["gpu-01", "gpu-02"]
    assert plan["Paint it blue for tests"] == []


def test_another_answer_is_another_plan(recorded: Path, tmp_path: Path) -> None:
    recordings = read_folder(recorded / "rec")
    one = recordings[0]
    results = {c: replace(r, stdout=r.stdout.replace(b"dark", b"light")) for c, r in one.results.items()}
    write_recordings(tmp_path / "rec", [replace(one, results=results), *recordings[1:]])
    done = pyinfra(tmp_path, "--dry", "--json", "@recording/rec", str(recorded / "deploy.py"))
    plan = {entry["name"]: entry["hosts_with_change"] for entry in json.loads(done.stdout)["plan"]}
    assert plan["Paint it blue for tests"] == ["gpu-01"]


def test_a_question_that_was_not_recorded_fails_its_node_and_is_named(recorded: Path, tmp_path: Path) -> None:
    recordings = read_folder(recorded / "rec")
    one = recordings[0]
    results = {c: r for c, r in one.results.items() if "dark" not in c}
    write_recordings(tmp_path / "rec", [replace(one, results=results), *recordings[1:]])
    done = pyinfra(tmp_path, "--dry", "@recording/rec", str(recorded / "deploy.py"))
    output = done.stdout + done.stderr
    assert re.search(r"\[gpu-01\] +not in the recording: sh -c", output)
    assert "dark %s" in output
    assert "could not load fact" in output


@pytest.mark.parametrize(("deploy", "host"), [("deploy.py", "gpu-01"), ("put.py", "storage-01")])
def test_nothing_can_be_changed(recorded: Path, deploy: str, host: str) -> None:
    # What an operation itself would ask is answered with nothing, so that the plan comes to its end.
    done = pyinfra(recorded, "-y", "--limit", host, "@recording/rec", deploy, RACKPROOF_RECORDING_ASKED=os.devnull)
    assert done.returncode != 0
    assert "recordings answer plans only: use --dry" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("inventory", "complaint"),
    [
        ("@recording", "the folder of recordings is missing; use @recording/DIR"),
        ("@recording/none", "none: the folder has no recordings"),
    ],
)
def test_a_folder_without_recordings_is_refused(recorded: Path, inventory: str, complaint: str) -> None:
    done = pyinfra(recorded, "--dry", inventory, "deploy.py")
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr


def test_an_edited_recording_plans_nothing(recorded: Path, tmp_path: Path) -> None:
    write_recordings(tmp_path / "rec", read_folder(recorded / "rec"))
    path = tmp_path / "rec" / "gpu-01.json"
    path.write_text(path.read_text().replace('"blue\\n"', '"red\\n"'))
    done = pyinfra(tmp_path, "--dry", "@recording/rec", str(recorded / "deploy.py"))
    assert done.returncode != 0
    assert "gpu-01.json: edited by hand or damaged" in done.stdout + done.stderr


def test_a_node_that_does_not_answer_leaves_the_plan_incomplete(tmp_path: Path) -> None:
    (tmp_path / "deploy.py").write_text(DEPLOY)
    context = context_of(Unreachable("gpu-01"), nodes=NODES[:1])
    assert ask_plan(context, str(tmp_path / "deploy.py")) == "gpu-01: no connection within 20 s"


def test_a_deploy_that_cannot_be_planned_is_reported(tmp_path: Path) -> None:
    (tmp_path / "deploy.py").write_text("raise ValueError('no such colour')\n")
    complaint = ask_plan(context_of(Shell("gpu-01"), nodes=NODES[:1]), str(tmp_path / "deploy.py"))
    assert complaint == "ValueError: no such colour"
    (tmp_path / "deploy.py").write_text("import os\nos._exit(7)\n")
    complaint = ask_plan(context_of(Shell("gpu-01"), nodes=NODES[:1]), str(tmp_path / "deploy.py"))
    assert complaint == "cannot be planned: ended with exit status 7 and without output"


def test_the_whole_deploy_is_planned_from_recordings_as_from_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes are those that pyinfra's own fake connector plays in test_deploys_plan.py."""
    from tests.unit.configure.fake_inventory import _responses
    from tests.unit.configure.rack import rack

    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(root)
    nodes = tuple(Node(n.name, n.groups, {**n.data, "architecture": "virtual-rack"}) for n in rack().nodes)
    responses = {node.name: _responses(node) for node in nodes}

    def answer(node: str, command: str) -> CommandResult:
        asked = shlex.split(command)[-1]
        lines: list[str] = next((lines for words, lines in responses[node].items() if words in asked), [])
        return reply(node, command, "".join(f"{line}\n" for line in lines))

    fleet: Any = FakeFleet(Rack("inv.py", nodes), answer)
    readers = {node.name: RecordingReader(node.name, fleet[node.name], timeout_s=60) for node in nodes}
    assert ask_plan(Context(fleet.rack, virtual_rack(), readers, fleet), "deploys/cluster.py") is None
    write_recordings(tmp_path, [Recording(node, readers[node.name].used) for node in nodes])

    def planned(inventory: str, *options: str) -> dict[str, list[str]]:
        done = pyinfra(root, "--dry", "--json", *options, inventory, "deploys/cluster.py")
        assert done.returncode == 0, done.stderr
        assert "not in the recording" not in done.stderr
        entries = json.loads(done.stdout)["plan"]
        return {e["name"]: sorted(host.removeprefix("@fake/") for host in e["hosts_with_change"]) for e in entries}

    plan = planned(f"@recording/{tmp_path}")
    assert plan == planned("tests/unit/configure/fake_inventory.py")
    assert len(plan) > 20
    assert planned(f"@recording/{tmp_path}", "--diff") == plan


# rackproof record


CHECKS = """\
from rackproof.validation import check, expect, read

@check("t.first", protects="Something breaks.", hint="Mend it.", reads="system")
def test_first(host):
    read(host, f"echo {read(host, 'echo one').strip()} two")

@check("t.secret", protects="Something breaks.", hint="Mend it.", reads="system", roles=["storage"])
def test_secret(host):
    expect(read(host, "echo token=abcdef"), "token=abcdef")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "validators").mkdir()
    (tmp_path / "validators" / "conftest.py").write_text("")
    (tmp_path / "validators" / "test_t.py").write_text(CHECKS)
    (tmp_path / "deploy.py").write_text(DEPLOY)
    return tmp_path


def ran(monkeypatch: pytest.MonkeyPatch, context: Context, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(command, "open_context", lambda *_: context)
    done = CliRunner().invoke(command.record, [*arguments, "-o", "rec", "--validators", "validators"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_what_the_checks_ask_is_recorded_node_by_node(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(*(Shell(node.name) for node in NODES))
    status, output = ran(monkeypatch, context, "all")
    assert status == 0
    assert output.splitlines()[:3] == ["gpu-01: 2 commands", "gpu-02: 2 commands", "storage-01: 3 commands"]
    assert output.endswith("3 recordings in rec, 1 secret redacted\n")
    assert [list(recording.results) for recording in read_folder(here / "rec")] == [
        ["echo one", "echo one two"],
        ["echo one", "echo one two"],
        ["echo one", "echo one two", "echo token=‹redacted›"],
    ]
    assert "abcdef" not in "".join(path.read_text() for path in (here / "rec").iterdir())


def test_a_nodeset_is_a_part(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(*(Shell(node.name) for node in NODES))
    assert ran(monkeypatch, context, "gpu-[01-02]", "--deploy", "deploy.py")[0] == 0
    recording = read_folder(here / "rec")
    assert [(recording.node.name, len(recording.results)) for recording in recording] == [("gpu-01", 4), ("gpu-02", 4)]


@pytest.mark.parametrize("names", [("--architecture", "ours/rack.yaml"), ()])
def test_a_recording_is_planned_with_the_architecture_that_the_user_names(
    here: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    (here / "deploy.py").write_text(
        "from pyinfra.api import FactBase\nfrom pyinfra.context import host\n"
        "class Named(FactBase):\n    def command(self, ref):\n        return f'echo {ref}'\n"
        "host.get_fact(Named, ref=host.data.architecture)\n"
    )
    context = context_of(Shell("gpu-01"), nodes=NODES[:1])
    assert ran(monkeypatch, context, "all", "--deploy", "deploy.py", *names)[0] == 0
    (recording,) = read_folder(here / "rec")
    wanted = names[-1] if names else "virtual-rack"
    assert any(f"echo {wanted}" in asked for asked in recording.results)
    assert pyinfra(here, "--dry", "--json", "@recording/rec", "deploy.py").returncode == 0


def test_nodes_that_do_not_answer_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(Unreachable("gpu-01"), Shell("gpu-02"), Shell("storage-01"))
    status, output = ran(monkeypatch, context, "gpu")
    assert status == 2
    assert "gpu-01: 0 commands, no connection within 20 s\n" in output
    assert "not recorded completely: gpu-01\n" in output
    assert [recording.node.name for recording in read_folder(here / "rec")] == ["gpu-02"]


def test_other_nodes_and_deploys_are_refused_before_anything_is_asked(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell("gpu-01")
    monkeypatch.setattr(command, "open_context", lambda *_: context_of(shell, nodes=NODES[:1]))
    done = CliRunner().invoke(command.record, ["gpu-09", "-o", "rec"])
    assert "'gpu-09' matches no node" in str(done.exception)
    done = CliRunner().invoke(command.record, ["gpu", "-o", "rec", "--deploy", "none.py"])
    assert "none.py: no such deploy file" in str(done.exception)
    assert shell.commands == []


class Channel:
    """An ssh channel that prints pieces, without an end after the last one."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.closed = pieces, False

    def recv(self, size: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def close(self) -> None:
        self.closed = True


@given(st.lists(st.text("aä\r\n ", min_size=1).map(str.encode)))
def test_lines_of_an_output_are_those_of_its_bytes(pieces: list[bytes]) -> None:
    printed = b"".join(pieces).split(b"\n")
    channel = Channel(pieces)
    lines = list(_within_limit(channel.recv, channel))
    assert lines == (printed[:-1] if printed[-1] == b"" else printed)
    assert not channel.closed


@pytest.mark.parametrize("piece", [b"x" * 65536, b"line\n" * 10000])
def test_an_output_without_end_ends_with_its_channel(piece: bytes) -> None:
    channel = Channel([piece] * (2 * OUTPUT_LIMIT // len(piece)))
    *_, last = _within_limit(channel.recv, channel)
    assert channel.closed
    assert channel.pieces
    assert last == b"the command printed more than 16777216 bytes"
