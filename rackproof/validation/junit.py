"""Results as JUnit XML, one test case for each node × check × item. Pure.

PASSED is a case without a child, FAILED a ``failure``, UNMEASURED an ``error``: never ``skipped``, which would let a
job go green on something that nobody knows. An advisory check that is not good passes with its words in ``system-out``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.validation.terminal import name_of

_TAGS = {CheckOutcome.FAILED: "failure", CheckOutcome.UNMEASURED: "error"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_LINE = re.compile(r"\s+")


def render_checks(results: Sequence[CheckResult], properties: Mapping[str, str] | None = None) -> str:
    """The whole document: a suite for each node in the order of the results."""
    root = ET.Element("testsuites", {"name": "rackproof validate"})
    _count(root, results)
    nodes: dict[str, list[CheckResult]] = {}
    for result in results:
        nodes.setdefault(result.node, []).append(result)
    for node, own in nodes.items():
        suite = ET.SubElement(root, "testsuite", {"name": _clean(node)})
        _count(suite, own)
        if properties:
            listed = ET.SubElement(suite, "properties")
            for name, value in properties.items():
                ET.SubElement(listed, "property", {"name": name, "value": _clean(value)})
        for result in own:
            _case(suite, result)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, result: CheckResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {"classname": _clean(result.node), "name": _clean(name_of(result)), "time": f"{result.elapsed_s:.3f}"},
    )
    tag = _tag(result)
    text = _clean(f"{result.message}\n{result.protects}\n{result.hint}")
    if tag:
        found = ET.SubElement(case, tag, {"type": result.outcome.value, "message": _line(result.message)})
        found.text = text
    elif result.outcome is not CheckOutcome.PASSED:
        ET.SubElement(case, "system-out").text = f"advisory, {result.outcome.value}: {text}"


def _tag(result: CheckResult) -> str | None:
    return _TAGS.get(result.outcome) if result.required else None


def _count(element: ET.Element, results: Sequence[CheckResult]) -> None:
    tags = [_tag(result) for result in results]
    element.set("tests", str(len(results)))
    element.set("failures", str(tags.count("failure")))
    element.set("errors", str(tags.count("error")))
    element.set("time", f"{sum(result.elapsed_s for result in results):.3f}")


def _line(text: str) -> str:
    return _NO_LINE.sub(" ", _clean(text)).strip()


def _clean(text: str) -> str:
    """XML has no way to write most control characters."""
    return _NOT_XML.sub("\ufffd", text)
