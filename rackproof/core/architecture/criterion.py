"""Numbers that must be reached: bars, what they are a share of, and how samples and members become one number."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from rackproof.core.architecture.base import Claims, Identifier, LabelValue, Model, Sentence
from rackproof.core.evidence import Scope


class Statistic(StrEnum):
    """How the samples of one measurement become one number.

    A percentile is the smallest sample that at least so many percent do not exceed (nearest rank). It needs enough
    samples to lie inside them: 100 for p1 and p99, 20 for p5 and p95, 10 for p10 and p90.
    """

    MEDIAN = "median"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    P1 = "p1"
    P5 = "p5"
    P10 = "p10"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"


class Reduce(StrEnum):
    """How the members of a criterion become subjects of a verdict."""

    EACH = "each"
    """One verdict a member: every node or every pair must reach the bar."""
    MIN = "min"
    MAX = "max"
    MEDIAN = "median"
    SUM = "sum"
    MIN_OVER_MEDIAN = "min_over_median"
    """Fairness between members, a ratio; needs at least two of them."""
    MAX_OVER_MEDIAN = "max_over_median"
    SPREAD_OVER_MEDIAN = "spread_over_median"
    """(max - min) / median: how far members that should be equal are apart, a ratio."""


class Severity(StrEnum):
    REQUIRED = "required"
    ADVISORY = "advisory"


class Gate(StrEnum):
    """What a measurement must prove about itself; one that does not is INVALID."""

    LITTLES_LAW = "littles_law"
    """|rate × latency / (jobs × depth) - 1| ≤ 5 %: the load was as declared."""
    BYTE_COUNTERS = "byte_counters"
    """What the application read agrees with a counter of the kernel or the device within 3 %."""
    DATASET_SIZE = "dataset_size"
    """The data set is at least 5 times the clients' memory, or no byte was read twice."""
    COLD_CACHE = "cold_cache"
    """Less than 1 % of the data set was cached when the measurement began."""


Condition = StrictBool | int | float | str | tuple[str | int | float, ...]
Conditions = dict[str, Condition]


class Reference(Model):
    """Another measured quantity that a bar is a share of.

    With ``reduce: each`` it is looked up for the same member; otherwise its members become one number.
    """

    metric: str
    where: dict[str, LabelValue] = Field(default_factory=dict)
    scope: Scope
    statistic: Statistic = Statistic.MEDIAN
    reduce: Reduce = Reduce.MEDIAN
    conditions: Conditions = Field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    """As in a criterion: a share of a number that was measured otherwise is INVALID too."""
    warmup: int | None = Field(default=None, ge=0)
    """None: the criterion's own."""
    min_samples: int | None = Field(default=None, ge=1)
    """None: the criterion's own."""
    max_cv_pct: float | None = Field(default=None, gt=0)
    """As in a criterion: a share of a noisy number is INVALID too."""


class LinkShare(Model):
    """A bar as a share of what a link can carry."""

    link: Identifier
    """A key of ``links``."""
    times: float = Field(default=1.0, gt=0)
    """So many of them together: 2 ports, or 32 nodes with one each."""


