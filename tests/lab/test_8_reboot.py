"""Reboots: a changed kernel command line is reported, applied when reboots are allowed, and in force afterwards."""

from __future__ import annotations

import shlex
import time

import pytest

from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, Command, ask
from tests.lab.test_2_deploy import DEPLOY, changes

NODE = "gpu-02"
GPU = ("gpu-01", "gpu-02")
ARGUMENT = "skew_tick=1"
WISH = f'node={{"kernel_arguments": ["{ARGUMENT}"]}}'
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
REBOOT_S = 2400
"""One deploy with a reboot of an emulated node, which starts its kernel twice; the limit is for what never ends."""
CLIENT_MOUNTS = ("/mnt/local", "/mnt/nfs-tcp", "/mnt/nfs-rdma", "/mnt/cephfs")


@pytest.mark.long
def test_a_pending_reboot_is_reported_and_nothing_reboots(converged: Rack, command: Command) -> None:
    with Fleet(converged) as fleet:
        boot = ask(fleet[NODE], BOOT_ID).text
    result = command("rackproof", "deploy", INVENTORY, "--limit", NODE, "--data", WISH, "--quiet")
    assert result.returncode == 2, result.stdout + result.stderr
    assert f"{NODE} reboot required: kernel arguments" in result.stdout
    with Fleet(converged) as fleet:
        assert ask(fleet[NODE], BOOT_ID).text == boot
        assert ARGUMENT in ask(fleet[NODE], "cat /boot/grub/grub.cfg").text
        assert ARGUMENT not in ask(fleet[NODE], "cat /proc/cmdline").text


ENDED = "/var/tmp/rackproof-job-ended"
JOB = f"rm -f {ENDED}; until scontrol -o show node {NODE} | grep -q DRAIN; do sleep 2; done; sleep 20; date >{ENDED}"
"""Runs until the deploy has drained its node, and then for long enough to be waited for."""


@pytest.mark.long
def test_nodes_reboot_in_one_batch_after_their_jobs_have_ended(converged: Rack, command: Command) -> None:
    with Fleet(converged) as fleet:
        boots = {name: ask(fleet[name], BOOT_ID).text for name in GPU}
        submitted = fleet[NODE].run(f"sbatch --parsable -w {NODE} -D /tmp -o /dev/null --wrap {shlex.quote(JOB)}", 300)
        assert submitted.ok, submitted.why
    deploy_argument = ("rackproof", "deploy", INVENTORY, "--limit", "gpu", "--data", WISH)
    result = command(*deploy_argument, "--reboot", "--serial", "2", timeout=REBOOT_S)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert f"waiting for jobs {submitted.text.strip()}" in result.stderr
    assert result.stderr.count("rebooted in") == len(GPU)
    with Fleet(converged) as fleet:
        assert fleet[NODE].run(f"rm {ENDED}", 300).ok, "the job was ended before its time"
        for name in GPU:
            after = ask(fleet[name], f"{BOOT_ID} && cat /proc/cmdline").text
            assert ARGUMENT in after
            assert boots[name] not in after
            state = ask(fleet[name], f"scontrol --oneliner show node {name}")
            assert state.ok, state.why
            assert "DRAIN" not in state.text
        mounted = ask(fleet[NODE], "findmnt -no SOURCE /scratch").text
        assert mounted.startswith("/dev/md")


@pytest.mark.long
def test_after_a_reboot_of_every_node_all_mounts_are_back_and_nothing_changes(
    converged: Rack, command: Command
) -> None:
    """The reboot is ordered outside the kit, and removes the kernel argument that the deploy no longer declares."""
    unwanted = command("rackproof", "deploy", INVENTORY, "--limit", "gpu", "--quiet")
    assert unwanted.returncode == 2, unwanted.stdout + unwanted.stderr[-3000:]
    assert "gpu-[01-02] reboot required: kernel arguments" in unwanted.stdout
    names = [node.name for node in converged.nodes]
    with Fleet(converged) as fleet:
        boots = {name: ask(fleet[name], BOOT_ID).text for name in names}
        for name in names:
            assert ask(fleet[name], "systemctl --no-block reboot").ok
    waiting, deadline = set(names), time.monotonic() + REBOOT_S
    mounts = " && ".join(f"mountpoint -q {m}" for m in CLIENT_MOUNTS)
    while waiting and time.monotonic() < deadline:
        time.sleep(3)
        with Fleet(converged) as fleet:
            probes = {n: BOOT_ID + (f" && {mounts}" if n.startswith("gpu") else "") for n in waiting}
            answers = fleet.run(probes, 30)
        waiting -= {n for n, a in answers.items() if a.ok and a.text != boots[n]}
    assert not waiting, f"{waiting} not back with all mounts after {REBOOT_S} s"
    with Fleet(converged) as fleet:
        for name in GPU:
            assert ARGUMENT not in ask(fleet[name], "cat /proc/cmdline /boot/grub/grub.cfg").text
    result = command("pyinfra", "-y", "--json", INVENTORY, DEPLOY)
    assert result.returncode == 0, result.stderr[-3000:]
    assert changes(result.stdout) == {}


EARLY, LATE = "/etc/sysctl.d/60-rackproof.conf", "/etc/slurm/slurm.conf"
"""The first files that a deploy writes, and the last."""
TRAP = f"until [ -e {EARLY} ]; do sleep 0.2; done; sync; echo b >/proc/sysrq-trigger"


@pytest.mark.long
def test_a_node_that_restarts_in_the_middle_is_named_and_the_next_run_heals(converged: Rack, command: Command) -> None:
    with Fleet(converged) as fleet:
        boot = ask(fleet[NODE], BOOT_ID).text
        assert fleet[NODE].run(f"rm {EARLY} {LATE} && systemd-run -q sh -c '{TRAP}'", 300).ok
    result = command("rackproof", "deploy", INVENTORY, "--quiet", timeout=REBOOT_S)
    assert result.returncode == 1, result.stdout + result.stderr[-3000:]
    assert f"{NODE} failed: " in result.stdout + result.stderr
    assert "the connection was lost" in result.stdout + result.stderr
    assert "gpu-01,storage-01: no changes" in result.stdout + result.stderr
    deadline = time.monotonic() + REBOOT_S
    while time.monotonic() < deadline:
        with Fleet(converged) as fleet:
            answer = fleet[NODE].run(f"{BOOT_ID} && test -e {EARLY} && ! test -e {LATE}", 60)
        if answer.ok and answer.text != boot:
            break
        time.sleep(3)
    else:
        pytest.fail(f"{NODE} has not restarted in the middle of the deploy: {answer.why or answer.text}")
    healed = command("rackproof", "deploy", INVENTORY, "--quiet")
    assert healed.returncode == 0, healed.stdout + healed.stderr[-3000:]
    with Fleet(converged) as fleet:
        assert ask(fleet[NODE], f"test -e {LATE} && systemctl is-active slurmd").ok
        left = ask(fleet[NODE], "find /etc /usr/local -xdev -name '*.rackproof-new'")
        assert left.ok
        assert left.text.strip() == ""
    again = command("pyinfra", "-y", "--json", INVENTORY, DEPLOY)
    assert again.returncode == 0, again.stderr[-3000:]
    assert changes(again.stdout) == {}
