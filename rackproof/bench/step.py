"""A step: the unit of a benchmark that is repeated or resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from rackproof.bench.reading import Answers, outputs_of
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.metrics import METRICS, OF_CONTENT
from rackproof.errors import InventoryError, NodeUnreachable
from rackproof.evidence.session import Session
from rackproof.parse import FromMemory, ParseError


@dataclass
class BenchContext:
    """State shared by all steps. ``stack`` ends what a step has started on nodes, at the end of the step;
    ``stage`` ends what later steps use as well and is idle between them, at the end of the stage or after a step that
    lacks a number, so that nothing of it stays in the way."""

    session: Session
    say: Callable[[str], None]
    stack: ExitStack = field(default_factory=ExitStack)
    stage: ExitStack = field(default_factory=ExitStack)
    shared: dict[str, Any] = field(default_factory=dict)


class OncePerStage:
    """Something that steps of a stage share, made by the first one that needs it."""

    def __init__(self, context: BenchContext) -> None:
        self._context, self._session = context, context.session

    @classmethod
    def of(cls, context: BenchContext) -> Self:
        own: Self = context.shared.setdefault(cls.__name__, cls(context))
        return own


class Writes(NamedTuple):
    """Bytes that a step writes to its storage beside the first writing of files, by all clients together."""

    bytes: int = 0
    """By jobs that end with their files."""
    timed_s: float = 0.0
    """Duration in seconds of jobs that end with their time, summed over clients: nothing bounds their bytes."""


NOTHING: Final = Writes()


@dataclass(frozen=True, slots=True)
class Step:
    """``expects``: all measurements of the step; those that ``execute`` does not return are UNMEASURED."""

    id: str
    title: str
    estimate_s: float
    expects: tuple[Measurement, ...]
    execute: Callable[[BenchContext], Iterable[Measurement]]
    digest: str = ""
    """sha256 of the step's parameters: see ``plan_steps``."""
    commands: tuple[str, ...] = ()
    """Programs that it starts on its first node or pair, for a dry run, as far as nodes' answers do not decide them."""
    writes: Writes = NOTHING
    port_gbps: int | None = None
    """Rate of the ports that a scaled architecture sets to several, in Gb/s of the published system."""
    in_image: bool = False
    """Whether its programs run in the site's container image, where the inventory names one."""

    @property
    def nodes(self) -> set[str]:
        """Nodes that it measures, also those of which it measures devices (``gpu-01/nic0``)."""
        return {member.partition("/")[0] for place in self.expects for member in place.members}


def shown(commands: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Commands for a dry run; none where the inventory lacks or contradicts what they need, which the step reports."""
    try:
        return tuple(dict.fromkeys(commands()))
    except (InventoryError, NodeUnreachable, ParseError):
        return ()


def expected(metric: str, scope: Scope, members: Iterable[str], labels: Mapping[str, str], step: str) -> Measurement:
    """A measurement without values."""
    return Measurement(
        metric=metric, scope=scope, members=tuple(members), labels=dict(labels), unit=METRICS[metric].unit,
        reason="not reached", step=step,
    )  # fmt: skip


def reading_of(place: Measurement, read: Answers) -> Measurement:
    """The measurement with the values that its reader reads from the step's answers. Companions without one number per
    sample are dropped. Raises ParseError, and ValueError without samples.
    """
    reading = read(place)
    if not reading.samples:
        raise ValueError("a measurement needs at least one sample")
    count = len(reading.samples)
    return place.model_copy(
        update={
            "samples": tuple(reading.samples),
            "reason": None,
            "raw": outputs_of(reading.used),
            "conditions": dict(reading.conditions),
            "companions": {name: tuple(own) for name, own in reading.companions.items() if len(own) == count},
            "reader": read.reader,
        }
    )


def reading_or_reason(
    place: Measurement, read: Answers, raw: Iterable[str], why: str = "", who: str = ""
) -> Measurement:
    """``reading_of``, or UNMEASURED: for the reason ``why`` if given, else for its ParseError, after ``who``. INVALID
    for FromMemory."""
    try:
        return unmeasured(place, why, raw) if why else reading_of(place, read)
    except ParseError as error:
        invalid = isinstance(error, FromMemory)
        return unmeasured(place, f"{who}{error}", raw).model_copy(update={"invalid": invalid})


def count_or_reason(place: Measurement, read: Answers, raw: Iterable[str], why: str = "", who: str = "") -> Measurement:
    """``reading_or_reason``; wrong content that was read counts, whatever went wrong otherwise."""
    if why and place.metric in OF_CONTENT and any((wrong := reading_or_reason(place, read, raw)).samples):
        return wrong
    return reading_or_reason(place, read, raw, why, who)


def unmeasured(place: Measurement, reason: str, raw: Iterable[str] = ()) -> Measurement:
    return place.model_copy(update={"samples": (), "reason": reason, "raw": tuple(dict.fromkeys(raw))})
