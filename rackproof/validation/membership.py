"""The judge's results beside those of checks: roles and counts of nodes, missing and contradicted results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.judging.checks import counts, without_role
from rackproof.core.rack import Rack
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, item_of, name_of, with_item
from rackproof.evidence.folder import node_infos


def membership(architecture: Architecture, rack: Rack) -> Iterator[CheckResult]:
    """Results for nodes without a role and roles without enough nodes, as the judge's verdicts on a run."""
    groups = {role: [node.name for node in rack.group(role)] for role in architecture.roles}
    for verdict in (*without_role(architecture, node_infos(rack)), *counts(architecture, groups)):
        if verdict.status is Status.PASS or not verdict.required:
            continue
        yield _result(verdict)


def as_judged(results: Sequence[CheckResult], verdicts: Iterable[Verdict]) -> list[CheckResult]:
    """The results; a verdict that failed or is unmeasured replaces the passed result, or is added."""
    bad = {
        (v.id, v.subject): v
        for v in verdicts
        if v.kind == "check" and v.required and v.status not in (Status.PASS, Status.WARN)
    }
    kept = [r for r in results if r.outcome is not CheckOutcome.PASSED or _key(r) not in bad]
    given = {_key(result) for result in kept if result.required}
    return [*kept, *(_result(verdict) for key, verdict in bad.items() if key not in given)]


def _key(result: CheckResult) -> tuple[str, str]:
    return with_item(result.check, result.item), result.node


def _result(verdict: Verdict) -> CheckResult:
    return CheckResult(
        check=name_of(verdict.id),
        node=verdict.subject,
        item=item_of(verdict.id),
        outcome=CheckOutcome.FAILED if verdict.status is Status.FAIL else CheckOutcome.UNMEASURED,
        required=verdict.required,
        protects=verdict.reason or "",
        hint=verdict.hint or "",
        message=verdict.message,
    )
