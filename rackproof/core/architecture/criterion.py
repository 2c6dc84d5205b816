"""Criteria: bars, references, and how samples and members are reduced to one number."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from rackproof.core.architecture.base import Claims, Identifier, LabelValue, Model, Sentence
from rackproof.core.architecture.scale import Scaled
from rackproof.core.evidence import Scope
from rackproof.core.texts import Line, Name, Prose


class Statistic(StrEnum):
    """How the samples of one measurement become one number.

    Percentiles use the nearest rank and need a minimum of samples: 100 for p1 and p99, 20 for p5 and p95, 10 for p10
    and p90.
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
    """One verdict per member: every node or pair must reach the bar."""
    MIN = "min"
    MAX = "max"
    MEDIAN = "median"
    SUM = "sum"
    MIN_OVER_MEDIAN = "min_over_median"
    """Fairness between members, a ratio; needs at least two members."""
    MAX_OVER_MEDIAN = "max_over_median"
    SPREAD_OVER_MEDIAN = "spread_over_median"
    """(max - min) / median of members that should be equal, a ratio."""


class Severity(StrEnum):
    REQUIRED = "required"
    ADVISORY = "advisory"


class Gate(StrEnum):
    """Proof that a measurement must give about itself; one without it is INVALID."""

    LITTLES_LAW = "littles_law"
    """|rate × latency / (jobs × depth) - 1| ≤ 5 %: the load was as declared."""
    BYTE_COUNTERS = "byte_counters"
    """The application's count of bytes agrees with a counter of the kernel or the device within 3 %."""
    DATASET_SIZE = "dataset_size"
    """The data set is at least 5 times the clients' memory, or no byte was read twice."""
    COLD_CACHE = "cold_cache"
    """Less than 1 % of the data set was cached when the measurement began."""
    SERVER_DRIVES = "server_drives"
    """The drives of the storage's servers, which are nodes of the rack, read at least 97 % of what its clients read."""


Condition = StrictBool | int | float | Line | tuple[Line | int | float, ...]
Conditions = dict[Name, Condition]


class Reference(Model):
    """Another measured quantity to which a bar refers.

    With ``reduce: each`` it is looked up for the same member; otherwise its members become one number.
    """

    metric: Identifier
    where: dict[Name, LabelValue] = Field(default_factory=dict)
    scope: Scope
    statistic: Statistic = Statistic.MEDIAN
    reduce: Reduce = Reduce.MEDIAN
    conditions: Conditions = Field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    """As in a criterion; a share of a number that fails a gate is INVALID."""
    warmup: int | None = Field(default=None, ge=0)
    """None: the criterion's own."""
    min_samples: int | None = Field(default=None, ge=1)
    """None: the criterion's own."""
    max_cv_pct: float | None = Field(default=None, gt=0)
    """As in a criterion; a share of a noisy number is INVALID."""


class LinkShare(Model):
    """A bar as a share of what a link can carry."""

    link: Identifier
    """A key of ``links``."""
    times: float = Field(default=1.0, gt=0)
    """Number of links together: 2 ports, or 32 nodes with one port each."""


