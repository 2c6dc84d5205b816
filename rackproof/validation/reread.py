"""Reads checks again: compares recorded results with what this kit's validators give on the recorded answers.

Linear in the evidence; keeps the outputs of one node at a time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import (
    CheckOutcome,
    CheckResult,
    CommandRecord,
    EventKind,
    Kind,
    Record,
    RunInfo,
    canonical,
)
from rackproof.core.node_data import wrong, wrong_name
from rackproof.core.planned_checks import PlannedChecks
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import shortened
from rackproof.errors import InventoryError, RunError
from rackproof.evidence.store import EvidenceStore, Output, answer_of
from rackproof.read_file import read_bytes
from rackproof.remote.collect import RecordingReader
from rackproof.remote.recording import public_data
from rackproof.remote.redaction import redact_data, redact_json
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from rackproof.validation.known import Checks, Function
from rackproof.validation.survey import cases
from rackproof.version_sets import LOCK_KEY, lock_path

STAGE: Final = "validate"
_NO_CHECK: Final = "recorded as passed, there is no such check for the node"


@dataclass
class Reread:
    """Result of reading the checks of a run again."""

    faults: dict[int, str] = field(default_factory=dict)
    """Why answers do not give a recorded result, by the ``seq`` of its record."""
    read: int = 0


@dataclass
class _Stage:
    answers: dict[str, dict[str, CommandRecord]] = field(default_factory=dict)
    """By node and command. The first of several answers to a command counts, as it did for the check."""
    results: dict[str, list[tuple[int, CheckResult]]] = field(default_factory=dict)
    plan: tuple[int, PlannedChecks] | None = None
    """With the ``seq`` of its record; None for a narrowed part, which plans fewer checks."""


def reread(
    records: Iterable[Record], output: Output, architecture: Architecture, checks: Checks, digest: str
) -> Reread:
    """Read all checks of a run's validations again. ``architecture`` is the run's own, ``checks`` are the kit's.

    Each result is compared with the declaration of its check (whether the check is required, what it reads and
    expects), and a passed result with its answers. A result that cannot be read again is a fault, too. ``digest``: of
    the validators that declare ``checks``. Raises RunError if the run has no first record.
    """
    with TemporaryDirectory() as scratch:
        return _reread(records, output, architecture, checks, digest, Path(scratch))


def _reread(
    records: Iterable[Record], output: Output, architecture: Architecture, checks: Checks, digest: str, scratch: Path
) -> Reread:
    reread = Reread()
    info: RunInfo | None = None
    rack: Rack | None = None
    planned: dict[tuple[str, str, str], tuple[Function, Case]] = {}
    for stage in _stages(records):
        if isinstance(stage, RunInfo):
            info = info or stage
            continue
        if info is None:
            raise RunError("the evidence has no run record, so its nodes are unknown")
        if rack is None:
            rack = rack_of(info, output, scratch)
            planned = {
                (case.check.id, case.item, case.node.name): (function, case)
                for function, case in cases(Context(rack, architecture, {}), checks)
            }
        if stage.plan is not None and info.validators == digest:
            seq, plan = stage.plan
            if left_out := sorted(planned.keys() - set(plan.cases())):
                check, item, node = left_out[0]
                what = f"{check}[{item}]" if item else check
                reread.faults[seq] = f"it lacks {len(left_out)} checks of the validators, the first: {what} on {node}"
        for node, results in stage.results.items():
            _node(reread, results, stage.answers.get(node, {}), Context(rack, architecture, {}), planned, output)
    if info is not None and info.validators != digest:
        way_out = f"--validators {info.own_validators}" if info.own_validators else f"rackproof {info.rackproof}"
        for seq, why in reread.faults.items():
            reread.faults[seq] = f"{why}; the run used other validators than these: judge it with {way_out}"
    return reread


def store_inventory(store: EvidenceStore, rack: Rack) -> dict[str, str]:
    """Store each node's groups and data as an output, without secrets and access details; sha256 names by node.

    A version set is stored too; its path is replaced by the name of its output. Raises EvidenceWriteError.
    """
    names: dict[str, str] = {}
    for node in rack.nodes:
        data = redact_data(public_data(node.data))
        with contextlib.suppress(InventoryError, OSError):
            if (path := lock_path(node, rack.source)) is not None:
                data[LOCK_KEY] = store.output(read_bytes(path))
        names[node.name] = store.output(canonical({"groups": node.groups, "data": data}))
    return names


def recorded_inventory(info: RunInfo, node: str, output: Output) -> tuple[list[str], dict[str, Any]]:
    """Groups and data of a node in the inventory, as recorded. Raises RunError for data that no inventory can have."""
    try:
        recorded = json.loads(output(info.inventory_data[node]))
        groups, data = list(recorded["groups"]), dict(recorded["data"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RunError(f"{type(error).__name__}: {error}") from None
    if problem := wrong_name(node, groups) or wrong(data):
        raise RunError(problem)
    return groups, data


def rack_of(info: RunInfo, output: Output, scratch: Path) -> Rack:
    """The nodes of a run, with the inventory's data where the run recorded them. Version sets go to ``scratch``."""
    nodes = []
    for node in info.nodes:
        data: dict[str, Any] = {"virtual": node.virtual, "simulated_gpus": node.simulated_gpus}
        with contextlib.suppress(RunError):  # the verdict on the evidence names it
            data = recorded_inventory(info, node.name, output)[1]
            _restore_version_set(data, output, scratch)
        nodes.append(Node(node.name, node.groups, data))
    return Rack(info.inventory, tuple(nodes))


