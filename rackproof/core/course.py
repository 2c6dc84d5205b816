"""Contradictions between records of a run: stages, steps, events and ends against the records around them. Pure.

A record that was edited alone, with a chain made anew, shows here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rackproof.core.evidence import EventKind, Kind, Record

CONNECTION_BROKE: Final = ("connection lost", "the connection was lost")
"""Beginnings of the errors of commands whose connection broke."""
REACHABLE: Final = "node.reachable"
"""Check of the stage connect."""
CONVERGED: Final = "deploy.converged"
"""Check of the stage deploy."""
BENCH: Final = "bench"


@dataclass
class _Part:
    """A part of the run: up to its end, or up to the next resume."""

    ended_before: frozenset[str] = frozenset()
    """Stages that ended in earlier parts."""
    answered: set[str] = field(default_factory=set)
    broken: dict[str, Record] = field(default_factory=dict)
    """The first command of each node that had answered, whose connection broke."""
    lost: set[str] = field(default_factory=set)
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    interrupted: bool = False
    end: Record | None = None

    def next(self) -> _Part:
        return _Part(self.ended_before | set(self.ended))


@dataclass
class _Stage:
    """Records of a stage."""

    checks: int = 0
    unreachable: set[str] = field(default_factory=set)
    deployed: bool | None = None
    """Whether the last deploy succeeded, and was not a dry one that wanted changes."""
    identified: set[str] = field(default_factory=set)

    def ok(self, name: str, recorded: bool) -> bool:
        """The result that the records of a stage with this name give; the recorded one for other stages."""
        results = {"connect": not self.unreachable, "deploy": self.deployed is True, "validate": self.checks > 0}
        return results.get(name, recorded)


def contradictions(records: Sequence[Record]) -> dict[int, str]:
    """Why a record contradicts others, by ``seq``; with both values. The bodies are valid for their kinds."""
    faults: dict[int, str] = {}
    part, stage = _Part(), _Stage()
    without: dict[str, int] = {}
    """By step: number of measurements without samples, since the last step record."""
    measured: set[str] = set()
    for record, after in zip(records, [*records[1:], None], strict=True):
        body = record.body
        if part.end is not None and not _resumes(record):
            faults.setdefault(record.seq, "it follows an end, without an event of the resume")
            part = part.next()
        match record.kind:
            case Kind.COMMAND:
                _command(part, record, after)
            case Kind.EVENT:
                if _resumes(record):
                    faults.update(_ended(part))
                    part, stage = part.next(), _Stage()
                elif fault := _event(part, record):
                    faults[record.seq] = fault
            case Kind.STAGE if body["event"] == "begin":
                if body["stage"] in part.begun:
                    faults[record.seq] = f"{body['stage']} begins twice, without an event of a resume"
                part.begun.append(body["stage"])
                stage = _Stage()
            case Kind.STAGE:
                part.ended.append(body["stage"])
                if body["stage"] not in part.begun:
                    faults[record.seq] = f"{body['stage']} ends, and never began"
                if body["stage"] != "connect" and (lacking := part.answered - part.lost - stage.identified):
                    faults[record.seq] = f"no identity of {', '.join(sorted(lacking))} after it"
                if (ok := stage.ok(body["stage"], body["ok"])) != body["ok"]:
                    faults[record.seq] = f"recorded ok {body['ok']}, its records give {ok}"
            case Kind.CHECK:
                stage.checks += 1
                if body["check"] == REACHABLE and body["outcome"] != "passed":
                    stage.unreachable.add(body["node"])
            case Kind.DEPLOY:
                if stage.deployed is None and not body["dry"]:
                    faults[record.seq] = "recorded without the dry deploy before it"
                wanted = body["dry"] and any(node["changed"] or node["reboot"] for node in body["nodes"])
                stage.deployed = body["ok"] and not wanted
            case Kind.IDENTITY:
                stage.identified.add(body["node"])
            case Kind.MEASUREMENT:
                measured.add(body["step"])
                without[body["step"]] = without.get(body["step"], 0) + (not body["samples"])
            case Kind.STEP:
                if fault := _status(body["status"], body["step"] in measured, without.get(body["step"], 0)):
                    faults[record.seq] = fault
                without, measured = {}, set()
            case Kind.END:
                part.end = record
                if (body["records"], body["head"]) != (record.seq, record.prev):
                    faults[record.seq] = (
                        f"recorded {body['records']} records before it with head {body['head'][:12]},"
                        f" actual {record.seq} with head {record.prev[:12]}"
                    )
    faults.update(_ended(part))
    return faults


def _resumes(record: Record) -> bool:
    return record.kind is Kind.EVENT and record.body["event"] == EventKind.RESUMED


def _command(part: _Part, record: Record, after: Record | None) -> None:
    node, error = record.body["node"], str(record.body["error"] or "")
    if record.body["rc"] is not None:
        part.answered.add(node)
    elif node in part.answered and error.startswith(CONNECTION_BROKE) and not (after and _resumes(after)):
        # killed before the event could be written: the resume follows
        part.broken.setdefault(node, record)


def _event(part: _Part, record: Record) -> str | None:
    node = record.body["node"]
    match record.body["event"]:
        case EventKind.LOST:
            part.lost.add(node)
        case EventKind.BACK if node not in part.answered:
            return f"recorded that {node} answered again, it ran no command to its end since the resume"
        case EventKind.INTERRUPTED:
            part.interrupted = True
    return None


def _status(status: str, measured: bool, without: int) -> str | None:
    """Fault of a step's status: a step is done if all of its measurements have samples."""
    if status == "done" and without:
        return f"recorded as done, {without} of its measurements have no number"
    if status == "done" and not measured:
        return "recorded as done, it has no measurement"
    if status != "done" and measured and not without:
        return f"recorded as {status}, all of its measurements have numbers"
    return None


def _ended(part: _Part) -> Iterator[tuple[int, str]]:
    """Faults that show at the end of a part."""
    for node, command in part.broken.items():
        if node not in part.lost:
            yield command.seq, f"the connection to {node} was lost, no event says so"
    if part.end is None:
        return
    body = part.end.body
    open_ = [stage for stage in part.begun if stage not in part.ended]
    if not body["interrupted"]:
        if part.interrupted or open_:
            what = "an event says it was" if part.interrupted else f"{', '.join(open_)} has no end"
            yield part.end.seq, f"recorded as not interrupted, {what}"
        elif part.begun != [stage for stage in body["stages"] if stage in part.begun]:
            yield part.end.seq, f"its stages are {', '.join(body['stages'])}, they began as {', '.join(part.begun)}"
        # the steps of benchmarks may have ended before the run was killed, see ``bench.replan``
        elif missing := [name for name in body["stages"] if name not in {BENCH, *part.ended_before, *part.ended}]:
            yield part.end.seq, f"recorded as not interrupted, {', '.join(missing)} never ran"
