"""Models of ``certificate.json``, schema ``rackproof.certificate/v2``."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rackproof.core.architecture import Reduce, Source, Weakening
from rackproof.core.evidence import NodeChanges, NodeInfo, Scope
from rackproof.core.sizing.curves import LatencyCurve, ScaleCurve
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Verdict, outcome_for
from rackproof.report.versions import VersionSeen

SCHEMA: Literal["rackproof.certificate/v2"] = "rackproof.certificate/v2"

_BEST_FIRST = (Outcome.CERTIFIED, Outcome.PASSED, Outcome.INCOMPLETE, Outcome.NOT_CERTIFIED)


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class RackSummary(Model):
    inventory: str
    nodes: tuple[NodeInfo, ...]
    stand_ins: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Nodes in whose place stand-in programs answered at any time of the run."""


class StorageSummary(Model):
    """Properties of a file system that its numbers depend on."""

    name: str
    class_: str = Field(alias="class")
    fstype: str
    transport: str | None
    mountpoint: str


class CriterionSummary(Model):
    """The numbers that a criterion judges."""

    id: str
    scope: Scope
    reduce: Reduce

    @property
    def about_one(self) -> bool:
        """Whether verdicts are about single measurements, not about values computed from several."""
        return self.reduce is Reduce.EACH or self.scope is Scope.RACK


class ChangedBar(Model):
    """A published threshold that the site has changed."""

    id: str
    title: str
    published: str
    here: str
    why: str


class ArchitectureSummary(Model):
    """The reference that the run was judged against."""

    id: str
    version: str
    title: str
    scope: str
    sha256: str | None
    """Hash of the architecture file; None if not passed."""
    sources: dict[str, Source]
    storages: tuple[StorageSummary, ...]
    criteria: tuple[CriterionSummary, ...]
    level: str | None = None
    """The level that criteria with levels must reach."""
    changed: tuple[ChangedBar, ...] = ()
    """Thresholds that the site has changed."""
    origin: str = ""
    """``published with rackproof``, ``extends nvidia-dgx-h100 1.0.0`` or ``the site's own``."""
    compared_with: str | None = None
    """The published architecture that ``weakened`` refers to."""
    weakened: tuple[Weakening, ...] = ()
    """Values that are weaker than in ``compared_with``."""
    edited: bool = False
    """The kit's file differs from the published one."""

    @property
    def differs(self) -> bool:
        """Whether the headline names the architecture."""
        return bool(self.weakened) or self.edited


class Counts(Model):
    """Verdicts by status; all five keys are always present."""

    required: dict[Status, int]
    advisory: dict[Status, int]


class CheckSummary(Model):
    """One check over all nodes and items."""

    check: str
    reads: str
    """The architecture key with the expected value."""
    results: int
    passed: int
    failed: int
    unmeasured: int


class MeasurementSummary(Model):
    metric: str
    scope: Scope
    members: tuple[str, ...]
    subject: str
    labels: dict[str, str]
    unit: str
    samples: tuple[float, ...]
    median: float | None
    reason: str | None
    """Why there is no number; None with a number."""
    conditions: dict[str, Any]
    raw: tuple[str, ...]
    step: str
    simulated: bool


class StageTime(Model):
    """One stage of the run; a resumed run may have a stage several times."""

    stage: str
    started: str
    finished: str | None
    """None if the stage did not end."""
    elapsed_s: float | None


class DeploySummary(Model):
    deploy: str
    dry: bool
    ok: bool
    reason: str | None
    elapsed_s: float
    nodes: tuple[NodeChanges, ...]
    raw: tuple[str, ...]


class RawOutput(Model):
    """One output of one command; ``sha256`` names its file under ``raw/``."""

    sha256: str
    node: str
    command: str
    rc: int | None
    error: str | None
    """Why there is no exit status."""
    elapsed_s: float
    bytes: int
    which: Literal["stdout", "stderr"]


class Attested(Model):
    """End of the evidence in an earlier certificate of the run."""

    records: int
    chain_head: str


class EvidenceSummary(Model):
    chain_head: str
    """Hash of the last record, which proves that the evidence is unchanged."""
    records: int
    raw: tuple[RawOutput, ...]
    attested: tuple[Attested, ...] = ()
    """Ends in earlier certificates that this evidence lacks: it was truncated or replaced."""
    stated: str
    """Statements of the evidence that its outputs do not prove."""