def _restore_version_set(data: dict[str, Any], output: Output, scratch: Path) -> None:
    if (name := data.get(LOCK_KEY)) is not None:
        path = scratch / str(name)
        path.write_bytes(output(str(name)))
        data[LOCK_KEY] = str(path)


def _stages(records: Iterable[Record]) -> Iterator[_Stage | RunInfo]:
    """The run, and each validation with results."""
    stage: _Stage | None = None
    narrowed = False
    for record in records:
        match record.kind:
            case Kind.RUN:
                yield RunInfo.model_validate(record.body)
            case Kind.EVENT if record.body["event"] in (EventKind.NARROWED, EventKind.RESUMED):
                narrowed = record.body["event"] == EventKind.NARROWED
            case Kind.PLANNED if stage is not None and not narrowed:
                stage.plan = record.seq, PlannedChecks.model_validate(record.body)
            case Kind.STAGE:
                if stage is not None and stage.results:
                    yield stage
                begins = record.body.get("stage") == STAGE and record.body.get("event") == "begin"
                stage = _Stage() if begins else None
            case Kind.COMMAND if stage is not None:
                command = CommandRecord.model_validate(record.body)
                stage.answers.setdefault(command.node, {}).setdefault(command.command, command)
            case Kind.CHECK if stage is not None:
                result = CheckResult.model_validate(record.body)
                stage.results.setdefault(result.node, []).append((record.seq, result))
    if stage is not None and stage.results:
        yield stage


def _node(
    reread: Reread,
    results: Sequence[tuple[int, CheckResult]],
    answers: Mapping[str, CommandRecord],
    context: Context,
    planned: Mapping[tuple[str, str, str], tuple[Function, Case]],
    output: Output,
) -> None:
    name = results[0][1].node
    known = []
    for record in answers.values():
        try:
            known.append(answer_of(record, output))
        except RunError:
            continue  # the verdict on the evidence names it; a check that needs the answer has none
    reader = RecordingReader(name, known=known)
    context.readers[name] = reader
    for seq, result in results:
        reread.read += 1
        if (result.check, result.item, name) not in planned:
            if result.outcome is CheckOutcome.PASSED:
                reread.faults[seq] = _NO_CHECK
            continue
        function, case = planned[result.check, result.item, name]
        if fault := _difference(result, context.evaluate(function, case)):
            reread.faults[seq] = fault


def _difference(recorded: CheckResult, again: CheckResult) -> str | None:
    """The first difference that makes the recorded result look better than the new one; None without one."""
    if recorded.required != again.required:
        says = {True: "required", False: "not required"}
        return f"recorded as {says[recorded.required]}, the check is {says[again.required]}"
    for what, one, other in (("reads", recorded.reads, again.reads), ("expected", recorded.expected, again.expected)):
        if one != other:
            return f"recorded {what} {_short(one)}, the architecture gives {_short(other)}"
    if recorded.outcome is not CheckOutcome.PASSED:
        return None
    if again.outcome is not CheckOutcome.PASSED:
        does = "fail" if again.outcome is CheckOutcome.FAILED else "do not prove it"
        return f"recorded as passed, its recorded answers {does}: {again.message}"
    for name in sorted(CheckResult.model_fields.keys() - {"elapsed_s"}):
        one, other = getattr(recorded, name), getattr(again, name)
        if one != other and one != redact_json(other):
            return f"recorded {name} {_short(one)}, its recorded answers give {_short(other)}"
    return None


def _short(value: Any) -> str:
    return shortened(json.dumps(value, sort_keys=True, ensure_ascii=False), 80)
