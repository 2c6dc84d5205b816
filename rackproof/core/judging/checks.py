"""Verdicts on checks: one per result, and one per missing result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rackproof.core import gpu_links
from rackproof.core.architecture import Architecture, Role
from rackproof.core.architecture.expectations import ABSENT, expected_checks, value_at
from rackproof.core.evidence import CheckOutcome, CheckResult, NodeInfo
from rackproof.core.grouping import grouped
from rackproof.core.judging.missing import RunScope, missing, severity_of, short
from rackproof.core.judging.servers import blamed, judge_servers
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import SERVER, Verdict, required_verdict, with_item

GPU_CHECKS = "gpu."
"""Prefix of checks that query GPUs, which may be simulated."""

NOT_A_LOOK = ("node.", "deploy.", "load.", "bench.")
"""Checks with these prefixes record that a node was reached, changed and measured; they do not validate it."""

_STATUS = {
    CheckOutcome.PASSED: Status.PASS,
    CheckOutcome.FAILED: Status.FAIL,
    CheckOutcome.UNMEASURED: Status.UNMEASURED,
}


def judge_checks(
    architecture: Architecture,
    nodes: Sequence[NodeInfo],
    groups: Mapping[str, tuple[str, ...]],
    results: Iterable[CheckResult],
    scope: RunScope | None,
) -> Iterator[Verdict]:
    """Verdicts on all checks. Of several results of one check, item and node the worst counts.

    A result with another expected value than this architecture's is UNMEASURED. ``scope``: stages and plans of the run;
    None for results without a run.
    """
    worst: dict[tuple[str, str, str], CheckResult] = {}
    for result in results:
        key = (result.check, result.item, result.node)
        if key not in worst or _status(result).rank > _status(worst[key]).rank:
            worst[key] = result
    expected = expected_checks(architecture)
    claims = {(entry.check, entry.item): entry.claims for entry in expected}
    claims.update({(entry.check, ""): entry.claims for entry in expected if not entry.item})
    declared = _Declared(architecture)
    simulated = {node.name for node in nodes if node.simulated_gpus}
    silent = blamed(worst.values())
    yield from judge_servers(architecture, silent, [node.name for node in nodes])
    loads = grouped((result.node, result) for result in worst.values() if result.check == gpu_links.CHECK)
    for result_of_node in worst.values():
        idle = result_of_node.outcome is CheckOutcome.UNMEASURED and result_of_node.message.startswith(gpu_links.IDLE)
        result = gpu_links.under_load(result_of_node, loads.get(result_of_node.node, ())) if idle else result_of_node
        of_simulation = result.node in simulated and result.check.startswith(GPU_CHECKS)
        claim = claims.get((result.check, result.item)) or claims.get((result.check, ""), ())
        other_cause = declared.difference(result)
        if (result.check, result.item, result.blames) in silent:
            other_cause = other_cause or f"{result.blames} does not answer; see {SERVER}"
        yield _of_result(architecture, result, of_simulation, claim, other_cause)
    yield from counts(architecture, groups)
    yield from missing(architecture, nodes, groups, set(worst), scope)
    yield from without_role(architecture, nodes)
    checked = {name for check, _, name in worst if not check.startswith(NOT_A_LOOK)}
    for node in nodes:
        if node.name not in checked and not architecture.is_appliance(node.groups):
            yield required_verdict(
                "rack.checked", "Checks of the node", node.name, Status.UNMEASURED, f"no check ran on {node.name}",
                "Nothing is known about a node without checks.",
                "Find the reason in the run's log, then validate again.",
            )  # fmt: skip


class _Declared:
    """Expected values of this architecture, by key."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._at: dict[str, Any] = {}

    def difference(self, result: CheckResult) -> str | None:
        """How a check's expected value differs from this architecture's; None: equal."""
        if not result.reads:
            return None
        if result.reads not in self._at:
            self._at[result.reads] = value_at(self._architecture, result.reads)
        declared = self._at[result.reads]
        if declared is ABSENT or _spelled(declared) == _spelled(result.expected):
            return None
        if _same(result.expected, declared, value_at(self._architecture, result.reads, stated_only=True)):
            return None
        return (
            f"was checked against {result.reads} = {short(result.expected)},"
            f" this architecture expects {short(declared)}; validate again"
        )


def _same(recorded: Any, declared: Any, stated: Any) -> bool:
    """Whether two expected values are equal, ignoring newer keys at their default."""
    if isinstance(recorded, dict) and isinstance(declared, dict):
        later = {key: stated.get(key) if isinstance(stated, dict) else None for key in declared}
        return all(recorded[key] in (None, [], {}) for key in recorded.keys() - declared.keys()) and all(
            _same(recorded[key], value, later[key])
            if key in recorded
            else not isinstance(stated, dict) or key not in stated
            for key, value in declared.items()
        )
    if isinstance(recorded, list) and isinstance(declared, list) and len(recorded) == len(declared):
        inner = stated if isinstance(stated, list) and len(stated) == len(declared) else [None] * len(declared)
        return all(_same(*triple) for triple in zip(recorded, declared, inner, strict=True))
    return _spelled(recorded) == _spelled(declared)


def _spelled(value: Any) -> str:
    """Canonical text: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return json.dumps(value)


def counts(architecture: Architecture, groups: Mapping[str, Sequence[str]]) -> Iterator[Verdict]:
    """Number of nodes of every role; ``groups``: names of nodes by role."""
    for role, expected in architecture.roles.items():
        yield _count(role, expected, groups.get(role, ()))


def without_role(architecture: Architecture, nodes: Sequence[NodeInfo]) -> Iterator[Verdict]:
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
    return required_verdict(
        id_, title, subject, Status.UNMEASURED, message, "A node without checks cannot be certified.",
        "Correct the groups in the inventory, or add a role to the architecture.",
    )  # fmt: skip


def _status(result: CheckResult) -> Status:
    """WARN where a program printed something beside the answer that passed."""
    return Status.WARN if result.beside and result.outcome is CheckOutcome.PASSED else _STATUS[result.outcome]


def _of_result(
    architecture: Architecture, result: CheckResult, simulated: bool, claim: tuple[str, ...], unusable: str | None
) -> Verdict:
    """``unusable``: why the result proves nothing about the node."""
    id_ = with_item(result.check, result.item)
    status = _status(result)
    warned = result.beside if status is Status.WARN else ""
    return Verdict(
        id=id_,
        kind="check",
        title=f"{result.check}: {result.item}" if result.item else result.check,
        subject=result.node,
        status=Status.UNMEASURED if unusable else status,
        required=severity_of(architecture, id_, result.check, result.required),
        message=unusable or warned or result.message,
        source=result.reads or None,
        reason=result.protects,
        hint=result.hint,
        raw=result.raw,
        simulated=simulated,
        claim=claim,
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
    return required_verdict(
        f"rack.count[{role}]", f"Number of {role} nodes", "rack", status, message,
        "The architecture is defined for this many nodes.",
        "Compare the groups of the inventory with the roles of the architecture.",
        required=not unseen, value=None if unseen else float(len(names)), unit="1", bar=bar,
        source=f"roles.{role}.count", claim=expected.claim,
    )  # fmt: skip