class Bar(Model):
    """What must be reached.

    Without ``of`` the bar is an absolute ``value`` in ``unit``. With ``of`` it is a share of another quantity:
    ``unit`` is then ``percent`` or ``ratio`` and both quantities must have the same dimension.
    """

    op: Literal["ge", "le", "eq", "range"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """``range`` uses low and high (both included), the others use value."""
    unit: str
    of: Reference | LinkShare | None = None
    warn: float | None = None
    """Reaching ``value`` but not ``warn`` is WARN; for ``ge`` and ``le`` only."""
    tolerance_pct: float = Field(default=0.0, ge=0, le=20)
    """Percent of the bar that a number may miss it by and still pass."""
    levels: dict[Identifier, float] = Field(default_factory=dict)
    """Bars of several levels, from the lowest demand to the highest, instead of ``value``: the architecture's
    ``level`` says which one must be reached, the verdict says which one was. For ``ge`` and ``le`` only."""


class Ceiling(Model):
    """What physics allows: no bar above it, and none below a hundredth of it."""

    link: Identifier
    """A key of ``links``."""
    times: float = Field(default=1.0, gt=0)
    because: Sentence | None = None
    """Why ``times`` is not a plain number of links: in-network reduction sends every byte once."""


class Quantity(Model):
    """A metric with the labels, conditions and statistic that make a number of it."""

    metric: str
    where: dict[str, LabelValue | Annotated[tuple[LabelValue, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Labels that the measurement must carry. A list asks for one verdict for each of its values."""
    scope: Scope
    conditions: Conditions = Field(default_factory=dict)
    """What must be said of how it was measured: cache state, ranks, algorithm. A number that was measured
    otherwise, or that does not say, is INVALID. A list names alternatives; ``ranks_min: 32`` a least value."""
    gates: tuple[Gate, ...] = ()
    statistic: Statistic = Statistic.MEDIAN
    warmup: int = Field(default=0, ge=0)
    """So many first samples are dropped."""
    min_samples: int = Field(default=1, ge=1)
    """Counted after the warm-up was dropped."""
    max_cv_pct: float | None = Field(default=None, gt=0)
    """Coefficient of variation over the samples above which the number is INVALID, not FAIL."""


class Alternative(Quantity):
    """One way of meeting a criterion."""

    pass_: Bar = Field(alias="pass")
    reduce: Reduce = Reduce.EACH


class Named(Model):
    """What every entry says about itself, whatever it asks."""

    id: Identifier
    title: Sentence
    severity: Severity = Severity.REQUIRED
    source: str
    reason: Sentence
    """Why this bar and not another."""
    hint: Sentence
    """What to look at when it is not reached."""
    claim: Claims = ()
    measure: Identifier | None = None
    """Recipe of ``rackproof.core.recipes`` that says how the number is obtained."""
    lab: Sentence | None = None
    """What the virtual rack can verify of it; null where it can verify nothing."""
    published: str | None = None
    """The bar as it stood before a site changed it; set by ``overrides``, never in a file."""
    changed: str | None = None
    """Why, and by whom."""


class Several(Quantity):
    """Listed label values ask for a verdict each."""

    id: Identifier

    def variants(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Verdict id and exact labels for every combination of the listed label values.

        ``where: {op: all_reduce, bytes: [1024, 4096]}`` gives ``id[1024]`` and ``id[4096]``.
        """
        listed = [key for key, value in self.where.items() if isinstance(value, tuple)]
        choices = [value if isinstance(value, tuple) else (value,) for value in self.where.values()]
        for combination in product(*choices):
            labels = dict(zip(self.where, combination, strict=True))
            item = ",".join(labels[key] for key in listed)
            yield (f"{self.id}[{item}]" if item else self.id), labels


class Criterion(Named, Several):
    """A number that must be reached."""

    members: str = "gpu"
    """The group whose nodes (or pairs of nodes) must have a verdict."""
    reduce: Reduce = Reduce.EACH
    ceiling: Ceiling | None = None
    pass_: Bar = Field(alias="pass")
    any_of: tuple[Alternative, ...] = ()
    """Further ways of meeting it; one suffices. While one of them is unmeasured nothing has failed yet."""


class Outlier(Named, Several):
    """No member may be far from its peers on the bad side.

    A member is an outlier when it is worse than the median by more than ``rel_pct`` percent **and** its modified
    z score (0.6745 × deviation / MAD, Iglewicz and Hoaglin 1993) exceeds ``z``. The floor is needed because healthy
    links differ so little that any of them can look like an outlier of the others. Of several GPUs or NICs of a node
    the worst represents the node.
    """

    members: str = "gpu"
    rel_pct: float = Field(gt=0, lt=100)
    z: float = Field(default=3.5, gt=0, le=10)
    min_peers: int = Field(default=5, ge=5)
    """With fewer members the odd one cannot be identified: two of four may be bad, and the median with
    them."""


Points = Annotated[tuple[int, ...], Field(min_length=2)]


class Curve(Named):
    """How a quantity of the rack grows with the number of nodes, GPUs or clients, against a named baseline.

    The label ``over`` of the metric's measurements holds the point. Efficiency at n is X(n)/n over X(b)/b for the
    baseline b. Every point must be measured; a curve with a gap is UNMEASURED there.
    """

    metric: str
    where: dict[str, LabelValue] = Field(default_factory=dict)
    over: Identifier
    """``gpus``, ``nodes``, ``clients``: a label of the metric."""
    points: Annotated[tuple[int, ...], Field(min_length=2)]
    baseline: int
    conditions: Conditions = Field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    statistic: Statistic = Statistic.MEDIAN
    warmup: int = Field(default=0, ge=0)
    min_samples: int = Field(default=1, ge=1)
    max_cv_pct: float | None = Field(default=None, gt=0)
    efficiency_min: float | None = Field(default=None, gt=0)
    """Ratio, at every point but the baseline."""
    r2_min: float | None = Field(default=None, gt=0, le=1)
    """Of the least-squares line through the points; needs three of them."""
    no_negative_step: bool = False
    """More must never give less."""
    members: str = "gpu"
