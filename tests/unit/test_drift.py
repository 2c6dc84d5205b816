"""One line names a node that deviates from its peers, for every kind of fact."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rackproof.cli.diff import diff
from rackproof.core.rack import Node
from rackproof.parse.block import DRIVES
from rackproof.remote.command import CommandResult
from rackproof.remote.drift import DMI, PACKAGES, QUESTIONS, SYSCTL, deviations, facts_of
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import read_folder, write_recordings

from .parse import tool_output

LINKS = [
    {"ifindex": k, "ifname": name, "link_type": kind, "mtu": mtu, "operstate": "UP", "flags": ["UP"]}
    for k, (name, kind, mtu) in enumerate(
        [("lo", "loopback", 65536), *((f"rail{rail}", "ether", 9000) for rail in range(8))], 1
    )
]
HEALTHY = {
    "uname -r": "6.8.0-51-generic\n",
    "cat /proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=7d4c3f2a-9a1e-4f0b-8f6d-0c2b1a3e5d77 ro iommu=pt\n",
    "ip -j addr show": json.dumps(LINKS),
    DMI: "/sys/class/dmi/id/bios_version:2.4\n/sys/class/dmi/id/bios_date:08/01/2025\n",
    PACKAGES: "package chrony installed 4.5-1\npackage nvidia-driver-580 installed 580.95.05-1\n",
    SYSCTL: "vm.swappiness = 1\nnet.ipv4.tcp_rmem = 4096\t131072\t67108864\n",
    "cd /sys/class/infiniband 2>/dev/null && grep -sH '' */fw_ver */hca_type": "mlx5_0/fw_ver:28.43.2566\nmlx5_0/x:y\n",
    "ethtool -i eno1; echo status $?": tool_output("ethtool-driver-mlx5.txt") + "status 0\n",
    DRIVES: tool_output("drives.txt"),
    "nvidia-smi -q -x": tool_output("nvidia-smi-590-2gpu.xml"),
}


def node(number: int, group: str = "gpu", **changes: str) -> Recording:
    """``changes``: text in a healthy node's answers and its replacement."""
    name = f"{group}-{number:02d}"
    results = {}
    for command, text in HEALTHY.items():
        for old, new in changes.items():
            text = text.replace(old, new)
        results[command] = CommandResult(name, command, 0, text.encode(), b"", timeout_s=10)
    return Recording(Node(name, (group,)), results)


def rack(odd: Recording, count: int = 32) -> list[Recording]:
    return [odd if odd.node.name == f"gpu-{n:02d}" else node(n) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"rail3", "link_type": "ether", "mtu": 9000', '"rail3", "link_type": "ether", "mtu": 1500',
         "MTU of rail3 1500, others 9000"),
        ("6.8.0-51-generic", "6.8.0-45-generic", "kernel 6.8.0-45-generic, others 6.8.0-51-generic"),
        ("iommu=pt", "iommu=off",
         "kernel command line root=UUID=‹uuid› ro iommu=off, others root=UUID=‹uuid› ro iommu=pt"),
        ("bios_version:2.4", "bios_version:2.1", "BIOS version 2.1, others 2.4"),
        ("4.5-1", "4.6-1", "package chrony 4.6-1, others 4.5-1"),
        ("package chrony installed 4.5-1\n", "", "package chrony absent, others 4.5-1"),
        ("chrony installed", "chrony half-configured", "package chrony half-configured, others 4.5-1"),
        ("swappiness = 1", "swappiness = 60", "sysctl vm.swappiness 60, others 1"),
        ("28.43.2566", "28.39.1002", "firmware of mlx5_0 28.39.1002, others 28.43.2566"),
        ("28.44.1036", "28.39", "firmware of eno1 28.39 (MT_0000000834), others 28.44.1036 (MT_0000000834)"),
        ("GDC5602Q", "GDC5302Q", "firmware of nvme0 GDC5302Q, others GDC5602Q"),
        ("<driver_version>590.48.01", "<driver_version>575.1", "GPU driver 575.1, others 590.48.01"),
        ("96.00.A5.00.03", "96.00.A1", "VBIOS 96.00.A1, others 96.00.A5.00.03"),
    ],
)  # fmt: skip
def test_one_node_of_many_is_named_in_one_line(old: str, new: str, expected: str) -> None:
    (deviation,) = deviations(rack(node(7, **{old: new})))
    assert deviation.line == f"gpu-07 differs from gpu-[01-06,08-32]: {expected}"


def test_the_first_node_deviates_when_its_value_is_rare() -> None:
    (deviation,) = deviations(rack(node(1, **{"swappiness = 1": "swappiness = 60"}), 4))
    assert deviation.line == "gpu-01 differs from gpu-[02-04]: sysctl vm.swappiness 60, others 1"


def test_nodes_that_deviate_in_the_same_way_are_one_line() -> None:
    odd = {"6.8.0-51": "6.8.0-45"}
    lines = [deviation.line for deviation in deviations([node(n, **(odd if n in (3, 4) else {})) for n in range(1, 9)])]
    assert lines == ["gpu-[03-04] differ from gpu-[01-02,05-08]: kernel 6.8.0-45-generic, others 6.8.0-51-generic"]


def test_equal_nodes_give_no_line_and_roles_are_not_compared() -> None:
    assert deviations([node(n) for n in range(1, 9)]) == []
    assert deviations([node(1), node(1, "storage", **{"6.8.0": "5.14.0"})]) == []


def test_a_command_that_was_not_run_is_no_deviation() -> None:
    silent = node(2)
    silent = replace(silent, results={c: r for c, r in silent.results.items() if c != SYSCTL})
    assert deviations([node(1), silent, node(3)]) == []


def test_many_facts_are_counted() -> None:
    packages = "".join(f"package p{n} installed 1\n" for n in range(20))
    (deviation,) = deviations([node(1), node(2), node(3, **{"package chrony": f"{packages}package chrony"})])
    assert deviation.line.endswith("package p7 1, others absent; and 12 more")


def test_an_unfinished_command_gives_no_fact() -> None:
    cut = node(2)
    cut = replace(cut, results={c: replace(r, rc=None, stdout=b"9.9\n") for c, r in cut.results.items()})
    assert facts_of(cut) == {}


@given(st.text(max_size=300))
def test_any_answer_is_read_without_a_complaint(text: str) -> None:
    results = {c: CommandResult("gpu-01", c, 0, text.encode("utf-8", "replace"), b"", timeout_s=1) for c in HEALTHY}
    for facts in facts_of(Recording(Node("gpu-01", ("gpu",)), results)).values():
        assert all(facts)


def test_twins_of_the_virtual_rack_have_not_drifted() -> None:
    recordings = read_folder(Path(__file__).parents[1] / "data" / "recordings" / "virtual-rack")
    assert deviations(recordings) == []
    assert {"kernel", "cmdline", "mtu", "sysctl", "GPU"} <= facts_of(recordings[0]).keys()


def test_every_question_of_a_recording_for_drift_is_read() -> None:
    answered = {c: node(1).results[c] for c in QUESTIONS}
    assert len(facts_of(Recording(Node("gpu-01", ("gpu",)), answered))) == len(QUESTIONS)


def test_the_command_prints_deviations_first(tmp_path: Path) -> None:
    write_recordings(tmp_path, rack(node(1, **{"swappiness = 1": "swappiness = 60"}), 4))
    result = CliRunner().invoke(diff, [str(tmp_path), "--peers"])
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == "gpu-01 differs from gpu-[02-04]: sysctl vm.swappiness 60, others 1"
    assert result.output.splitlines()[-1] == "3 compared, gpu-01 differ"
