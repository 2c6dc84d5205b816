"""Run benchmark steps one after the other; record every expected number, or why it is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from rackproof.bench.guard import Guard
from rackproof.bench.programs import check_programs
from rackproof.bench.step import BenchContext, Key, Step, key_of, unmeasured
from rackproof.core.evidence import Kind, Measurement
from rackproof.errors import RemoteError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.remote.interrupt import STOPPING


def run_steps(
    session: Session,
    run: str,
    steps: Sequence[Step],
    done: Collection[str],
    say: Callable[[str], None],
    progress: Callable[[Step, int], None] = lambda step, index: None,
) -> None:
    """Execute the steps that are not in ``done``.

    Every expected measurement is recorded, with its samples or the reason why there are none, before the step is
    recorded as done; so is what the step did to every node. Errors of a node do not end the stage; a full disk on the
    controller does.
    """
    with ExitStack() as stack:
        context = BenchContext(session, run, stack, say)
        stack.callback(_tidy, context)
        guard = Guard(session)
        if open_steps := [step for step in steps if step.id not in done]:
            for fault in check_programs(session, open_steps):
                say(fault)
            guard.look()
        for index, step in enumerate(steps):
            progress(step, index)
            if step.id in done:
                continue
            began = time.monotonic()
            session.step = step.id
            measurements, reason = _attempt(context, step)
            guard.look()
            missing = 0
            for place in step.expects:
                measurement = measurements.get(key_of(place)) or unmeasured(
                    place, reason or "the step returned no number for it"
                )
                missing += not measurement.samples
                session.measured(guard.beside(measurement))
            planned = {key_of(place) for place in step.expects}
            for measurement in (m for k, m in measurements.items() if k not in planned):  # e.g. a sum over fewer nodes
                session.measured(guard.beside(measurement))
            faults = guard.record(step.id)
            status = "done" if not missing else "failed" if missing == len(step.expects) else "partial"
            body = {"step": step.id, "status": status, "elapsed_s": round(time.monotonic() - began, 3)}
            body |= {"digest": step.digest} if step.digest else {}
            session.store.append(Kind.STEP, body | ({"reason": reason} if reason else {}))
            if missing:
                session.find_lost()
            session.step = None
            for fault in faults:
                say(fault)
            if missing:
                say(
                    f"{step.title}: {missing} of {len(step.expects)} numbers missing"
                    + (f" ({reason})" if reason else "")
                )


def _attempt(context: BenchContext, step: Step) -> tuple[dict[Key, Measurement], str | None]:
    measurements: dict[Key, Measurement] = {}
    try:
        for measurement in step.execute(context):
            measurements[key_of(measurement)] = measurement
    except RemoteError as error:
        return measurements, str(error)
    except ParseError as error:
        return measurements, f"unreadable output: {error}"
    return measurements, None


def _tidy(context: BenchContext) -> None:
    """Remove helper files from the nodes that still answer."""
    nodes = [node.name for node in context.session.rack.nodes]
    if STOPPING.is_set():
        context.session.fleet.each(nodes, lambda connection: connection.clean_up(f"rm -rf {context.folder}"))
    else:
        context.session.fleet.run(dict.fromkeys(nodes, f"rm -rf {context.folder}"), 20)
