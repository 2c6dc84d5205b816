"""The last operation of a deploy: report pending reboots, or reboot."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import gevent
from pyinfra import logger
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.util import clear_askpass_cache, remove_any_sudo_askpass_file
from pyinfra.context import host, state

from rackproof.configure.fact_prefetch import END, MayDisconnect
from rackproof.configure.facts import answer, complete
from rackproof.configure.machine import forget_machine
from rackproof.configure.operation import Commands, ask, note, operation, record, record_pending_reboot, record_reboot
from rackproof.configure.reboot import reasons
from rackproof.configure.reboot.carry import Clock, NotRebooted, Reboot
from rackproof.configure.reboot.facts import DriverUse
from rackproof.configure.reboot.gpu_users import REBOOTS, obstacle
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.core.plan import Change
from rackproof.core.reboot_mode import Mode
from rackproof.errors import Refused

OWN_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


Reasons = answer("Reasons", reasons.state_command, reasons.parse_state)
"""Boot id, kernels, and reasons for a reboot."""


_failed: WeakKeyDictionary[State, list[str]] = WeakKeyDictionary()
"""Nodes whose reboot failed in this run; later batches check ``max_failures``."""


@operation()
def reboot(
    mode: Mode,
    inputs: RebootInputs,
    kernel: str | None = None,
    slurm: bool = False,
    health_check: str | None = None,
    driver_swaps: bool = False,
    accepted: bool = False,
) -> Commands:
    """Report why the node needs a reboot; if reboots are allowed, reboot it once and check that the reasons are gone.

    + mode: whether reboots are allowed; ``FINISH`` returns nodes to Slurm that ``ALLOWED_TWO_PASSES`` left drained
    + inputs: time limits, batches and allowed failures
    + kernel: release that must run afterwards
    + slurm: drain the node in Slurm first; otherwise a node with programs on its GPUs, with jobs, or that takes jobs
      of a Slurm that the kit does not manage, is refused
    + health_check: program that must succeed before the node returns to Slurm
    + driver_swaps: a run may replace a driver of the node, so any mode returns the node to Slurm
    + accepted: the inventory accepts that running programs are disturbed

    **Example:**

    .. code:: python

        operations.reboot(name="Reboot", mode=Mode.ALLOWED, inputs=RebootInputs(), slurm=True)
    """
    actual = ask(Reasons, "the reasons for a reboot")
    why = reasons.reasons(actual, kernel)
    if actual.unknown:
        raise Refused(reasons.UNKNOWN)
    work = Reboot(
        node=host.name,
        line=PyinfraLine(host, _rights()),
        clock=Clock(time.monotonic, gevent.sleep),
        inputs=inputs,
        why=why,
        kernel=kernel,
        slurm=slurm,
        health_check=health_check,
        rebooted=bool(why) or mode is Mode.FINISH,
        stay=mode is Mode.ALLOWED_TWO_PASSES,
        say=lambda text: host.log(text, logger.info),
    )
    if not why:
        drained = _is_drained(work, mode, driver_swaps) if slurm and state.is_executing else False
        if drained:
            yield FunctionCommand(_give_back, (work,), {})
        host.noop("no reboot is needed")
        return
    if mode not in (Mode.ALLOWED, Mode.ALLOWED_TWO_PASSES):
        if state.is_executing or mode is Mode.PLANNED:
            note(f"{reasons.REQUIRED}{'; '.join(why)}")
            record_pending_reboot(why)
        host.noop("a reboot is not allowed")
        return
    if actual.boot_id == own_boot_id():
        raise Refused(
            f"{reasons.REQUIRED}{'; '.join(why)}; this is the machine that the deploy runs on:"
            " reboot it by hand, or run the deploy from another one"
        )
    if state.is_executing and not (slurm or accepted):
        use = ask(DriverUse, "programs and jobs of the node", node=host.name)
        if busy := obstacle(use, REBOOTS, drains=False):
            raise Refused("; ".join(busy))
    before = _failed.setdefault(host.state, [])
    if len(before) > inputs.max_failures:
        raise Refused(f"not rebooted: the reboot of {', '.join(before)} failed (reboot.max_failures)")
    record(Change(what="reboot", why=reason) for reason in why)
    yield FunctionCommand(_carry_out, (work, actual), {})


def _is_drained(work: Reboot, mode: Mode, driver_swaps: bool) -> bool:
    """Whether the kit drained the node. Raises NotRebooted when Slurm's controller does not answer."""
    return work.is_drained() if mode is Mode.FINISH else driver_swaps and work.is_withdrawn()


def _give_back(state: State, host: Host, work: Reboot) -> bool:
    try:
        work.give_back()
    except NotRebooted as error:
        host.log(str(error), logger.error)
        return False
    return True


def _rights() -> dict[str, Any]:
    """Privilege arguments of the operation (sudo, su, doas), as the inventory sets them."""
    arguments: dict[str, Any] = dict(host.current_op_global_arguments or {})
    return {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS and key != "_timeout"}


def own_boot_id() -> str | None:
    """Boot id of the machine that runs the deploy, possibly in a container."""
    try:
        return OWN_BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _carry_out(state: State, host: Host, work: Reboot, before: reasons.RebootState) -> bool:
    # The reboot deletes pyinfra's askpass file; pyinfra must not use it afterwards.
    remove_any_sudo_askpass_file(host)
    try:
        work.carry_out(before)
        record_reboot()
    except NotRebooted as error:
        _failed.setdefault(state, []).append(host.name)
        host.log(str(error), logger.error)
        return False
    finally:
        clear_askpass_cache(host)
        forget_machine()
    return True


@dataclass
class PyinfraLine:
    """pyinfra's connection to one node."""

    host: Host
    arguments: dict[str, Any] = field(default_factory=dict)

    def ask(self, command: str, limit_s: float) -> tuple[bool, str]:
        if not self.host.connected:
            return False, ""
        try:
            good, output = self.host.run_shell_command(
                MayDisconnect(command),
                print_output=False,
                print_input=False,
                _timeout=int(limit_s) + 1,
                **self.arguments,
            )
        except Exception as error:  # a node that goes down raises errors of paramiko, sockets or gevent
            return False, f"{type(error).__name__}: {error}"
        return bool(good), output.output

    def state(self) -> reasons.RebootState | None:
        good, output = self.ask(complete(reasons.state_command()), 180)
        lines = output.splitlines()
        if not good or not lines or lines[-1] != END:
            return None
        try:
            return reasons.parse_state(lines[:-1])
        except ValueError:
            return None

    def drop(self) -> None:
        # The machine is gone: nothing must be sent over this connection.
        clear_askpass_cache(self.host)
        try:
            self.host.disconnect()
        finally:
            self.host.connected = False

    def connect(self) -> bool:
        try:
            self.host.connect(show_errors=False)
        except Exception as error:  # as in ask
            logger.debug("%s: %s", self.host.name, error)
            return False
        return bool(self.host.connected)
