"""The deploy wrapper tells the truth where pyinfra's exit status does not.

Real pyinfra runs, on this machine through its ``@local`` connector, below a temporary folder.
"""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import pytest

from rackproof.core.evidence import CONNECTION_LOST
from rackproof.core.plan import Change, NodeReport
from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError
from rackproof.run.converge import _Tracebacks, converge, pyinfra_pattern
from rackproof.run.deploy_outcome import Transcript, contradiction

pytestmark = pytest.mark.few(5)

NODES = [Node(f"gpu-{k:02d}", ("gpu",)) for k in range(1, 4)]
RACK = Rack("inv.py", (*NODES, Node("storage-01", ("storage",))))
RECORDED = """\
--> Connecting to hosts...
    [gpu-01] Connected
    [gpu-02] Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.2)
    [gpu-03] Connected

--> Starting operation: Base | Packages (update=True)
    [gpu-01] Success
    [gpu-03] No changes
--> Starting operation: Base | Sysctl
    [gpu-03] sysctl: cannot stat /proc/sys/net/none
    [gpu-03] Error: executed 0 commands
    [gpu-01] No changes
"""


def inventory(folder: Path, text: str = 'gpu = ["@local"]\n') -> Rack:
    (folder / "inv.py").write_text(text)
    return Rack(str(folder / "inv.py"), (Node("@local", ("gpu",)),))


def deploy(folder: Path, body: str) -> str:
    path = folder / "deploy.py"
    path.write_text(f"from pyinfra.operations import files, server\n{body}\n")
    return str(path)


def test_a_transcript_tells_who_was_started_anew() -> None:
    transcript = Transcript(["gpu-01", "gpu-02"])
    transcript.report(NodeReport(node="gpu-01", operation="Reboot | Reboot", executed=True, rebooted=True))
    assert [node.rebooted for node in transcript.nodes.values()] == [True, False]


@pytest.mark.parametrize("operation", ["Base | Kernel values", ""])
def test_a_lost_connection_is_the_reason_whatever_else_failed(operation: str) -> None:
    transcript = Transcript(["gpu-01"])
    for line in (*([f"--> Starting operation: {operation}"] if operation else []),
                 "    [gpu-01] Error: could not load fact: KernelValues",
                 "    [gpu-01] the kernel's values could not be read, so nothing was changed",
                 "    [gpu-01] Error: executed 0 commands"):  # fmt: skip
        transcript.feed(line)
    transcript.report(NodeReport(node="gpu-01", operation=operation, executed=bool(operation), lost=True))
    log = transcript.nodes["gpu-01"]
    assert log.reason == f"{operation}: {CONNECTION_LOST}".removeprefix(": ")
    assert log.failed == [operation]


def test_output_that_reads_like_a_lost_connection_is_not_one() -> None:
    transcript = Transcript(["gpu-01"])
    for line in ("--> Starting operation: Slurm | Jobs", f"    [gpu-01] slurmctld: {CONNECTION_LOST}",
                 "    [gpu-01] No changes", "--> Starting operation: Reboot",
                 "    [gpu-01] Error: not back"):  # fmt: skip
        transcript.feed(line)
    transcript.report(NodeReport(node="gpu-01", operation="Slurm | Jobs", executed=True, lost=True))
    assert transcript.nodes["gpu-01"].reason == "Reboot: Error: not back"


def test_a_transcript_tells_what_happened_to_each_node() -> None:
    transcript = Transcript(["gpu-01", "gpu-02", "gpu-03", "gpu-04"])
    for line in RECORDED.splitlines():
        transcript.feed(line)
    one, two, three, four = transcript.nodes.values()
    assert (one.connected, one.changed, one.unchanged, one.failed) == (True, ["Base | Packages"], 1, [])
    assert not two.connected
    assert "Unable to connect" in (two.reason or "")
    assert three.failed == ["Base | Sysctl"]
    assert "cannot stat" in (three.reason or "")
    assert not four.connected


def test_what_waits_for_a_reboot_is_kept_and_makes_the_run_incomplete(tmp_path: Path) -> None:
    transcript = Transcript(["gpu-01"])
    reasons = ("kernel arguments", "huge pages")
    transcript.report(NodeReport(node="gpu-01", operation="Reboot", executed=True, pending_reboot=reasons))
    assert transcript.nodes["gpu-01"].reboot == "kernel arguments; huge pages"
    text = (
        "from rackproof.configure.operation import operation, record_pending_reboot\n"
        "@operation()\n"
        "def reboot():\n"
        "    record_pending_reboot(['huge pages'])\n"
        "reboot(name='Reboot')\n"
    )
    path = tmp_path / "deploy.py"
    path.write_text(text)
    outcome = converge(inventory(tmp_path), deploy=str(path))
    record = outcome.record
    assert contradiction(record, outcome.printed.outputs, ["@local"]) is None
    edited = record.model_copy(update={"ok": True, "reason": None})
    difference = contradiction(edited, outcome.printed.outputs, ["@local"]) or ""
    assert difference.startswith("recorded 'success', its outputs give '@local reboot required: huge pages")
    assert (record.ok, record.exit_status) == (False, 0)
    assert record.reason == "@local reboot required: huge pages"
    assert record.nodes[0].reboot == "huge pages"
    assert record.nodes[0].failed == ()


