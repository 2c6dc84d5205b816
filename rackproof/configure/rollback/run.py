"""The current run: its id, its journals and its run lock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.command import StringCommand
from pyinfra.api.state import State
from pyinfra.context import ctx_state, host

from rackproof.configure.fact_prefetch import Aside
from rackproof.configure.operation import Commands, record
from rackproof.configure.rollback.journal import KEEP, Journal, Later
from rackproof.configure.run_lock import LEFT_S, Holder, holder_here, left_in, take_script
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import DeclarationError, InventoryError

TAKE_OVER = "take_over"
"""Key of the command line's data: a run that the lock may be taken from."""
TAKE_TIMEOUT_S = 60
LINE_S = 10.0

_runs: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def run_id() -> str:
    """Start time (UTC) and four random hexadecimal digits."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def journal_here() -> Journal:
    """Journal of this run on the current node.

    Raises DeclarationError when the inventory's ``rollback_keep`` (runs that a node keeps) is not a positive integer.
    """
    state: State = ctx_state.get()  # type: ignore[no-untyped-call]
    data = getattr(host, "data", None)  # hosts in tests have none
    keep = data.get("rollback_keep", KEEP) if data is not None else KEEP
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
        raise DeclarationError(f"rollback_keep: expected a number of runs from 1 on, actual {keep!r}")
    if data is None or not state.is_executing:
        return Journal(this_run(), keep)
    return Journal(this_run(), keep, holder=_holder(), take_over=take_over_of(data.get(TAKE_OVER)))


def carried_out(
    script: str, changes: Iterable[Change], otherwise: str, kept: Sequence[str] | None = None,
    later: Sequence[Later] = (), **arguments: Any,
) -> Commands:  # fmt: skip
    """Record the changes, save what a rollback restores (journal lines ``kept`` and ``later``; None: nothing), and run
    the script. ``otherwise``: reason to log when the script is empty."""
    if not script:
        host.noop(otherwise)
        return
    record(changes)
    yield StringCommand(script if kept is None else journal_here().before(kept, script, later), **arguments)


def journaled(plan: ScriptPlan, otherwise: str) -> Commands:
    """``carried_out`` for a plan."""
    stdin = {} if plan.stdin is None else {"_stdin": plan.stdin}
    yield from carried_out(plan.script, plan.changes, otherwise, plan.kept, plan.later, **stdin)


def this_run() -> str:
    """Id of the current run."""
    state: State = ctx_state.get()  # type: ignore[no-untyped-call]
    if state not in _runs:
        _runs[state] = run_id()
    return _runs[state]


def take_over_of(value: object) -> str | None:
    """The inventory's ``take_over``. Raises DeclarationError."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InventoryError(f"{TAKE_OVER}: expected the name of a run, actual {value!r}")
    return value


def take_node() -> str | None:
    """Take the run lock of the current node, outside of any operation's changes. Returns why it failed, in one line.

    A command that an interrupted run left on the node is waited for.

    Call it in the execution pass, before reading facts that the run relies on.
    """
    operation_arguments: dict[str, Any] = dict(host.current_op_global_arguments or {})
    arguments = {
        key: operation_arguments[key] for key in CONNECTOR_ARGUMENT_KEYS if operation_arguments.get(key) is not None
    }
    arguments["_timeout"] = TAKE_TIMEOUT_S
    data = getattr(host, "data", None) or {}
    script = take_script(_holder(), take_over_of(data.get(TAKE_OVER)))
    began, told = time.monotonic(), 0.0
    while True:
        taken, output = host.run_shell_command(Aside(script), print_output=False, print_input=False, **arguments)
        if taken:
            return None
        lines = [line for line in output.output.splitlines() if line.strip()]
        reason = lines[-1] if lines else "the node could not be taken for this run, so nothing was changed"
        waited = time.monotonic() - began
        if (left := left_in(reason)) is None or waited >= LEFT_S:
            return reason
        if waited >= told:
            told = waited + LINE_S
            host.log(f"waiting: {left}", logger.warning)
        time.sleep(1)


def _holder() -> Holder:
    return holder_here(this_run())
