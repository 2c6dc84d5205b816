"""Compare recorded steps and measurements with the plan of the run, made again from its architecture and inventory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rackproof.bench.step import Step
from rackproof.core.course import BENCH
from rackproof.core.evidence import Kind, Measurement, Quantity, Record


def unlike_plan(records: Sequence[Record], steps: Iterable[Step], gaps: Iterable[str]) -> dict[int, str]:
    """Why records of benchmarks contradict the plan, by ``seq``.

    The last attempt at a step has the digest of the plan, and each attempt with that digest has all measurements of the
    plan, once; a further measurement is of the same quantity over fewer members. A run that ended without an interrupt
    has all steps, and notes with the ``gaps`` of the plan.
    """
    faults: dict[int, str] = {}
    planned = {step.id: step for step in steps}
    attempt: dict[Quantity, Record] = {}
    done: set[str] = set()
    notes: set[str] = set()
    others: dict[str, Record] = {}
    """Steps whose last attempt had other parameters than the plan, with the attempt's record."""
    for record in records:
        body = record.body
        match record.kind:
            case Kind.NOTE:
                notes.add(body["text"])
            case Kind.STAGE:
                attempt = {}
            case Kind.MEASUREMENT:
                key = Measurement.model_validate(body).quantity
                if key in attempt:
                    faults[record.seq] = f"recorded twice in one attempt at {body['step']}"
                attempt[key] = record
            case Kind.STEP:
                done.add(body["step"])
                step = planned.get(body["step"])
                others.pop(body["step"], None)
                if step is None:
                    faults[record.seq] = f"the plan has no step {body['step']}"
                elif body["digest"] != step.digest:
                    others[step.id] = record
                else:
                    faults |= dict(_unlike(step, record, attempt))
                attempt = {}
            case Kind.END if BENCH in body["stages"] and not body["interrupted"]:
                if missing := [step for step in planned if step not in done]:
                    faults[record.seq] = f"recorded as not interrupted, step {missing[0]} never ran"
                elif silent := [gap for gap in gaps if gap not in notes]:
                    faults[record.seq] = f"no note says: {silent[0]}"
    for name, record in others.items():
        recorded, digest = record.body["digest"], planned[name].digest
        faults[record.seq] = f"recorded with parameters {recorded[:12]}, the plan has {digest[:12]}"
    return faults


def _unlike(step: Step, record: Record, attempt: dict[Quantity, Record]) -> Iterator[tuple[int, str]]:
    """Faults of one attempt at a step."""
    expects = {place.quantity: place for place in step.expects}
    if missing := [place for key, place in expects.items() if key not in attempt]:
        yield record.seq, f"it lacks {len(missing)} of its measurements, the first: {missing[0].metric}"
    for key, measurement in attempt.items():
        metric, scope, members, labels = key
        if key not in expects and not any(
            (other[0], other[1], other[3]) == (metric, scope, labels) and set(members) < set(other[2])
            for other in expects
        ):
            yield measurement.seq, f"the plan of {step.id} has no such measurement"
