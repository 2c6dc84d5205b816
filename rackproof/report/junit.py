"""``junit.xml``: one suite for each area, one case for each verdict.

=================  =========================  =====================================================
verdict            required                   advisory
=================  =========================  =====================================================
PASS               passed                     passed
WARN               passed, with system-out    passed, with system-out
FAIL               failure                    passed, with system-out: advisory verdicts do not affect
INVALID            error                      the outcome
UNMEASURED         error
=================  =========================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from rackproof.core.junit import Case, Suite, render
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.core.visible import visible
from rackproof.report.quantities import between
from rackproof.report.schema import Certificate
from rackproof.report.statements import by_area, subject_text

_TAGS: Final[Mapping[Status, Literal["failure", "error"]]] = {
    Status.FAIL: "failure",
    Status.INVALID: "error",
    Status.UNMEASURED: "error",
}


def render_junit(certificate: Certificate) -> str:
    """The whole document, with an XML declaration and a newline at the end."""
    properties = _properties(certificate)
    suites = [
        Suite(visible(area), [_case(area, verdict) for verdict in verdicts], properties, visible(certificate.started))
        for area, verdicts in by_area(certificate).items()
    ]
    elapsed_s = between(certificate.started, certificate.finished)
    return render(visible(f"rackproof {certificate.architecture.id}"), suites, elapsed_s)


def _properties(certificate: Certificate) -> dict[str, str]:
    values = {
        "run": certificate.run,
        "outcome": certificate.outcome.value,
        "architecture": f"{certificate.architecture.id} {certificate.architecture.version}",
        "headline": certificate.headline if certificate.architecture.differs else "",
        "simulated": " ".join(certificate.simulated),
    }
    return {name: visible(value) for name, value in values.items() if value}


def _case(area: str, v: Verdict) -> Case:
    classname, name = visible(f"rackproof.{area.replace(': ', '.')}"), visible(f"{v.id} {v.subject}")
    tag = _TAGS.get(v.status) if v.required else None
    if tag:
        return Case(classname, name, tag, v.status.value, visible(v.message or v.title), visible(_explained(v)))
    if v.status is Status.PASS:
        return Case(classname, name)
    weight = "" if v.required else "ADVISORY "
    return Case(classname, name, text=visible(f"{weight}{v.status}: {v.message}\n{_explained(v)}"))


def _explained(v: Verdict) -> str:
    lines = [f"{v.title}: {subject_text(v.subject)}"]
    lines += [f"{'Protects' if v.kind == 'check' else 'Why this bar'}: {v.reason}"] if v.reason else []
    lines += [f"Do: {v.hint}"] if v.hint else []
    lines += [f"Output: raw/{sha}" for sha in v.raw]
    return "\n".join(lines)
