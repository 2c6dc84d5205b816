"""Sentences and groupings that all output formats share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

from ClusterShell.NodeSet import NodeSetException

from rackproof.core.architecture import Architecture, Metadata, Weakening
from rackproof.core.architecture.published import PUBLISHED
from rackproof.core.architecture.weakening import weakens
from rackproof.core.evidence import Measurement, NodeInfo, RunInfo, Scope
from rackproof.core.group_testing import METRIC, TRANSPORTS
from rackproof.core.grouping import grouped
from rackproof.core.rack import fold
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import EVIDENCE, RUN, Verdict, name_of
from rackproof.core.wording import counted, some
from rackproof.report.schema import Certificate

CLASS_ORDER = ("local", "nfs", "parallel", "object")

Part = Literal["check", "criterion"]
"""Verdicts that judge a run of one stage."""

PAIRS = 5
"""Maximum number of listed pairs: pairs cannot be folded, and a rack of a thousand nodes has half a million."""


def headline(outcome: Outcome, architecture: Metadata) -> str:
    """Outcome and architecture: ``CERTIFIED against our-pod, which weakens 3 criteria of …``."""
    weaker = weakens(architecture.weakened, (architecture.compared_with or "").partition(" ")[0])
    edited = ", edited after it was published" if architecture.edited else ""
    return f"{outcome} against {architecture.id}{f', which {weaker}' if weaker else ''}{edited}"


def origin(architecture: Metadata) -> str:
    """Whether the kit publishes the architecture, or what it extends."""
    if architecture.compared_with is not None:
        changed_copy = architecture.compared_with.split()[0] == architecture.id
        return f"{'a copy of' if changed_copy else 'extends'} {architecture.compared_with}"
    if architecture.edited:
        return "edited after rackproof published it"
    return "published with rackproof" if architecture.id in PUBLISHED else "the site's own"


def weakening_text(weakening: Weakening) -> str:
    """One line: key, published value, value here, reason."""
    by = f" ({weakening.by})" if weakening.by else ""
    return (
        f"{weakening.path}: published {weakening.published}, here {weakening.here}: "
        f"{weakening.reason or 'without a reason'}{by}"
    )


def broken_evidence(verdicts: Iterable[Verdict]) -> str | None:
    """Why the evidence is not intact, in one sentence; None if it is."""
    for verdict in verdicts:
        if verdict.id == EVIDENCE and verdict.status is Status.INVALID:
            return f"The evidence is not intact: {verdict.message}."
    return None


def caveats(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Limits of the run, and events during it, for the top of the page."""
    return tuple(
        _sentence(verdict.message)
        if verdict.subject == "rack"
        else f"{subject_text(verdict.subject)}: {verdict.message}."
        for verdict in verdicts
        if verdict.id.startswith(RUN) and verdict.id != EVIDENCE and verdict.status is not Status.PASS
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def part_statement(part: Part, outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """Result of the checks alone or the criteria alone: ``All 375 checks passed``."""
    required = [v for v in verdicts if v.required and v.kind == part and not v.id.startswith(RUN)]
    counts = Counter(v.status for v in required)
    total = len(required)
    singular, plural, success, other_part = {
        "check": ("check", "checks", "passed", "benchmarks"),
        "criterion": ("criterion", "criteria", "met", "checks"),
    }[part]
    noun = singular if total == 1 else plural
    if outcome is Outcome.PASSED:
        warned = f", {counts[Status.WARN]} of them with a warning" if counts[Status.WARN] else ""
        return f"All {total} {noun} {success}{warned}. Without the {other_part} nothing is certified."
    run_verdicts = [v for v in verdicts if v.required and (v.kind != part or v.id.startswith(RUN))]
    of_run = sorted((v for v in run_verdicts if v.status.rank > Status.WARN.rank), key=lambda v: -v.status.rank)
    parts = [
        f"{counts[status]} of {total} {noun} {word}{where}"
        for status, word in ((Status.FAIL, "failed"), (Status.INVALID, "invalid"), (Status.UNMEASURED, "unmeasured"))
        if counts[status]
        for where in [f", on {fold_subjects(v.subject for v in required if v.status is status)}"]
    ]
    return (
        "; ".join([*parts, *(f"{v.title}: {v.message}" for v in of_run[:1])] or [f"No {singular} was required"]) + "."
    )


def outcome_statement(outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """The reason for the outcome, in a sentence."""
    if broken := broken_evidence(verdicts):
        return broken
    required = [v for v in verdicts if v.required]
    counts = Counter(v.status for v in required)
    total = counted(len(required), "required verdict")
    if not required:
        return "The architecture requires nothing of this rack, so nothing is proven."
    words = ((Status.INVALID, "invalid"), (Status.UNMEASURED, "unmeasured"))
    no_number = " and ".join(
        f"{counts[s]} {'is' if counts[s] == 1 else 'are'} {word}" for s, word in words if counts[s]
    )
    if outcome is Outcome.NOT_CERTIFIED:
        where = fold_subjects(v.subject for v in required if v.status is Status.FAIL)
        text = f"{counts[Status.FAIL]} of {total} failed, on {where}"
        return f"{text}; of the others {no_number}." if no_number else f"{text}."
    if outcome is Outcome.INCOMPLETE:
        if not no_number:
            return f"The evidence is incomplete, although none of {total} is unmeasured or invalid."
        return f"Nothing failed, but not all of {total} have a usable result: {no_number}."
    passed = f"All {total} passed" if len(required) > 1 else "The one required verdict passed"
    changed = sum(v.changed is not None for v in required)
    remarks = [f"{counts[Status.WARN]} of them with a warning"] if counts[Status.WARN] else []
    remarks += [f"{changed} of them against a bar that the site has changed"] if changed else []
    return ", ".join([passed, *remarks]) + "."


def stand_in_statements(names: Collection[str], nodes: Sequence[NodeInfo]) -> tuple[str, ...]:
    """The sentence about nodes in whose place stand-in programs answered; empty without one."""
    if not names:
        return ()
    who = "No node of this rack was measured" if len(names) == len(nodes) else f"{fold_subjects(names)}: not measured"
    return (f"{who}: stand-in programs print every answer and number, in the formats of the tools.",)


def simulation_statements(
    nodes: Sequence[NodeInfo], architecture: Architecture, measurements: Iterable[Measurement]
) -> tuple[str, ...]:
    """Sentences about what is virtual or simulated; empty when everything is real hardware."""
    statements = []
    virtual = [n.name for n in nodes if n.virtual]
    if virtual and len(virtual) == len(nodes):
        statements.append("All nodes are virtual machines.")
    elif virtual:
        statements.append(f"{fold_subjects(virtual)}: virtual machines.")
    replayed = [n.name for n in nodes if n.simulated_gpus]
    if replayed:
        statements.append(f"GPUs of {fold_subjects(replayed)} are simulated: device tools replay recorded answers.")
    if architecture.fabric and architecture.fabric.kind == "soft-roce":
        statements.append("RDMA is Soft-RoCE: implemented by the kernel, without an RDMA adapter.")
    metrics = sorted({m.metric for m in measurements if m.simulated})
    if metrics:
        statements.append(f"Measured on simulated devices: {', '.join(metrics)}.")
    return tuple(statements)


def untried_statements(measurements: Iterable[Measurement]) -> tuple[str, ...]:
    """Metrics of benchmarks that the kit's authors could not try (README, "What is supported"), in sentences."""
    measured = [m for m in measurements if m.samples]
    statements = []
    for which, how in (
        (_never_on_a_gpu, "have never run on a GPU"),
        (_over_nccl, "have run on one GPU only: two ranks over TCP, never over NVLink or RDMA"),
    ):
        if names := sorted({m.metric for m in measured if which(m)}):
            statements.append(
                f"Figures of {some(names, PAIRS)} are from benchmarks that the kit's authors {how}:"
                " compare them with the tools' own output, which is in the evidence."
            )
    return tuple(statements)


def _never_on_a_gpu(measurement: Measurement) -> bool:
    metric, accelerator = measurement.metric, str(measurement.conditions.get("accelerator", ""))
    return metric.startswith(UNTRIED) or (metric.endswith(TIMED_ON_DEVICE) and ", nccl, " in accelerator)


def _over_nccl(measurement: Measurement) -> bool:
    nccl = measurement.labels.get("engine") == "nccl-tests" or measurement.conditions.get("backend") == "nccl"
    return nccl and not _never_on_a_gpu(measurement)


def method_statements(measurements: Iterable[Measurement]) -> tuple[str, ...]:
    """The sentence about links that group testing measured instead of all pairs; empty without group testing."""
    measurements = list(measurements)
    tested = [m for m in measurements if m.metric == METRIC]
    measured = [m for m in tested if m.samples]
    if not tested:
        return ()
    names = {m.members[0] for m in tested}
    pairs = {m.subject for m in measurements if m.scope is Scope.PAIR and names.issuperset(m.members)}
    pair_count = len(names) * (len(names) - 1) // 2
    cleared = sum(not any(m.samples) for m in measured)
    how = "no job gave a figure"
    if measured:
        had = measured[0].conditions
        engine = str(measured[0].labels.get("engine"))
        how = (
            f"{had.get('jobs')} jobs in {had.get('rounds')} rounds ({engine} over {TRANSPORTS.get(engine, 'unknown')},"
            f" at least {had.get('least_gb_per_s')} GB/s of every node on each rail)"
        )
    return (
        f"Links by group testing: {len(pairs)} of {pair_count} pairs were measured; for the others {how} cleared"
        f" {cleared} of {len(names)} nodes.",
    )


def validators_statements(run: RunInfo) -> tuple[str, ...]:
    """The sentence about validators that are not the kit's; empty if the kit's ran."""
    if run.own_validators is None:
        return ()
    return (f"Checked by the site's validators in {run.own_validators} (sha256 {run.validators}), not by the kit's.",)


UNTRIED: Final = (
    "gpu.diagnosed_faults",
    "gpu.peer_read_bandwidth",
    "link.rdma_write_bandwidth_gpu",
    "link.rdma_read_latency_gpu",
    "storage.gds_read_bandwidth",
    "guest.",
)
"""Metrics, by their beginning, whose benchmarks were tested on stand-ins and recorded outputs only."""
TIMED_ON_DEVICE: Final = (".accelerator_utilisation", ".latency_p99", ".inference_latency_loss")
"""Metrics of real accelerators by the ends of their steps. Their program has changed since it ran on a GPU."""

STATED: Final = (
    "exit statuses and times of commands, ssh host keys, losses that no command saw, the inventory's name, versions"
    " and load of the controller; and that records and outputs were not rewritten together: a signature shows that"
)
"""Statements of the evidence that no raw output proves."""


def fold_subjects(subjects: Iterable[str]) -> str:
    """``gpu-[01-02], gpu-01 ↔ gpu-02, rack``: nodes folded, pairs and the rack spelled out."""
    unique = sorted(set(subjects))
    nodes = [s for s in unique if "|" not in s and s != "rack"]
    parts = []
    if nodes:
        try:
            parts.append(fold(nodes))
        except NodeSetException:  # names outside ClusterShell's syntax are shown unfolded
            parts.append(", ".join(nodes))
    spelled = [subject_text(s) for s in unique if "|" in s or s == "rack"]
    parts += spelled[:PAIRS]
    if len(spelled) > PAIRS:
        parts.append(f"{len(spelled) - PAIRS} more pairs")
    return ", ".join(parts) if parts else "no node"


def subject_text(subject: str) -> str:
    """Display form of a subject: a pair is stored as ``a|b`` and shown as ``a ↔ b``."""
    return subject.replace("|", " ↔ ")


def area_of(verdict: Verdict, storage_classes: dict[str, str]) -> str:
    """The part of the rack that a verdict is about: ``checks: base``, ``storage: nfs``, ``links`` …

    Checks are grouped by their module, the part of the id before the first dot; storage criteria by storage class.
    """
    if verdict.kind == "check":
        return f"checks: {name_of(verdict.id).partition('.')[0]}"
    family = (verdict.metric or "other").partition(".")[0]
    if family == "storage":
        name = verdict.labels.get("storage", "")
        return f"storage: {storage_classes.get(name, name or 'any')}"
    return {"link": "links", "group": "links", "collective": "collectives"}.get(family, family)


def by_area(certificate: Certificate) -> dict[str, list[Verdict]]:
    """Verdicts of every area: checks first, then storage from near to far, then the network."""
    classes = {s.name: s.class_ for s in certificate.architecture.storages}
    areas = grouped((area_of(verdict, classes), verdict) for verdict in certificate.verdicts)
    return {area: areas[area] for area in sorted(areas, key=area_order)}


def area_order(area: str) -> tuple[int, int, str]:
    """Sort key of ``by_area``."""
    family, _, rest = area.partition(": ")
    families = ("checks", "storage", "links", "collectives")
    return (
        families.index(family) if family in families else len(families),
        CLASS_ORDER.index(rest) if rest in CLASS_ORDER else len(CLASS_ORDER),
        area,
    )
