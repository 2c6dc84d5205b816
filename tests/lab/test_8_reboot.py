"""The one reboot: a changed command line is said, done when it is allowed, in force after, and not done again."""

from __future__ import annotations

from rackproof.core.rack import Rack
from rackproof.remote.ssh import Fleet
from tests.lab.conftest import INVENTORY, Command

NODE = "gpu-02"
ARGUMENT = "skew_tick=1"
WISH = f'node={{"kernel_arguments": ["{ARGUMENT}"]}}'
REBOOT_S = 2400
"""One deploy with a reboot of an emulated node in it, which starts its kernel twice."""


def test_what_needs_a_reboot_is_said_and_nothing_reboots(converged: Rack, command: Command) -> None:
    with Fleet(converged) as fleet:
        boot = fleet[NODE].run("cat /proc/sys/kernel/random/boot_id", 60).text
    done = command("rackproof", "deploy", INVENTORY, "--limit", NODE, "--data", WISH, "--quiet")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{NODE} reboot required: kernel arguments" in done.stdout
    with Fleet(converged) as fleet:
        assert fleet[NODE].run("cat /proc/sys/kernel/random/boot_id", 60).text == boot
        assert ARGUMENT in fleet[NODE].run("cat /boot/grub/grub.cfg", 60).text
        assert ARGUMENT not in fleet[NODE].run("cat /proc/cmdline", 60).text


def test_allowed_it_is_done_once_and_then_nothing_changes(converged: Rack, command: Command) -> None:
    with Fleet(converged) as fleet:
        boot = fleet[NODE].run("cat /proc/sys/kernel/random/boot_id", 60).text
    wish = ("rackproof", "deploy", INVENTORY, "--limit", NODE, "--data", WISH)
    done = command(*wish, "--reboot", timeout=REBOOT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "rebooted in" in done.stderr
    with Fleet(converged) as fleet:
        after = fleet[NODE].run("cat /proc/sys/kernel/random/boot_id && cat /proc/cmdline", 120).text
        assert ARGUMENT in after
        assert boot not in after
        if fleet[NODE].run("command -v scontrol", 60).ok:
            state = fleet[NODE].run(f"scontrol --oneliner show node {NODE}", 60).text
            assert "DRAIN" not in state
        mounted = fleet[NODE].run("findmnt -no SOURCE /scratch", 60).text
        assert mounted.startswith("/dev/md")
    again = command(*wish, "--quiet")
    assert again.returncode == 0, again.stdout
    assert f"{NODE}: no changes" in again.stdout


def test_what_is_no_longer_wanted_goes_with_the_next_reboot(converged: Rack, command: Command) -> None:
    done = command("rackproof", "deploy", INVENTORY, "--limit", NODE, "--reboot", "--serial", "1", timeout=REBOOT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    with Fleet(converged) as fleet:
        assert ARGUMENT not in fleet[NODE].run("cat /proc/cmdline /boot/grub/grub.cfg", 120).text
