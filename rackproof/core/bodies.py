"""Validation of record bodies against the model of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ValidationError

from rackproof.core.evidence import (
    CheckResult,
    CommandRecord,
    DeployRecord,
    End,
    Event,
    Frozen,
    Kind,
    Measurement,
    NodeIdentity,
    Record,
    RunInfo,
)
from rackproof.core.planned_checks import PlannedChecks


class StageBody(Frozen):
    """A stage of a run begins, or ends after ``elapsed_s`` seconds."""

    stage: str
    event: Literal["begin", "end"]
    elapsed_s: float | None = None
    ok: bool = True


class StageEnd(StageBody):
    """End of a stage; its duration is required."""

    elapsed_s: float


class StepBody(Frozen):
    """End of a benchmark step."""

    step: str
    status: Literal["done", "failed", "partial"]
    elapsed_s: float
    reason: str | None = None
    digest: str = ""
    """sha256 of the step's parameters; empty for older kits."""


class NoteBody(Frozen):
    text: str


MODELS: Mapping[Kind, type[BaseModel]] = {
    Kind.RUN: RunInfo,
    Kind.STAGE: StageBody,
    Kind.COMMAND: CommandRecord,
    Kind.CHECK: CheckResult,
    Kind.MEASUREMENT: Measurement,
    Kind.STEP: StepBody,
    Kind.DEPLOY: DeployRecord,
    Kind.NOTE: NoteBody,
    Kind.IDENTITY: NodeIdentity,
    Kind.EVENT: Event,
    Kind.END: End,
    Kind.PLANNED: PlannedChecks,
}


def fault(record: Record) -> str | None:
    """Why the body is invalid for the record's kind, in one line; None: valid."""
    model = MODELS[record.kind]
    if record.kind is Kind.STAGE and record.body.get("event") == "end":
        model = StageEnd
    try:
        model.model_validate(record.body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ascii(".".join(str(part) for part in first["loc"]))[1:-1]  # a key may be anything
        return f"record {record.seq} is not a valid {record.kind.value}: {where or 'the body'}: {first['msg']}"
    return None
