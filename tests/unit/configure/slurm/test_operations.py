"""Operations on nodes that answer from a table; scripts that really run."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rackproof.configure import facts as node_facts
from rackproof.configure.slurm import conf, facts, operations
from rackproof.configure.slurm.nodes import CHANGED, NodeState, parse_user, state_command
from rackproof.parse.slurm import NodeHardware
from rackproof.remote.pyinfra_recording import RecordingConnector
from tests.unit.configure.slurm.test_conf import cluster, text
from tests.unit.configure.stub import StubHost, run
from tests.unit.shell import executable, sh

pytestmark = pytest.mark.few(10)

SECRET = bytes(range(256)) * 4
KEY = (hashlib.sha256(SECRET).hexdigest(), "400", "munge")


def state(**changes: Any) -> NodeState:
    whole = NodeState(time.time(), NodeHardware(224, 2, 56, 2, 2031616), KEY, None, False, False)
    return replace(whole, **changes)


class Machine(StubHost):
    """With a munge key that can be read over sftp."""

    key: bytes | None = SECRET

    def get_file(self, path: str, into: BinaryIO) -> bool:
        assert path == "/etc/munge/munge.key"
        if self.key is None:
            raise OSError("no such file")
        into.write(self.key)
        return True


def machine(name: str, states: Any = None, executing: bool = True, **changes: Any) -> Machine:
    answers: dict[type, Any] = {facts.SlurmNodeState: state(**changes), node_facts.FileStates: states or {}}
    return Machine(answers, name, executing)


def rack(**changes: Any) -> tuple[Machine, Machine, Machine]:
    served = {"conf": text(cluster())} | changes
    return machine("gpu-02", **changes), machine("gpu-01", **changes), machine("storage-01", **served)


def test_key_is_made_once() -> None:
    bare = machine("storage-01", key=None)
    (script,) = run(operations.make_munge_key, bare)
    assert "/dev/urandom" in script
    assert "restart:munge.service" in script
    there = machine("storage-01")
    assert run(operations.make_munge_key, there) == []
    assert there.noops == ["the munge key is there"]


def test_key_that_others_may_read_is_closed() -> None:
    (script,) = run(operations.make_munge_key, machine("storage-01", key=(KEY[0], "644", "munge")))
    assert "chmod 400 /etc/munge/munge.key" in script
    assert "urandom" not in script


def test_key_is_brought_and_never_shown() -> None:
    node, server = machine("gpu-01", key=("0" * 64, "400", "munge")), machine("storage-01")
    from pyinfra.context import ctx_host, ctx_inventory, ctx_state

    from tests.unit.configure.stub import StubInventory

    with ctx_host.use(node), ctx_state.use(node.state), ctx_inventory.use(StubInventory(node, server)):
        (command,) = list(operations.bring_munge_key._inner(controller="storage-01"))
    shown = command.get_raw_value() + str(command) + repr(node.logged)
    for form in (SECRET.decode("latin-1"), base64.b64encode(SECRET).decode(), SECRET.hex(), KEY[0]):
        assert form not in shown
    assert base64.b64decode(command.connector_arguments["_stdin"]) == SECRET
    assert "restart:slurmd.service" in shown


def test_key_that_is_there_already() -> None:
    node, server = machine("gpu-01"), machine("storage-01")
    assert run(operations.bring_munge_key, node, server, controller="storage-01") == []


def test_key_of_a_recorded_controller_is_compared_by_its_digest() -> None:
    """The record of the munge key does not contain the key itself."""
    for digest, commands in ((KEY[0], 0), ("0" * 64, 1)):
        server = machine("storage-01", executing=False)
        server.key = None
        node = machine("gpu-01", key=(digest, "400", "munge"), executing=False)
        assert len(run(operations.bring_munge_key, node, server, controller="storage-01")) == commands


def test_controller_without_a_key() -> None:
    server = machine("storage-01")
    server.key = None
    node = machine("gpu-01", key=None)
    (refusal,) = run(operations.bring_munge_key, node, server, controller="storage-01")
    assert "storage-01 has no munge key" in refusal
    assert refusal.endswith("exit 1")


def test_clocks_of_recordings_are_not_compared() -> None:
    node, server = machine("gpu-01", clock=time.time() - 400), machine("storage-01")
    node.connector = object.__new__(RecordingConnector)
    assert run(operations.same_clock, node, server, controller="storage-01", limit_s=5.0) == []
    assert node.noops == ["recorded at other moments: clocks are compared by a deploy"]


def test_clock_skew_is_refused() -> None:
    node, server = machine("gpu-01", clock=time.time() - 400), machine("storage-01")
    (refusal,) = run(operations.same_clock, node, server, controller="storage-01", limit_s=5.0)
    assert "apart, more than 5 s" in refusal
    right = machine("gpu-01")
    assert run(operations.same_clock, right, machine("storage-01"), controller="storage-01", limit_s=5.0) == []


def configure(node: Machine, *others: Machine) -> list[str]:
    return run(
        operations.configuration,
        node,
        *others,
        cluster=cluster(),
        render=lambda nodes, partitions: text(cluster()),
        simulated=True,
    )


def test_configuration_is_written_and_marked() -> None:
    mark, script = configure(*rack())
    assert "slurm-changed" in mark
    assert "restart:slurmd.service" in script
    assert "slurmctld" not in script


@pytest.mark.parametrize(
    ("nvml", "executing", "refused"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_partitions_that_slurm_cannot_find_are_refused_before_anything_is_written(
    nvml: bool, executing: bool, refused: bool
) -> None:
    mine = replace(cluster(), mig=True)
    machines = [machine(name, nvml=nvml, executing=executing) for name in ("gpu-02", "gpu-01", "storage-01")]
    given = {"cluster": mine, "render": lambda nodes, partitions: text(mine), "simulated": False}
    commands = run(operations.configuration, *machines, **given)
    assert bool(machines[0].logged) is refused
    if refused:
        (command,) = commands
        assert command.endswith("exit 1")
        assert machines[0].logged[0].startswith("gpu-02: slurm.gres.gpu: only NVML finds partitions of MIG")
    else:
        assert "gres.conf" in "".join(commands)
    run(operations.configuration, *reversed(machines), **given)
    assert not machines[2].logged  # the controller has no GPUs to find


def test_configuration_that_is_there() -> None:
    written = text(cluster())
    gres = conf.gres_text(cluster(), True, False)
    from rackproof.configure.files import FileState

    states = {
        path: FileState("regular file", "644", "root", "root", hashlib.sha256(content.encode()).hexdigest())
        for path, content in (("/etc/slurm/slurm.conf", written), ("/etc/slurm/gres.conf", gres))
    }
    node = machine("gpu-02", states, conf=written)
    others = machine("gpu-01", conf=written), machine("storage-01", conf=written)
    assert configure(node, *others) == []


def test_a_node_that_does_not_answer_keeps_its_line() -> None:
    dead = machine("gpu-01")
    dead.facts = {facts.SlurmNodeState: None}
    node, server = machine("gpu-02"), machine("storage-01", conf=text(cluster()))
    seen: list[list[str]] = []

    def render(nodes: list[str], partitions: list[str]) -> str:
        seen.append(nodes)
        return text(cluster())

    run(operations.configuration, node, dead, server, cluster=cluster(), render=render, simulated=True)
    assert "gpu-[01-02]" in seen[0][0]


def test_a_new_node_that_does_not_answer_is_left_out_and_named() -> None:
    dead = machine("gpu-01")
    dead.facts = {facts.SlurmNodeState: None}
    node, server = machine("gpu-02"), machine("storage-01")
    assert configure(node, dead, server)
    assert node.logged == ["Slurm does not know gpu-01: deploy again when they answer"]


def test_a_foreign_cluster_is_refused() -> None:
    node, *others = rack(conf="ClusterName=theirs\nSlurmctldHost=head-01\n")
    (refusal,) = configure(node, *others)
    assert "is not the kit" in refusal
    assert refusal.endswith("exit 1")


def test_nothing_changed_asks_nothing() -> None:
    node = StubHost({facts.SlurmChanged: False})
    assert run(operations.registered, node, node="gpu-01") == []


SCONTROL = """\
echo "$@" >> "$LOG"
case "$*" in
  *update*) echo IDLE > "$STATE" ;;
  *) echo "NodeName=gpu-01 Arch=x86_64 State=$(cat "$STATE") ThreadsPerCore=1 $TAIL" ;;
