"""Verdicts on checks: one per result, and one per missing result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rackproof.core.architecture import Architecture, Role, Severity
from rackproof.core.architecture.expectations import ABSENT, ExpectedCheck, expected_checks, items_of, value_at
from rackproof.core.evidence import CheckOutcome, CheckResult, NodeInfo
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict

GPU_CHECKS = "gpu."
"""Prefix of checks that query GPUs, which may be simulated."""

_SHOWN = 60
"""Maximum length of a value in a message."""

NOT_A_LOOK = ("node.", "deploy.")
"""Checks with these prefixes record that a node was reached and changed; they read nothing back."""

_STATUS = {
    CheckOutcome.PASSED: Status.PASS,
    CheckOutcome.FAILED: Status.FAIL,
    CheckOutcome.UNMEASURED: Status.UNMEASURED,
}


OF_STAGES = {"connect": "node.reachable", "deploy": "deploy.converged"}
"""Stage: its check. In a stage that began, a node without a result is UNMEASURED."""


def judge_checks(
    architecture: Architecture,
    nodes: Sequence[NodeInfo],
    groups: Mapping[str, tuple[str, ...]],
    results: Iterable[CheckResult],
    stages: Iterable[str] = (),
    own_architecture: bool = True,
) -> Iterator[Verdict]:
    """Verdicts on all checks. Of several results for one check, item and node, the worst counts.

    A result with an expected value that differs from this architecture's is UNMEASURED; where the run was made for
    another architecture (``own_architecture`` False), so is a result without a recorded expectation. ``stages`` are
    the stages that the run began.
    """
    worst: dict[tuple[str, str, str], CheckResult] = {}
    for result in results:
        key = (result.check, result.item, result.node)
        if key not in worst or _STATUS[result.outcome].rank > _STATUS[worst[key].outcome].rank:
            worst[key] = result
    expected = expected_checks(architecture)
    claims = {(entry.check, entry.item): entry.claims for entry in expected}
    claims.update({(entry.check, ""): entry.claims for entry in expected if not entry.item})
    promises = _Promises(architecture, own_architecture)
    simulated = {node.name for node in nodes if node.simulated_gpus}
    for result in worst.values():
        of_simulation = result.node in simulated and result.check.startswith(GPU_CHECKS)
        claim = claims.get((result.check, result.item)) or claims.get((result.check, ""), ())
        yield _of_result(architecture, result, of_simulation, claim, promises.difference(result))
    for role, count in architecture.roles.items():
        yield _count(role, count, groups.get(role, ()))
    yield from _missing(architecture, nodes, groups, set(worst), expected, stages)
    yield from _without_role(architecture, nodes)
    checked = {name for check, _, name in worst if not check.startswith(NOT_A_LOOK)}
    for node in nodes:
        if node.name not in checked and not is_appliance(architecture, node.groups):
            yield Verdict(
                id="rack.checked",
                kind="check",
                title="Checks of the node",
                subject=node.name,
                status=Status.UNMEASURED,
                required=True,
                message=f"no check ran on {node.name}",
                reason="Nothing is known about a node without checks.",
                hint="Look in the run's log for why the node was not reached, then validate again.",
            )


class _Promises:
    """Expected values of this architecture, by key."""

    def __init__(self, architecture: Architecture, own: bool) -> None:
        self._architecture, self._own = architecture, own
        self._at: dict[str, Any] = {}

    def difference(self, result: CheckResult) -> str | None:
        """How a check's expected value differs from this architecture's; None: equal."""
        if not result.reads or (result.expected is None and self._own):
            return None
        if result.reads not in self._at:
            self._at[result.reads] = value_at(self._architecture, result.reads)
        promised = self._at[result.reads]
        if result.expected is None:
            if promised is ABSENT or promised is None:
                return None
            return f"was checked against another architecture, which did not record its {result.reads}; validate again"
        if promised is ABSENT or _spelled(promised) == _spelled(result.expected):
            return None
        if _same(result.expected, promised, value_at(self._architecture, result.reads, stated_only=True)):
            return None
        return (
            f"was checked against {result.reads} = {_short(result.expected)},"
            f" this architecture expects {_short(promised)}; validate again"
        )


def _same(recorded: Any, promised: Any, stated: Any) -> bool:
    """Whether two expected values are equal, apart from keys of newer models that the file leaves at their default."""
    if isinstance(recorded, dict) and isinstance(promised, dict):
        later = {key: stated.get(key) if isinstance(stated, dict) else None for key in promised}
        return all(recorded[key] in (None, [], {}) for key in recorded.keys() - promised.keys()) and all(
            _same(recorded[key], value, later[key])
            if key in recorded
            else not isinstance(stated, dict) or key not in stated
            for key, value in promised.items()
        )
    if isinstance(recorded, list) and isinstance(promised, list) and len(recorded) == len(promised):
        inner = stated if isinstance(stated, list) and len(stated) == len(promised) else [None] * len(promised)
        return all(_same(*triple) for triple in zip(recorded, promised, inner, strict=True))
    return _spelled(recorded) == _spelled(promised)


def _spelled(value: Any) -> str:
    """Canonical text: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return json.dumps(value)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def is_appliance(architecture: Architecture, groups: Iterable[str]) -> bool:
    """Whether none of the node's roles is managed by the kit."""
    roles = [architecture.roles[group] for group in groups if group in architecture.roles]
    return bool(roles) and not any(role.managed for role in roles)


