"""Reboots one node: drain it, order the reboot, wait, verify that the reasons are gone, resume it in Slurm.

The node is accessed only through ``Line``, so that tests need none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rackproof.configure.reboot import drain
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.configure.reboot.reasons import UNKNOWN, RebootState, reasons
from rackproof.core.evidence import REBOOTED
from rackproof.core.wording import exact
from rackproof.errors import Refused

DOWN_S = 300
"""Seconds after the order; a node that then still answers with its old boot id has failed to go down."""
ORDER = "( sleep 2; systemctl reboot || reboot ) </dev/null >/dev/null 2>&1 &"


class Line(Protocol):
    """The connection to one node."""

    def ask(self, command: str, limit_s: float) -> tuple[bool, str]:
        """Whether a command succeeded, and its output; False also when the node did not answer."""

    def state(self) -> RebootState | None: ...

    def drop(self) -> None: ...

    def connect(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], float]
    sleep: Callable[[float], None]


class NotRebooted(Refused):
    """Why a node was not rebooted, in one line. The node is unchanged, or in the state that the line names."""


@dataclass
class Reboot:
    """One node's reboot. ``carry_out`` raises NotRebooted."""

    node: str
    line: Line
    clock: Clock
    inputs: RebootInputs
    why: Sequence[str]
    kernel: str | None = None
    slurm: bool = False
    health_check: str | None = None
    rebooted: bool = True
    """False when a node is resumed in Slurm without a reboot in this run."""
    stay: bool = False
    """Leave the node drained: a second pass of the deploy follows the reboot."""
    say: Callable[[str], None] = lambda text: None
    drained: bool = field(default=False, init=False)
    withdrawn: bool = field(default=False, init=False)
    """It was drained before its driver was replaced."""

    def carry_out(self, before: RebootState) -> RebootState:
        if self.slurm:
            self._drain()
        self._order(before)
        began = self.clock.now()
        self._wait(before, began)
        after = self._up(began)
        if after.unknown:
            raise NotRebooted(f"rebooted, and {UNKNOWN}{self._stays_out()}")
        left = reasons(after, self.kernel)
        if left:
            raise NotRebooted(
                f"rebooted ({self._took(began)}), but still: {'; '.join(left)}; it is not rebooted again"
                f"{self._stays_out()}"
            )
        if self.drained and not self.stay:
            self._give_back()
        self.say(f"{REBOOTED}{self._took(began)}: {'; '.join(self.why)}")
        return after

    def is_drained(self) -> bool:
        """Whether the kit has drained the node. Raises NotRebooted when Slurm's controller does not answer."""
        slurm_state = self._node()
        if slurm_state is None:
            raise NotRebooted("Slurm's controller does not answer about this node: is it still drained?")
        return slurm_state.ours

    def is_withdrawn(self) -> bool:
        """Whether the kit has drained the node before a driver replacement, by a mark on the node.

        Raises NotRebooted when Slurm's controller does not answer.
        """
        withdrawn, _ = self.line.ask(f"[ -e {drain.WITHDRAWN} ]", drain.COMMAND_S)
        return withdrawn and self.is_drained()

    def give_back(self) -> None:
        """Resume the node in Slurm. Raises NotRebooted when the health check or Slurm fails."""
        self._give_back()
        self.say("resumed in Slurm")

    def _took(self, began: float) -> str:
        return f"{self.clock.now() - began:.0f} s"

    @property
    def _before(self) -> str:
        return "rebooted, and " if self.rebooted else ""

    def _stays_out(self) -> str:
        return "; it stays drained in Slurm" if self.drained else ""

    # Slurm

    def _node(self) -> drain.DrainState | None:
        good, output = self.line.ask(drain.show_command(self.node), drain.COMMAND_S + 10)
        return drain.parse_node(output) if good else None

    def _drain(self) -> None:
        slurm_state = self._node()
        if slurm_state is None:
            raise NotRebooted(
                "not rebooted: Slurm's controller does not answer about this node, so its jobs are unknown;"
                " start slurmctld, or remove the node's role from the architecture's slurm.roles"
            )
        if slurm_state.ours or not slurm_state.withdrawn:
            self.withdrawn, _ = self.line.ask(f"[ -e {drain.WITHDRAWN} ]", drain.COMMAND_S)
            good, output = self.line.ask(drain.drain_command(self.node, "; ".join(self.why)), drain.COMMAND_S + 10)
            if not good:
                raise NotRebooted(f"not rebooted: Slurm failed to drain the node: {output or 'no answer'}")
            self.drained = True
        else:
            self.say(f"already drained in Slurm ({slurm_state.reason or 'no reason given'}), stays so after the reboot")
        deadline = self.clock.now() + self.inputs.drain_limit_s
        told = False
        while True:
            good, output = self.line.ask(drain.jobs_command(self.node), drain.COMMAND_S + 10)
            jobs = output.split() if good else None
            if jobs == []:
                return
            if self.clock.now() >= deadline:
                who = f"jobs {', '.join(jobs)} run" if jobs else "squeue does not say which jobs run"
                back = self._undo_drain()
                raise NotRebooted(f"not rebooted: {who} after {self.inputs.drain_limit_s:g} s of waiting{back}")
            if jobs and not told:
                told = True
                self.say(f"waiting for jobs {', '.join(jobs)}")
            self.clock.sleep(self.inputs.poll_s)

    def _undo_drain(self) -> str:
        if not self.drained:
            return ""
        if self.withdrawn:
            return "; it stays drained in Slurm because its driver was replaced"
        good, _ = self.line.ask(drain.resume_command(self.node), drain.COMMAND_S + 10)
        self.drained = not good
        return "; resumed in Slurm" if good else "; it is still drained: scontrol update State=RESUME"

    def _give_back(self) -> None:
        if self.health_check and self.inputs.health_check:
            limit = self.inputs.health_limit_s
            good, output = self.line.ask(f"timeout {exact(limit)} {self.health_check}", limit + 30)
            if not good:
                last = output.strip().splitlines()[-1:] or ["no answer"]
                raise NotRebooted(f"{self._before}{self.health_check} failed: {last[0]}; it stays drained in Slurm")
        good, output = self.line.ask(drain.resume_command(self.node), drain.COMMAND_S + 10)
        slurm_state = self._node()
        # slurmctld itself may resume a node that has just registered; another resume is then an error.
        if not good and (slurm_state is None or slurm_state.withdrawn):
            raise NotRebooted(f"{self._before}Slurm failed to resume the node: {output or 'no answer'}")
        self.line.ask(f"rm -f -- {drain.WITHDRAWN}", drain.COMMAND_S)

    # The reboot

    def _order(self, before: RebootState) -> None:
        # The node may have been rebooted since its state was read.
        now = self.line.state()
        if now is None:
            raise NotRebooted(f"not rebooted: the node no longer answers{self._stays_out()}")
        if now.boot_id != before.boot_id:
            raise NotRebooted(f"not rebooted: it has been rebooted in the meantime; run again{self._stays_out()}")
        self.line.ask(ORDER, 30)
        self.line.drop()

    def _wait(self, before: RebootState, began: float) -> None:
        """Wait until the node answers with a new boot id."""
        deadline = began + self.inputs.limit_s
        last = "it has not answered since the order"
        while self.clock.now() < deadline:
            self.clock.sleep(self.inputs.poll_s)
            if not self.line.connect():
                last = "it went down and does not answer over ssh: look at its console"
                continue
            now = self.line.state()
            if now is not None and now.boot_id != before.boot_id:
                return
            last = "it answers and has not gone down" if now else "ssh connects but commands do not answer"
            self.line.drop()
            if now and self.clock.now() - began > DOWN_S:
                raise NotRebooted(f"ordered to reboot {DOWN_S} s ago and did not: {last}{self._stays_out()}")
        raise NotRebooted(f"not back within {self.inputs.limit_s:g} s of the order: {last}{self._stays_out()}")

    def _up(self, began: float) -> RebootState:
        """The state after all units have started or failed; failed units are left to the checks."""
        left = max(30.0, self.inputs.limit_s - (self.clock.now() - began))
        _, output = self.line.ask(f"timeout {left:.0f} systemctl is-system-running --wait", left + 30)
        state = output.strip().splitlines()[-1:] or ["unknown"]
        if state[0] not in ("running", "degraded"):
            raise NotRebooted(f"rebooted, and systemd says {state[0]} after {self._took(began)}{self._stays_out()}")
        if state[0] == "degraded":
            self.say("up with failed units: systemctl --failed")
        after = self.line.state()
        if after is None:
            raise NotRebooted(f"rebooted, answered once, but no longer answers{self._stays_out()}")
        return after
