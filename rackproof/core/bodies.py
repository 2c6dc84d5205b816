"""Validation of record bodies against the model of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from rackproof.core.evidence import (
    PROOFS,
    SCHEMA,
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
    """End of a stage."""

    elapsed_s: float
    ok: bool


class StepBody(Frozen):
    """End of a benchmark step."""

    step: str
    status: Literal["done", "failed", "partial"]
    elapsed_s: float
    reason: str | None = None
    digest: str
    """sha256 of the step's parameters."""


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


_PARTIAL: Final = frozenset({Kind.STAGE, Kind.STEP})
"""Kinds whose bodies lack what does not apply: ``elapsed_s`` where a stage begins, ``reason`` of a finished step."""


def fault(record: Record) -> str | None:
    """Why the body is not one that the kit writes for the record's kind, in one line; None where it is.

    Nothing is filled in: a body that lacks a field is invalid although its model has a default.
    """
    model = MODELS[record.kind]
    if record.kind is Kind.STAGE and record.body.get("event") == "end":
        model = StageEnd
    what = f"record {record.seq} is not a valid {record.kind.value}"
    try:
        body = model.model_validate(record.body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{what}: {_plain('.'.join(map(str, first['loc']))) or 'the body'}: {first['msg']}"
    written = body.model_dump(mode="json", by_alias=True, exclude_unset=record.kind in _PARTIAL)
    if written != record.body:
        return f"{what}: {_plain(_other(written, record.body))}"
    return None


def other_format(body: Mapping[str, Any]) -> str | None:
    """Why the first record of a run is not of the format that this kit reads; None where it is."""
    schema, proofs = body.get("schema"), body.get("proofs")
    if schema != SCHEMA:
        return f"its format is {_plain(str(schema)[:40])}, this kit reads {SCHEMA}"
    recorded = [str(name)[:40] for name in proofs] if isinstance(proofs, list) else []
    if missing := [name for name in PROOFS if name not in recorded]:
        return f"it lacks the proofs {', '.join(missing)}"
    if recorded != list(PROOFS):
        return f"this kit does not know its proofs {_plain(', '.join(n for n in recorded if n not in PROOFS))}"
    return None


def _other(written: Any, body: Any, where: str = "") -> str:
    """The first place at which a body is not what its model writes."""
    if isinstance(written, dict) and isinstance(body, dict):
        for key in written:
            if key not in body:
                return f"{where}{key}: Field required"
            if written[key] != body[key]:
                return _other(written[key], body[key], f"{where}{key}.")
    if isinstance(written, list) and isinstance(body, list):
        for index, (one, other) in enumerate(zip(written, body, strict=False)):
            if one != other:
                return _other(one, other, f"{where}{index}.")
    return f"{where.rstrip('.')}: not as the kit writes it"


def _plain(text: str) -> str:
    """In one line of ASCII: a key or a name in a file may be anything."""
    return ascii(text)[1:-1]
