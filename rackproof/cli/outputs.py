"""Judge a run's evidence and write its files: verdicts, certificate, page, JUnit, metrics."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from rackproof.architectures import LoadedArchitecture
from rackproof.atomic_write import write_output
from rackproof.cli.proof import prove, verdict_of
from rackproof.core.compare import latest
from rackproof.core.evidence import (
    CheckResult,
    CommandRecord,
    DeployRecord,
    Kind,
    Measurement,
    Record,
)
from rackproof.core.history import history_of
from rackproof.core.judging.judge import judge_records
from rackproof.core.judging.lifecycle import as_shown, evidence_verdict
from rackproof.core.judging.profile_parts import other_sizes
from rackproof.core.verdict import EVIDENCE, Judgement, Verdict
from rackproof.errors import ArchitectureError, EvidenceWriteError, RunError
from rackproof.evidence.folder import info_of, kit_digest, stored_architecture
from rackproof.evidence.store import lost_outputs, read_raw
from rackproof.read_file import read_json_text
from rackproof.remote.redaction import redact_bytes, redact_json
from rackproof.report.certificate import Certificate, build_certificate, document_of, stage_times
from rackproof.report.document import plain, to_json
from rackproof.report.junit import render_junit
from rackproof.report.page import render_page
from rackproof.report.prometheus import render_metrics
from rackproof.report.schema import Attested
from rackproof.report.sizing import sizing_summary

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
    validators: Path | None = None,
) -> Certificate:
    """Judge a run's evidence. ``only``: judge checks or criteria alone, for a run of one stage.

    ``broken``: why the evidence is damaged; the run is then INVALID, as it is if outputs in ``folder`` are missing,
    changed, or contradict the recorded results. ``cut_off``: the last line is incomplete. ``say`` receives a line
    about reading the outputs again. ``validators`` replaces the kit's.
    """
    proof = prove(records, folder, architecture, validators) if folder is not None else None
    faults = proof.faults if proof is not None else {}
    if proof is not None:
        say(proof.line)
    judgement = judge_records(architecture.model, records, faults)
    if folder is not None and (sizes := _other_sizes(folder, records, architecture)) is not None:
        judgement = judgement.with_verdict(sizes)
    if faults:
        judgement = judgement.with_verdict(verdict_of(faults, records))
    if only is not None:
        judgement = judgement.restricted_to(only)
    notes = ["The last line of the evidence is incomplete and was left out."] if cut_off else []
    if proof is not None and (kit := info_of(records).kit_sha256) != kit_digest():
        notes.append(f"Recorded by another build of the kit (sha256 {kit[:12]}): its plan was not compared.")
    lost = lost_outputs(folder, records) if folder is not None else []
    earlier = unknown_ends(folder, records) if folder is not None else ()
    problems = [*_broken(broken, lost), *(_other_end(end, len(records)) for end in earlier)]
    if problems:
        ends = (v.message for v in judgement.verdicts if v.id == EVIDENCE and broken is None)
        judgement = judgement.with_verdict(evidence_verdict([*problems, *ends]))
    return _certificate(records, architecture, judgement, notes, only, earlier)


def _other_sizes(folder: Path, records: Sequence[Record], architecture: LoadedArchitecture) -> Verdict | None:
    """The verdict on a run that measured less than the judging architecture asks for; None if it measured enough."""
    info = info_of(records)
    if info.architecture_sha256 == architecture.sha256 or not any(
        record.kind is Kind.MEASUREMENT for record in records
    ):
        return None
    try:
        own = stored_architecture(folder, info).model
    except (RunError, ArchitectureError):
        return None  # the verdict on the evidence names it
    return other_sizes(architecture.model, own, info.profile)


def unknown_ends(folder: Path, records: Sequence[Record]) -> tuple[Attested, ...]:
    """Ends of the evidence in the folder's certificate that this evidence lacks."""
    try:
        evidence = json.loads(read_json_text(folder / CERTIFICATE))["evidence"]
        ends = [Attested.model_validate(end) for end in evidence.get("attested", ())]
        if not ends:  # a certificate with missing ends lists those instead of its own
            ends = [Attested(records=evidence["records"], chain_head=evidence["chain_head"])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()  # no readable certificate
    return tuple(
        end for end in ends if not 0 < end.records <= len(records) or records[end.records - 1].hash != end.chain_head
    )


def _other_end(end: Attested, count: int) -> str:
    difference = "its last records are missing" if end.records > count else "its records differ"
    return (
        f"{CERTIFICATE} was made from {end.records} records that end in {end.chain_head[:12]}, the evidence has"
        f" {count}: {difference}"
    )


def _broken(why: str | None, lost: Sequence[str]) -> list[str]:
    problems = [f"{why}; all later records were left out"] if why is not None else []
    if lost:
        count = f"{len(lost)} outputs are missing or changed, the first: " if len(lost) > 1 else ""
        problems.append(f"{count}{lost[0]}")
    return problems


def _certificate(
    records: Sequence[Record],
    architecture: LoadedArchitecture,
    judgement: Judgement,
    notes: Sequence[str],
    part: VerdictKind | None,
    attested: Sequence[Attested],
) -> Certificate:
    run = info_of(records)
    history = history_of(records, architecture.model, run.nodes)
    bodies = {kind: [r.body for r in records if r.kind is kind and r.seq not in history.superseded] for kind in Kind}
    events = [
        f"{node}: {r.body['text']}" if (node := r.body.get("node")) else str(r.body["text"])
        for r in records
        if r.kind in (Kind.NOTE, Kind.EVENT)
    ]
    # In a resumed run a later number replaces an earlier one, a later UNMEASURED does not.
    measurements = list(latest(Measurement.model_validate(b) for b in bodies[Kind.MEASUREMENT]).values())
    return build_certificate(
        run.model_copy(update={"nodes": as_shown(run.nodes, history)}),
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
        notes=[*events, *notes],
        architecture_sha256=architecture.sha256,
        part=part,
        attested=attested,
        stand_ins=history.stand_ins,
    )


def _outputs(folder: Path, certificate: Certificate) -> dict[str, bytes]:
    """Outputs for the page without secrets, and without missing or changed ones, which ``judged`` reports."""
    texts = {}
    for entry in certificate.evidence.raw:
        with contextlib.suppress(RunError):
            texts[entry.sha256] = redact_bytes(read_raw(folder, entry.sha256))
    return texts


def write_outputs(folder: Path, certificate: Certificate, whole: bool) -> None:
    """Write the output files beside the evidence, without secrets.

    ``whole``: with a certificate; False for a run of one stage. Evidence of another kit may hold secrets that this kit
    redacts.
    """
    document = document_of(certificate)
    if (hidden := redact_json(document)) is not document:
        document, certificate = hidden, Certificate.model_validate(plain(hidden))
    verdicts = Judgement(
        architecture=certificate.architecture.id,
        architecture_version=certificate.architecture.version,
        outcome=certificate.outcome,
        verdicts=(),
    )
    files = {
        VERDICTS: to_json(document_of(verdicts) | {"verdicts": document["verdicts"]}),
        JUNIT: render_junit(certificate).encode(),
    }
    if whole:
        raw = _outputs(folder, certificate)
        files |= {
            CERTIFICATE: to_json(document),
            METRICS: render_metrics(certificate).encode(),
            PAGE: render_page(certificate, raw).encode(),
        }
    for name, data in files.items():
        write_output(folder / name, data, EvidenceWriteError, f"; `rackproof judge {folder}` writes it again")
