"""JUnit XML for CI servers: suites of cases, with counts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree as ET

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Case:
    """One test case; it passes where ``tag`` is None, and ``text`` goes to ``system-out`` then."""

    classname: str
    name: str
    tag: Literal["failure", "error"] | None = None
    type: str = ""
    message: str = ""
    """One line."""
    text: str = ""
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    cases: Sequence[Case]
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp: str | None = None
    elapsed_s: float | None = None


def render(name: str, suites: Sequence[Suite], elapsed_s: float | None = None) -> str:
    """The whole document, with an XML declaration and a newline at the end."""
    root = _element("testsuites", None, name=name)
    _count(root, [case for suite in suites for case in suite.cases], elapsed_s)
    for suite in suites:
        element = _element("testsuite", root, name=suite.name)
        if suite.timestamp is not None:
            element.set("timestamp", _clean(suite.timestamp))
        _count(element, suite.cases, suite.elapsed_s)
        if suite.properties:
            properties = _element("properties", element)
            for key, value in suite.properties.items():
                _element("property", properties, name=key, value=value)
        for case in suite.cases:
            _case(element, case)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, case: Case) -> None:
    element = _element("testcase", suite, classname=case.classname, name=case.name)
    if case.elapsed_s is not None:
        element.set("time", f"{case.elapsed_s:.3f}")
    if case.tag:
        _element(case.tag, element, type=case.type, message=" ".join(case.message.split())).text = _clean(case.text)
    elif case.text:
        _element("system-out", element).text = _clean(case.text)


def _count(element: ET.Element, cases: Iterable[Case], elapsed_s: float | None) -> None:
    tags = [case.tag for case in cases]
    element.set("tests", str(len(tags)))
    element.set("failures", str(tags.count("failure")))
    element.set("errors", str(tags.count("error")))
    if elapsed_s is not None:
        element.set("time", f"{elapsed_s:.3f}")


def _element(tag: str, parent: ET.Element | None, **attributes: str) -> ET.Element:
    clean = {key: _clean(value) for key, value in attributes.items()}
    return ET.Element(tag, clean) if parent is None else ET.SubElement(parent, tag, clean)


def _clean(text: str) -> str:
    """Replace characters that are invalid in XML 1.0 by U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)
