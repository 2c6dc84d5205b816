"""The run that is under way: one name for what it keeps on all nodes."""

from __future__ import annotations

import secrets
import time
from weakref import WeakKeyDictionary

from pyinfra.api.exceptions import DeployError
from pyinfra.api.state import State
from pyinfra.context import ctx_state, host

from rackproof.configure.rollback.journal import KEEP, Journal

_runs: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def run_id() -> str:
    """Time of its beginning (UTC) and four digits at random."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def journal_here() -> Journal:
    """Where the operations of this run keep what they change on the node at hand.

    Raises DeployError when the inventory's ``rollback_keep`` (runs that a node keeps) is no number from 1 on.
    """
    state: State = ctx_state.get()  # type: ignore[no-untyped-call]
    if state not in _runs:
        _runs[state] = run_id()
    data = getattr(host, "data", None)  # stand-ins of tests have none
    keep = data.get("rollback_keep", KEEP) if data is not None else KEEP
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
        raise DeployError(f"{host.name}: rollback_keep: expected a number of runs from 1 on, actual {keep!r}")
    return Journal(_runs[state], keep)
