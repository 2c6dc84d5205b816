"""Dependences of answers on inputs, computed by changing each input, so that no list has to be maintained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from rackproof.core.sizing import words
from rackproof.core.sizing.answer import Answer, Dependence, Fact
from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.values import DEFAULT, Spec
from rackproof.core.sizing.view import View
from rackproof.errors import SizingError

Ask = Callable[[View], Answer]

FACTORS = (4.0, 0.25, 1.25, 0.8, 2.0, 0.5)
"""Factors of the search, the extremes first: an input without effect there is not searched further."""
_SHOWN = (1.25, 0.8, 2.0, 0.5, 4.0, 0.25)
"""The first valid factor determines the input's effect on the answer."""
_NOTICED = 0.005
"""Minimum relative change of a quantity that depends on an input."""
_STEPS = 8
"""Halvings of the interval in which a decision changes."""


class _Neighbours:
    """Views of the inputs with one of them changed, each built once for all questions."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._built: dict[tuple[str, float], View | None] = {}

    def view(self, name: str, factor: float) -> View | None:
        """The view with one input times ``factor``; None for an invalid or unchanged value."""
        value, spec = self.inputs.value(name) or 0.0, self.inputs.spec(name)
        changed = value * factor
        if spec.whole:
            changed = float(max(1, round(changed)))
        if spec.share:
            changed = min(1.0, changed)
        key = (name, changed)
        if key not in self._built:
            self._built[key] = None if changed == value else self._build(name, changed)
        return self._built[key]

    def _build(self, name: str, value: float) -> View | None:
        try:
            return View(self.inputs.replaced(name, value), timed=False)
        except SizingError:
            return None


def with_dependences(inputs: Inputs, asks: Mapping[str, Ask]) -> tuple[Answer, ...]:
    """All answers with their dependences: inputs that can change a decision first, the nearest first."""
    view, neighbours = View(inputs), _Neighbours(inputs)
    answers = []
    for ask in asks.values():
        answer = ask(view)
        dependences = [d for name in _variable(inputs) if (d := _dependence(neighbours, name, ask, answer)) is not None]
        answers.append(replace(answer, depends_on=tuple(d for _, d in sorted(dependences, key=lambda item: item[0]))))
    return tuple(answers)


def _variable(inputs: Inputs) -> list[str]:
    """Inputs with a number that may be varied."""
    return [
        name
        for name in inputs.names
        if inputs.value(name) is not None
        and name.rpartition(".")[2] != "share"
        and not (name == "ceilings.gpu" and inputs.value(name) == 1)
    ]


def _dependence(neighbours: _Neighbours, name: str, ask: Ask, answer: Answer) -> tuple[float, Dependence] | None:
    """The dependence of ``answer`` on an input, with a sort key; None without one."""
    inputs = neighbours.inputs
    moved: dict[float, float] = {}
    tips: list[float] = []
    for factor in FACTORS:
        if len(moved) == 2 and not tips and not any(abs(m) >= _NOTICED for m in moved.values()):
            return None
        view = neighbours.view(name, factor)
        if view is None:
            continue
        changed = ask(view)
        moved[factor] = _moved(answer, changed)
        if _decisions(changed) != _decisions(answer):
            tips.append(factor)
    if not tips and not any(abs(m) >= _NOTICED for m in moved.values()):
        return None
    value, spec = inputs.value(name) or 0.0, inputs.spec(name)
    nearest = _nearest(neighbours, name, ask, answer, tips)
    shown = None if nearest is None else words.in_unit(nearest, spec.unit, _unit(inputs, name, spec))
    moves = round(next(moved[factor] for factor in _SHOWN if factor in moved), 4)
    order = -abs(moves) if nearest is None else -100 + abs(nearest / value - 1)
    return order, Dependence(name, described(inputs, name), moves, shown)


def described(inputs: Inputs, name: str) -> str:
    """``15 GB/s (S1)``: an input's value and source."""
    value, origin, spec = inputs.value(name), inputs.origins[name], inputs.spec(name)
    source = "our default" if origin.source == DEFAULT else origin.source
    if origin.status is not None and origin.status.value not in ("verified", origin.source):
        source += f", {origin.status.value}"
    shown = "unknown" if value is None else words.in_unit(value, spec.unit, _unit(inputs, name, spec), exact=True)
    return f"{shown} ({source})"


def _unit(inputs: Inputs, name: str, spec: Spec) -> str:
    """The unit in the file; percent for a plain share."""
    return spec.shown if spec.unit == "1" else inputs.origins[name].unit


def _nearest(neighbours: _Neighbours, name: str, ask: Ask, answer: Answer, tips: list[float]) -> float | None:
    """The nearest value at which a decision changes."""
    if not tips:
        return None
    value, spec = neighbours.inputs.value(name) or 0.0, neighbours.inputs.spec(name)
    changed = min(tips, key=lambda factor: abs(math.log(factor)))
    between = [f for f in FACTORS if (f > 1) == (changed > 1) and abs(math.log(f)) < abs(math.log(changed))]
    same = max(between, key=lambda f: abs(math.log(f)), default=1.0)
    for _ in range(_STEPS):
        middle = (same + changed) / 2
        view = neighbours.view(name, middle)
        if view is not None and _decisions(ask(view)) != _decisions(answer):
            changed = middle
        else:
            same = middle
    if spec.whole:
        return float(max(1, round(value * changed)))
    return min(value * changed, 1.0) if spec.share else value * changed


def _decisions(answer: Answer) -> tuple[Fact, ...]:
    return tuple(None if isinstance(f := answer.figures.get(k), float) else f for k in answer.headline)


def _moved(answer: Answer, changed: Answer) -> float:
    """The largest relative change among the quantities of the headline, with its sign."""
    most = 0.0
    for key in answer.headline:
        a, b = answer.figures.get(key), changed.figures.get(key)
        if isinstance(a, float) and isinstance(b, float):
            change = (b - a) / a if a else float(b > 0)
            most = change if abs(change) > abs(most) else most
    return most
