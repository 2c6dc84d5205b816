"""One reboot, step by step, on a node that is played: who is drained, what is waited for, and every way to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rackproof.configure.reboot.carry import ORDER, Clock, NotRebooted, Reboot
from rackproof.configure.reboot.drain import WITHDRAWN, DrainState, parse_node
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.configure.reboot.reasons import RebootState

BEFORE = RebootState("old", "6.8", marks=("kernel arguments",))
AFTER = RebootState("new", "6.8")
IDLE = "NodeName=gpu-01 Arch=x86_64 State=IDLE ThreadsPerCore=1"


def drained(reason: str) -> str:
    return f"NodeName=gpu-01 State=IDLE+DRAIN ThreadsPerCore=1 Reason={reason} [root@2026-11-21T18:00:00]"


@dataclass
class Played:
    """Boots in ``boot_s``; None: never. Jobs end at ``jobs_end_s``."""

    boot_s: float | None = 60
    slurm: str | None = IDLE
    jobs_end_s: float = 0
    after: RebootState = AFTER
    up: str = "running"
    health: tuple[bool, str] = (True, "")
    ignores: bool = False
    withdrawn: bool = False
    """It left Slurm before its driver was exchanged."""
    now: float = 0
    ordered: float | None = None
    asked: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def ask(self, command: str, limit_s: float) -> tuple[bool, str]:
        self.asked.append(command)
        if command == ORDER:
            self.ordered = self.now
            return True, ""
        if command == f"[ -e {WITHDRAWN} ]":
            return self.withdrawn, ""
        if "show node" in command:
            return (self.slurm is not None), self.slurm or "slurm_load_node error: Unable to contact slurm controller"
        if "State=DRAIN" in command:
            self.slurm = drained("rackproof: reboot")
        if "State=RESUME" in command:
            self.slurm = IDLE
        if "squeue" in command:
            return True, "4711\n" if self.now < self.jobs_end_s else ""
        if "is-system-running" in command:
            return self.up == "running", self.up
        if "health" in command:
            return self.health
        return True, ""

    def booted(self) -> bool:
        return self.ordered is not None and self.boot_s is not None and self.now >= self.ordered + self.boot_s

    def state(self) -> RebootState | None:
        if self.ordered is None or self.ignores:
            return BEFORE
        return self.after if self.booted() else None

    def drop(self) -> None:
        self.asked.append("drop")

    def connect(self) -> bool:
        return self.ignores or self.booted()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def reboot(self, **more: object) -> Reboot:
        inputs = RebootInputs(limit_s=600, drain_limit_s=300)
        arguments: dict[str, object] = {"slurm": False, "health_check": None, **more}
        say: Callable[[str], None] = self.messages.append
        return Reboot("gpu-01", self, Clock(lambda: self.now, self.sleep), inputs, ("kernel arguments",), say=say,
                      **arguments)  # type: ignore[arg-type]  # fmt: skip


def test_a_reboot_is_proved_by_another_boot_id() -> None:
    node = Played()
    assert node.reboot().carry_out(BEFORE) == AFTER
    assert node.asked.index(ORDER) < node.asked.index("drop")
    assert node.messages == ["rebooted in 60 s: kernel arguments"]


def test_slurm_is_left_before_and_joined_after() -> None:
    node = Played(jobs_end_s=100)
    node.reboot(slurm=True, health_check="/usr/sbin/health").carry_out(BEFORE)
    steps = [next((word for word in ("DRAIN", "RESUME", "squeue", "health") if word in c), "") for c in node.asked]
    assert node.ordered is not None
    assert node.ordered >= 100
    order = node.asked.index(ORDER)
    assert steps.index("DRAIN") < steps.index("squeue") < order < steps.index("health") < steps.index("RESUME")
    assert "waiting for jobs 4711" in node.messages


def test_of_two_passes_the_second_gives_back() -> None:
    node = Played()
    node.reboot(slurm=True, stay=True).carry_out(BEFORE)
    assert not any("RESUME" in command for command in node.asked)
    after = node.reboot(slurm=True, health_check="/usr/sbin/health")
    assert after.is_drained()
    after.give_back()
    assert any("health" in command for command in node.asked)
    assert node.slurm == IDLE
    assert node.messages[-1] == "resumed in Slurm"


def test_giving_back_ends_the_mark_and_says_what_was() -> None:
    node = Played(slurm=drained("rackproof: reboot (x)"), withdrawn=True)
    work = node.reboot(slurm=True, rebooted=False)
    assert work.is_withdrawn()
    work.give_back()
    assert node.asked[-1] == f"rm -f -- {WITHDRAWN}"
    broken = Played(slurm=drained("rackproof: reboot (x)"), health=(False, "GPU 3 is lost"))
    with pytest.raises(NotRebooted, match=r"^/usr/sbin/health failed: GPU 3 is lost; it stays drained"):
        broken.reboot(slurm=True, rebooted=False, health_check="/usr/sbin/health").give_back()
    assert not any(WITHDRAWN in command for command in broken.asked)


def test_a_distribution_that_does_not_tell_after_the_boot_is_named() -> None:
    node = Played(after=RebootState("new", "6.8", unknown=True))
    with pytest.raises(NotRebooted, match="rebooted, and needs-restarting gives no answer"):
        node.reboot().carry_out(BEFORE)


@pytest.mark.parametrize("reason", ["bad DIMM", "maintenance on Friday"])
def test_a_node_that_an_operator_drained_stays_drained(reason: str) -> None:
    node = Played(slurm=drained(reason))
    node.reboot(slurm=True).carry_out(BEFORE)
    assert not any("State=" in command for command in node.asked)
    assert node.messages[0] == f"already drained in Slurm ({reason}), stays so after the reboot"


def test_a_drain_of_an_interrupted_run_is_ended() -> None:
    node = Played(slurm=drained("rackproof: reboot (kernel arguments)"))
    node.reboot(slurm=True).carry_out(BEFORE)
    assert node.slurm == IDLE


@pytest.mark.parametrize(
    ("node", "more", "says"),
    [
        (Played(boot_s=None), {}, "not back within 600 s of the order: it went down and does not answer over ssh"),
        (Played(ignores=True), {}, "ordered to reboot 300 s ago and did not: it answers and has not gone down"),
        (Played(after=RebootState("new", "6.8", marks=("kernel arguments",))), {},
         "but still: kernel arguments; it is not rebooted again"),
        (Played(up="maintenance"), {}, "systemd says maintenance"),
        (Played(slurm=None), {"slurm": True}, "not rebooted: Slurm's controller does not answer"),
        (Played(jobs_end_s=9999), {"slurm": True},
         "not rebooted: jobs 4711 run after 300 s of waiting; resumed in Slurm"),
        (Played(jobs_end_s=9999, slurm=drained("rackproof-deploy: reboot (x)"), withdrawn=True), {"slurm": True},
         "after 300 s of waiting; it stays drained in Slurm because its driver was replaced"),
        (Played(boot_s=None), {"slurm": True}, "stays drained in Slurm"),
        (Played(health=(False, "x\nGPU 3 is lost")), {"slurm": True, "health_check": "/usr/sbin/health"},
         "failed: GPU 3 is lost; it stays drained in Slurm"),
    ],
)  # fmt: skip
def test_every_way_to_fail_is_named(node: Played, more: dict[str, object], says: str) -> None:
    with pytest.raises(NotRebooted, match=says):
        node.reboot(**more).carry_out(BEFORE)
    assert node.asked.count(ORDER) <= 1


def test_jobs_that_do_not_end_leave_the_node_running_and_in_slurm() -> None:
    node = Played(jobs_end_s=9999)
    with pytest.raises(NotRebooted):
        node.reboot(slurm=True).carry_out(BEFORE)
    assert ORDER not in node.asked
    assert node.slurm == IDLE


def test_a_node_that_was_rebooted_meanwhile_is_not_rebooted_again() -> None:
    node = Played()
    with pytest.raises(NotRebooted, match="it has been rebooted in the meantime"):
        node.reboot().carry_out(RebootState("older", "6.8"))
    assert ORDER not in node.asked


def test_failed_units_are_printed_and_are_no_failure() -> None:
    node = Played(up="degraded")
    node.reboot().carry_out(BEFORE)
    assert "up with failed units: systemctl --failed" in node.messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IDLE, DrainState(frozenset({"IDLE"}))),
        (
            "NodeName=n State=MIXED+DRAIN* Reason=a b c [u@t]",
            DrainState(frozenset({"MIXED", "DRAIN", "NOT_RESPONDING"}), "a b c"),
        ),
        ("Node n not found", None),
        ("", None),
    ],
)
def test_what_slurm_says_of_a_node(text: str, expected: DrainState | None) -> None:
    assert parse_node(text) == expected
