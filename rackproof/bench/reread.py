"""Compare recorded numbers with their raw outputs, read again by this kit's readers.

Linear in the evidence; keeps the answers of one step at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rackproof.bench.collectives.group_reader import SETS, STEP
from rackproof.bench.collectives.group_resume import Interrupted
from rackproof.bench.guard import is_load_command
from rackproof.bench.ingest.datasets import is_of_content
from rackproof.bench.links import placement
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.programs import is_question
from rackproof.bench.readers import reader_of
from rackproof.bench.reading import Read, Reading, outputs_of
from rackproof.bench.reread_load import read_load
from rackproof.bench.storage.runs import is_layout
from rackproof.bench.throttles.held import is_state, proven
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CommandRecord, Kind, Measurement, NodeInfo, Record
from rackproof.core.metrics import METRICS
from rackproof.core.starvation import OF_CONTROLLER
from rackproof.core.wording import exact
from rackproof.errors import RunError
from rackproof.evidence.store import Output, answer_of
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult, sha256_of

_TOLERANCE: Final = 1e-9
"""Relative: sums of the same numbers may differ in the last digit between platforms."""


def disproven(
    records: Sequence[Record],
    output: Output,
    architecture: Architecture,
    profile: str,
    nodes: Iterable[NodeInfo],
) -> dict[int, str]:
    """Why measurements contradict their raw outputs, by ``seq``; empty if all are proven.

    ``architecture`` and ``profile`` are the run's.
    """
    nodes = tuple(nodes)
    load = read_load(records, lambda command: answer_of(command, output), architecture, nodes)
    faults = load.faults
    owners: dict[str, tuple[int, int]] = {}
    for number, (step, commands, measurements) in enumerate(_steps(records)):
        answers: list[CommandResult] | None = None
        reads: dict[str, Read] = {}
        for seq, measurement in measurements:
            if not measurement.samples:
                continue
            try:
                if answers is None:
                    answers = [answer_of(command, output) for command in commands]
                reader = reader_of(measurement.metric)
                name = reader.name if reader else ""
                if reader is not None and name not in reads:
                    reads[name] = reader([a for a in answers if not is_state(a.command)], architecture)
                fault = _identity_fault(measurement, name, step)
                if fault is None:
                    reading = reads[name](measurement)
                    limits = proven(architecture, nodes, measurement, answers)
                    observed = _observed(reading, measurement, {**load.conditions.get(seq, {}), **limits})
                    fault = (
                        difference(measurement, observed)
                        or _used_twice(reading, owners, number)
                        or profile_mismatch(measurement, reading, architecture.profiles[profile])
                    )
            except (ParseError, RunError) as error:
                fault = f"its outputs do not give it: {error}"
            except (LookupError, ValueError, TypeError, ArithmeticError) as error:
                fault = f"its outputs do not give it: {type(error).__name__}: {error}"
            if fault:
                faults[seq] = fault
    return faults


def _observed(reading: Reading, measurement: Measurement, conditions: Mapping[str, Any]) -> Reading:
    """The reading with the conditions of the nodes, and of the controller, which have no raw output."""
    own = {name: value for name, value in measurement.conditions.items() if name in OF_CONTROLLER}
    return reading._replace(conditions={**reading.conditions, **conditions, **own})


Step = tuple[str | None, list[CommandRecord], list[tuple[int, Measurement]]]


def _steps(records: Iterable[Record]) -> Iterator[Step]:
    """Id, commands and measurements of each step; the id is None for a step that did not end.

    The commands include those of earlier steps that wrote the files of the same storage, and those of an interrupted
    search that the step continues.
    """
    interrupted = Interrupted()
    commands: list[CommandRecord] = []
    layouts: dict[str, list[CommandRecord]] = {}
    measurements: list[tuple[int, Measurement]] = []
    for record in records:
        match record.kind:
            case Kind.COMMAND if not is_load_command(text := str(record.body["command"])) and not is_question(text):
                commands.append(CommandRecord.model_validate(record.body))
            case Kind.MEASUREMENT:
                measurements.append((record.seq, Measurement.model_validate(record.body)))
            case Kind.STEP | Kind.STAGE:
                step = record.body.get("step")
                if measurements:
                    yield step, [*_earlier(measurements, layouts, interrupted, commands), *commands], measurements
                if isinstance(step, str):
                    written = [command for command in commands if is_layout(command.command)]
                    layouts.setdefault(step.rpartition("/")[0], []).extend(written)
                commands, measurements = [], []
        interrupted.see(record)
    if measurements:
        yield None, [*_earlier(measurements, layouts, interrupted, commands), *commands], measurements


def _earlier(
    measurements: Sequence[tuple[int, Measurement]],
    layouts: Mapping[str, list[CommandRecord]],
    interrupted: Interrupted,
    commands: Iterable[CommandRecord],
) -> list[CommandRecord]:
    """Commands before the step that its numbers stand on."""
    if not measurements[0][1].step.startswith(STEP):
        return layouts.get(measurements[0][1].step.rpartition("/")[0], [])
    return interrupted.before({c.command.partition(SETS)[2] for c in commands if SETS in c.command})


def _identity_fault(measurement: Measurement, reader: str, step: str | None) -> str | None:
    """Contradictions within a measurement's record; None without any. ``reader``: name of the kit's reader."""
    metric = METRICS.get(measurement.metric)
    if not measurement.reader:
        return "recorded without the name of its reader"
    if measurement.reader != reader:
        return f"its reader is {measurement.reader[:40]!r}, expected {reader or 'none'}"
    if metric is None or measurement.unit != metric.unit:
        return f"expected unit {metric.unit if metric else 'none'}, actual {measurement.unit}"
    if step is not None and measurement.step != step:
        return f"recorded in step {step}, actual {measurement.step}"
    parts, labels = measurement.step.split("/"), measurement.labels
    named = [labels[key] for key in ("engine", "precision", "storage", "use") if key in labels]
    named += [labels["op"]] if "op" in labels and metric.benchmark != "storage" else []  # one step has all of a tree
    named += [f"rail{labels['rail']}"] if "rail" in labels else []
    if strange := [name for name in named if name not in parts]:
        return f"its labels name {', '.join(strange)}, its step is {measurement.step}"
    if measurement.reason is not None:
        return "it has samples and a reason for their absence"
    return None


def difference(measurement: Measurement, reading: Reading) -> str | None:
    """The first difference between a recorded measurement and its reading, with both values; None if they are equal."""
    if not _close(measurement.samples, reading.samples):
        return _both(measurement.samples, reading.samples, f" {measurement.unit}")
    if set(measurement.raw) != set(outputs_of(reading.used)):
        return "it names other outputs than those of its step that give it"
    sides = (
        ("", measurement.companions, reading.companions),
        ("condition ", measurement.conditions, reading.conditions),
    )
    for kind, recorded, read in sides:
        for name in sorted(recorded.keys() | read.keys()):
            if not _same(recorded.get(name), read.get(name)):
                return f"{kind}{name}: {_both(recorded.get(name), read.get(name))}"
    return None


def _used_twice(reading: Reading, owners: dict[str, tuple[int, int]], step: int) -> str | None:
    """Fault of an output that two runs share: outputs of two runs differ in times, addresses and process ids, but for
    summaries of a data set that both of them use, and for where a node's adapters are.

    ``owners``: step and run of all outputs so far.
    """
    for answer in reading.used:
        name = sha256_of(answer.stdout)
        if (
            answer.stdout
            and not is_of_content(answer.command)
            and not placement.is_question(answer.command)
            and owners.setdefault(name, (step, id(answer))) != (step, id(answer))
        ):
            return f"its output {name[:12]} is also that of another run"
    return None


def _close(recorded: Sequence[float], read: Sequence[float]) -> bool:
    return len(recorded) == len(read) and all(
        math.isclose(*pair, rel_tol=_TOLERANCE) for pair in zip(recorded, read, strict=True)
    )


def _same(recorded: Any, read: Any) -> bool:
    """Equal as JSON; numbers within the tolerance."""
    if isinstance(recorded, Mapping) and isinstance(read, Mapping):
        return recorded.keys() == read.keys() and all(_same(recorded[key], read[key]) for key in recorded)
    if isinstance(recorded, list | tuple) and isinstance(read, list | tuple):
        return len(recorded) == len(read) and all(_same(*pair) for pair in zip(recorded, read, strict=True))
    if isinstance(recorded, bool) or isinstance(read, bool):
        return recorded is read
    if isinstance(recorded, int | float) and isinstance(read, int | float):
        return math.isclose(recorded, read, rel_tol=_TOLERANCE)
    return bool(recorded == read)


def _both(recorded: Any, read: Any, unit: str = "") -> str:
    return f"recorded {_text(recorded)}{unit}, its raw output gives {_text(read)}{unit}"


def _text(value: Any) -> str:
    if isinstance(value, tuple | list) and value:
        return ", ".join(exact(number) if isinstance(number, int | float) else str(number) for number in value[:8])
    return "nothing" if value is None or value == () else str(value)[:120]
