"""``certificate.json``: the judged run, from which all other formats are rendered."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.entries import each_entry
from rackproof.core.architecture.overrides import threshold_words
from rackproof.core.evidence import (
    CheckOutcome,
    CheckResult,
    CommandRecord,
    DeployRecord,
    Kind,
    Measurement,
    Record,
    RunInfo,
    Scope,
    subject_of,
)
from rackproof.core.grouping import grouped
from rackproof.core.judging.gates import small_data_set
from rackproof.core.status import Status
from rackproof.core.verdict import Judgement, Verdict, amended
from rackproof.report.brevity import DETAILED, LISTED, brief_measurements, brief_verdicts, by_need, listed
from rackproof.report.claims import claim_by_claim, left_out, of_no_claim, throttles_of
from rackproof.report.document import plain, written
from rackproof.report.schema import (
    ArchitectureSummary,
    Attested,
    Certificate,
    ChangedBar,
    CheckSummary,
    Counts,
    CriterionSummary,
    DeploySummary,
    EvidenceSummary,
    MeasurementSummary,
    RackSummary,
    RawOutput,
    SizingSummary,
    StageTime,
    StorageSummary,
)
from rackproof.report.statements import (
    CLASS_ORDER,
    STATED,
    Part,
    broken_evidence,
    caveats,
    headline,
    method_statements,
    origin,
    outcome_statement,
    part_statement,
    simulation_statements,
    stand_in_statements,
    untried_statements,
    validators_statements,
)
from rackproof.report.versions import versions_seen

__all__ = ["Certificate", "StageTime", "build_certificate", "document_of", "from_json", "json_schema", "stage_times"]

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def build_certificate(
    run: RunInfo,
    architecture: Architecture,
    judgement: Judgement,
    measurements: Iterable[Measurement],
    checks: Iterable[CheckResult],
    stages: Sequence[StageTime],
    deploys: Iterable[DeployRecord],
    commands: Iterable[CommandRecord],
    chain_head: str,
    records_count: int,
    finished: str,
    notes: Sequence[str] = (),
    sizing: SizingSummary | None = None,
    architecture_sha256: str | None = None,
    part: Part | None = None,
    attested: Sequence[Attested] = (),
    stand_ins: Collection[str] = (),
) -> Certificate:
    """The certificate of a judged run. Pure: the same arguments give the same certificate.

    ``architecture_sha256`` is needed only for another architecture file than the run's. ``part``: what a run of one
    stage is judged by. ``stand_ins``: nodes in whose place programs answered. ``attested``: ends of the evidence in
    earlier certificates that are missing in this evidence.
    Raises ``ValueError`` when the outcome is better than the verdicts allow.
    """
    measurements = list(_in_order(measurements))
    rejudged = architecture.metadata.id != run.architecture or (
        architecture_sha256 not in (None, run.architecture_sha256)
    )
    sha256 = architecture_sha256 if rejudged else run.architecture_sha256
    remarks = list(notes)
    if rejudged:
        remarks.append(
            f"The run was made for {run.architecture} (sha256 {run.architecture_sha256[:12]}) "
            f"and judged against {architecture.metadata.id} (sha256 {(sha256 or 'not given')[:12]})."
        )
    every = sorted(judgement.verdicts, key=lambda v: (v.kind, v.id, v.subject))
    if stand_ins:
        every = [amended(v, simulated=v.simulated or _of_some(v.subject, stand_ins)) for v in every]
    verdicts = brief_verdicts(every)
    numbers = [_measurement(m, stand_ins) for m in measurements]
    summaries = brief_measurements(numbers)
    if verdicts != every or summaries != numbers:
        remarks.append(f"Of more than {DETAILED} numbers of a kind the worst have their samples and conditions here.")
    done = tuple(_deploy(d) for d in deploys)
    outputs = _raw_index(commands)
    if len(counted := {output.sha256 for output in outputs}) > LISTED:
        kept = listed(outputs, by_need(verdicts, summaries, done))
        outputs = tuple(output for output in outputs if output.sha256 in kept)
        verdicts = [amended(v, raw=tuple(sha for sha in v.raw if sha in kept)) for v in verdicts]
        remarks.append(f"Of {len(counted)} outputs the certificate lists {len(kept)}, those of findings first.")
    broken = broken_evidence(verdicts)
    statement = (
        part_statement(part, judgement.outcome, verdicts)
        if part is not None and broken is None
        else outcome_statement(judgement.outcome, verdicts)
    )
    return Certificate(
        run=run.run,
        started=run.started,
        finished=finished,
        outcome=judgement.outcome,
        exit_status=judgement.outcome.exit_status,
        headline=f"{judgement.outcome}: {broken}" if broken else headline(judgement.outcome, architecture.metadata),
        statement=statement,
        caveats=(*caveats(verdicts), *method_statements(measurements)),
        part=part,
        rack=RackSummary(inventory=run.inventory, nodes=run.nodes, stand_ins=tuple(sorted(stand_ins))),
        architecture=_architecture(architecture, judgement.architecture_version, sha256),
        profile=run.profile,
        counts=Counts(required=_counts(verdicts, True), advisory=_counts(verdicts, False)),
        verdicts=tuple(verdicts),
        checks=_checks(checks),
        measurements=tuple(summaries),
        stages=tuple(stages),
        deploys=done,
        kit_version=run.rackproof,
        versions=versions_seen(run, measurements),
        simulated=(
            *stand_in_statements(stand_ins, run.nodes),
            *simulation_statements(run.nodes, architecture, measurements),
            *untried_statements(measurements),
            *validators_statements(run),
        ),
        scaled_from=architecture.scale.of if architecture.scale else None,
        claims=claim_by_claim(architecture, verdicts),
        of_no_claim=of_no_claim(architecture, verdicts),
        left_out=left_out(architecture),
        throttles=throttles_of(architecture, run.nodes, measurements),
        sizing=sizing,
        notes=tuple(remarks),
        evidence=EvidenceSummary(
            chain_head=chain_head,
            records=records_count,
            raw=outputs,
            attested=tuple(attested),
            stated=STATED,
        ),
    )


def document_of(model: Certificate | Judgement) -> dict[str, Any]:
    """The written form, see ``document``; an infinite number is null."""
    return written(json.loads(model.model_dump_json(by_alias=True)))


def from_json(text: bytes | str) -> Certificate:
    """Parse ``certificate.json``.

    Raises ValueError for another document, ``pydantic.ValidationError`` for a malformed one, or for an outcome better
    than the verdicts allow.
    """
    return Certificate.model_validate(plain(json.loads(text)))


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``certificate.json`` after ``document.plain``."""
    return Certificate.model_json_schema(by_alias=True, mode="serialization")


