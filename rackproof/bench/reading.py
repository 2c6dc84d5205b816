"""Interface of readers: they read a measurement's numbers from the recorded answers of its step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
ReadFunction = Callable[[Sequence[CommandResult], Architecture], Read]
"""Takes all answers of one step, in order, with secrets redacted. Pure: equal answers give equal numbers."""


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of one step, with their reader's name, which is recorded with every number."""

    reader: str
    read: Read

    def __call__(self, measurement: Measurement) -> Reading:
        return self.read(measurement)


@dataclass(frozen=True, slots=True)
class Reader:
    """A function with the name that is recorded."""

    name: str
    function: ReadFunction

    def __call__(self, answers: Sequence[CommandResult], architecture: Architecture) -> Answers:
        return Answers(self.name, self.function(answers, architecture))


def reader(name: str) -> Callable[[ReadFunction], Reader]:
    """Decorator that names a reader."""
    return partial(Reader, name)


def with_preamble(function: ReadFunction) -> ReadFunction:
    """The same reader, with what programs printed before their answers among the conditions."""

    def wrapped(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
        read = function(answers, architecture)

        def with_conditions(measurement: Measurement) -> Reading:
            reading = read(measurement)
            texts = dict.fromkeys(printed_before(answer.command, answer.stdout) for answer in reading.used)
            words = [text for text in texts if text]
            return reading._replace(conditions={**reading.conditions, "also_printed": words}) if words else reading

        return with_conditions

    return wrapped


def of_every(runs: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Companions that every run has, one number each."""
    return {name: tuple(run[name] for run in runs) for name in runs[0] if all(name in run for run in runs)}


def outputs_of(answers: Iterable[CommandResult]) -> tuple[str, ...]:
    """sha256 names of the outputs, without empty ones and duplicates."""
    return tuple(dict.fromkeys(name for answer in answers for name in answer.outputs))
