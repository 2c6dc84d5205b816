"""Missing results of required checks: UNMEASURED.

Required are checks of the architecture's keys, checks required by name, checks that follow from a node's roles, and
checks that the run recorded as planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from rackproof.core import gpu_clocks, gpu_links, programs
from rackproof.core.architecture import Architecture, Severity
from rackproof.core.architecture.expectations import ABSENT, ExpectedCheck, expected_checks, items_of, value_at
from rackproof.core.architecture.node_checks import Place, node_checks
from rackproof.core.course import CONVERGED, REACHABLE
from rackproof.core.evidence import NodeInfo
from rackproof.core.history import VALIDATE
from rackproof.core.load import GPUS, PREFIX, subjects_for
from rackproof.core.planned_checks import Case, PlannedChecks
from rackproof.core.status import Status
from rackproof.core.verdict import RUN, Verdict, required_verdict, with_item
from rackproof.core.wording import shortened

OF_STAGES = {"connect": REACHABLE, "deploy": CONVERGED}
"""Check of a stage. In a stage that began, a node without a result is UNMEASURED."""


_SHOWN = 60
"""Maximum length of a value in a message."""


class RunScope(NamedTuple):
    """Stages and plans of a run, which determine the results that it must have."""

    stages: tuple[str, ...] = ()
    """Stages that began."""
    planned: tuple[PlannedChecks, ...] = ()
    """Planned checks of its validations."""
    steps: tuple[str, ...] = ()
    """Steps of benchmarks, after which every node must have results of ``load``."""
    programs: tuple[tuple[str, str], ...] = ()
    """Measuring programs and their nodes."""
    gpu_loads: tuple[tuple[str, str], ...] = ()
    """Steps that loaded GPUs, and their nodes."""


class _Missing:
    """Verdicts on missing results, each once."""

    def __init__(
        self,
        architecture: Architecture,
        nodes: Sequence[NodeInfo],
        groups: Mapping[str, tuple[str, ...]],
        answered: set[Case],
    ) -> None:
        self.architecture, self.nodes, self.groups, self.answered = architecture, nodes, groups, answered
        self.any_item = {(check, node) for check, _, node in answered}
        self.reported: set[Case] = set()
        self.groups_of = {node.name: (*node.groups, "all") for node in nodes}
        self.appliances = {node for node, names in self.groups_of.items() if architecture.is_appliance(names)}

    def lacks(self, check: str, item: str, node: str) -> bool:
        """Whether the result is missing and not yet reported; True marks it as reported."""
        case = (check, item, node)
        present = case in self.answered if item else (check, node) in self.any_item
        if present or case in self.reported or node in self.appliances:
            return False
        self.reported.add(case)
        return True

    def leads(self, node: str) -> tuple[str, ...]:
        """Roles whose first node it is."""
        return tuple(group for group in self.groups_of[node] if self.groups.get(group, ())[:1] == (node,))

    def by_key(self) -> Iterator[Verdict]:
        for entry in expected_checks(self.architecture):
            expectation: str | None = None  # the same for all nodes of the role
            for node in self.groups.get(entry.role, ()):
                if self.lacks(entry.check, entry.item, node):
                    expectation = expectation or _expectation(self.architecture, entry)
                    yield self.unanswered(entry, node, expectation)

    def by_name(self, stages: Iterable[str]) -> Iterator[Verdict]:
        required = [(role, check) for role, checks in self.architecture.required_checks.items() for check in checks]
        required += [("all", OF_STAGES[stage]) for stage in dict.fromkeys(stages) if stage in OF_STAGES]
        for role, check in required:
            for node in self.groups.get(role, ()):
                for item in items_of(self.architecture, check, self.groups_of[node], self.leads(node)):
                    if self.lacks(check, item, node):
                        where = " on every node" if role == "all" else f" on every node of {role}"
                        yield self.absent(check, item, node, where, "The architecture requires this check by name.")

    def by_place(self) -> Iterator[Verdict]:
        """Checks that follow from a node's roles."""
        same: dict[Place, tuple[ExpectedCheck, ...]] = {}
        for node in self.nodes:
            place = Place(
                self.groups_of[node.name],
                self.leads(node.name),
                node.simulated_gpus,
                len(self.nodes),
                len(self.groups.get("gpu", ())),
            )
            if place not in same:
                same[place] = tuple(node_checks(self.architecture, place))
            for entry in same[place]:
                if self.lacks(entry.check, entry.item, node.name):
                    yield self.unanswered(entry, node.name, _expectation(self.architecture, entry))

    def by_plan(self, scope: RunScope) -> Iterator[Verdict]:
        """Checks that the run planned."""
        if VALIDATE in scope.stages and not scope.planned:
            yield _no_plan()
        for plan in scope.planned:
            for check, item, node in plan.cases():
                if self.lacks(check, item, node):
                    yield self.absent(check, item, node, ", which was planned", "The run planned this check.")

    def by_step(self, steps: Iterable[str]) -> Iterator[Verdict]:
        """Results about nodes after each step."""
        for node in self.nodes:
            subjects = subjects_for(self.architecture, node.groups, node.simulated_gpus)
            for step, subject in product(steps, subjects):
                check = f"{PREFIX}{subject}"
                if self.lacks(check, step, node.name):
                    why = "Without this result, damage by the step would go unnoticed."
                    yield self.absent(check, step, node.name, ", which every step needs", why)

    def unanswered(self, entry: ExpectedCheck, node: str, expectation: str) -> Verdict:
        return self.absent(
            entry.check, entry.item, node, f" for {expectation}",
            "The architecture sets this key, and no check read it.", "a validator for it",
            source=entry.key, claim=entry.claims,
        )  # fmt: skip

    def absent(
        self, check: str, item: str, node: str, where: str, reason: str, validator: str = "its validator", **fields: Any
    ) -> Verdict:
        """``where`` ends the name of the result in the message, ``validator`` names what is missing in the hint."""
        id_ = with_item(check, item)
        return required_verdict(
            id_, f"{check}: {item}" if item else check, node, Status.UNMEASURED,
            f"expected a result of {id_}{where}, actual none", reason,
            f"Check that {validator} exists and was selected, then validate again.",
            required=severity_of(self.architecture, id_, check, True), **fields,
        )  # fmt: skip


