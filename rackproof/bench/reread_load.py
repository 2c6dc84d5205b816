"""Compare recorded results about nodes' states and measuring programs with their raw outputs, read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rackproof.bench.gpu.links import CHECKS as OF_SAMPLES
from rackproof.bench.gpu.links import is_sampler
from rackproof.bench.gpu.links import results as of_samples
from rackproof.bench.guard import NOT_ASKED, Observation, is_load_command, observation_of, observed_conditions, results
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
"""Returns a recorded command with its outputs. Raises RunError if they are missing."""


@dataclass
class LoadRead:
    """Result of ``read_load``."""

    faults: dict[int, str] = field(default_factory=dict)
    """Why outputs contradict a check's result, by ``seq``."""
    conditions: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Conditions of measurements from the nodes' states, by ``seq``."""


def read_load(
    records: Iterable[Record], answer: Answers, architecture: Architecture, nodes: Iterable[NodeInfo]
) -> LoadRead:
    """Read all states of nodes in a run, in order; a state with missing outputs, or of another node, is unknown."""
    read = LoadRead()
    records = list(records)
    identities = (record.body for record in records if record.kind is Kind.IDENTITY)
    machines = {str(body["boot_id"]): str(body["node"]) for body in identities if body["boot_id"]}
    infos = {node.name: node for node in nodes}
    servers = servers_of(architecture, tuple(infos.values()))
    before: dict[str, Observation] = {}
    now: dict[str, Observation] = {}
    derived: dict[tuple[str, str], dict[str, CheckResult]] = {}
    programs: dict[str, CommandResult] = {}
    sampled: dict[str, CommandResult] = {}
    result: CheckResult | None
    for record in records:
        body = record.body
        if record.kind is Kind.COMMAND and is_load_command(str(body["command"])):
            command = CommandRecord.model_validate(body)
            before[command.node] = now.get(command.node, NOT_ASKED)
            try:
                output = answer(command)
                now[command.node] = _own(command.node, observation_of(output, outputs_of([output])), machines)
            except RunError as error:
                now[command.node] = Observation(None, str(error))
            derived.clear()
        elif record.kind is Kind.COMMAND and is_question(str(body["command"])):
            with suppress(RunError):
                programs[str(body["node"])] = answer(CommandRecord.model_validate(body))
        elif record.kind is Kind.COMMAND and is_sampler(str(body["command"])):
            with suppress(RunError):
                sampled[str(body["node"])] = answer(CommandRecord.model_validate(body))
        elif record.kind is Kind.STEP:
            sampled.clear()
        elif record.kind is Kind.CHECK and body["check"] in OF_SAMPLES:
            recorded = CheckResult.model_validate(body)
            result = None
            if (info := infos.get(recorded.node)) and (samples := sampled.get(recorded.node)):
                by_check = of_samples(architecture, info, recorded.item, samples, outputs_of([samples]))
                result = next(one for one in by_check if one.check == recorded.check)
            if fault := _fault(recorded, result):
                read.faults[record.seq] = fault
        elif record.kind is Kind.CHECK and body["check"] == CHECK:
            recorded = CheckResult.model_validate(body)
            result = None
            if listing := programs.get(recorded.node):
                result = next(of_programs(recorded.node, (recorded.item,), listing, outputs_of([listing])))
            if fault := _fault(recorded, result):
                read.faults[record.seq] = fault
        elif record.kind is Kind.MEASUREMENT and body["samples"]:
            measurement = Measurement.model_validate(body)
            members = participants(measurement.members, measurement.labels, servers)
            read.conditions[record.seq] = observed_conditions(before, now, members)
        elif record.kind is Kind.CHECK and str(body["check"]).startswith(PREFIX):
            recorded = CheckResult.model_validate(body)
            key = recorded.node, recorded.item
            if key not in derived and recorded.node in infos:
                observations = before.get(recorded.node, NOT_ASKED), now.get(recorded.node, NOT_ASKED)
                step_results = results(architecture, infos[recorded.node], recorded.item, *observations)
                derived[key] = {result.check: result for result in step_results}
            if fault := _fault(recorded, derived.get(key, {}).get(recorded.check)):
                read.faults[record.seq] = fault
    return read


def _own(node: str, observation: Observation, machines: Mapping[str, str]) -> Observation:
    """The observation, without its state if that has the boot id of another node. ``machines``: nodes by boot id."""
    other = "" if observation.state is None else machines.get(observation.state.boot_id, node)
    if other in ("", node):
        return observation
    return observation._replace(state=None, why=f"its answer has the boot id of {other}")


def _fault(recorded: CheckResult, derived: CheckResult | None) -> str | None:
    if derived is None:
        return "nothing recorded before it shows it"
    if (recorded.outcome, recorded.message, recorded.required) != (derived.outcome, derived.message, derived.required):
        return (
            f"recorded {recorded.outcome.value}: {recorded.message}; its outputs give {derived.outcome.value}:"
            f" {derived.message}"
        )
    return None if set(recorded.raw) == set(derived.raw) else "it names other outputs than those of its step"
