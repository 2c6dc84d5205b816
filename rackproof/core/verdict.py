"""Verdicts: what the judge says, one for each check and criterion and each subject in its scope."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackproof.core.status import Outcome, Status, outcome_of

SCHEMA: Literal["rackproof.verdicts/v1"] = "rackproof.verdicts/v1"


class Verdict(BaseModel):
    """Everything a reader needs to accept or dispute it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Id of the criterion or check, with ``[item]`` where one of them has several verdicts on a subject."""
    kind: Literal["check", "criterion"]
    title: str
    subject: str
    """``gpu-01``, ``gpu-01|gpu-02`` or ``rack``."""
    status: Status
    required: bool
    message: str
    """One line: ``expected … actual …``, or why there is no number."""
    metric: str | None = None
    labels: dict[str, str] = {}
    value: float | None = None
    unit: str | None = None
    """Of value and bar."""
    bar: str | None = None
    """As shown: ``≥ 60 %``."""
    bar_value: float | None = None
    ceiling: float | None = None
    """What the value is a share of, in ``ceiling_unit``, when the bar is a share."""
    ceiling_unit: str | None = None
    ceiling_of: str | None = None
    """What the ceiling is: ``link.tcp_bandwidth[rail=0]``."""
    measured: float | None = None
    """The underlying number, in ``measured_unit``, when ``value`` is a share of something."""
    measured_unit: str | None = None
    distance_pct: float | None = None
    """How far value is from the bar in percent of the bar; positive is on the good side."""
    samples: tuple[float, ...] = ()
    """In ``measured_unit``, or in ``unit`` where that is None; for reduced members the number of each."""
    cv_pct: float | None = None
    statistic: str | None = None
    source: str | None = None
    reason: str | None = None
    """Why this bar (criterion) or what it protects (check)."""
    hint: str = ""
    raw: tuple[str, ...] = ()
    simulated: bool = False

    def model_post_init(self, _context: Any) -> None:
        # One set for all of them: with one each, 100,000 verdicts would take 200 MB more.
        object.__setattr__(self, "__pydantic_fields_set__", _ALL_FIELDS)


_ALL_FIELDS = set(Verdict.model_fields)


class Judgement(BaseModel):
    """All verdicts of a run, sorted by (kind, id, subject)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    schema_: Literal["rackproof.verdicts/v1"] = Field(default=SCHEMA, alias="schema")
    architecture: str
    architecture_version: str
    outcome: Outcome
    verdicts: tuple[Verdict, ...]

    def restricted_to(self, kind: Literal["check", "criterion"]) -> Judgement:
        """The verdicts of one kind, and what they alone amount to."""
        verdicts = tuple(verdict for verdict in self.verdicts if verdict.kind == kind)
        outcome = outcome_of(verdict.status for verdict in verdicts if verdict.required)
        return self.model_copy(update={"verdicts": verdicts, "outcome": outcome})