def _missing(
    architecture: Architecture,
    nodes: Sequence[NodeInfo],
    groups: Mapping[str, tuple[str, ...]],
    answered: set[tuple[str, str, str]],
    expected: Iterable[ExpectedCheck],
    stages: Iterable[str],
) -> Iterator[Verdict]:
    """Missing results of checks that the architecture requires, by name or through a key."""
    any_item = {(check, node) for check, _, node in answered}
    reported: set[tuple[str, str, str]] = set()
    appliances = {
        name for role, promised in architecture.roles.items() if not promised.managed for name in groups.get(role, ())
    } - {name for role, promised in architecture.roles.items() if promised.managed for name in groups.get(role, ())}
    for entry in expected:
        expectation: str | None = None  # the same for every node of the role
        for node in groups.get(entry.role, ()):
            key = (entry.check, entry.item, node)
            there = key in answered if entry.item else (entry.check, node) in any_item
            if not there and key not in reported and node not in appliances:
                reported.add(key)
                if expectation is None:
                    expectation = _expectation(architecture, entry)
                yield _unanswered(architecture, entry, node, expectation)
    of_node = {node.name: (*node.groups, "all") for node in nodes}
    required = [(role, check) for role, checks in architecture.required_checks.items() for check in checks]
    required += [("all", OF_STAGES[stage]) for stage in dict.fromkeys(stages) if stage in OF_STAGES]
    for role, check in required:
        for node in groups.get(role, ()):
            if node in appliances:
                continue
            leads = [group for group in of_node[node] if groups.get(group, ())[:1] == (node,)]
            for item in items_of(architecture, check, of_node[node], leads):
                there = (check, item, node) in answered if item else (check, node) in any_item
                if not there and (check, item, node) not in reported:
                    reported.add((check, item, node))
                    yield _absent(architecture, check, item, node, role)


def _without_role(architecture: Architecture, nodes: Sequence[NodeInfo]) -> Iterator[Verdict]:
    """A node without a role has no checks and must not be certified."""
    if not nodes:
        yield _rack_verdict("rack.nodes", "Nodes of the rack", "rack", "the run has no nodes")
    for node in nodes:
        if not set(node.groups) & set(architecture.roles):
            membership = f"its groups are {', '.join(node.groups)}" if node.groups else "it is in no group"
            roles = ", ".join(architecture.roles)
            yield _rack_verdict(
                "rack.role",
                "Role of the node",
                node.name,
                f"expected a node with one of the roles {roles}, actual none: {membership}; no check applies to it",
            )