class Bar(Model):
    """The value that a number must reach.

    Without ``of`` the bar is an absolute ``value`` in ``unit``. With ``of`` it is a share of another quantity:
    ``unit`` is then ``percent`` or ``ratio`` and both quantities must have the same dimension.
    """

    op: Literal["ge", "le", "eq", "range"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """``range`` uses low and high (both included), the others use value."""
    unit: Line
    of: Reference | LinkShare | None = None
    warn: float | None = None
    """Reaching ``value`` but not ``warn`` is WARN; for ``ge`` and ``le`` only."""
    tolerance_pct: float = Field(default=0.0, ge=0, le=20)
    """Percent of the bar by which a number may miss it and still pass."""
    levels: dict[Identifier, float] = Field(default_factory=dict)
    """Bars by level, lowest demand first, instead of ``value``. The architecture's ``level`` selects the one to reach;
    the verdict says which one was reached. For ``ge`` and ``le`` only."""


class Ceiling(Model):
    """Physical limit: a bar must be between 1 and 100 % of it."""

    link: Identifier
    """A key of ``links``."""
    times: float = Field(default=1.0, gt=0)
    because: Sentence | None = None
    """Why ``times`` is not a number of links, e.g. in-network reduction sends every byte once."""


class Quantity(Model):
    """A metric with its labels, conditions and statistic."""

    metric: Identifier
    where: dict[Name, LabelValue | Annotated[tuple[LabelValue, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Labels of the measurement. A list gives one verdict per value."""
    scope: Scope
    conditions: Conditions = Field(default_factory=dict)
    """Required measuring conditions: cache state, ranks, algorithm. A number with other or unknown conditions is
    INVALID. A list names alternatives; ``ranks_min: 32`` is a lower bound."""
    gates: tuple[Gate, ...] = ()
    statistic: Statistic = Statistic.MEDIAN
    warmup: int = Field(default=0, ge=0)
    """Number of leading samples to drop."""
    min_samples: int = Field(default=1, ge=1)
    """Counted without the warm-up."""
    max_cv_pct: float | None = Field(default=None, gt=0)
    """Coefficient of variation over the samples above which the number is INVALID, not FAIL."""


class Alternative(Quantity):
    """One way of meeting a criterion."""

    pass_: Bar = Field(alias="pass")
    reduce: Reduce = Reduce.EACH


class JudgedEntry(Model):
    """Fields common to criteria, curves and outliers."""

    id: Identifier
    title: Sentence
    severity: Severity = Severity.REQUIRED
    source: Name
    reason: Sentence
    """Why this bar and not another."""
    hint: Sentence
    """First things to check when it is not reached."""
    claim: Claims = ()
    measure: Identifier | None = None
    """Recipe of ``rackproof.core.recipes``: how the number is measured."""
    lab: Sentence | None = None
    """The part that the virtual rack can verify; null: none."""
    scaled: Scaled | None = None
    """In a file with ``scale``: the published bar, and the factors between it and this one."""
    published: Prose | None = None
    """The bar before a site changed it; set by ``overrides``, never in a file."""
    changed: Prose | None = None
    """Why, and by whom."""


class QuantityFamily(Quantity):
    """A quantity whose listed label values give one verdict each."""

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


class Criterion(JudgedEntry, QuantityFamily):
    """A number that must be reached."""

    members: Name = "gpu"
    """The group whose nodes (or pairs of nodes) must have a verdict."""
    reduce: Reduce = Reduce.EACH
    ceiling: Ceiling | None = None
    pass_: Bar = Field(alias="pass")
    any_of: tuple[Alternative, ...] = ()
    """Alternatives; one suffices. While one is unmeasured, the criterion does not fail."""


class Outlier(JudgedEntry, QuantityFamily):
    """No member may be far worse than its peers.

    A member is an outlier when it is worse than the median by more than ``rel_pct`` percent **and** its modified
    z score (0.6745 × deviation / MAD, Iglewicz and Hoaglin 1993) exceeds ``z``. The floor is needed because healthy
    links differ so little that the z score alone would flag them. The worst GPU or NIC of a node represents the node;
    drives are members themselves.
    """

    members: Name = "gpu"
    rel_pct: float = Field(gt=0, lt=100)
    z: float = Field(default=3.5, gt=0, le=10)
    min_peers: int = Field(default=5, ge=5)
    """With fewer members the median may be bad: two of four can be."""


class Curve(JudgedEntry):
    """How a quantity of the rack grows with the number of nodes, GPUs or clients, against a named baseline.

    The label ``over`` of the metric's measurements holds the point. Efficiency at n is X(n)/n over X(b)/b for the
    baseline b. Every point must be measured; a curve with a gap is UNMEASURED there.
    """

    metric: Identifier
    where: dict[Name, LabelValue] = Field(default_factory=dict)
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
    """Least R² of the least-squares line through the points; needs three of them."""
    no_negative_step: bool = False
    """No point may be below the one before it."""
    members: Name = "gpu"


Entry = Criterion | Curve | Outlier
