"""Verdicts: what the judge says, one for each check and criterion and each subject in its scope."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from rackproof.core.status import Outcome, Status

SCHEMA = "rackproof.verdicts/v1"


class Verdict(BaseModel):
    """Everything a reader needs to accept or dispute it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Criterion id, or ``check id[item]``."""
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
    measured: float | None = None
    """The underlying number, in ``measured_unit``, when ``value`` is a share of something."""
    measured_unit: str | None = None
    distance_pct: float | None = None
    """How far value is from the bar in percent of the bar; positive is on the good side."""
    samples: tuple[float, ...] = ()
    cv_pct: float | None = None
    statistic: str | None = None
    source: str | None = None
    reason: str | None = None
    """Why this bar (criterion) or what it protects (check)."""
    hint: str = ""
    raw: tuple[str, ...] = ()
    simulated: bool = False


class Judgement(BaseModel):
    """All verdicts of a run, sorted by (kind, id, subject)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["rackproof.verdicts/v1"] = SCHEMA  # type: ignore[assignment]
    architecture: str
    architecture_version: str
    outcome: Outcome
    verdicts: tuple[Verdict, ...]
