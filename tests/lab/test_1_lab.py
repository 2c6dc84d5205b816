"""The virtual rack itself."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.core.rack import Rack
from rackproof.errors import HostKeyRefused, LabError
from rackproof.lab import keeper, state
from rackproof.lab.rack import Lab, UpOptions
from rackproof.remote.ssh import Connection
from tests.lab.conftest import Command, ask


def test_up_on_a_running_rack_says_so(lab: Lab, command: Command) -> None:
    result = command("rackproof", "lab", "up")
    assert result.returncode == 0
    assert "already up: 3 nodes" in result.stderr


def test_status_names_every_node(lab: Lab, command: Command) -> None:
    result = command("rackproof", "lab", "status")
    assert result.returncode == 0
    for name in ("storage-01", "gpu-01", "gpu-02"):
        assert f"{name:<12} running" in result.stdout


def test_ssh_runs_a_command_on_a_node(lab: Lab, command: Command) -> None:
    result = command("rackproof", "lab", "ssh", "gpu-02", "hostname")
    assert (result.returncode, result.stdout.strip()) == (0, "gpu-02")


def test_the_manifest_names_exact_versions(lab: Lab, command: Command) -> None:
    lines = command("rackproof", "lab", "image", "--manifest").stdout.splitlines()
    packages = dict(line.split(" ", 1) for line in lines)
    assert packages["ceph-osd"]
    assert packages["python3-mpi4py"]
    assert len(packages) > 200


def test_the_private_key_is_private_and_stays_in_the_lab(lab: Lab, rack: Rack) -> None:
    key = lab.folder / "id_ed25519"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(lab.folder.stat().st_mode) == 0o700
    secret = key.read_text().splitlines()[3]  # the first line of the body is the same in every key
    for node in rack.nodes:
        answer = ask(Connection(node), f"grep -rlF -- {secret} /root /etc/ssh")
        assert answer.rc == 1, answer.text


def test_a_gpu_node_has_two_numa_nodes_and_its_data_drive(lab: Lab, rack: Rack) -> None:
    answer = ask(Connection(rack.node("gpu-01")), "cat /sys/devices/system/node/online; ls /dev/disk/by-id")
    assert "0-1" in answer.text
    assert "nvme-QEMU_NVMe_Ctrl_rplocal" in answer.text


def test_a_changed_host_key_is_refused_and_the_node_named(lab: Lab, rack: Rack, tmp_path: Path) -> None:
    lines = (lab.folder / "known_hosts").read_text().splitlines()
    where = f"[127.0.0.1]:{rack.node('gpu-01').data['ssh_port']}"
    other = next(line for line in lines if not line.startswith(where)).split(" ", 1)[1]
    (tmp_path / "known_hosts").write_text(f"{where} {other}\n")
    node = rack.node("gpu-01")
    changed = replace(node, data={**node.data, "ssh_known_hosts_file": str(tmp_path / "known_hosts")})
    with pytest.raises(HostKeyRefused, match="gpu-01: its host key has changed"):
        Connection(changed).open()
    assert "refused" in (Connection(changed).run("true", 300).error or "")


def test_an_unknown_host_key_is_refused(lab: Lab, rack: Rack, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").touch()
    node = rack.node("gpu-01")
    unknown = replace(node, data={**node.data, "ssh_known_hosts_file": str(tmp_path / "known_hosts")})
    with pytest.raises(HostKeyRefused, match="gpu-01"):
        Connection(unknown).open()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_second_checkout_can_start_and_an_interrupted_start_leaves_nothing(
    lab: Lab, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "inventories").mkdir()
    (tmp_path / "pyproject.toml").touch()
    up = [sys.executable, "-m", "rackproof", "lab", "up", "--gpu-nodes", "1", "--memory", "768"]
    process = subprocess.Popen(
        up, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        # tests that were started in the background of a shell ignore Ctrl-C, and so would their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    second = Lab(tmp_path / ".lab")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and len(second.pids()) < 2:
        time.sleep(0.2)
    pids = second.pids()
    keeper_pid = int((second.folder / keeper.PIDFILE).read_text())
    here, there = state.read_spec(lab.folder), state.read_spec(second.folder)
    assert set(pids) == {"storage-01", "gpu-01"}
    assert here is not None
    assert there is not None
    assert not set(here.wiring.ssh_port.values()) & set(there.wiring.ssh_port.values())
    assert here.wiring.fabric_port != there.wiring.fabric_port

    process.send_signal(number)
    assert process.wait(300) != 0
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and any(_lives(pid) for pid in (keeper_pid, *pids.values())):
        time.sleep(0.2)
    assert not [pid for pid in (keeper_pid, *pids.values()) if _lives(pid)]
    assert second.pids() == {}
    second.reset()  # takes the lock: none was left behind
    assert len(lab.pids()) == 3


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_silent_node_is_named_with_the_tail_of_its_console(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackproof.lab.rack.BOOT_TIMEOUT_S", {"tcg": 5.0, "kvm": 0.1})
    second = Lab(tmp_path / ".lab")
    with pytest.raises(LabError, match="storage-01: no answer within") as caught:
        second.up(UpOptions(gpu_nodes=1, gpu_memory_mib=768, accel="tcg"))
    assert "console" in str(caught.value)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and state.keeper_alive(second.folder):
        time.sleep(0.1)
    assert not state.keeper_alive(second.folder)
