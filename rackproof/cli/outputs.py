"""Judge a run's evidence and write its files: verdicts, certificate, page, JUnit, metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from rackproof.architectures import LoadedArchitecture
from rackproof.atomic_write import replace_file
from rackproof.bench.step import Key, key_of
from rackproof.cli.proof import prove, verdict_of
from rackproof.core.evidence import (
    CheckResult,
    CommandRecord,
    DeployRecord,
    Kind,
    Measurement,
    Record,
)
from rackproof.core.judging.judge import judge_records
from rackproof.core.status import Status
from rackproof.core.verdict import Judgement, Verdict
from rackproof.errors import EvidenceWriteError, RunError
from rackproof.evidence.folder import info_of
from rackproof.evidence.store import lost_outputs, read_raw
from rackproof.report.certificate import Certificate, build_certificate, stage_times, to_json
from rackproof.report.junit import render_junit
from rackproof.report.page import render_page
from rackproof.report.prometheus import render_metrics
from rackproof.report.sizing_summary import sizing_summary

VerdictKind = Literal["check", "criterion"]

VERDICTS, CERTIFICATE, PAGE, JUNIT, METRICS = (
    "verdicts.json",
    "certificate.json",
    "certificate.html",
    "junit.xml",
    "metrics.prom",
)


def judged(
    records: Sequence[Record],
    architecture: LoadedArchitecture,
    only: VerdictKind | None = None,
    broken: str | None = None,
    cut_off: bool = False,
    folder: Path | None = None,
    say: Callable[[str], object] = lambda line: None,
) -> Certificate:
    """Judge a run's evidence. ``only`` keeps the checks or the criteria, for a run of one stage.

    ``broken`` is the reason why the evidence is damaged: the run is INVALID then, as when outputs under ``folder``
    are missing, changed, or do not give the recorded results. ``cut_off`` means that the last line is incomplete.
    ``say`` gets a line about the second reading of the outputs.
    """
    own = architecture.sha256 == info_of(records).architecture_sha256
    proof = prove(records, folder, architecture) if folder is not None else None
    faults = proof.faults if proof is not None else {}
    if proof is not None:
        say(proof.line)
    judgement = judge_records(architecture.model, records, own, faults)
    if faults:
        judgement = judgement.with_verdict(verdict_of(faults, records))
    if only is not None:
        judgement = judgement.restricted_to(only)
    notes = ["The last line of the evidence is incomplete and was left out."] if cut_off else []
    lost = lost_outputs(folder, records) if folder is not None else []
    if broken is not None or lost:
        judgement = judgement.with_verdict(_broken(broken, lost))
    return _certificate(records, architecture, judgement, notes)


def _broken(why: str | None, lost: Sequence[str]) -> Verdict:
    problems = [f"{why}; all records from there on were left out"] if why is not None else []
    if lost:
        count = f"{len(lost)} outputs are missing or changed, the first: " if len(lost) > 1 else ""
        problems.append(f"{count}{lost[0]}")
    return Verdict(
        id="run.evidence",
        kind="check",
        title="Evidence is unchanged",
        subject="rack",
        status=Status.INVALID,
        required=True,
        message="; ".join(problems),
        reason="A changed, removed or inserted record proves nothing, nor do the records after it;"
        " a number without its output cannot be checked.",
        hint="Find out what changed the files; restore them from a copy, or measure again.",
    )


def _certificate(
    records: Sequence[Record], architecture: LoadedArchitecture, judgement: Judgement, notes: Sequence[str]
) -> Certificate:
    bodies = {kind: [r.body for r in records if r.kind is kind] for kind in Kind}
    measurements = _latest([Measurement.model_validate(b) for b in bodies[Kind.MEASUREMENT]])
    return build_certificate(
        info_of(records),
        architecture.model,
        judgement,
        measurements=measurements,
        sizing=sizing_summary(architecture.model, measurements),
        checks=[CheckResult.model_validate(b) for b in bodies[Kind.CHECK]],
        stages=stage_times(records),
        deploys=[DeployRecord.model_validate(b) for b in bodies[Kind.DEPLOY]],
        commands=[CommandRecord.model_validate(b) for b in bodies[Kind.COMMAND]],
        chain_head=records[-1].hash,
        records_count=len(records),
        finished=records[-1].time,
        notes=[*(str(b["text"]) for b in bodies[Kind.NOTE]), *notes],
        architecture_sha256=architecture.sha256,
    )


def _latest(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Measurements of a resumed run: a later number replaces an earlier one, a later UNMEASURED does not."""
    kept: dict[Key, Measurement] = {}
    for m in measurements:
        key = key_of(m)
        if m.samples or key not in kept or not kept[key].samples:
            kept[key] = m
    return list(kept.values())


def _outputs(folder: Path, certificate: Certificate) -> dict[str, bytes]:
    """Outputs for the page, without missing or changed ones, which ``judged`` reports."""
    texts = {}
    for entry in certificate.evidence.raw:
        with contextlib.suppress(RunError):
            texts[entry.sha256] = read_raw(folder, entry.sha256)
    return texts


def write_outputs(folder: Path, certificate: Certificate, whole: bool) -> None:
    """Write the output files beside the evidence. ``whole`` is False for a run of one stage: no certificate then."""
    verdicts = Judgement(
        architecture=certificate.architecture.id,
        architecture_version=certificate.architecture.version,
        outcome=certificate.outcome,
        verdicts=certificate.verdicts,
    )
    files = {
        VERDICTS: verdicts.model_dump_json(indent=2, by_alias=True).encode() + b"\n",
        JUNIT: render_junit(certificate).encode(),
    }
    if whole:
        raw = _outputs(folder, certificate)
        files |= {
            CERTIFICATE: to_json(certificate),
            METRICS: render_metrics(certificate).encode(),
            PAGE: render_page(certificate, raw).encode(),
        }
    for name, data in files.items():
        try:
            replace_file(folder / name, data)
        except OSError as error:
            raise EvidenceWriteError(
                f"{folder / name}: cannot be written ({error.strerror}); `rackproof judge {folder}` writes it again"
            ) from error
