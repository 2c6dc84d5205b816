"""A part of cases that are too many for every run."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def sample(cases: Iterable[T], count: int, seed: str) -> list[T]:
    """``count`` of the cases, in their order; always the same with one seed."""
    whole = list(cases)
    chosen = random.Random(seed).sample(range(len(whole)), min(count, len(whole)))  # noqa: S311  (a repeatable one)
    return [whole[index] for index in sorted(chosen)]
