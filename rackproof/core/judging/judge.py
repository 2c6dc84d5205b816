"""Judge evidence against an architecture. Pure: the same input gives the same bytes.

The scope comes from the run's nodes and the architecture, never from the measurements; missing numbers are UNMEASURED.
``select`` chooses between measurements, ``bars`` compares.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError

from rackproof.core.architecture import Alternative, Architecture, Criterion, Reference
from rackproof.core.architecture.coverage import entries_of
from rackproof.core.architecture.group_tests import unasked
from rackproof.core.bodies import fault
from rackproof.core.course import BENCH
from rackproof.core.evidence import CheckResult, Frozen, Kind, Measurement, Record, RunInfo
from rackproof.core.gpu_links import LOADS
from rackproof.core.history import History, history_of
from rackproof.core.judging.checks import judge_checks
from rackproof.core.judging.conditions import needed_conditions
from rackproof.core.judging.content import judge_content
from rackproof.core.judging.criteria import judge_criterion
from rackproof.core.judging.curves import judge_curve
from rackproof.core.judging.gates import needed_companions
from rackproof.core.judging.lifecycle import judge_lifecycle
from rackproof.core.judging.members import Members
from rackproof.core.judging.missing import RunScope
from rackproof.core.judging.numbers import Numbers
from rackproof.core.judging.outliers import judge_outlier
from rackproof.core.judging.profile_parts import judge_parts
from rackproof.core.judging.select import Index, NeededConditions
from rackproof.core.planned_checks import PlannedChecks
from rackproof.core.programs import used_programs
from rackproof.core.status import Status
from rackproof.core.verdict import Judgement, Verdict, amended, outcome_for, required_verdict, with_item
from rackproof.errors import RunError

Body = TypeVar("Body", bound=Frozen)


def judge(
    architecture: Architecture,
    run: RunInfo,
    measurements: Iterable[Measurement],
    checks: Iterable[CheckResult],
) -> Judgement:
    """Judge a run against a checked architecture.

    The order of the evidence matters only between measurements of the same thing (see ``select``). Several results
    of one check, item and node count as the worst of them.
    """
    with _no_search_for_cycles():
        return _judge(architecture, run, Index(measurements, _needed_conditions(architecture)), checks)


def judge_records(
    architecture: Architecture,
    records: Iterable[Record],
    disproven: Mapping[int, str] = MappingProxyType({}),
) -> Judgement:
    """Judge the records of a run, in their order.

    ``core.history`` decides which of repeated results count; ``judging.lifecycle`` adds verdicts on the run.
    ``disproven``: by ``seq``, why raw outputs contradict a measurement or a check's result, which is then INVALID. The
    hash chain is verified by ``evidence.link_breaks``. Raises RunError, one line, for records without a run, of
    different runs, or with invalid bodies.
    """
    with _no_search_for_cycles():
        records = list(records)
        index = Index(needed=_needed_conditions(architecture))
        run, history = _sorted_out(records, architecture, index, disproven)
        counting = [r for r in records if r.kind is Kind.CHECK and r.seq not in history.superseded]
        checks = [_read(CheckResult, record) for record in counting]
        faults = {
            (with_item(result.check, result.item), result.node): disproven[record.seq]
            for record, result in zip(counting, checks, strict=True)
            if record.seq in disproven
        }
        of_run = judge_lifecycle(architecture, run, history, records)
        plans = tuple(
            _read(PlannedChecks, record)
            for record in records
            if record.kind is Kind.PLANNED and record.seq not in history.superseded
        )
        scope = RunScope(tuple(history.begun), plans, _steps(records), _programs(records), _gpu_loads(records))
        judgement = _judge(architecture, run, index, checks, scope, of_run)
        return _without_disproven(judgement, faults) if faults else judgement


def _steps(records: Iterable[Record]) -> tuple[str, ...]:
    """Executed steps of benchmarks."""
    kinds = (Kind.STEP, Kind.MEASUREMENT)
    return tuple(dict.fromkeys(str(record.body["step"]) for record in records if record.kind in kinds))


def _programs(records: Iterable[Record]) -> tuple[tuple[str, str], ...]:
    """Programs that measured numbers, and their nodes."""
    programs_used: dict[tuple[str, str], None] = {}
    for record in records:
        if record.kind is Kind.MEASUREMENT and record.body["samples"]:
            nodes = sorted({str(member).partition("/")[0] for member in record.body["members"]})
            conditions = record.body["conditions"]
            command, image = conditions.get("command"), conditions.get("image")
            programs = used_programs(record.body["metric"], record.body["labels"], command, image)
            programs_used.update(dict.fromkeys(product(programs, nodes)))
    return tuple(programs_used)


def _gpu_loads(records: Iterable[Record]) -> tuple[tuple[str, str], ...]:
    """Steps that loaded GPUs, and the nodes that took part."""
    return tuple(
        dict.fromkeys(
            (str(record.body["step"]), str(member).partition("/")[0])
            for record in records
            if record.kind is Kind.MEASUREMENT and record.body.get("samples")
            if str(record.body["step"]).startswith(LOADS)
            for member in record.body["members"]
        )
    )


def _needed_conditions(architecture: Architecture) -> NeededConditions:
    asked = [asks for _, asks in entries_of(architecture)]
    bars = [asks.pass_ for asks in asked if isinstance(asks, Criterion | Alternative)]
    quantities = [*asked, *(bar.of for bar in bars if isinstance(bar.of, Reference))]
    return NeededConditions(
        needed_conditions(quantity.conditions for quantity in quantities),
        needed_companions(quantities),
    )


def _without_disproven(judgement: Judgement, faults: Mapping[tuple[str, str], str]) -> Judgement:
    """The judgement with INVALID for checks in ``faults``, by id and subject, which their answers contradict."""
    verdicts = tuple(
        amended(verdict, status=Status.INVALID, message=faults[verdict.id, verdict.subject])
        if verdict.kind == "check" and (verdict.id, verdict.subject) in faults
        else verdict
        for verdict in judgement.verdicts
    )
    return judgement.model_copy(update={"verdicts": verdicts, "outcome": outcome_for(verdicts)})


def _sorted_out(
    records: Sequence[Record], architecture: Architecture, index: Index, disproven: Mapping[int, str]
) -> tuple[RunInfo, History]:
    """The run, whose measurements that count are added to ``index``, and its history."""
    runs = [record for record in records if record.kind is Kind.RUN]
    if not runs:
        raise RunError("the evidence has no run record; it cannot be judged")
    if len(runs) > 1:
        raise RunError(f"two runs are mixed: record {runs[1].seq} begins another one")
    run = _read(RunInfo, runs[0])
    try:
        history = history_of(records, architecture, run.nodes)
    except (AttributeError, KeyError, TypeError, ValueError):
        problem = next(filter(None, map(fault, records)), None)
        if problem is None:
            raise
        raise RunError(problem) from None
    for record in records:
        if record.kind is Kind.MEASUREMENT and record.seq not in history.superseded:
            index.add(_read(Measurement, record), record.seq, disproven.get(record.seq))
    return run, history


def _judge(
    architecture: Architecture,
    run: RunInfo,
    index: Index,
    checks: Iterable[CheckResult],
    scope: RunScope | None = None,
    of_run: Iterable[Verdict] = (),
) -> Judgement:
    members = Members(architecture, run.nodes)
    links = profile.links if (profile := architecture.profiles.get(run.profile)) else None
    count = len(members.group(links.members)) if links is not None else 0
    groups = links.grouped(count) if links is not None else None
    numbers = Numbers(index, members, engine=groups.engine if groups is not None else None)
    verdicts: list[Verdict] = list(judge_checks(architecture, run.nodes, members.groups, checks, scope))
    verdicts.extend(of_run)
    if scope is not None and BENCH in scope.stages:
        verdicts.extend(judge_parts(architecture, run.profile, index.metrics))
    needless = unasked(links, count)
    for criterion in (one for one in architecture.criteria if one.metric not in needless):
        verdicts.extend(judge_criterion(architecture, criterion, numbers))
    for curve in architecture.curves:
        verdicts.extend(judge_curve(architecture, curve, numbers))
    for outlier in architecture.outliers:
        verdicts.extend(judge_outlier(outlier, numbers))
    verdicts.extend(judge_content(index, tuple(verdicts)))
    if not any(verdict.required and verdict.kind == "criterion" for verdict in verdicts):
        verdicts.append(_NO_NUMBER)
    verdicts.sort(key=lambda verdict: (verdict.kind, verdict.id, verdict.subject))
    return Judgement(
        architecture=architecture.metadata.id,
        architecture_version=architecture.metadata.version,
        outcome=outcome_for(verdicts),
        verdicts=tuple(verdicts),
    )


_NO_NUMBER = required_verdict(
    "rack.numbers", "Numbers of the rack", "rack", Status.UNMEASURED, "the architecture has no required criterion",
    "A rack cannot be certified without a measured number.", "Add required criteria to the architecture.",
    kind="criterion",
)  # fmt: skip


def _read(model: type[Body], record: Record) -> Body:
    try:
        return model.model_validate(record.body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunError(f"record {record.seq} is not a valid {record.kind.value}: {where}: {first['msg']}") from None


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Disable cyclic garbage collection: there are no cycles, and it takes a seventh of the time on large runs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
