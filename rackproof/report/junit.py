"""``junit.xml``: one suite for each area, one case for each verdict, in the form that Jenkins and its kin accept.

=================  =========================  =====================================================
verdict            required                   advisory
=================  =========================  =====================================================
PASS               passed                     passed
WARN               passed, with system-out    passed, with system-out
FAIL               failure                    passed, with system-out: it decides nothing, as in the
INVALID            error                      certificate, and is not hidden either
UNMEASURED         error
=================  =========================  =====================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.report.quantities import between
from rackproof.report.schema import Certificate
from rackproof.report.statements import area_of, area_order, subject_text
from rackproof.report.text import visible

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(certificate: Certificate) -> str:
    """The whole document, with an XML declaration and a newline at the end."""
    classes = {s.name: s.class_ for s in certificate.architecture.storages}
    areas: dict[str, list[Verdict]] = {}
    for verdict in certificate.verdicts:
        areas.setdefault(area_of(verdict, classes), []).append(verdict)
    elapsed = between(certificate.started, certificate.finished)
    root = ET.Element("testsuites", {"name": _clean(f"rackproof {certificate.architecture.id}")})
    _count(root, certificate.verdicts)
    if elapsed is not None:
        root.set("time", f"{elapsed:.3f}")
    for area in sorted(areas, key=area_order):
        suite = ET.SubElement(root, "testsuite", {"name": _clean(area), "timestamp": _clean(certificate.started)})
        _count(suite, areas[area])
        _properties(suite, certificate)
        for verdict in areas[area]:
            _case(suite, area, verdict)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _count(element: ET.Element, verdicts: Sequence[Verdict]) -> None:
    element.set("tests", str(len(verdicts)))
    element.set("failures", str(sum(_tag(v) == "failure" for v in verdicts)))
    element.set("errors", str(sum(_tag(v) == "error" for v in verdicts)))


def _properties(suite: ET.Element, certificate: Certificate) -> None:
    properties = ET.SubElement(suite, "properties")
    values = {
        "run": certificate.run,
        "outcome": certificate.outcome.value,
        "architecture": f"{certificate.architecture.id} {certificate.architecture.version}",
        "simulated": " ".join(certificate.simulated),
    }
    for name, value in values.items():
        if value:
            ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})


def _case(suite: ET.Element, area: str, v: Verdict) -> None:
    classname = f"rackproof.{area.replace(': ', '.')}"
    case = ET.SubElement(suite, "testcase", {"classname": _clean(classname), "name": _clean(f"{v.id} {v.subject}")})
    tag = _tag(v)
    if tag:
        found = ET.SubElement(case, tag, {"type": v.status.value, "message": _clean(v.message or v.title)})
        found.text = _clean(_explained(v))
    elif v.status is not Status.PASS:
        weight = "" if v.required else "ADVISORY "
        ET.SubElement(case, "system-out").text = _clean(f"{weight}{v.status}: {v.message}\n{_explained(v)}")


def _tag(v: Verdict) -> str | None:
    if not v.required:
        return None
    return {Status.FAIL: "failure", Status.INVALID: "error", Status.UNMEASURED: "error"}.get(v.status)


def _explained(v: Verdict) -> str:
    lines = [f"{v.title}: {subject_text(v.subject)}"]
    lines += [f"{'Protects' if v.kind == 'check' else 'Why this bar'}: {v.reason}"] if v.reason else []
    lines += [f"Do: {v.hint}"] if v.hint else []
    lines += [f"Output: raw/{sha}" for sha in v.raw]
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Without what XML 1.0 cannot hold, even escaped."""
    return _NOT_XML.sub("", visible(text))