def test_evidence_has_what_operations_recorded_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "deploy.py"
    path.write_text(
        "from pyinfra.api.command import StringCommand\n"
        "from rackproof.configure.operation import operation, record\n"
        "from rackproof.core.plan import Change\n"
        "@operation()\n"
        "def paint(colour):\n"
        "    record([Change(what='/etc/wall', why=colour, reboot='walls are read at boot')])\n"
        "    yield StringCommand('true')\n"
        "paint(name='Paint', colour='password=hunter2')\n"
    )
    for dry in (True, False):
        outcome = converge(inventory(tmp_path), deploy=str(path), dry=dry)
        assert contradiction(outcome.record, outcome.printed.outputs, ["@local"]) is None
        (node,) = outcome.record.nodes
        (operation,) = node.details
        (change,) = operation.changes
        assert (operation.operation, change.what, change.reboot) == ("Paint", "/etc/wall", "walls are read at boot")
        assert "hunter2" not in repr(node)


def test_changes_of_operations_that_did_nothing_are_no_evidence() -> None:
    transcript = Transcript(["gpu-01"])
    changes = (Change(what="/etc/wall"),)
    transcript.report(NodeReport(node="gpu-02", operation="Paint", executed=True, changes=changes))
    assert transcript.nodes["gpu-01"].details == {}


def test_pyinfra_is_given_names_that_mean_one_node_each() -> None:
    nodes = (Node("gpu-01", ("gpu",)), Node("gpu", ("gpu",)), Node("inv", ()), Node("a[1]", ()))
    rack = Rack("inv.py", nodes)
    assert [pyinfra_pattern(rack, node.name) for node in nodes] == ["gpu-01", "[g]pu", "[i]nv", "a[[]1]"]
    for node in nodes:
        pattern = pyinfra_pattern(rack, node.name)
        assert [other.name for other in nodes if fnmatch(other.name, pattern)] == [node.name]


def test_a_limit_that_matches_nothing_is_refused_before_pyinfra_starts() -> None:
    with pytest.raises(InventoryError, match="'login' matches no node"):
        converge(RACK, limit=["gpu-01", "login"])


def test_a_success_is_a_success_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    rack, path = inventory(tmp_path), deploy(tmp_path, f'files.directory(name="Make", path="{tmp_path}/made")')
    first = converge(rack, deploy=path).record
    second = converge(rack, deploy=path).record
    assert first.ok
    assert first.nodes[0].changed == ("Make",)
    assert second.ok
    assert second.nodes[0].changed == ()
    assert second.nodes[0].unchanged == 1


def test_a_dry_run_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    rack, path = inventory(tmp_path), deploy(tmp_path, f'files.directory(name="Make", path="{tmp_path}/made")')
    record = converge(rack, deploy=path, dry=True).record
    assert record.ok
    assert record.nodes[0].changed == ("Make",)
    assert not (tmp_path / "made").exists()


def test_a_failed_operation_is_named_with_its_node(tmp_path: Path) -> None:
    record = converge(
        inventory(tmp_path), deploy=deploy(tmp_path, 'server.shell(name="Break", commands=["false"])')
    ).record
    assert not record.ok
    assert record.nodes[0].failed == ("Break",)
    assert "@local failed: Break" in (record.reason or "")


def test_an_undefined_template_variable_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{{ nowhere }}\n")
    body = f'files.template(name="Render", src="{tmp_path}/x.j2", dest="{tmp_path}/x")'
    record = converge(inventory(tmp_path), deploy=deploy(tmp_path, body)).record
    assert not record.ok
    assert "nowhere" in (record.reason or "")


