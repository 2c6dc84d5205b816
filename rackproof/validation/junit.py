"""Results as JUnit XML, one test case per node × check × item. Pure.

PASSED is a case without a child, FAILED a ``failure``, UNMEASURED an ``error``: never ``skipped``, which would
leave a CI job green. An advisory check that did not pass is a passed case with its message in ``system-out``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.junit import Case, Suite, render
from rackproof.validation.terminal import name_of

_TAGS: Final[Mapping[CheckOutcome, Literal["failure", "error"]]] = {
    CheckOutcome.FAILED: "failure",
    CheckOutcome.UNMEASURED: "error",
}


def render_checks(results: Sequence[CheckResult], properties: Mapping[str, str] | None = None) -> str:
    """The document: one suite per node, in the order of the results."""
    nodes: dict[str, list[CheckResult]] = {}
    for result in results:
        nodes.setdefault(result.node, []).append(result)
    suites = [
        Suite(node, [_case(result) for result in own], properties or {}, elapsed_s=_seconds(own))
        for node, own in nodes.items()
    ]
    return render("rackproof validate", suites, _seconds(results))


def _case(result: CheckResult) -> Case:
    name, elapsed_s = name_of(result), result.elapsed_s
    if result.outcome is CheckOutcome.PASSED:
        return Case(result.node, name, elapsed_s=elapsed_s)
    text = f"{result.message}\n{result.protects}\n{result.hint}"
    if not result.required:
        return Case(result.node, name, text=f"advisory, {result.outcome.value}: {text}", elapsed_s=elapsed_s)
    return Case(result.node, name, _TAGS[result.outcome], result.outcome.value, result.message, text, elapsed_s)


def _seconds(results: Sequence[CheckResult]) -> float:
    return sum(result.elapsed_s for result in results)
