"""Whether a number was measured under the conditions of a criterion: cache state, ranks, algorithm.

``ranks_min: 32`` is a bound on the condition ``ranks``, ``…_max`` likewise. A number equals its text: a benchmark may
write ``"32"``. True is not 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rackproof.core.architecture import Conditions
from rackproof.core.judging.bars import number_text

RequiredConditions = tuple[tuple[str, Any], ...]
"""Conditions of a criterion, in the order of the file."""

_BOUNDS = {"_min": "≥", "_max": "≤"}


def required_conditions(conditions: Conditions) -> RequiredConditions:
    return tuple(conditions.items())


def condition_of(key: str) -> str:
    """The condition that a criterion's key constrains: ``ranks`` for ``ranks_min``."""
    return key[:-4] if key[-4:] in _BOUNDS else key


def unmet(conditions: RequiredConditions, actual: Mapping[str, Any]) -> str | None:
    """One line on all unmet and unknown conditions; None: all are met."""
    faults = [fault for key, value in conditions if (fault := _fault(key, value, actual))]
    return f"measured under other conditions: {'; '.join(faults)}" if faults else None


def _fault(key: str, expected: Any, actual: Mapping[str, Any]) -> str | None:
    name, value = condition_of(key), actual.get(condition_of(key))
    bound = _BOUNDS.get(key[-4:])
    if value is not None and (_within(bound, expected, value) if bound else _one_of(expected, value)):
        return None
    shown = "not recorded" if value is None else _text(value)
    return f"expected {name} {bound or '='} {_text(expected)}, actual {shown}"


def _one_of(expected: Any, value: Any) -> bool:
    alternatives = expected if isinstance(expected, tuple | list) else (expected,)
    return any(_same(alternative, value) for alternative in alternatives)


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    a, b = _number(expected), _number(value)
    if a is not None and b is not None:
        return math.isclose(a, b, rel_tol=1e-9)
    return isinstance(value, str) and str(expected) == value


def _within(bound: str, expected: Any, value: Any) -> bool:
    limit, number = _number(expected), _number(value)
    if limit is None or number is None:
        return False
    return number >= limit if bound == "≥" else number <= limit


def _number(value: Any) -> float | None:
    """The finite value of a number or its text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " or ".join(_text(alternative) for alternative in value)
    if isinstance(value, float):
        return number_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def needed_conditions(every: Iterable[Conditions]) -> frozenset[str]:
    """Names of the conditions of several criteria."""
    return frozenset(condition_of(key) for conditions in every for key in conditions)
