"""Models of the sizing model's answers."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Relative change of the answer's quantities when the input is a quarter larger."""
    tips_at: str | None = None
    """Value at which a decision changes, the nearest within a quarter to four times the input's own."""


@dataclass(frozen=True, slots=True)
class Answer:
    id: str
    question: str
    says: tuple[str, ...]
    """One sentence each."""
    figures: Mapping[str, Fact] = field(default_factory=dict)
    """Names end in their unit where it is not a count or a share: ``_s``, ``_bytes``, ``_per_s``, ``_gbps``."""
    headline: tuple[str, ...] = ()
    """Names of the figures that are the answer."""
    unknown: tuple[str, ...] = ()
    """Missing inputs that would improve the answer."""
    depends_on: tuple[Dependence, ...] = ()
