"""Verdicts of the judge, one per check or criterion and subject."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackproof.core.status import Outcome, Status, outcome_of

RUN: Final = "run."
"""Prefix of verdicts on the run; runs of one stage have them as well."""
LOAD: Final = "load."
"""Prefix of checks on nodes during a step of a benchmark."""
BENCH: Final = "bench."
"""Prefix of checks on measuring programs."""
SERVER: Final = "mount.server"
"""A file server that does not answer its clients."""
EVIDENCE: Final = f"{RUN}evidence"
"""INVALID if the evidence is not intact: then it proves nothing."""

SCHEMA: Literal["rackproof.verdicts/v2"] = "rackproof.verdicts/v2"


class Verdict(BaseModel):
    """Result of one check or criterion for one subject, with all data to verify it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Id of the criterion or check, with ``[item]`` if it has several verdicts on a subject."""
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
    """Unit of value and bar."""
    bar: str | None = None
    """Text of the bar: ``≥ 60 %``."""
    bar_value: float | None = None
    ceiling: float | None = None
    """Reference of a share, or maximum of the link, in ``ceiling_unit``."""
    ceiling_unit: str | None = None
    ceiling_of: str | None = None
    """Name of the ceiling: ``link.tcp_bandwidth[rail=0]``."""
    measured: float | None = None
    """The underlying number in ``measured_unit``, if ``value`` is a share."""
    measured_unit: str | None = None
    distance_pct: float | None = None
    """Distance of value and bar in percent of the bar; positive if passed."""
    samples: tuple[float, ...] = ()
    """In ``measured_unit``, or ``unit`` if that is None; one number per member for reduced values."""
    cv_pct: float | None = None
    statistic: str | None = None
    source: str | None = None
    reason: str | None = None
    """Why this bar (criterion) or what it protects (check)."""
    hint: str = ""
    raw: tuple[str, ...] = ()
    """sha256 names of its outputs."""
    records: tuple[int, ...] = ()
    """``seq`` of its evidence records; empty for evidence that was not read from records."""
    simulated: bool = False
    level: str | None = None
    """Highest reached level of the bar; None without levels, or if none was reached."""
    blame: str | None = None
    """Faulty node of a failing pair, or that it is undetermined. See ``judging.attribution``."""
    claim: tuple[str, ...] = ()
    """Ids of the published claims that it checks."""
    published: str | None = None
    """The bar before the site changed it."""
    changed: str | None = None
    """Reason and author of the site's change."""

    def model_post_init(self, _context: Any) -> None:
        # One shared set: separate ones would take 200 MB for 100,000 verdicts.
        object.__setattr__(self, "__pydantic_fields_set__", _ALL_FIELDS)


def with_item(name: str, item: str) -> str:
    """``base.sysctl[vm.swappiness]``; the name alone without an item."""
    return f"{name}[{item}]" if item else name


def name_of(id_: str) -> str:
    """``base.sysctl`` of ``base.sysctl[vm.swappiness]``."""
    return id_.partition("[")[0]


def item_of(id_: str) -> str:
    """``vm.swappiness`` of ``base.sysctl[vm.swappiness]``; empty without an item."""
    return id_.partition("[")[2].removesuffix("]")


def required_verdict(
    id_: str, title: str, subject: str, status: Status, message: str, reason: str, hint: str, **fields: Any
) -> Verdict:
    """A verdict that no validator or criterion gives: about the run, the rack, or a missing result.

    ``fields`` are further ones; a required check unless they say otherwise.
    """
    about = {"id": id_, "title": title, "subject": subject, "reason": reason, "hint": hint}
    return Verdict(**{"kind": "check", "required": True, **about, **fields}, status=status, message=message)


_ALL_FIELDS = set(Verdict.model_fields)
_DEFAULTS = {name: None if field.is_required() else field.default for name, field in Verdict.model_fields.items()}


def template(**fields: Any) -> dict[str, Any]:
    """Default of every field of a verdict, updated with ``fields``; for ``trusted``."""
    return {**_DEFAULTS, **fields}


def trusted(fields: dict[str, Any]) -> Verdict:
    """A verdict of complete ``fields``, without validation; it takes ownership of ``fields``.

    Validation would take an eighth of the time of a judgement with 100,000 verdicts.
    """
    made = Verdict.__new__(Verdict)
    assign = object.__setattr__
    assign(made, "__dict__", fields)
    assign(made, "__pydantic_fields_set__", _ALL_FIELDS)
    assign(made, "__pydantic_extra__", None)
    assign(made, "__pydantic_private__", None)
    return made


def amended(verdict: Verdict, **fields: Any) -> Verdict:
    """A copy of the verdict with changed fields, which are not validated."""
    copied = verdict.model_copy(update=fields)
    object.__setattr__(copied, "__pydantic_fields_set__", _ALL_FIELDS)  # copies have their own set
    return copied


def outcome_for(verdicts: Collection[Verdict]) -> Outcome:
    """Outcome of verdicts. Evidence that is not intact makes the run INCOMPLETE."""
    if any(verdict.id == EVIDENCE and verdict.status is Status.INVALID for verdict in verdicts):
        return Outcome.INCOMPLETE
    return outcome_of(verdict.status for verdict in verdicts if verdict.required)


class Judgement(BaseModel):
    """All verdicts of a run, sorted by (kind, id, subject)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    schema_: Literal["rackproof.verdicts/v2"] = Field(default=SCHEMA, alias="schema")
    architecture: str
    architecture_version: str
    outcome: Outcome
    verdicts: tuple[Verdict, ...]

    def restricted_to(self, kind: Literal["check", "criterion"]) -> Judgement:
        """Verdicts of one kind and those on the run, with their outcome: PASSED at best, never CERTIFIED."""
        always = (RUN, *((LOAD, BENCH) if kind == "criterion" else ()))
        verdicts = tuple(verdict for verdict in self.verdicts if verdict.kind == kind or verdict.id.startswith(always))
        outcome = outcome_for(verdicts)
        part = Outcome.PASSED if outcome is Outcome.CERTIFIED else outcome
        return self.model_copy(update={"verdicts": verdicts, "outcome": part})

    def with_verdict(self, verdict: Verdict) -> Judgement:
        """The judgement with another verdict, which replaces one of the same id and subject, and its outcome."""
        kept = (v for v in self.verdicts if (v.id, v.subject) != (verdict.id, verdict.subject))
        verdicts = tuple(sorted((*kept, verdict), key=lambda v: (v.kind, v.id, v.subject)))
        outcome = outcome_for(verdicts)
        part = self.outcome is Outcome.PASSED and outcome is Outcome.CERTIFIED
        return self.model_copy(update={"verdicts": verdicts, "outcome": self.outcome if part else outcome})
