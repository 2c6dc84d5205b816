"""Compare two runs: numbers and verdicts that are worse, better, gone, new, or cannot be compared.

Numbers are matched by metric, scope, members and labels; they change when their medians differ by more than noise (see
``noise``). A criterion whose value derives from several numbers is compared by its verdicts' values instead (see
``derived``). Both runs are judged against one architecture; verdicts are matched by id and subject. Only numbers and
verdicts that both runs have can be the same.

Swapping the runs swaps better and worse, gone and new. A failure in B without a verdict in A is not worse in that
sense, but it is a regression, so that it is not hidden.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rackproof.core.architecture import Architecture, JudgedEntry, Severity
from rackproof.core.comparison import (
    Change,
    Comparison,
    NumberChange,
    VerdictChange,
    moved,
    not_comparable,
    simulated_once,
)
from rackproof.core.derived import values
from rackproof.core.evidence import Kind, Measurement, Quantity, Record, RunInfo, Scope
from rackproof.core.grouping import grouped
from rackproof.core.history import history_of
from rackproof.core.judging.judge import judge_records
from rackproof.core.metrics import METRICS
from rackproof.core.noise import noise_between
from rackproof.core.starvation import CONDITIONS
from rackproof.core.status import Status
from rackproof.core.units import UnitError, convert
from rackproof.core.verdict import Judgement, Verdict
from rackproof.core.wording import exact


class Question(NamedTuple):
    """Selects the measurements of a criterion, a curve or an outlier."""

    id: str
    required: bool
    metric: str
    scope: Scope
    where: frozenset[tuple[str, str]]


def compare(
    architecture: Architecture,
    before: Sequence[Record],
    after: Sequence[Record],
    threshold_pct: float | None = None,
    warnings: Iterable[str] = (),
) -> Comparison:
    """Compare run B (``after``) with run A (``before``), both judged against ``architecture``.

    ``warnings`` about the evidence itself become part of the result. Raises RunError for records that are not a run's.
    """
    judgements = judge_records(architecture, before), judge_records(architecture, after)
    run_a, run_b = _info(before), _info(after)
    names_a, names_b = ({node.name for node in run.nodes} for run in (run_a, run_b))
    return Comparison(
        before=run_a.run,
        after=run_b.run,
        architecture=architecture.metadata.id,
        threshold_pct=threshold_pct,
        differences=tuple(_circumstances(run_a, run_b)),
        nodes_gone=tuple(sorted(names_a - names_b)),
        nodes_new=tuple(sorted(names_b - names_a)),
        numbers=tuple(
            _numbers(
                questions(architecture),
                (run_a, _counting(architecture, before)),
                (run_b, _counting(architecture, after)),
                threshold_pct,
            )
        ),
        verdicts=tuple(_verdicts(*judgements)),
        values=tuple(values(architecture, judgements[0].verdicts, judgements[1].verdicts, threshold_pct)),
        warnings=tuple(warnings),
    )


def _counting(architecture: Architecture, records: Sequence[Record]) -> list[Record]:
    """Records without those that a repetition or an exchanged node made void."""
    superseded = history_of(records, architecture, _info(records).nodes).superseded
    return [record for record in records if record.seq not in superseded]


def _info(records: Iterable[Record]) -> RunInfo:
    return next(RunInfo.model_validate(record.body) for record in records if record.kind is Kind.RUN)


def questions(architecture: Architecture) -> Iterator[Question]:
    """Questions of the architecture, in the order of the file."""
    for criterion in architecture.criteria:
        for id_, where in criterion.variants():
            yield _question(id_, criterion, criterion.metric, criterion.scope, where)
        for way in criterion.any_of:
            where = {key: value for key, value in way.where.items() if isinstance(value, str)}
            yield _question(criterion.id, criterion, way.metric, way.scope, where)
    for curve in architecture.curves:
        for point in sorted({curve.baseline, *curve.points}):
            yield _question(curve.id, curve, curve.metric, Scope.RACK, {**curve.where, curve.over: str(point)})
    for outlier in architecture.outliers:
        for id_, where in outlier.variants():
            yield _question(id_, outlier, outlier.metric, outlier.scope, where)


def _question(id_: str, entry: JudgedEntry, metric: str, scope: Scope, where: Mapping[str, str]) -> Question:
    return Question(id_, entry.severity is Severity.REQUIRED, metric, scope, frozenset(where.items()))


def _circumstances(run_a: RunInfo, run_b: RunInfo) -> Iterator[str]:
    """Differences between the runs that may explain differences between numbers."""
    for name, before, after in (
        ("made for", run_a.architecture, run_b.architecture),
        ("architecture sha256", run_a.architecture_sha256[:12], run_b.architecture_sha256[:12]),
        ("profile", run_a.profile, run_b.profile),
        ("inventory", run_a.inventory, run_b.inventory),
        ("rackproof", run_a.rackproof, run_b.rackproof),
    ):
        if before != after:
            yield f"{name}: {before}, then {after}"
    nodes = {node.name: node for node in run_a.nodes}
    for node in sorted(run_b.nodes, key=lambda node: node.name):
        if (old := nodes.get(node.name)) is None:
            continue
        for name in ("groups", "virtual", "simulated_gpus"):
            if getattr(old, name) != getattr(node, name):
                yield f"{node.name} {name}: {_text(getattr(old, name))}, then {_text(getattr(node, name))}"


def _numbers(
    questions_: Iterable[Question],
    side_a: tuple[RunInfo, Sequence[Record]],
    side_b: tuple[RunInfo, Sequence[Record]],
    threshold_pct: float | None,
) -> Iterator[NumberChange]:
    by_metric = grouped(((question.metric, question.scope), question) for question in questions_)
    before, after = latest(_measurements(side_a[1])), latest(_measurements(side_b[1]))
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        some = old or new
        assert some is not None  # noqa: S101  (the key is from one of the two)
        candidates = by_metric.get((some.metric, some.scope), ())
        labels = some.labels.items()
        concerned = [question for question in candidates if question.where <= labels]
        yield NumberChange(
            metric=some.metric,
            scope=some.scope,
            members=key[2],
            labels=some.labels,
            criteria=tuple(dict.fromkeys(question.id for question in concerned)),
            required=any(question.required for question in concerned),
            otherwise=tuple(_otherwise(old, new, side_a[0].run, side_b[0].run)) if old and new else (),
            **_outcome(old, new, threshold_pct),
        )


def _measurements(records: Iterable[Record]) -> Iterator[Measurement]:
    return (Measurement.model_validate(record.body) for record in records if record.kind is Kind.MEASUREMENT)


def latest(measurements: Iterable[Measurement]) -> dict[Quantity, Measurement]:
    """The latest measurement with samples, as in ``judging.select``; without any, the latest."""
    latest_by_key: dict[Quantity, Measurement] = {}
    for measurement in measurements:
        key = measurement.quantity
        if measurement.samples or key not in latest_by_key or not latest_by_key[key].samples:
            latest_by_key[key] = measurement
    return latest_by_key


def _outcome(old: Measurement | None, new: Measurement | None, threshold_pct: float | None) -> dict[str, Any]:
    """Fields of a NumberChange that follow from the samples."""
    (before, no_before), (after, no_after) = _samples(old), _samples(new)
    some = old or new
    assert some is not None  # noqa: S101
    unit = METRICS[some.metric].unit if some.metric in METRICS else some.unit
    fields: dict[str, Any] = {
        "unit": unit,
        "before": median(before) if before else None,
        "after": median(after) if after else None,
        "samples": (len(before), len(after)),
    }
    if not before and not after:
        return fields | not_comparable(f"no number in A: {no_before}; in B: {no_after}")
    if not before or not after:
        side, why = ("B", no_after) if before else ("A", no_before)
        if old is not None and new is not None and old.samples and new.samples:
            return fields | not_comparable(f"{side}: {why}")
        return fields | {"change": Change.ONLY_A if before else Change.ONLY_B, "remark": f"no number in {side}: {why}"}
    if old is not None and new is not None and (remark := simulated_once(old, new)):
        return fields | not_comparable(remark)
    was, now, higher_is_better = fields["before"], fields["after"], METRICS[some.metric].higher_is_better
    noise = noise_between(before, after, max(was, now) if higher_is_better else min(was, now), threshold_pct)
    return fields | moved(now - was, now - was if higher_is_better else was - now, was, noise)


def _samples(measurement: Measurement | None) -> tuple[tuple[float, ...], str]:
    """Samples in the metric's unit; or none, and the reason."""
    if measurement is None:
        return (), "not in the evidence"
    if not measurement.samples:
        return (), measurement.reason or "a measurement without samples and without a reason"
    metric = METRICS.get(measurement.metric)
    if metric is None:
        return (), f"unknown metric '{measurement.metric}', so better and worse are undefined"
    try:
        samples = tuple(convert(sample, measurement.unit, metric.unit) for sample in measurement.samples)
    except UnitError as error:
        return (), str(error)
    for sample in samples:
        if not math.isfinite(sample) or sample < 0 or (sample == 0 and not metric.zero_is_possible):
            return (), f"a sample is {exact(sample)} {metric.unit}, which is impossible"
    return samples, ""