def missing(
    architecture: Architecture,
    nodes: Sequence[NodeInfo],
    groups: Mapping[str, tuple[str, ...]],
    present_results: set[Case],
    scope: RunScope | None,
) -> Iterator[Verdict]:
    """A verdict for each required result that is not in ``answered``.

    ``scope`` is None for results without a run: then only checks by key or by name are required.
    """
    lacking = _Missing(architecture, nodes, groups, present_results)
    yield from lacking.by_key()
    yield from lacking.by_name(scope.stages if scope else ())
    if scope is None:
        return
    yield from lacking.by_place()
    yield from lacking.by_plan(scope)
    yield from lacking.by_step(scope.steps)
    real = {n.name for n in nodes if GPUS in subjects_for(architecture, n.groups, n.simulated_gpus)}
    for step, node in scope.gpu_loads:
        for about in (gpu_links, gpu_clocks):
            if node in real and lacking.lacks(about.CHECK, step, node):
                yield lacking.absent(about.CHECK, step, node, ", whose GPUs it loads", about.PROTECTS)
    for program, node in scope.programs:
        if all(lacking.lacks(programs.CHECK, item, node) for item in programs.checked_as(program)):
            yield lacking.absent(programs.CHECK, program, node, ", which measured", programs.PROTECTS)


def severity_of(architecture: Architecture, id_: str, check: str, otherwise: bool) -> bool:
    """Whether a check is required. The architecture may set the severity of one item or of a whole check."""
    severity = architecture.checks.get(id_) or architecture.checks.get(check)
    return otherwise if severity is None else severity is Severity.REQUIRED


def short(value: Any) -> str:
    """A value in a message."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return shortened(text, _SHOWN)


def _expectation(architecture: Architecture, entry: ExpectedCheck) -> str:
    """The key that the check reads, and its value."""
    value = value_at(architecture, entry.key)
    return entry.key if value is ABSENT else f"{entry.key}, {short(value)}"


def _no_plan() -> Verdict:
    return required_verdict(
        f"{RUN}planned", "Planned checks of the run", "rack", Status.UNMEASURED,
        "expected a record of the validation's planned checks, actual none",
        "Without it, a removed result would go unnoticed.", "Validate again.",
    )  # fmt: skip
