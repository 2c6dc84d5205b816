"""Models of the sizing model's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Fact = float | int | str | bool | None
"""``int``, ``str`` and ``bool`` are decisions; ``float`` is a quantity that may move without changing one."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """An input that an answer depends on."""

    input: str
    value: str
    """Value and unit as in the file, with the source."""
    moves: float
    """Relative change of the answer's quantities if the input is 25 % larger."""
    tips_at: str | None = None
    """Nearest value at which a decision changes, between a quarter and four times the input."""


@dataclass(frozen=True, slots=True)
class Answer:
    id: str
    question: str
    says: tuple[str, ...]
    """One sentence each."""
    figures: Mapping[str, Fact] = field(default_factory=dict)
    """Names end in the unit (``_s``, ``_bytes``, ``_per_s``, ``_gbps``), except those of counts and shares."""
    headline: tuple[str, ...] = ()
    """Names of the figures that answer the question."""
    unknown: tuple[str, ...] = ()
    """Missing inputs that would improve the answer."""
    depends_on: tuple[Dependence, ...] = ()


def unanswered(id_: str, question: str, reasons: tuple[str, ...], unknown: tuple[str, ...] = ()) -> Answer:
    """An answer that consists of the reasons why there is none."""
    return Answer(id_, question, (f"Unknown: {'; '.join(reasons)}.",), unknown=unknown or reasons)


def not_known(reasons: Iterable[str]) -> list[str]:
    """The sentence about missing inputs; none without any."""
    listed = "; ".join(dict.fromkeys(reasons))
    return [f"Not known: {listed}."] if listed else []
