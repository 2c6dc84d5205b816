"""Operation: undo the last run, or all runs from an older one on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.context import host, state

from rackproof.configure.facts import FileStates, answer
from rackproof.configure.files import FileState
from rackproof.configure.operation import Commands, ask, operation, record, required
from rackproof.configure.rack_operations import ask_node
from rackproof.configure.rollback import restore as plans
from rackproof.configure.rollback.restore_script import restore_script
from rackproof.configure.rollback.run import journal_here, take_node
from rackproof.errors import InventoryError, Refused

Kept = answer("Kept", plans.kept_command, plans.parse_kept)
"""Journals of all runs, oldest first."""


def _kept(other: Host) -> tuple[plans.KeptRun, ...] | None:
    return other.get_fact(Kept)


def target_of(run: str | None, kept: Mapping[str, Iterable[plans.KeptRun] | None]) -> str | None:
    """The run to undo: the named one, or the newest of all nodes. None: no node has kept a run.

    Raises Refused when no node has kept the named run.
    """
    runs = sorted({kept_run.run for runs_of_node in kept.values() for kept_run in runs_of_node or ()})
    if run is None:
        return runs[-1] if runs else None
    if run not in runs:
        raise Refused(f"no node has kept run {run}; kept runs: {', '.join(runs) or 'none'}")
    return run


@operation()
def restore(run: str | None = None, force: Sequence[str] = ()) -> Commands:
    """Restore the state before a run; later runs are undone too.

    + run: name of the run; default: the last run of these nodes
    + force: paths to restore although they have changed since

    **Example:**

    .. code:: python

        operations.restore(name="Undo", run="20261121T183000-4f2a", force=["/etc/hosts"])
    """
    if state.is_executing and (reason := take_node()):
        raise Refused(reason)
    nodes = sorted(state.inventory.get_active_hosts(), key=lambda node: str(node.name))
    kept = {node.name: ask_node(node, "kept runs", _kept) for node in nodes}
    kept_here = required(kept.get(host.name), "the node's rollback journals")
    target = target_of(run, kept)
    selected = plans.chosen(kept_here, target) if target else ()
    if not selected:
        host.noop("nothing was changed here" if target else "no run has been kept")
        return
    paths, texts = plans.paths_of(selected)
    shown = [*texts, *_to_show(selected)] if state.config.DIFF else texts
    everything = list(dict.fromkeys((*paths, *shown)))
    states = ask(FileStates, "the state of the files", paths=everything, texts=list(shown))
    plan = plans.plan_restore(selected, states, force)
    if not plan:
        host.noop(f"everything is as before {target}")
        return
    host.log(f"undoing {', '.join(run.run for run in reversed(selected))}", logger.info)
    record(plan.changes(_differences(plan, states) if state.config.DIFF else {}))
    journal = journal_here()
    yield StringCommand(restore_script(plan, replace(journal, keep=max(journal.keep, len(kept_here) + 1))))


def _to_show(runs: Iterable[plans.KeptRun]) -> list[str]:
    entries = [e for run in runs for e in run.entries if e.kind == "file" and e.shows_text]
    return list(dict.fromkeys(path for e in entries for path in (e.path, e.data)))


def _differences(plan: plans.RestorePlan, states: Mapping[str, FileState]) -> dict[str, list[str]]:
    differences = {}
    for entry in (entry for entry in plan.files if entry.shows_text):
        now, old = states.get(entry.path), states.get(entry.data)
        before, after = (((file_state.text if file_state else None) or "").splitlines() for file_state in (now, old))
        lines = difflib.unified_diff(before, after, entry.path, entry.path, lineterm="", n=2)
        differences[entry.path] = list(lines)
    return differences


def inputs(run: object, force: object) -> tuple[str | None, tuple[str, ...]]:
    """``run`` and ``force`` of the command line, checked. Raises InventoryError."""
    if run is not None and not isinstance(run, str):
        raise InventoryError(f"run: expected the name of a run, actual {run!r}")
    paths = force.split(",") if isinstance(force, str) else list(force) if isinstance(force, list | tuple) else []
    if force is not None and (not paths or not all(isinstance(p, str) and p.startswith("/") for p in paths)):
        raise InventoryError(f"force: expected paths, separated by commas, actual {force!r}")
    return run, tuple(map(str, paths))
