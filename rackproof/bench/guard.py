"""Read the state of all nodes before and after each step, and record what the step changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement, NodeInfo
from rackproof.core.history import participants, servers_of
from rackproof.core.load import (
    GPUS,
    PREFIX,
    SUBJECTS,
    Finding,
    Limits,
    LoadState,
    compare,
    gives_gpus_away,
    limits_of,
    subjects_for,
)
from rackproof.core.rack import Node, fold
from rackproof.core.starvation import conditions_of
from rackproof.core.wording import some
from rackproof.evidence.folder import node_infos
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.load import MARK, parse_load_state
from rackproof.remote import controller
from rackproof.remote.command import CommandResult
from rackproof.shell import script

_TIMEOUT_S: Final = 120.0
"""Time limit in seconds of one reading; a node's ``command_timeout_s`` overrides it."""


class Observation(NamedTuple):
    """A node's state at one time, or why it is unknown."""

    state: LoadState | None
    why: str = ""
    raw: tuple[str, ...] = ()
    """sha256 names of the outputs."""


class Guard:
    """Keeps the latest state of all nodes: the state after a step is the one before the next."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nodes = {
            node.name: subjects
            for node in session.rack.nodes
            if (subjects := subjects_for(session.architecture, node.groups, node.simulated_gpus))
        }
        """Subjects by node."""
        self._infos = {node.name: node for node in node_infos(session.rack)}
        self._servers = servers_of(session.architecture, tuple(self._infos.values()))
        self._ports = controller.ports_of_machines(session.rack)
        self.before: dict[str, Observation] = {}
        self.now: dict[str, Observation] = {}
        self._readings: tuple[controller.Reading | None, controller.Reading | None] = (None, None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes whose state is read."""
        return tuple(self._nodes)

    def observe(self) -> None:
        """Read the state of all nodes at once, and of the controller."""
        session = self._session
        nodes = [session.rack.node(name) for name in self._nodes]
        limit = max((float(node.data.get("command_timeout_s", _TIMEOUT_S)) for node in nodes), default=_TIMEOUT_S)
        answers = session.run({node.name: self._command(node) for node in nodes}, limit)
        self.before = self.now
        self.now = {name: observation_of(answer, session.outputs(answer)) for name, answer in answers.items()}
        self._readings = self._readings[1], controller.reading(self._ports)

    def _command(self, node: Node) -> str:
        latest = self.now.get(node.name)
        log = latest.state.log if latest is not None and latest.state is not None else None
        real = "gpus" in self._nodes[node.name]
        return load_command("" if log is None else f"{log.last_s:.6f}", real)

    def beside(self, measurement: Measurement) -> Measurement:
        """The measurement with the conditions of its nodes and of the controller during its step."""
        nodes = participants(measurement.members, measurement.labels, self._servers)
        load = observed_conditions(self.before, self.now, nodes) | controller.conditions(
            *self._readings, bool(self._ports)
        )
        return measurement.model_copy(update={"conditions": measurement.conditions | load}) if load else measurement

    def record(self, step: str) -> list[str]:
        """Record the changes of every node in a step. Returns a line per fault."""
        session = self._session
        faults: dict[str, tuple[set[str], dict[str, None]]] = {}
        for name in self._nodes:
            observations = self.before.get(name, NOT_ASKED), self.now.get(name, NOT_ASKED)
            for result in results(session.architecture, self._infos[name], step, *observations):
                session.store.append(Kind.CHECK, result)
                if result.outcome is not CheckOutcome.PASSED:
                    names, checks = faults.setdefault(result.message, (set(), {}))
                    names.add(name)
                    checks[result.check] = None
        return [f"{step}: {fold(names)}: {text} ({some(list(checks), 2)})" for text, (names, checks) in faults.items()]


NOT_ASKED: Final = Observation(None, "it was not asked")


def load_command(since: str, gpus: bool) -> str:
    """Command that reads the state. ``since``: time of the last known kernel message, seconds; ``gpus``: read GPUs."""
    return f"{script(__name__, 'state')}\n{script(__name__, 'guard', since=since, gpus=int(gpus))}"


def observation_of(answer: CommandResult, raw: tuple[str, ...]) -> Observation:
    """Parse an answer of ``guard.sh``."""
    if not answer.ok:
        return Observation(None, answer.why, raw)
    try:
        return Observation(parse_load_state(answer.stdout), "", raw)
    except ParseError as error:
        return Observation(None, str(error), raw)


def is_load_command(command: str) -> bool:
    """Whether a recorded command is ``load_command``."""
    return MARK in command


def observed_conditions(
    before: Mapping[str, Observation], now: Mapping[str, Observation], nodes: Iterable[str]
) -> dict[str, Any]:
    """Conditions of a measurement on these nodes, from the known states."""
    first, last = (
        {n: observation.state for n, observation in states.items() if observation.state is not None}
        for states in (before, now)
    )
    return conditions_of(first, last, nodes)


def results(
    architecture: Architecture, node: NodeInfo, step: str, before: Observation, after: Observation
) -> Iterator[CheckResult]:
    """Results of one step on one node, one per subject."""
    limits = limits_of(architecture, node.groups, node.virtual)
    limits = limits._replace(anew=frozenset({GPUS} if gives_gpus_away(step) else ()))
    for name in subjects_for(architecture, node.groups, node.simulated_gpus):
        finding = change(name, before, after, limits)
        subject = SUBJECTS[name]
        yield CheckResult(
            check=f"{PREFIX}{name}", node=node.name, item=step, outcome=finding.outcome, message=finding.message,
            protects=subject.protects, hint=subject.hint, required=subject.required,
            raw=tuple(dict.fromkeys((*before.raw, *after.raw))),
        )  # fmt: skip


def change(subject: str, before: Observation, after: Observation, limits: Limits) -> Finding:
    """Difference of a subject between two observations, and why a state is unknown."""
    finding = compare(subject, before.state, after.state, limits)
    silent = next((f": {observation.why}" for observation in (after, before) if observation.state is None), "")
    return Finding(finding.outcome, finding.message + silent)
