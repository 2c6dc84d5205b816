"""The question about everything, asked by a real shell, and its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.gpu.state import STAMP, GpuState, parse_state, state_command
from tests.unit.configure.gpu.node import FakeNode

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "tests/data/written/hgx-h200-roce/gpu-01/gpu/query.xml"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


def ask(node: FakeNode, packages: tuple[str, ...] = ("nvidia-utils-580",), family: str = "debian") -> GpuState:
    done = node.run(state_command(packages, family, smi=True))
    assert done.stderr == "" or "not found" in done.stderr
    return parse_state(done.stdout.splitlines(), packages, family)


def test_a_bare_node_has_nothing(node: FakeNode) -> None:
    actual = ask(node)
    assert actual.loaded is None
    assert actual.available is None
    assert not actual.modules
    assert not actual.packages
    assert actual.smi is None
    assert actual.key_enrolled is None
    assert actual.stamp == ""
    assert actual.reboots == ()


def test_a_converged_node(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", "570.172.08\n")
    node.file("/sys/module/nvidia_uvm/refcnt", "0\n")
    node.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build  (x)  Tue Jul  8 2025\n"
        "GCC version:  gcc version 13.3.0\n",
    )
    node.file("/proc/driver/nvidia/params", 'RmProfilingAdminOnly: 1\nRegistryDwords: "a=1"\n')
    node.file("/dev/nvidia0")
    node.file("/dev/nvidia-nvswitch0")
    node.file("/sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n")
    node.file("/sys/bus/pci/devices/0000:1a:00.0/vendor", "0x15b3\n")
    (node.root / "sys/bus/pci/devices/0000:19:00.0/driver").symlink_to("/anywhere/nvidia")
    node.file(STAMP, "abc\n")
    node.file("/run/rackproof/pending/reboot:driver 1 loaded, 2 installed")
    node.program("modinfo", 'case "$*" in *version*) echo 570.172.08;; *) echo "Dual MIT/GPL";; esac')
    node.program(
        "dpkg-query", 'echo "installed nvidia-utils-580 570.172.08-0ubuntu1"; echo "config-files x 1-1"; exit 1'
    )
    node.program("apt-mark", "echo nvidia-utils-580")
    node.program("systemctl", 'echo "After=network.target multi-user.target"')
    node.program(
        "nvidia-smi",
        f'case "$*" in -L) echo "GPU 0: NVIDIA H200 (UUID: GPU-1)";'
        f' echo "  MIG 1g.18gb     Device  0: (UUID: MIG-1)";; *) cat {REPORT};; esac',
    )
    actual = ask(node)
    assert actual.modules == {"nvidia": "570.172.08", "nvidia_uvm": ""}
    assert actual.loaded is not None
    assert (actual.loaded.version, actual.loaded.open) == ("570.172.08", True)
    assert actual.available == actual.loaded
    assert actual.parameters == {"RmProfilingAdminOnly": "1", "RegistryDwords": "a=1"}
    assert actual.packages == {"nvidia-utils-580": "570.172.08-0ubuntu1"}
    assert actual.held == {"nvidia-utils-580"}
    assert actual.drivers == {"0000:19:00.0": "nvidia"}
    assert actual.stamp == "abc"
    assert actual.fabric_after_multi_user
    assert actual.reboots == ("driver 1 loaded, 2 installed",)
    assert actual.smi is not None
    assert len(actual.smi.gpus) == 8
    assert actual.smi.gpus[0].ecc_pending == "Enabled"
    assert [device.profile for device in actual.listed[0].mig] == ["1g.18gb"]


def test_the_key_of_dkms(node: FakeNode) -> None:
    node.file("/var/lib/dkms/mok.pub")
    command = state_command((), "debian", smi=False).replace("/var/lib/dkms", f"{node.root}/var/lib/dkms")
    node.program("mokutil", 'echo "$2 is not enrolled"; exit 1')
    assert parse_state(node.run(command).stdout.splitlines(), (), "debian").key_enrolled is False
    node.program("mokutil", 'echo "$2 is already enrolled"')
    assert parse_state(node.run(command).stdout.splitlines(), (), "debian").key_enrolled is True


def test_a_node_of_the_other_family(node: FakeNode) -> None:
    node.program("rpm", 'echo "nvidia-driver-cuda 580.126.20-1.el9"; echo "package nvlsm is not installed"; exit 1')
    node.program("dnf", 'echo "nvidia-driver-cuda-3:580.126.20-1.el9.*"')
    node.file("/etc/dnf/modules.d/nvidia-driver.module", "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\n")
    actual = ask(node, ("nvidia-driver-cuda", "nvlsm"), "rhel")
    assert actual.packages == {"nvidia-driver-cuda": "580.126.20-1.el9"}
    assert actual.held == {"nvidia-driver-cuda"}
    assert actual.stream == "580-open"


def test_nvidia_smi_that_cannot_talk_to_the_driver(node: FakeNode) -> None:
    node.program("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    actual = ask(node)
    assert actual.smi is None
    assert "Driver/library version mismatch" in actual.smi_problem
    assert actual.listed == ()


@given(st.lists(st.text(max_size=30), max_size=40))
def test_anything_else_is_no_answer(lines: list[str]) -> None:
    try:
        actual = parse_state(lines, (), "debian")
    except (ValueError, KeyError, IndexError):
        return
    assert lines.count("--") == 15
    assert actual.smi is None