esac
"""


def settle(folder: Path, state_: str, tail: str = "") -> tuple[subprocess.CompletedProcess[str], str, bool]:
    """Run the script with a controller that is a file."""
    bin_, log, now, mark = folder / "bin", folder / "log", folder / "state", folder / "mark"
    executable(bin_ / "scontrol", SCONTROL)
    executable(bin_ / "sleep")
    log.write_text("")
    now.write_text(state_)
    mark.write_text("")
    script = operations.settle_script("gpu-01").replace(CHANGED, str(mark))
    script = script.replace(f"-lt {operations.REGISTRATION_S} ", "-lt 3 ")
    ended = sh(script, programs=bin_, LOG=str(log), STATE=str(now), TAIL=tail)
    return ended, log.read_text(), mark.exists()


@pytest.mark.parametrize(
    ("state_", "tail", "rc", "resumed", "marked"),
    [
        ("IDLE", "", 0, False, False),
        ("ALLOCATED", "", 0, False, False),
        ("DOWN", "Reason=Not responding [slurm@2026-11-20T22:14:09]", 0, True, False),
        ("IDLE+DRAIN+INVALID_REG", "Reason=Low RealMemory (reported:1 < 2) [slurm@2026-11-20T22:14]", 0, True, False),
        ("DOWN+DRAIN",
         "Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026]", 0, True, False),
        ("IDLE+DRAIN", "Reason=new DIMM on Monday State=IDLE [jane@2026-11-20T22:14:09]", 0, False, False),
        ("DOWN+DRAIN", "Reason=rackproof: gpu.count [root@2026-11-20T22:14:09]", 0, False, False),
        ("DOWN", "Reason=rackproof: reboot (bond (bond0)) : Not responding [slurm@2026-11-22T07:26]", 0, True, False),
        ("DOWN", "Reason=rackproof-deploy: reboot (x) : Not responding [slurm@2026-11-22T07:26]", 0, True, False),
        ("DOWN", "Reason=bad DIMM : Not responding [slurm@2026-11-22T07:26:02]", 0, False, False),
        ("DOWN+DRAIN", "Reason=rackproof: reboot (x) : Not responding [slurm@2026-11-22T07:26:02]", 0, False, False),
        ("UNKNOWN*", "", 1, False, True),
        ("IDLE*", "", 1, False, True),
    ],
)  # fmt: skip
def test_settle(tmp_path: Path, state_: str, tail: str, rc: int, resumed: bool, marked: bool) -> None:
    ended, log, mark = settle(tmp_path, state_, tail)
    assert ended.returncode == rc, ended.stderr
    assert ("State=RESUME" in log) is resumed
    assert mark is marked
    if rc:
        assert "expected it idle in Slurm" in ended.stderr


def test_the_question_runs_on_a_bare_node() -> None:
    ended = sh(state_command())
    assert ended.returncode == 0
    from rackproof.configure.slurm.nodes import parse_state

    parsed = parse_state(ended.stdout.splitlines())
    assert parsed.hardware is not None
    assert parsed.hardware.memory_mib > 100
    assert (
        parsed.hardware.cpus
        == parsed.hardware.sockets * parsed.hardware.cores_per_socket * parsed.hardware.threads_per_core
    )
    assert abs(parsed.clock - time.time()) < 60


def test_a_user_that_no_package_made() -> None:
    """SchedMD's packages make none, and the daemons refuse a SlurmUser that does not exist."""
    (script,) = run(operations.system_user, StubHost({facts.SlurmUser: ""}), number=64030, home="/var/lib/slurm")
    assert "groupadd -r -g 64030 -- slurm" in script
    assert "useradd -r -u 64030 -g slurm -d /var/lib/slurm -s /sbin/nologin -- slurm" in script
    assert run(operations.system_user, StubHost({facts.SlurmUser: "981"}), number=64030, home="/var/lib/slurm") == []


@pytest.mark.parametrize("line", ["slurm:x:64030", "root:x:0:0:root:/root:/bin/sh", "slurm:x:y:1::/:/bin/sh"])
def test_an_account_that_cannot_be_read(line: str) -> None:
    assert parse_user([]) == ""
    assert parse_user(["slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin"]) == "64030"
    with pytest.raises(ValueError, match=r"passwd|an account entry"):
        parse_user([line])
