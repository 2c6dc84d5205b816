"""Looks at every node before and after each step of a benchmark, and what the step did to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rackproof.bench import controller
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement, NodeInfo
from rackproof.core.history import participants, servers_of
from rackproof.core.load import PREFIX, SUBJECTS, Look, compare, limits_of, subjects_for
from rackproof.core.rack import Node, fold
from rackproof.core.starvation import conditions_of
from rackproof.core.wording import some
from rackproof.evidence.folder import node_infos
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.load import MARK, parse_look
from rackproof.remote.command import CommandResult
from rackproof.shell import script

_TIMEOUT_S: Final = 120.0
"""For one look; a node may set ``command_timeout_s`` instead."""


class Seen(NamedTuple):
    """One look at a node, or why there is none."""

    look: Look | None
    why: str = ""
    raw: tuple[str, ...] = ()
    """sha256 names of its outputs."""


class Guard:
    """Keeps the latest look at every node: what is seen after a step is what the next step begins with."""

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
        self._here = controller.runs_the_rack(session.rack)
        self.before: dict[str, Seen] = {}
        self.now: dict[str, Seen] = {}
        self._readings: tuple[controller.Reading | None, controller.Reading | None] = (None, None)

    def look(self) -> None:
        """Ask all nodes at once, and the controller."""
        session = self._session
        nodes = [session.rack.node(name) for name in self._nodes]
        limit = max((float(node.data.get("command_timeout_s", _TIMEOUT_S)) for node in nodes), default=_TIMEOUT_S)
        answers = session.run({node.name: self._command(node) for node in nodes}, limit)
        self.before = self.now
        self.now = {name: seen_in(answer, session.outputs(answer)) for name, answer in answers.items()}
        self._readings = self._readings[1], controller.reading()

    def _command(self, node: Node) -> str:
        known = self.now.get(node.name)
        log = known.look.log if known is not None and known.look is not None else None
        real = "gpus" in self._nodes[node.name]
        return script(__name__, "guard", since="" if log is None else f"{log.last_s:.6f}", gpus=int(real))

    def beside(self, measurement: Measurement) -> Measurement:
        """The measurement with what was seen on its nodes and on the controller during its step."""
        if not measurement.samples:
            return measurement
        nodes = participants(measurement.members, measurement.labels, self._servers)
        seen = conditions_seen(self.before, self.now, nodes) | controller.conditions(*self._readings, self._here)
        return measurement.model_copy(update={"conditions": measurement.conditions | seen}) if seen else measurement

    def record(self, step: str) -> list[str]:
        """Record what the step did to every node; returns a line for everything that is wrong."""
        session = self._session
        faults: dict[str, tuple[set[str], dict[str, None]]] = {}
        for name in self._nodes:
            looks = self.before.get(name, NOT_ASKED), self.now.get(name, NOT_ASKED)
            for result in results(session.architecture, self._infos[name], step, *looks):
                session.store.append(Kind.CHECK, result)
                if result.outcome is not CheckOutcome.PASSED:
                    names, checks = faults.setdefault(result.message, (set(), {}))
                    names.add(name)
                    checks[result.check] = None
        return [f"{step}: {fold(names)}: {text} ({some(list(checks), 2)})" for text, (names, checks) in faults.items()]


NOT_ASKED: Final = Seen(None, "it was not asked")


def seen_in(answer: CommandResult, raw: tuple[str, ...]) -> Seen:
    """Read an answer of ``guard.sh``."""
    if not answer.ok:
        return Seen(None, answer.why, raw)
    try:
        return Seen(parse_look(answer.stdout), "", raw)
    except ParseError as error:
        return Seen(None, str(error), raw)


def is_look(command: str) -> bool:
    """Whether a recorded command is a look."""
    return MARK in command


def conditions_seen(before: Mapping[str, Seen], now: Mapping[str, Seen], nodes: Iterable[str]) -> dict[str, Any]:
    """Conditions of a measurement on these nodes, as far as their looks tell."""
    was, known = ({n: seen.look for n, seen in looks.items() if seen.look is not None} for looks in (before, now))
    return conditions_of(was, known, nodes)


def results(architecture: Architecture, node: NodeInfo, step: str, before: Seen, after: Seen) -> Iterator[CheckResult]:
    """What a step did to one node: one result for each subject."""
    limits = limits_of(architecture, node.groups, node.virtual)
    for name in subjects_for(architecture, node.groups, node.simulated_gpus):
        finding = compare(name, before.look, after.look, limits)
        silent = next((f": {seen.why}" for seen in (after, before) if seen.look is None), "")
        subject = SUBJECTS[name]
        yield CheckResult(
            check=f"{PREFIX}{name}", node=node.name, item=step, outcome=finding.outcome,
            message=finding.message + silent, protects=subject.protects, hint=subject.hint,
            required=subject.required, raw=tuple(dict.fromkeys((*before.raw, *after.raw))),
        )  # fmt: skip