@pytest.fixture(params=["refuses", "hangs up"])
def deaf(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port of this machine without a listener, or with one that closes connections at once."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        if request.param == "hangs up":
            door.listen()

            def send_away() -> None:
                with suppress(OSError):  # until the door is shut
                    while True:
                        door.accept()[0].close()

            threading.Thread(target=send_away, daemon=True).start()
        yield door.getsockname()[1]
        door.shutdown(socket.SHUT_RDWR) if request.param == "hangs up" else None


def test_an_unreachable_node_is_never_a_success_and_the_other_is_kept(tmp_path: Path, deaf: int) -> None:
    text = f'gpu = ["@local", ("away", {{"ssh_hostname": "127.0.0.1", "ssh_port": {deaf}, "ssh_user": "nobody"}})]\n'
    inventory(tmp_path, text)
    rack = Rack(str(tmp_path / "inv.py"), (Node("@local", ("gpu",)), Node("away", ("gpu",))))
    body = (
        "from pyinfra import host\n"
        "from rackproof.configure.facts import Identity\n"
        "host.get_fact(Identity)\n"
        f'files.directory(name="Make", path="{tmp_path}/made")'
    )
    record = converge(rack, deploy=deploy(tmp_path, body)).record
    local, away = record.nodes
    assert not record.ok
    assert "away not reached" in (record.reason or "")
    assert not away.reached
    assert local.changed == ("Make",)
    assert local.reason is None


@pytest.mark.parametrize(
    "words", ["EOF error ()", "SSH error (x)", "SSH host key error (Host key for gpu-01 does not match.)"]
)
def test_why_a_node_was_not_connected_to_is_pyinfras_reason(words: str) -> None:
    transcript = Transcript(["gpu-01"])
    transcript.feed(f"    [gpu-01] {words}")
    assert transcript.nodes["gpu-01"].reason == words


def test_a_deploy_file_that_raises_is_a_failure(tmp_path: Path) -> None:
    record = converge(inventory(tmp_path), deploy=deploy(tmp_path, "undefined_name")).record
    assert not record.ok
    assert "undefined_name" in (record.reason or "")
    ended = "the run ended before this node was finished: NameError: name 'undefined_name' is not defined"
    assert record.nodes[0].reason == ended


def test_a_misspelt_deploy_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such deploy file"):
        converge(inventory(tmp_path), deploy=str(tmp_path / "nowhere.py"))


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.run.converge.INTERRUPT_S", 1.0)
    body = 'server.shell(name="Sleep", commands=["sleep 600"])'
    began = time.monotonic()
    record = converge(inventory(tmp_path), deploy=deploy(tmp_path, body), timeout_s=4).record
    assert time.monotonic() - began < 300
    assert not record.ok
    assert record.reason == "not finished within 4 s"


def test_a_dry_pass_that_hangs_is_ended_by_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.run.converge.INTERRUPT_S", 1.0)
    monkeypatch.setattr("rackproof.run.converge.DRY_TIMEOUT_S", 4.0)
    record = converge(inventory(tmp_path), deploy=deploy(tmp_path, "import time\ntime.sleep(600)"), dry=True).record
    assert not record.ok
    assert record.reason == "not finished within 4 s"


def test_ctrl_c_is_not_a_success_and_leaves_a_record(tmp_path: Path) -> None:
    inventory(tmp_path)
    path = deploy(
        tmp_path,
        f'files.directory(name="Make", path="{tmp_path}/made")\nserver.shell(name="Sleep", commands=["sleep 600"])',
    )
    main = "from rackproof.run import converge; converge.INTERRUPT_S = 1.0; from rackproof.cli.main import main; main()"
    output = ("--output", str(tmp_path / "reports"))
    command = [sys.executable, "-c", main, "deploy", str(tmp_path / "inv.py"), path, *output]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # tests in the background of a shell ignore Ctrl-C, and so would their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not (tmp_path / "made").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "@local: Sleep had begun and goes on there to its end" in out
    assert err.splitlines()[-1] == (
        "rackproof: interrupted; the next run waits for what goes on: Sleep on @local;"
        f" continue with: rackproof {shlex.join(command[3:])}"
    )
    assert list((tmp_path / "reports").glob("*/evidence.jsonl"))


def test_of_a_traceback_only_the_last_error_is_shown(tmp_path: Path) -> None:
    text = """
Exception (client): Error reading SSH protocol banner
Traceback (most recent call last):
  File "paramiko/transport.py", line 2363, in _check_banner
    raise EOFError()
EOFError

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "paramiko/transport.py", line 2179, in run
paramiko.ssh_exception.SSHException: Error reading SSH protocol banner

    [gpu-01] SSH error (Error reading SSH protocol banner)
Loading:
  Traceback of a node, indented
"""
    tracebacks = _Tracebacks()
    shown = [line for raw in text.splitlines() for line in tracebacks.left(raw)]
    assert [line for line in shown if line] == [
        "paramiko.ssh_exception.SSHException: Error reading SSH protocol banner",
        "    [gpu-01] SSH error (Error reading SSH protocol banner)",
        "Loading:",
        "  Traceback of a node, indented",
    ]
