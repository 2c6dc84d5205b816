"""Run benchmark steps in order, and record every expected number, or why it is missing.

Steps on starved machines are repeated, up to ``ATTEMPTS`` attempts in all, after a wait for the load to end. All
attempts are recorded; ``core.history`` decides which number counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from rackproof.bench.firewall import SWEEP
from rackproof.bench.guard import Guard
from rackproof.bench.programs import check_programs
from rackproof.bench.step import BenchContext, Step, unmeasured
from rackproof.bench.throttles.held import Throttles
from rackproof.bench.user import TIDY
from rackproof.bench.waiting import wait_for_processors
from rackproof.core.evidence import Kind, Measurement, Quantity
from rackproof.core.wording import some
from rackproof.errors import RemoteError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.remote.interrupt import STOPPING

ATTEMPTS: Final = 3
_SHOWN: Final = 3


def run_steps(
    session: Session,
    steps: Sequence[Step],
    done: Collection[str],
    say: Callable[[str], None],
    progress: Callable[[Step, int], None] = lambda step, index: None,
    starved: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Execute the steps that are not in ``done``, and repeat those that ``starved`` returns with their causes, if one
    of their nodes still answers.

    All expected measurements, with samples or a reason, and the results about all nodes are recorded before the step.
    Errors of a node do not end the stage; a full disk on the controller does.
    """
    with ExitStack() as stack:
        context = BenchContext(session, say)
        stack.callback(_tidy, context)
        stack.push(context.stage)
        guard = Guard(session)
        stack.callback(Throttles.of(context).end)
        todo = [step for step in steps if step.id not in done]
        if todo:
            Throttles.of(context).begin()
            for fault in check_programs(context, todo):
                say(fault)
            guard.observe()
        for attempt in range(1, ATTEMPTS + 1):
            for step in todo:
                progress(step, steps.index(step))
                _execute(context, guard, step)
            causes = starved() if attempt < ATTEMPTS else {}
            answering = set(session.answering)
            todo = [step for step in steps if step.id in causes and answering & step.nodes]
            if not todo:
                break
            for cause in dict.fromkeys(causes.values()):
                names = some([step.id for step in todo if causes[step.id] == cause], _SHOWN)
                say(f"{cause}; attempt {attempt + 1} of {ATTEMPTS} at {names}")
            wait_for_processors(session, [name for name in guard.nodes if name in answering], say)
            guard.observe()
            for fault in guard.record(todo[0].id):  # changes during the wait
                say(fault)


def _execute(context: BenchContext, guard: Guard, step: Step) -> None:
    """Execute and record one attempt at a step."""
    session, say = context.session, context.say
    began = time.monotonic()
    session.step = step.id
    throttles = Throttles.of(context)
    why = throttles.bring_about(step.port_gbps)
    measurements, reason = ({}, why) if why else _attempt(context, step)
    if measurements and (why := throttles.read()):
        measurements, reason = {}, why
    guard.observe()
    missing: list[str] = []
    for place in step.expects:
        measurement = measurements.get(place.quantity) or unmeasured(
            place, reason or "the step returned no number for it"
        )
        if not measurement.samples:
            missing.append(measurement.reason or "no reason")
        session.measured(throttles.beside(guard.beside(measurement)))
    planned = {place.quantity for place in step.expects}
    for measurement in (m for k, m in measurements.items() if k not in planned):  # e.g. a sum over fewer nodes
        session.measured(throttles.beside(guard.beside(measurement)))
    faults = guard.record(step.id)
    status = "done" if not missing else "failed" if len(missing) == len(step.expects) else "partial"
    elapsed_s = round(time.monotonic() - began, 3)
    body = {"step": step.id, "status": status, "elapsed_s": elapsed_s, "digest": step.digest}
    session.store.append(Kind.STEP, body | ({"reason": reason} if reason else {}))
    if missing:
        context.stage.close()
        session.find_lost()
    session.step = None
    for fault in faults:
        say(fault)
    if missing:
        reasons = some(list(dict.fromkeys([reason] if reason else missing)), _SHOWN, "; ")
        say(f"{step.title}: {len(missing)} of {len(step.expects)} numbers missing ({reasons})")


def _attempt(context: BenchContext, step: Step) -> tuple[dict[Quantity, Measurement], str | None]:
    measurements: dict[Quantity, Measurement] = {}
    try:
        with ExitStack() as context.stack:
            for measurement in step.execute(context):
                measurements[measurement.quantity] = measurement
    except RemoteError as error:
        return measurements, str(error)
    except ParseError as error:
        return measurements, f"unreadable output: {error}"
    return measurements, None


def _tidy(context: BenchContext) -> None:
    """Remove the kit's files from nodes that still answer."""
    nodes = [node.name for node in context.session.rack.nodes]
    command = f"{TIDY}; {SWEEP}"
    if STOPPING.is_set():
        context.session.fleet.each(
            nodes, lambda connection: connection.clean_up(command), "the removal of helper files"
        )
    else:
        context.session.fleet.run(dict.fromkeys(nodes, command), 20)