def _otherwise(old: Measurement, new: Measurement, run: str, other: str) -> Iterator[str]:
    """Conditions that differ, apart from run names in commands."""
    before, after = (
        dict(_flat("", {k: v for k, v in one.conditions.items() if k not in CONDITIONS})) for one in (old, new)
    )
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key, "not recorded"), after.get(key, "not recorded")
        if was.replace(run, "RUN") != now.replace(other, "RUN"):
            yield f"{key}: {was}, then {now}"


def _flat(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(f"{prefix}{key}.", inner)
        else:
            yield f"{prefix}{key}", _text(inner)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _verdicts(before: Judgement, after: Judgement) -> Iterator[VerdictChange]:
    olds, news = ({(v.kind, v.id, v.subject): v for v in judgement.verdicts} for judgement in (before, after))
    for key in sorted(olds.keys() | news.keys()):
        old, new = olds.get(key), news.get(key)
        some = new or old
        assert some is not None  # noqa: S101
        yield VerdictChange(
            kind=some.kind,
            id=some.id,
            subject=some.subject,
            title=some.title,
            required=any(v is not None and v.required for v in (old, new)),
            change=_step(old, new),
            before=old.status if old else None,
            after=new.status if new else None,
            message=some.message,
        )


def _step(old: Verdict | None, new: Verdict | None) -> Change:
    if old is None or new is None:
        return Change.ONLY_B if old is None else Change.ONLY_A
    unknown = (Status.INVALID, Status.UNMEASURED)
    match old.status in unknown, new.status in unknown:
        case True, True:
            return Change.NOT_COMPARABLE
        case False, True:
            return Change.LOST
        case True, False:
            return Change.FOUND
    if old.status is new.status:
        return Change.SAME
    return Change.WORSE if new.status.rank > old.status.rank else Change.BETTER
