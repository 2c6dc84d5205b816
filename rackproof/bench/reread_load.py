"""What steps did to the nodes, and what measured, read again: recorded results against the answers that give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rackproof.bench.guard import NOT_ASKED, Seen, conditions_seen, is_look, results, seen_in
from rackproof.bench.programs import is_question
from rackproof.bench.programs import results as of_programs
from rackproof.bench.reading import outputs_of
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckResult, CommandRecord, Kind, Measurement, NodeInfo, Record
from rackproof.core.history import participants, servers_of
from rackproof.core.load import PREFIX
from rackproof.core.programs import CHECK
from rackproof.errors import RunError
from rackproof.remote.command import CommandResult

Answers = Callable[[CommandRecord], CommandResult]
"""A recorded command with its outputs. Raises RunError where they are missing."""


@dataclass
class LoadRead:
    """Results of reading again."""

    faults: dict[int, str] = field(default_factory=dict)
    """Why the looks do not give a check's result, by ``seq``."""
    conditions: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Conditions of measurements by ``seq``, as the looks give them."""


def read_load(
    records: Iterable[Record], answer: Answers, architecture: Architecture, nodes: Iterable[NodeInfo]
) -> LoadRead:
    """Read all looks of a run in their order; one whose output is missing gives nothing."""
    read = LoadRead()
    infos = {node.name: node for node in nodes}
    servers = servers_of(architecture, tuple(infos.values()))
    before: dict[str, Seen] = {}
    now: dict[str, Seen] = {}
    given: dict[tuple[str, str], dict[str, CheckResult]] = {}
    programs: dict[str, CommandResult] = {}
    for record in records:
        body = record.body
        if record.kind is Kind.COMMAND and is_look(str(body["command"])):
            command = CommandRecord.model_validate(body)
            before[command.node] = now.get(command.node, NOT_ASKED)
            try:
                result = answer(command)
                now[command.node] = seen_in(result, outputs_of([result]))
            except RunError as error:
                now[command.node] = Seen(None, str(error))
            given.clear()
        elif record.kind is Kind.COMMAND and is_question(str(body["command"])):
            with suppress(RunError):
                programs[str(body["node"])] = answer(CommandRecord.model_validate(body))
        elif record.kind is Kind.CHECK and body["check"] == CHECK:
            recorded = CheckResult.model_validate(body)
            found: CheckResult | None = None
            if asked := programs.get(recorded.node):
                found = next(of_programs(recorded.node, (recorded.item,), asked, outputs_of([asked])))
            if fault := _fault(recorded, found):
                read.faults[record.seq] = fault
        elif record.kind is Kind.MEASUREMENT and body.get("samples"):
            measurement = Measurement.model_validate(body)
            members = participants(measurement.members, measurement.labels, servers)
            read.conditions[record.seq] = conditions_seen(before, now, members)
        elif record.kind is Kind.CHECK and str(body["check"]).startswith(PREFIX):
            recorded = CheckResult.model_validate(body)
            key = recorded.node, recorded.item
            if key not in given and recorded.node in infos:
                looks = before.get(recorded.node, NOT_ASKED), now.get(recorded.node, NOT_ASKED)
                several = results(architecture, infos[recorded.node], recorded.item, *looks)
                given[key] = {result.check: result for result in several}
            if fault := _fault(recorded, given.get(key, {}).get(recorded.check)):
                read.faults[record.seq] = fault
    return read


def _fault(recorded: CheckResult, given: CheckResult | None) -> str | None:
    if given is None:
        return "nothing recorded before it shows it"
    if (recorded.outcome, recorded.message, recorded.required) != (given.outcome, given.message, given.required):
        return (
            f"recorded {recorded.outcome.value}: {recorded.message}; its outputs give {given.outcome.value}:"
            f" {given.message}"
        )
    return None if set(recorded.raw) == set(given.raw) else "it names other outputs than those of its step"