class SizingSummary(Model):
    """Predictions of the sizing model, compared with the run."""

    lines: tuple[str, ...]
    """The predicted and the measured bottleneck, in sentences."""
    workload: str | None = None
    """Workload of the curves."""
    latency: LatencyCurve | None = None
    throughput: ScaleCurve | None = None


class FactorSummary(Model):
    """One factor between the published system and this rack."""

    name: str
    title: str
    published: float
    here: float
    unit: str
    times: float
    """``here`` over ``published``."""
    reason: str


class ThrottleSummary(Model):
    """A port, each connection from it, or a drive, limited while the rack was measured."""

    title: str
    published: float
    unit: str
    """Unit of ``published``."""
    here: float
    here_unit: str
    by: tuple[str, ...]
    """Names of its factors."""
    reason: str
    in_force: str
    """As the nodes' kernels answered during the measurements."""


class ClaimWay(Model):
    """One criterion, curve or check that is about a claim."""

    id: str
    title: str
    published: str
    """The published bar in words; empty for a check."""
    here: str
    """The bar of this rack in words."""
    measured: str
    """The worst number, or why there is none."""
    status: Status
    required: bool
    scaled: tuple[FactorSummary, ...] = ()
    note: str = ""


class ClaimSummary(Model):
    """One claim of the published system that this rack is a small form of."""

    id: str
    says: str
    figure: str | None
    document: str
    status: Status | None
    """Status of its required criteria and checks together; None if it is not judged."""
    not_checkable: str | None
    ways: tuple[ClaimWay, ...]


class LeftOutSummary(Model):
    """Criteria of the published system that have no form on this rack."""

    of: tuple[str, ...]
    claims: tuple[str, ...]
    reason: str


class Certificate(Model):
    """All data of page, JUnit, metrics and terminal."""

    schema_: Literal["rackproof.certificate/v2"] = Field(default=SCHEMA, alias="schema")
    run: str
    started: str
    finished: str
    """Like ``started``: UTC, ISO 8601."""
    outcome: Outcome
    exit_status: int
    headline: str = ""
    """``CERTIFIED against our-pod, which weakens 3 criteria of nvidia-dgx-h100 1.0.0``."""
    statement: str
    """Reason for the outcome, one or two sentences."""
    caveats: tuple[str, ...] = ()
    """Events of the run, its limits, and what it does not prove; on top of the page."""
    part: Literal["check", "criterion"] | None = None
    """Set for a run of checks alone, or of criteria alone; nothing is certified then."""
    rack: RackSummary
    architecture: ArchitectureSummary
    profile: str
    counts: Counts
    verdicts: tuple[Verdict, ...]
    checks: tuple[CheckSummary, ...]
    measurements: tuple[MeasurementSummary, ...]
    stages: tuple[StageTime, ...]
    deploys: tuple[DeploySummary, ...]
    kit_version: str
    versions: tuple[VersionSeen, ...]
    simulated: tuple[str, ...]
    """Sentences about virtual or simulated parts, and about benchmarks and validators that are not proven or not the
    kit's; empty for a real rack without them."""
    scaled_from: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The published architecture whose claims are scaled to this rack."""
    claims: tuple[ClaimSummary, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Claim by claim; empty where the architecture scales no other."""
    of_no_claim: tuple[ClaimWay, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Criteria of the published system that are about none of its claims."""
    left_out: tuple[LeftOutSummary, ...] = Field(default=(), exclude_if=lambda value: not value)
    throttles: tuple[ThrottleSummary, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Limits of ports and drives, a declared part of the rack."""
    sizing: SizingSummary | None = None
    """None if nothing was measured."""
    notes: tuple[str, ...]
    evidence: EvidenceSummary

    @model_validator(mode="after")
    def _no_better_than_its_verdicts(self) -> Self:
        earned = outcome_for(self.verdicts)
        if _BEST_FIRST.index(self.outcome) < _BEST_FIRST.index(earned):
            raise ValueError(f"the certificate says {self.outcome}, its verdicts say {earned}")
        if self.exit_status != self.outcome.exit_status:
            raise ValueError(f"exit status {self.exit_status} is not that of {self.outcome}")
        return self

    @property
    def result(self) -> str:
        """The outcome, and what the architecture weakens."""
        return self.headline if self.architecture.differs else self.outcome.value

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.rack.nodes)
