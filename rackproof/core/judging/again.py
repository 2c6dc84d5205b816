"""Steps of benchmarks to repeat, because their numbers cannot be judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Kind, Record
from rackproof.core.judging.judge import judge_records
from rackproof.core.starvation import starved
from rackproof.core.status import Status


def starved_steps(architecture: Architecture, records: Sequence[Record]) -> dict[str, str]:
    """The starved machine, by step to repeat.

    A step is repeated if a required verdict needs one of its numbers, and the number is from a starved machine, or
    missing there, and fails, scatters too much or contradicts itself. Passing numbers are not repeated. Raises RunError
    like ``judge_records``.
    """
    causes = {
        record.seq: (str(record.body["step"]), cause, bool(record.body["samples"]))
        for record in records
        if record.kind is Kind.MEASUREMENT and (cause := starved(record.body["conditions"]))
    }
    if not causes:
        return {}
    steps: dict[str, str] = {}
    for verdict in judge_records(architecture, records).verdicts:
        for seq in verdict.records if verdict.required else ():
            if seq in causes:
                step, cause, measured = causes[seq]
                if verdict.status is (Status.INVALID if measured else Status.UNMEASURED):
                    steps.setdefault(step, cause)
    return steps


def invalid_steps(architecture: Architecture, records: Sequence[Record]) -> frozenset[str]:
    """Steps with numbers that a required verdict calls INVALID: a resumed run measures them again.

    Raises RunError like ``judge_records``.
    """
    steps = {
        record.seq: str(record.body["step"])
        for record in records
        if record.kind is Kind.MEASUREMENT and record.body["samples"]
    }
    verdicts = judge_records(architecture, records).verdicts if steps else ()
    invalid = (verdict for verdict in verdicts if verdict.required and verdict.status is Status.INVALID)
    return frozenset(steps[seq] for verdict in invalid for seq in verdict.records if seq in steps)
