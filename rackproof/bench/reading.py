"""Interface of readers: they read a measurement's numbers from the recorded answers of its step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.parse.preamble import printed_before
from rackproof.remote.command import CommandResult


class Reading(NamedTuple):
    """All values of a measurement that follow from its raw outputs."""

    samples: tuple[float, ...]
    """One per repetition, in the metric's unit."""
    used: tuple[CommandResult, ...]
    """Answers with the samples; their outputs are the measurement's ``raw``."""
    conditions: Mapping[str, Any] = {}
    companions: Mapping[str, tuple[float, ...]] = {}
    """One number per sample each; others are not recorded."""


Read = Callable[[Measurement], Reading]
"""Reads one measurement of a step. Raises ParseError without a number."""
Reader = Callable[[Sequence[CommandResult], Architecture], Read]
"""Takes all answers of one step, in order, with secrets redacted. Pure: equal answers give equal numbers."""


def with_preamble(reader: Reader) -> Reader:
    """The same reader, with what programs printed before their answers among the conditions."""

    def wrapped(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
        read = reader(answers, architecture)

        def with_conditions(measurement: Measurement) -> Reading:
            reading = read(measurement)
            texts = dict.fromkeys(printed_before(answer.command, answer.stdout) for answer in reading.used)
            words = [text for text in texts if text]
            return reading._replace(conditions={**reading.conditions, "also_printed": words}) if words else reading

        return with_conditions

    return wrapped


def outputs_of(answers: Iterable[CommandResult]) -> tuple[str, ...]:
    """sha256 names of the outputs, without empty ones and duplicates."""
    return tuple(dict.fromkeys(name for answer in answers for name in answer.outputs))
