"""Swap, time zone, tuned, modules, huge pages, interrupts: asked, planned, and the scripts that do it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.node import settings
from rackproof.configure.node.settings import Settings, SettingsState, blacklist_text, parse_state, plan
from rackproof.configure.render import templates
from rackproof.errors import Refused
from tests.unit.shell import executable, is_shell, sh

ALL = Settings(
    swap_off=True,
    timezone="Etc/UTC",
    tuned="rackproof",
    modules=("nvme_tcp",),
    forbidden=("nouveau",),
    hugepages={2048: 100},
    irq_affinity=True,
)
HUGE = "huge /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
GOOD = [
    "masked masked",
    "timezone Etc/UTC",
    "tuned rackproof",
    "module nvme_tcp",
    "module ext4",
    *(f"blacklist {line}" for line in blacklist_text(("nouveau",)).splitlines()),
    f"{HUGE} 100",
]


def test_a_node_that_has_everything_is_left_alone() -> None:
    assert plan(ALL, parse_state(GOOD)).lines == ()
    assert plan(Settings(), SettingsState()).lines == ()


@pytest.mark.parametrize(
    ("gone", "come", "reason", "part"),
    [
        ("masked masked", "masked disabled", "swap off", "systemctl mask swap.target"),
        ("masked masked", "swap /dev/zram0", "swap off", "swapoff -a"),
        ("timezone Etc/UTC", "timezone Asia/Tokyo", "time zone Etc/UTC", "timedatectl set-timezone -- Etc/UTC"),
        ("tuned rackproof", "tuned ", "tuned profile rackproof", "tuned-adm profile rackproof"),
        ("tuned rackproof", "tuned absent", "tuned profile rackproof", "tuned is not installed"),
        ("module nvme_tcp", "module x", "module nvme_tcp in", "modprobe -- nvme_tcp"),
        ("module ext4", "module nouveau", "module nouveau out", "reboot:module nouveau is in use"),
        ("blacklist blacklist nouveau", "blacklist x", "forbidden modules", "update-initramfs -u"),
        (
            f"{HUGE} 100",
            f"{HUGE} 7",
            "100 huge pages of 2048 KiB",
            "reboot:huge pages",
        ),
        ("module ext4", "irq 55 of 0000:1a:00.0: on 64", "1 interrupts", settings.IRQ_SCRIPT),
    ],
)
def test_one_difference_is_one_reason(gone: str, come: str, reason: str, part: str) -> None:
    planned = plan(ALL, parse_state([come if line == gone else line for line in GOOD]))
    assert [change.what for change in planned.changes] == [reason]
    assert part in planned.script
    assert is_shell(planned.script)


def test_what_waits_for_a_reboot_is_not_tried_again() -> None:
    lines = [line for line in GOOD if not line.startswith("huge")]
    marks = ["mark reboot:module nouveau is in use", "mark reboot:huge pages"]
    assert (
        plan(
            ALL,
            parse_state([*lines, f"{HUGE} 7", "module nouveau", *marks]),
        ).lines
        == ()
    )


def test_modules_that_are_allowed_again_lose_their_entry() -> None:
    planned = plan(Settings(), parse_state(["blacklist blacklist nouveau"]))
    assert [change.what for change in planned.changes] == ["forbidden modules"]
    assert f"rm -f {settings.BLACKLIST}" in planned.script


@pytest.mark.parametrize(
    ("wanted", "before"), [(("nouveau",), None), (("nouveau",), "blacklist x\n"), ((), "blacklist x\n")]
)
def test_a_rebuild_that_fails_is_tried_again_by_the_next_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: tuple[str, ...], before: str | None
) -> None:
    file, tool = tmp_path / "node.conf", tmp_path / "bin/update-initramfs"
    monkeypatch.setattr(settings, "BLACKLIST", str(file))
    tool.parent.mkdir()
    if before is not None:
        file.write_text(before)

    def run(status: int) -> bool:
        """Whether anything was left to do."""
        lines = [f"blacklist {line}" for line in file.read_text().splitlines()] if file.exists() else []
        planned = plan(Settings(forbidden=wanted), parse_state(lines))
        executable(tool, f"cp {file} {tmp_path}/seen\nexit {status}")
        if planned.lines:
            script = planned.script.replace("/run/", f"{tmp_path}/")
            assert sh(script, programs=tool.parent).returncode == status
        return bool(planned.lines)

    assert run(1)
    assert run(0), "what failed is not taken for done"
    assert not run(0)
    assert (file.read_text() if file.exists() else None) == (settings.blacklist_text(wanted) if wanted else None)
    assert ("install nouveau /bin/false" in (tmp_path / "seen").read_text()) == bool(wanted)


def test_a_size_of_pages_that_the_kernel_does_not_have_is_refused() -> None:
    with pytest.raises(Refused, match="huge pages of 1048576 KiB: this kernel has no such size"):
        plan(Settings(hugepages={1048576: 4}), SettingsState())


@pytest.mark.parametrize("line", ["bash: tuned-adm: not found", "huge 2048", "huge a b"])
def test_an_invalid_answer_is_refused(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (int's and ours)
        parse_state([line])


def test_the_question_is_shell() -> None:
    assert is_shell(settings.state_command(ALL))


class Machine:
    """A /sys and /proc with network cards on two NUMA nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.script = root / "irq"
        self.script.write_text(templates.text("/usr/local/sbin/rackproof-irq-affinity", root=str(root)))

    def card(self, address: str, name: str, node: int, near: str, interrupts: dict[int, str]) -> None:
        device = self.root / "sys/devices" / address
        (device / "msi_irqs").mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (device / "local_cpulist").write_text(f"{near}\n")
        for irq, where in interrupts.items():
            (device / "msi_irqs" / str(irq)).write_text("msix\n")
            (self.root / "proc/irq" / str(irq)).mkdir(parents=True)
            (self.root / "proc/irq" / str(irq) / "smp_affinity_list").write_text(f"{where}\n")
        (self.root / "sys/class/net" / name).mkdir(parents=True)
        (self.root / "sys/class/net" / name / "device").symlink_to(device)

    def run(self, *arguments: str) -> Any:
        return subprocess.run(["sh", str(self.script), *arguments], capture_output=True, text=True, check=False)

    def where(self, irq: int) -> str:
        return (self.root / "proc/irq" / str(irq) / "smp_affinity_list").read_text().strip()


def test_interrupts_go_to_processors_beside_their_card_in_turn(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.card("0000:1a:00.0", "rail0", 0, "0-1,4", {10: "0-7", 11: "6", 12: "4", 13: "0-1"})
    machine.card("0000:9a:00.0", "rail1", 1, "2-3", {20: "2"})
    machine.card("0000:00:03.0", "mgmt", -1, "0-7", {30: "0-7"})
    checked = machine.run("--check")
    assert checked.stdout.splitlines() == [
        "10 of 0000:1a:00.0: on 0-7, beside it are 0-1,4",
        "11 of 0000:1a:00.0: on 6, beside it are 0-1,4",
    ]
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert [machine.where(irq) for irq in (10, 11, 12, 13, 20, 30)] == ["0", "1", "4", "0", "2", "0-7"]
    assert machine.run("--check").stdout == ""


def test_a_machine_without_such_cards_has_nothing_to_move(tmp_path: Path) -> None:
    assert Machine(tmp_path).run().returncode == 0
