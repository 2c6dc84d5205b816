"""The scripts of a node about its guest, run with stand-ins for virsh, ssh, nvidia-smi and systemctl.

Their answers are those of virsh 9.0 with libvirt's test driver, and of OpenSSH.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackproof.bench.collectives import guest_commands
from rackproof.bench.collectives.guest_commands import (
    KEPT,
    inside,
    inside_of,
    is_off,
    keeper_command,
    off_command,
    side_command,
    wait_command,
)
from rackproof.bench.user import Account
from rackproof.configure.collectives.inputs import GuestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.rack import Node
from rackproof.errors import InventoryError
from rackproof.parse.guest import parse_off, parse_side
from tests.unit.bench.test_guests import DOMAIN
from tests.unit.gpu_nodes import BUSES, uuid

pytestmark = pytest.mark.few(5)

VIRSH = """
shift 2
echo "virsh $*" >>asked
no() { echo "error: $*" >&2; exit 1; }
case $1 in
  dumpxml) shift ;;
esac
[ "$2" = guest ] || no "failed to get domain '$2'"
case $1 in
  domuuid) echo UUID ;;
  domstate) cat state ;;
  --inactive) cat domain.xml ;;
  start)
    [ ! -e refuses ] || { echo "error: Failed to start domain 'guest'" >&2; no "internal error: qemu has gone"; }
    [ ! -e slow ] || sleep 30
    [ "$(cat state)" != running ] || no 'Domain is already active'
    echo running >state; echo "Domain 'guest' started" ;;
  shutdown) [ -e deaf ] || echo 'shut off' >state; echo "Domain 'guest' is being shutdown" ;;
  destroy) [ -e immortal ] || echo 'shut off' >state; echo "Domain 'guest' destroyed" ;;
esac
echo
"""
NVIDIA_SMI = """
[ "$(cat state)" != running ] || { echo 'No devices were found'; exit 6; }
case $* in
  -L) printf 'GPU %s: NVIDIA H200 (UUID: x)\\n' 0 1 ;;
  *) cat gpus ;;
esac
"""
SYSTEMCTL = """
case $1 in
  is-active) grep -qx "$3" active ;;
  is-system-running) echo degraded; exit 1 ;;
  *) echo "systemctl $*" >>asked ;;
esac
"""
SSH = """
echo "ssh $*" >>ssh
case "$*" in *'BatchMode=yes -o StrictHostKeyChecking=yes'*) ;; *) exit 99 ;; esac
if [ -e stranger ]; then echo 'Host key verification failed.' >&2; exit 255; fi
if [ -s silent ]; then
  sed -i 1d silent
  echo 'ssh: connect to host vm port 22: Connection refused' >&2
  exit 255
fi
for last; do :; done
exec sh -c "$last"
"""
GUEST = GuestInputs(domain="guest", address="vm", boot_s=10, shutdown_s=3)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    texts = {"virsh": VIRSH.replace("UUID", DOMAIN), "nvidia-smi": NVIDIA_SMI, "systemctl": SYSTEMCTL, "ssh": SSH,
             "systemd-detect-virt": "echo none; exit 1", "sudo": "shift; exec \"$@\""}  # fmt: skip
    for name, text in texts.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}")
        path.chmod(0o755)
    (tmp_path / "state").write_text("shut off\n")
    (tmp_path / "active").write_text("nvidia-persistenced\nrackproof-gpu\n")
    (tmp_path / "gpus").write_text("".join(f"{n}, {uuid(n)}, {bus}.0, H200\n" for n, bus in enumerate(BUSES)))
    (tmp_path / "product").write_text("4C4C4544-0000-2010-8020-80C04F202020\n")
    (tmp_path / "domain.xml").write_text(
        "<domain type='kvm'>\n  <devices>\n    <hostdev mode='subsystem' type='pci' managed='yes'>\n      <source>\n"
        "        <address domain='0x0000' bus='0x18' slot='0x00' function='0x0'/>\n      </source>\n    </hostdev>\n"
        "    <hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0x0000' bus='0x2a' slot='0x00'"
        " function='0x0'/></source></hostdev>\n  </devices>\n</domain>\n"
    )
    return tmp_path


def environment(node: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{node}/bin:{os.environ['PATH']}", "LC_ALL": "C"}


def placed(command: str, node: Path) -> str:
    """The command with the paths of this folder instead of a node's."""
    return command.replace(KEPT, f"{node}/kept").replace("/sys/class/dmi/id/product_uuid", f"{node}/product")


