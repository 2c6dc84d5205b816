"""Roles and counts of recorded nodes: the architecture requires them, whatever the files contain."""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.judging.checks import counts, without_role
from rackproof.core.rack import Rack
from rackproof.core.status import Status
from rackproof.evidence.folder import node_infos


def membership(architecture: Architecture, rack: Rack) -> Iterator[CheckResult]:
    """Results for nodes without a role and roles without enough nodes, as the judge's verdicts on a run."""
    groups = {role: [node.name for node in rack.group(role)] for role in architecture.roles}
    for verdict in (*without_role(architecture, node_infos(rack)), *counts(architecture, groups)):
        if verdict.status is Status.PASS or not verdict.required:
            continue
        check, _, item = verdict.id.partition("[")
        yield CheckResult(
            check=check,
            node=verdict.subject,
            item=item.removesuffix("]"),
            outcome=CheckOutcome.FAILED if verdict.status is Status.FAIL else CheckOutcome.UNMEASURED,
            required=verdict.required,
            protects=verdict.reason or "",
            hint=verdict.hint or "",
            message=verdict.message,
        )