def stage_times(records: Iterable[Record]) -> tuple[StageTime, ...]:
    """Stages with their times in the order of their start, from the records of kind ``stage``."""
    times: list[StageTime] = []
    for record in records:
        if record.kind is not Kind.STAGE:
            continue
        name = str(record.body["stage"])
        if record.body["event"] == "begin":
            times.append(StageTime(stage=name, started=record.time, finished=None, elapsed_s=None))
            continue
        for i in range(len(times) - 1, -1, -1):
            if times[i].stage == name and times[i].finished is None:
                ended = {"finished": record.time, "elapsed_s": record.body.get("elapsed_s")}
                times[i] = times[i].model_copy(update=ended)
                break
    return tuple(times)


def natural(labels: dict[str, str]) -> tuple[tuple[str, bool, int, str], ...]:
    """Sort key of labels in which ``1048576`` comes after ``65536``."""
    return tuple(
        (key, not value.isdecimal(), int(value) if value.isdecimal() else 0, value)
        for key, value in sorted(labels.items())
    )


def _in_order(measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Sorted; the canonical text breaks ties, so that the order does not depend on the input's."""

    def key(m: Measurement) -> tuple[Any, ...]:
        return (m.metric, natural(m.labels), m.scope.value, m.members, m.step)

    for _, equal in groupby(sorted(measurements, key=key), key):
        several = list(equal)
        yield from sorted(several, key=Measurement.model_dump_json) if len(several) > 1 else several


def _architecture(architecture: Architecture, version: str, sha256: str | None) -> ArchitectureSummary:
    meta = architecture.metadata
    return ArchitectureSummary(
        id=meta.id,
        version=version,
        title=meta.title,
        scope=meta.scope,
        sha256=sha256,
        sources=dict(sorted(meta.sources.items())),
        level=architecture.level,
        origin=origin(meta),
        compared_with=meta.compared_with,
        weakened=meta.weakened,
        edited=meta.edited,
        changed=tuple(
            ChangedBar(id=e.id, title=e.title, published=e.published, here=threshold_words(e), why=e.changed or "")
            for _, e in each_entry(architecture)
            if e.published is not None
        ),
        criteria=tuple(
            CriterionSummary(id=c.id, scope=c.scope, reduce=c.reduce)
            for c in sorted(architecture.criteria, key=lambda c: c.id)
        ),
        storages=tuple(
            StorageSummary(name=name, class_=s.class_, fstype=s.fstype, transport=s.transport, mountpoint=s.mountpoint)
            for name, s in sorted(
                architecture.storage.items(), key=lambda item: (CLASS_ORDER.index(item[1].class_), item[0])
            )
        ),
    )


def _counts(verdicts: Iterable[Verdict], required: bool) -> dict[Status, int]:
    counts = dict.fromkeys(Status, 0)
    for verdict in verdicts:
        if verdict.required is required:
            counts[verdict.status] += 1
    return counts


def _checks(checks: Iterable[CheckResult]) -> tuple[CheckSummary, ...]:
    summaries = []
    for name, results in sorted(grouped((check.check, check) for check in checks).items()):
        reads = {c.reads.replace(c.item, "*") if c.item else c.reads for c in results if c.reads}
        outcomes = Counter(c.outcome for c in results)
        counts = {outcome.value: outcomes[outcome] for outcome in CheckOutcome}
        summaries.append(CheckSummary(check=name, reads=", ".join(sorted(reads)), results=len(results), **counts))
    return tuple(summaries)


def _of_some(subject: str, names: Collection[str]) -> bool:
    """Whether a subject is the rack, or one of these nodes, its part, or a pair with it."""
    return subject == Scope.RACK or any(part.partition("/")[0] in names for part in subject.split("|"))


def _measurement(m: Measurement, stand_ins: Collection[str]) -> MeasurementSummary:
    return MeasurementSummary(
        metric=m.metric,
        scope=m.scope,
        members=m.members,
        subject=subject_of(m.scope, m.members),
        labels=m.labels,
        unit=m.unit,
        samples=m.samples,
        median=median(m.samples) if m.samples else None,
        reason=m.reason or (None if m.samples else "no samples and no reason recorded"),
        conditions=m.conditions | _data_set(m),
        raw=m.raw,
        step=m.step,
        simulated=m.simulated or any(member.partition("/")[0] in stand_ins for member in m.members),
    )


def _data_set(m: Measurement) -> dict[str, str]:
    """A note on a read of files that memory could hold, whether or not an entry asks for a larger data set."""
    reads = m.metric.startswith("storage.") and "write" not in m.metric
    words = small_data_set(m.companions) if reads else None
    return {"data_set": words} if words else {}


def _deploy(record: DeployRecord) -> DeploySummary:
    return DeploySummary(
        deploy=record.deploy,
        dry=record.dry,
        ok=record.ok,
        reason=record.reason,
        elapsed_s=record.elapsed_s,
        nodes=tuple(sorted(record.nodes, key=lambda node: node.node)),
        raw=record.raw,
    )


def _raw_index(commands: Iterable[CommandRecord]) -> tuple[RawOutput, ...]:
    """Outputs that have a file, without empty stderr."""
    outputs: list[RawOutput] = []
    for c in commands:
        for stream, sha256, size in (("stdout", c.stdout, c.stdout_bytes), ("stderr", c.stderr, c.stderr_bytes)):
            if not sha256 or (stream == "stderr" and sha256 == EMPTY_SHA256):
                continue
            outputs.append(
                RawOutput(
                    sha256=sha256,
                    node=c.node,
                    command=c.command,
                    rc=c.rc,
                    error=c.error,
                    elapsed_s=c.elapsed_s,
                    bytes=size,
                    which=stream,
                )
            )
    return tuple(sorted(outputs, key=lambda r: (r.command, r.which, r.node, r.sha256, r.elapsed_s)))
