"""Elements of nvidia-smi's XML: value, or None where the driver reports none."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer

TOOL: Final = "nvidia-smi"

_NOT_AVAILABLE: Final = re.compile(
    r"\[?(?:N/A|Not Supported|Requested functionality has been deprecated)\]?|", re.IGNORECASE
)
_PROBLEM: Final = re.compile(r"\[?(?:unknown error|err!|gpu is lost\b.*|gpu requires reset)\]?", re.IGNORECASE)
_DENIED: Final = re.compile(r"\[?insufficient permissions?\]?", re.IGNORECASE)
"""Instead of the memory of a GPU with MIG, for example, which only root may see."""


def text_at(element: ET.Element, path: str) -> str | None:
    """Text of an element; None when it is absent, is marked as not available or not shown, or holds an error."""
    text = (element.findtext(path) or "").strip()
    return text if _is_value(text) else None


@lru_cache(maxsize=4096)  # a report has thousands of texts, most of them alike
def is_problem(text: str) -> bool:
    """Whether the driver prints an error instead of a value."""
    return _PROBLEM.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_denied(text: str) -> bool:
    """Whether the driver does not show the value to this login."""
    return _DENIED.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _is_value(text: str) -> bool:
    return _NOT_AVAILABLE.fullmatch(text) is None and not is_problem(text) and not is_denied(text)


def real_at(element: ET.Element, path: str, unit: str = "") -> float | None:
    text = text_at(element, path)
    if text is None:
        return None
    if not re.fullmatch(rf"-?\d{{1,15}}(?:\.\d{{1,9}})?{re.escape(unit)}", text, re.ASCII):
        raise ParseError(TOOL, f"{path} is not a number{unit and ' of' + unit}: {excerpt(text)}")
    return float(text.removesuffix(unit))


def integer_at(element: ET.Element, path: str, unit: str = "") -> int | None:
    text = text_at(element, path)
    return None if text is None else integer(TOOL, path, text.removesuffix(unit))


def yes_at(element: ET.Element, path: str) -> bool | None:
    text = text_at(element, path)
    if text is None:
        return None
    if text not in ("Yes", "No"):
        raise ParseError(TOOL, f"{path} is neither Yes nor No: {excerpt(text)}")
    return text == "Yes"
