"""Verdicts on checks: one for each result, and one for each result that should be there and is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rackproof.core.architecture import Architecture, Role, Severity
from rackproof.core.evidence import CheckOutcome, CheckResult, NodeInfo
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict

GPU_CHECKS = "gpu."
"""Checks whose ids begin so ask the GPUs, which may be simulated."""

NOT_A_LOOK = ("node.", "deploy.")
"""Checks whose ids begin so say that a node was reached and changed, not that anybody looked at the result."""

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
) -> Iterator[Verdict]:
    """Of several results of one check, item and node the worst counts: they cannot be told apart."""
    worst: dict[tuple[str, str, str], CheckResult] = {}
    for result in results:
        key = (result.check, result.item, result.node)
        if key not in worst or _STATUS[result.outcome].rank > _STATUS[worst[key].outcome].rank:
            worst[key] = result
    simulated = {node.name for node in nodes if node.simulated_gpus}
    for result in worst.values():
        yield _of_result(architecture, result, result.node in simulated and result.check.startswith(GPU_CHECKS))
    for role, count in architecture.roles.items():
        yield _count(role, count, groups.get(role, ()))
    answered = {(check, name) for check, _, name in worst}
    required = {
        (check, name): role
        for role, checks in architecture.required_checks.items()
        for check in checks
        for name in groups.get(role, ())
    }
    for (check, name), role in required.items():
        if (check, name) not in answered:
            yield _absent(architecture, check, name, role)
    checked = {name for check, name in answered if not check.startswith(NOT_A_LOOK)}
    for node in nodes:
        if node.name not in checked:
            yield Verdict(
                id="rack.checked",
                kind="check",
                title="Checks of the node",
                subject=node.name,
                status=Status.UNMEASURED,
                required=True,
                message=f"no check ran on {node.name}",
                reason="A node that was not looked at may be anything.",
                hint="Look in the run's log for why the node was not reached, then validate again.",
            )


def _required(architecture: Architecture, id_: str, check: str, otherwise: bool) -> bool:
    """The architecture may set the severity of one item or of a whole check."""
    severity = architecture.checks.get(id_) or architecture.checks.get(check)
    return otherwise if severity is None else severity is Severity.REQUIRED


def _of_result(architecture: Architecture, result: CheckResult, simulated: bool) -> Verdict:
    id_ = f"{result.check}[{result.item}]" if result.item else result.check
    return Verdict(
        id=id_,
        kind="check",
        title=f"{result.check}: {result.item}" if result.item else result.check,
        subject=result.node,
        status=_STATUS[result.outcome],
        required=_required(architecture, id_, result.check, result.required),
        message=result.message,
        source=result.reads or None,
        reason=result.protects,
        hint=result.hint,
        raw=result.raw,
        simulated=simulated,
    )


def _absent(architecture: Architecture, check: str, node: str, role: str) -> Verdict:
    return Verdict(
        id=check,
        kind="check",
        title=check,
        subject=node,
        status=Status.UNMEASURED,
        required=_required(architecture, check, check, True),
        message=f"no result of {check}, which every node of {role} must have",
        reason="The architecture asks for this check by name.",
        hint="See whether its validator still exists and was selected, then validate again.",
    )


def _count(role: str, expected: Role, names: Sequence[str]) -> Verdict:
    least, most = expected.count.min, expected.count.max
    bar = f"≥ {least}" if most is None else f"= {least}" if most == least else f"{least} to {most}"
    fits = least <= len(names) and (most is None or len(names) <= most)
    return Verdict(
        id=f"rack.count[{role}]",
        kind="check",
        title=f"Number of {role} nodes",
        subject="rack",
        status=Status.PASS if fits else Status.FAIL,
        required=True,
        message=f"expected {bar} nodes of {role}, actual {len(names)} ({fold(names)})",
        value=float(len(names)),
        unit="1",
        bar=bar,
        source=f"roles.{role}.count",
        reason="The architecture is defined for this many nodes.",
        hint="Compare the groups of the inventory with the roles of the architecture.",
    )
