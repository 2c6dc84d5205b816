"""Result of a comparison of two runs: numbers, verdicts, exit status. See ``compare``."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from rackproof.core.evidence import Frozen, Measurement, Scope, subject_of
from rackproof.core.noise import Noise
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK

SCHEMA: Literal["rackproof.comparison/v1"] = "rackproof.comparison/v1"
_ROUNDING = 1e-9
"""Relative tolerance of the noise limit for unit conversions."""


class Change(StrEnum):
    """Change from run A to run B."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    """Both runs have a number, and the two differ by no more than noise."""
    ONLY_A = "only in A"
    ONLY_B = "only in B"
    NOT_COMPARABLE = "not comparable"
    LOST = "lost"
    """The verdict is INVALID or UNMEASURED in B, but not in A."""
    FOUND = "found"
    """The verdict is INVALID or UNMEASURED in A, but not in B."""


class Moved(Frozen):
    """A value of both runs. Values, changes and noise are in ``unit``."""

    required: bool
    change: Change
    unit: str
    before: float | None = None
    after: float | None = None
    change_pct: float | None = None
    """Percent of ``before``, positive where the number has grown; None where ``before`` is 0."""
    gain_pct: float | None = None
    """The same, positive where it has become better."""
    noise_pct: float | None = None
    """Largest difference that counts as noise, in percent of ``before``."""
    samples: tuple[int, int] = (0, 0)
    remark: str = ""
    """Why it cannot be compared, or why its noise is not known."""


def moved(grown: float, gain: float, old: float, noise: Noise) -> dict[str, Any]:
    """Fields of a ``Moved`` that has grown by ``grown`` from ``old``, and became better by ``gain``."""
    change = Change.SAME
    if abs(gain) > noise.width * (1 + _ROUNDING):
        change = Change.BETTER if gain > 0 else Change.WORSE
    return {
        "change": change,
        "change_pct": _percent(grown, old),
        "gain_pct": _percent(gain, old),
        "noise_pct": _percent(noise.width, old),
        "remark": noise.remark,
    }


def not_comparable(remark: str) -> dict[str, Any]:
    """Fields of a ``Moved``."""
    return {"change": Change.NOT_COMPARABLE, "remark": remark}


def simulated_once(old: Measurement | Verdict, new: Measurement | Verdict) -> str:
    """Why a simulated value is not compared with a real one; empty where both are of one kind."""
    return "" if old.simulated == new.simulated else f"simulated in {'A' if old.simulated else 'B'} only"


def _percent(part: float, whole: float) -> float | None:
    """Rounded, so that no 10.000000000000002 % is shown."""
    if part == 0:
        return 0.0
    return round(100 * part / abs(whole), 9) if whole else None


class NumberChange(Moved):
    """One number of both runs; ``required``: one of ``criteria`` is. The unit is the metric's own where it is known."""

    metric: str
    scope: Scope
    members: tuple[str, ...]
    labels: dict[str, str]
    criteria: tuple[str, ...]
    """Ids of the criteria, curves and outliers that use it, including derived ones."""
    otherwise: tuple[str, ...] = ()
    """Conditions that differ: ``workload.runtime_s: 5, then 60``."""

    @property
    def subject(self) -> str:
        return subject_of(self.scope, self.members)


class ValueChange(Moved):
    """Value of one verdict in both runs, where it is derived from several numbers (see ``derived``).

    An outlier's is in percent of the median of its peers. ``samples`` are of the value itself; none where only its
    parts have some.
    """

    id: str
    """Id of the verdict, with ``[item]``."""
    subject: str


class VerdictChange(Frozen):
    """One verdict of both runs."""

    kind: Literal["check", "criterion"]
    id: str
    subject: str
    title: str
    required: bool
    change: Change
    before: Status | None
    after: Status | None
    message: str
    """Message in B, or in A where B has none."""

    @property
    def is_regression(self) -> bool:
        """Got worse, or fails now and was not measured before."""
        return self.change is Change.WORSE or (self.change is Change.FOUND and self.after is Status.FAIL)

    @property
    def is_new_trouble(self) -> bool:
        """Not passed, on a node or check that A does not have."""
        return self.change is Change.ONLY_B and self.after not in (Status.PASS, Status.WARN)


class Comparison(Frozen):
    """Sorted; the same evidence gives the same comparison."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    schema_: Literal["rackproof.comparison/v1"] = Field(default=SCHEMA, alias="schema")
    before: str
    after: str
    architecture: str
    """Id of the architecture against which both were judged."""
    threshold_pct: float | None
    """As requested; None: the two thresholds of ``noise``."""
    differences: tuple[str, ...]
    """Differences between inventory, architecture, profile, kit and nodes of the runs."""
    nodes_gone: tuple[str, ...]
    nodes_new: tuple[str, ...]
    numbers: tuple[NumberChange, ...]
    verdicts: tuple[VerdictChange, ...]
    values: tuple[ValueChange, ...] = ()
    """Changes of criteria, curves and outliers with derived values."""
    warnings: tuple[str, ...] = ()
    """About the evidence itself."""

    @property
    def items(self) -> tuple[NumberChange | ValueChange | VerdictChange, ...]:
        return (*self.numbers, *self.values, *self.verdicts)

    @property
    def regressions(self) -> tuple[NumberChange | ValueChange | VerdictChange, ...]:
        """Worse numbers and values, and required verdicts that regressed."""
        every: tuple[NumberChange | ValueChange, ...] = (*self.numbers, *self.values)
        numbers = (number for number in every if number.change is Change.WORSE)
        return (*numbers, *(verdict for verdict in self.verdicts if verdict.required and verdict.is_regression))

    @property
    def unanswered(self) -> tuple[NumberChange | ValueChange | VerdictChange, ...]:
        """Required items that cannot be compared, and new verdicts in B that do not pass."""
        without = (Change.ONLY_A, Change.NOT_COMPARABLE, Change.LOST)
        return tuple(
            item
            for item in self.items
            if item.required and (item.change in without or (isinstance(item, VerdictChange) and item.is_new_trouble))
        )

    @property
    def exit_status(self) -> int:
        """1 a regression; 2 something required cannot be compared, or nothing was compared at all; else 0."""
        if self.regressions:
            return EXIT_FAILED
        compared = any(item.change in (Change.SAME, Change.BETTER) for item in self.items)
        return EXIT_OK if compared and not self.unanswered else EXIT_INCOMPLETE
