"""What a reader gives: the numbers of a measurement, out of the recorded answers of its step. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.remote.command import CommandResult


class Reading(NamedTuple):
    """Everything of a measurement that its raw outputs give."""

    samples: tuple[float, ...]
    """In the metric's unit, one per repetition."""
    used: tuple[CommandResult, ...]
    """The answers with the samples; their outputs are the measurement's ``raw``."""
    conditions: Mapping[str, Any] = {}
    companions: Mapping[str, tuple[float, ...]] = {}
    """One number per sample each; others are left out of the measurement."""


Read = Callable[[Measurement], Reading]
"""Reads one measurement of a step. Raises ParseError where the answers do not give it."""
Reader = Callable[[Sequence[CommandResult], Architecture], Read]
"""Given all answers of one step, in their order and with secrets redacted. The same answers give the same numbers."""


def outputs_of(answers: Iterable[CommandResult]) -> tuple[str, ...]:
    """sha256 names of the outputs, without empty ones and repetitions."""
    data = (stream for answer in answers for stream in (answer.stdout, answer.stderr) if stream)
    return tuple(dict.fromkeys(name_of(stream) for stream in data))


@lru_cache(maxsize=64)
def name_of(output: bytes) -> str:
    """sha256 of an output; cached, since thousands of measurements have the same large one."""
    return hashlib.sha256(output).hexdigest()