def run(command: str, node: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", placed(command, node)], env=environment(node), capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def asked(node: Path, *words: str) -> list[str]:
    lines = (node / "asked").read_text().splitlines()
    return [line for line in lines if any(word in line for word in words)]


@contextmanager
def keeper(node: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["sh", "-c", placed(keeper_command(GUEST, 2), node)], env=environment(node), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        process.wait(60)


def state(node: Path, expected: str, limit_s: float = 30) -> bool:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if (node / "state").read_text().strip() == expected:
            return True
        time.sleep(0.1)
    return False


def test_the_node_tells_its_domain_and_its_gpus(node: Path) -> None:
    done = run(side_command("guest"), node)
    assert done.returncode == 0, done.stderr
    side = parse_side(done.stdout)
    assert side.domain is not None
    assert (side.domain.uuid, side.domain.state) == (DOMAIN, "shut off")
    assert side.domain.given == {BUSES[0]}, "the other one has managed='no'"
    assert (side.virtualisation, side.machine) == ("none", "4c4c4544-0000-2010-8020-80c04f202020")
    assert [gpu.uuid for gpu in side.gpus] == [uuid(0), uuid(1)]


def test_an_unknown_domain_and_a_missing_virsh_are_named(node: Path) -> None:
    assert "error: failed to get domain 'other'" in run(side_command("other"), node).stderr
    (node / "bin" / "virsh").unlink()
    done = run(side_command("guest"), node)
    assert (done.returncode, done.stderr) == (1, "virsh is not installed: install libvirt-clients\n")


def test_every_truncation_of_an_answer_is_refused(node: Path) -> None:
    text = run(side_command("guest"), node).stdout
    for length in range(len(text)):
        with pytest.raises(ValueError, match=r"."):
            parse_side(text[:length])


def test_a_domain_with_entities_is_refused(node: Path) -> None:
    (node / "domain.xml").write_text('<!DOCTYPE d [<!ENTITY a "b">]>\n<domain>&a;</domain>\n')
    with pytest.raises(ValueError, match="expected a domain's description"):
        parse_side(run(side_command("guest"), node).stdout)


@pytest.mark.parametrize("user", ["root", "ubuntu"])
def test_a_command_in_the_guest_is_what_was_recorded(node: Path, user: str) -> None:
    guest = GUEST.model_copy(update={"user": user, "ssh_key": "/keys/guest"})
    script = "echo \"it's $HOME\" 'a  b'\necho two >&2; exit 7"
    command = inside(guest, script, 30)
    done = run(command, node)
    assert (done.returncode, done.stdout, done.stderr) == (7, f"it's {os.environ['HOME']} a  b\n", "two\n")
    assert inside_of(command) == script
    line = (node / "ssh").read_text()
    assert f"-l {user} " in line
    assert ("sudo -n env" in line) == (user != "root")
    assert "-o IdentitiesOnly=yes -i /keys/guest -- vm" in line
    assert inside_of(script) is None


def test_a_command_in_the_guest_has_the_prefix_of_its_account() -> None:
    command = inside(GUEST, "true", 5, Account(990, 991).prefix)
    assert inside_of(command) == "true"
    assert "--reuid=990" in command


def test_it_waits_for_a_guest_that_boots(node: Path) -> None:
    (node / "silent").write_text("1\n2\n")
    done = run(wait_command(GUEST), node)
    assert (done.returncode, done.stdout) == (0, "degraded\n"), done.stderr


@pytest.mark.parametrize(
    ("file", "why"),
    [("silent", "ssh: connect to host vm port 22: Connection refused"), ("stranger", "Host key verification failed.")],
)
def test_a_guest_that_does_not_boot_or_is_a_stranger_is_named(node: Path, file: str, why: str) -> None:
    (node / file).write_text("1\n" * 99)
    done = run(wait_command(GUEST.model_copy(update={"boot_s": 3})), node)
    assert (done.returncode, done.stderr) == (1, why + "\n")


def test_the_domain_ends_with_the_keepers_input_and_the_services_come_back(node: Path) -> None:
    with keeper(node) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "rackproof-guest\n"
        assert (node / "state").read_text() == "running\n"
        assert asked(node, "systemctl") == ["systemctl stop nvidia-persistenced"]
    assert state(node, "shut off")
    assert asked(node, "virsh start", "virsh shutdown", "destroy") == ["virsh start guest", "virsh shutdown guest"]
    assert asked(node, "restart") == ["systemctl restart nvidia-persistenced", "systemctl restart rackproof-gpu"]
    assert not (node / "kept").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_leaves_no_domain_running(node: Path, number: int) -> None:
    with keeper(node) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        process.wait(10)
        assert (node / "state").read_text() == "running\n", "the keeper has a session of its own"
    assert state(node, "shut off")


def test_a_domain_that_ignores_the_shutdown_is_ended(node: Path) -> None:
    (node / "state").write_text("running\n")
    (node / "deaf").touch()
    command = off_command(GUEST, 2)
    assert is_off(command)
    done = run(command, node)
    assert parse_off(done.stdout) == "destroy"
    assert asked(node, "shutdown", "destroy") == ["virsh shutdown guest", "virsh destroy guest"]


def test_a_domain_that_is_off_is_left_alone(node: Path) -> None:
    done = run(off_command(GUEST, 2), node)
    assert parse_off(done.stdout) == "none"
    assert not asked(node, "shutdown", "destroy")
    for length in range(len(done.stdout)):
        with pytest.raises(ValueError, match=r"."):
            parse_off(done.stdout[:length])


def test_gpus_that_do_not_come_back_are_named(node: Path) -> None:
    shorter = placed(off_command(GUEST, 8), node).replace("-ge 120", "-ge 2")
    done = run(shorter, node)
    assert (done.returncode, done.stderr) == (1, "the node has 2 of its 8 GPUs after the domain guest has ended\n")


@pytest.mark.parametrize(
    ("file", "why"),
    [("refuses", "Failed to start domain 'guest' internal error: qemu"), ("running", "Domain is already active")],
)
def test_a_domain_that_does_not_start_is_named_and_that_of_another_is_left_alone(
    node: Path, file: str, why: str
) -> None:
    (node / "state").write_text("running\n" if file == "running" else "shut off\n")
    (node / file).touch()
    command = placed(keeper_command(GUEST, 2), node).replace("-ge 120", "-ge 1")
    done = subprocess.run(
        ["sh", "-c", command], env=environment(node), text=True, capture_output=True, timeout=60, check=False, input=""
    )
    assert why in done.stderr
    assert "rackproof-guest" not in done.stdout
    assert not asked(node, "shutdown", "destroy")


def test_libvirt_that_waits_for_the_gpus_is_named(node: Path) -> None:
    (node / "slow").touch()
    guest = GUEST.model_copy(update={"boot_s": 10})
    command = placed(keeper_command(guest, 2), node).replace("start_s=10", "start_s=1").replace("+ 600", "+ 1")
    done = subprocess.run(
        ["sh", "-c", command], env=environment(node), text=True, capture_output=True, timeout=60, check=False, input=""
    )
    assert "libvirt has not taken the GPUs from the node within 1 s" in done.stderr


def test_programs_on_the_gpus_are_named_and_the_domain_is_not_started(node: Path) -> None:
    (node / "dev").mkdir()
    device = node / "dev" / "nvidia0"
    device.touch()
    with device.open():
        with keeper(node) as process:
            out, complaint = process.communicate(timeout=60)
        assert not out
        assert f"programs have its GPUs open: python ({os.getpid()})" in complaint or str(os.getpid()) in complaint
    assert not asked(node, "virsh start")
    assert asked(node, "restart")


@pytest.mark.parametrize(
    ("guest", "why"),
    [
        ({"domain": "guest"}, "domain and address must be given together"),
        ({"domain": "7", "address": "vm"}, "guest.domain"),
        ({"domain": "-x", "address": "vm"}, "guest.domain"),
        ({"domain": "a b", "address": "vm"}, "guest.domain"),
        ({"domain": "guest", "address": "-oProxyCommand=id"}, "guest.address"),
        ({"domain": "guest", "address": "vm", "port": 0}, "guest.port"),
        ({"domain": "guest", "address": "vm", "boot": 5}, "no such input; did you mean 'boot_s'?"),
    ],
)
def test_a_wrong_guest_is_refused_with_its_key(guest: dict[str, object], why: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read_inputs(Node("gpu-01", ("gpu",), {"guest": guest}), GuestInputs)
    assert why in str(caught.value)


def test_uuids_and_names_are_domains() -> None:
    for domain in (DOMAIN, "44445555-15a7-4a0b-8ea4-9a3c3b0a0a01", "gpu.guest_1", "2vm"):
        assert GuestInputs(domain=domain, address="10.0.0.5").domain == domain
    assert guest_commands.KEPT.startswith("/run/")
