"""Verdicts of the judge, one per check or criterion and subject."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackproof.core.status import Outcome, Status, outcome_of

RUN: Final = "run."
"""Prefix of verdicts on the run itself; every part of a certificate has them."""
LOAD: Final = "load."
"""Prefix of checks on what a step of a benchmark did to the nodes."""
BENCH: Final = "bench."
"""Prefix of checks on what measures."""
EVIDENCE: Final = f"{RUN}evidence"
"""INVALID where the evidence is not whole: nothing is proven then, neither good nor bad."""

SCHEMA: Literal["rackproof.verdicts/v1"] = "rackproof.verdicts/v1"


class Verdict(BaseModel):
    """Result for one check or criterion on one subject, with everything needed to verify it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Id of the criterion or check, with ``[item]`` where one of them has several verdicts on a subject."""
    kind: Literal["check", "criterion"]
    title: str
    subject: str
    """``gpu-01``, ``gpu-01/gpu3``, ``gpu-01|gpu-02`` or ``rack``."""
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
    """What the value is a share of, or what its link carries at most, in ``ceiling_unit``."""
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
    """sha256 names of the outputs that it is based on."""
    records: tuple[int, ...] = ()
    """``seq`` of the evidence records that it is based on; empty where evidence was not read from records."""
    simulated: bool = False
    level: str | None = None
    """The highest level of the bar that was reached; None where the bar has no levels or none was reached."""
    blame: str | None = None
    """Of a failing pair: the node at fault, or that it is undetermined. See ``judging.attribution``."""
    claim: tuple[str, ...] = ()
    """Ids of the published claims that it checks."""
    published: str | None = None
    """The bar before the site changed it."""
    changed: str | None = None
    """Why the site changed it, and who."""

    def model_post_init(self, _context: Any) -> None:
        # One set for all of them: with one each, 100,000 verdicts would take 200 MB more.
        object.__setattr__(self, "__pydantic_fields_set__", _ALL_FIELDS)


_ALL_FIELDS = set(Verdict.model_fields)
_DEFAULTS = {name: None if field.is_required() else field.default for name, field in Verdict.model_fields.items()}


def template(**fields: Any) -> dict[str, Any]:
    """Default of every field of a verdict, updated with ``fields``; for ``trusted``."""
    return {**_DEFAULTS, **fields}


def trusted(fields: dict[str, Any]) -> Verdict:
    """A verdict of complete ``fields``, without validation; it takes ownership of ``fields``.

    A large judgement makes 100,000 of them and would spend an eighth of its time on validating its own numbers.
    """
    made = Verdict.__new__(Verdict)
    assign = object.__setattr__
    assign(made, "__dict__", fields)
    assign(made, "__pydantic_fields_set__", _ALL_FIELDS)
    assign(made, "__pydantic_extra__", None)
    assign(made, "__pydantic_private__", None)
    return made


def amended(verdict: Verdict, **fields: Any) -> Verdict:
    """The same verdict with other values in some fields; they are not validated."""
    copied = verdict.model_copy(update=fields)
    object.__setattr__(copied, "__pydantic_fields_set__", _ALL_FIELDS)  # a copy has a set of its own again
    return copied


def outcome_for(verdicts: Collection[Verdict]) -> Outcome:
    """The outcome that verdicts earn. Evidence that is not whole makes the run INCOMPLETE, whatever else it says."""
    if any(verdict.id == EVIDENCE and verdict.status is Status.INVALID for verdict in verdicts):
        return Outcome.INCOMPLETE
    return outcome_of(verdict.status for verdict in verdicts if verdict.required)


class Judgement(BaseModel):
    """All verdicts of a run, sorted by (kind, id, subject)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    schema_: Literal["rackproof.verdicts/v1"] = Field(default=SCHEMA, alias="schema")
    architecture: str
    architecture_version: str
    outcome: Outcome
    verdicts: tuple[Verdict, ...]

    def restricted_to(self, kind: Literal["check", "criterion"]) -> Judgement:
        """Verdicts of one kind and those on the run, with their outcome: PASSED at best, since a part is no whole."""
        always = (RUN, *((LOAD, BENCH) if kind == "criterion" else ()))
        verdicts = tuple(verdict for verdict in self.verdicts if verdict.kind == kind or verdict.id.startswith(always))
        outcome = outcome_for(verdicts)
        part = Outcome.PASSED if outcome is Outcome.CERTIFIED else outcome
        return self.model_copy(update={"verdicts": verdicts, "outcome": part})

    def with_verdict(self, verdict: Verdict) -> Judgement:
        """The judgement with one more verdict, instead of one of the same id and subject, and the new outcome."""
        others = (v for v in self.verdicts if (v.id, v.subject) != (verdict.id, verdict.subject))
        verdicts = tuple(sorted((*others, verdict), key=lambda v: (v.kind, v.id, v.subject)))
        outcome = outcome_for(verdicts)
        part = self.outcome is Outcome.PASSED and outcome is Outcome.CERTIFIED
        return self.model_copy(update={"verdicts": verdicts, "outcome": self.outcome if part else outcome})