def _rack_verdict(id_: str, title: str, subject: str, message: str) -> Verdict:
    return Verdict(
        id=id_,
        kind="check",
        title=title,
        subject=subject,
        status=Status.UNMEASURED,
        required=True,
        message=message,
        reason="A node without checks cannot be certified.",
        hint="Correct the groups in the inventory, or add a role to the architecture.",
    )


def _required(architecture: Architecture, id_: str, check: str, otherwise: bool) -> bool:
    """Whether a check is required. The architecture may set the severity of one item or of a whole check."""
    severity = architecture.checks.get(id_) or architecture.checks.get(check)
    return otherwise if severity is None else severity is Severity.REQUIRED


def _of_result(
    architecture: Architecture, result: CheckResult, simulated: bool, claim: tuple[str, ...], difference: str | None
) -> Verdict:
    """``difference``: how the result's expected value differs from this architecture's."""
    id_ = f"{result.check}[{result.item}]" if result.item else result.check
    return Verdict(
        id=id_,
        kind="check",
        title=f"{result.check}: {result.item}" if result.item else result.check,
        subject=result.node,
        status=Status.UNMEASURED if difference else _STATUS[result.outcome],
        required=_required(architecture, id_, result.check, result.required),
        message=difference or result.message,
        source=result.reads or None,
        reason=result.protects,
        hint=result.hint,
        raw=result.raw,
        simulated=simulated,
        claim=claim,
    )


def _expectation(architecture: Architecture, entry: ExpectedCheck) -> str:
    """The key that the check reads, and its value."""
    promised = value_at(architecture, entry.key)
    return entry.key if promised is ABSENT else f"{entry.key}, {_short(promised)}"


def _unanswered(architecture: Architecture, entry: ExpectedCheck, node: str, expectation: str) -> Verdict:
    id_ = f"{entry.check}[{entry.item}]" if entry.item else entry.check
    return Verdict(
        id=id_,
        kind="check",
        title=f"{entry.check}: {entry.item}" if entry.item else entry.check,
        subject=node,
        status=Status.UNMEASURED,
        required=_required(architecture, id_, entry.check, True),
        message=f"expected a result of {id_} for {expectation}, actual none",
        source=entry.key,
        reason="The architecture sets this key, and no check has read it.",
        hint="Check that a validator for it exists and was selected, then validate again.",
        claim=entry.claims,
    )


def _absent(architecture: Architecture, check: str, item: str, node: str, role: str) -> Verdict:
    id_ = f"{check}[{item}]" if item else check
    nodes = "every node" if role == "all" else f"every node of {role}"
    return Verdict(
        id=id_,
        kind="check",
        title=f"{check}: {item}" if item else check,
        subject=node,
        status=Status.UNMEASURED,
        required=_required(architecture, id_, check, True),
        message=f"expected a result of {id_} on {nodes}, actual none",
        reason="The architecture requires this check by name.",
        hint="Check that its validator still exists and was selected, then validate again.",
    )


def _count(role: str, expected: Role, names: Sequence[str]) -> Verdict:
    least, most = expected.count.min, expected.count.max
    bar = f"≥ {least}" if most is None else f"= {least}" if most == least else f"{least} to {most}"
    unseen = not expected.managed and not names
    fits = least <= len(names) and (most is None or len(names) <= most)
    if unseen:
        status = Status.UNMEASURED
        message = f"expected {bar} nodes of {role}, actual unknown: not managed by the kit and not in the inventory"
    else:
        status = Status.PASS if fits else Status.FAIL
        message = f"expected {bar} nodes of {role}, actual {len(names)} ({fold(names)})"
    return Verdict(
        id=f"rack.count[{role}]",
        kind="check",
        title=f"Number of {role} nodes",
        subject="rack",
        status=status,
        required=not unseen,
        message=message,
        value=None if unseen else float(len(names)),
        unit="1",
        bar=bar,
        source=f"roles.{role}.count",
        reason="The architecture is defined for this many nodes.",
        hint="Compare the groups of the inventory with the roles of the architecture.",
        claim=expected.claim,
    )
