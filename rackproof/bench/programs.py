"""Check before all measurements that the measuring programs are those of their packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rackproof.bench.step import Step
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement, Scope
from rackproof.core.group_testing import METRIC
from rackproof.core.metrics import BESIDE_LOSSES
from rackproof.core.programs import CHECK, HINT, PROTECTS, judge_program, programs_of
from rackproof.core.rack import fold
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.measuring_programs import MARK, parse_programs_found
from rackproof.remote.command import CommandResult
from rackproof.shell import script

_TIMEOUT_S: Final = 300.0


def check_programs(session: Session, steps: Iterable[Step]) -> list[str]:
    """Record a result per node and program of the steps. Returns a line per fault."""
    programs: dict[str, dict[str, None]] = {}
    for place in (place for step in steps for place in step.expects):
        launcher = _launcher(session, place)
        names = dict.fromkeys(programs_of(place.metric, place.labels, launcher))
        for member in place.members:
            programs.setdefault(member.partition("/")[0], {}).update(names)
    commands = {node: script(__name__, "programs", *names) for node, names in programs.items() if names}
    faults: dict[str, list[str]] = {}
    for node, answer in session.run(commands, _TIMEOUT_S).items():
        for result in results(node, tuple(programs[node]), answer, session.outputs(answer)):
            session.store.append(Kind.CHECK, result)
            if result.outcome is not CheckOutcome.PASSED:
                faults.setdefault(result.message, []).append(node)
    return [f"{fold(dict.fromkeys(nodes))}: {text}" for text, nodes in faults.items()]


def _launcher(session: Session, place: Measurement) -> str:
    """Of collectives; those of a node by itself need none."""
    if place.scope is Scope.NODE and place.metric != METRIC:
        return "ssh"
    launcher = str(read_inputs(session.rack.node(place.members[0].partition("/")[0]), CollectiveInputs).launcher)
    return launcher if place.metric.startswith(("collective.", "group.", *BESIDE_LOSSES)) else "mpirun"


def is_question(command: str) -> bool:
    """Whether a recorded command is that of ``check_programs``."""
    return MARK in command


def results(node: str, names: tuple[str, ...], answer: CommandResult, raw: tuple[str, ...]) -> Iterator[CheckResult]:
    """Results from one node's answer, one per program."""
    try:
        if not answer.ok:
            raise ParseError("programs.sh", answer.why)
        installed = parse_programs_found(answer.stdout)
    except ParseError as error:
        judged = {name: (CheckOutcome.UNMEASURED, str(error), True) for name in names}
    else:
        judged = {name: judge_program(name, installed) for name in names}
    for name, (outcome, message, required) in judged.items():
        yield CheckResult(
            check=CHECK, node=node, item=name, outcome=outcome, required=required, message=message,
            protects=PROTECTS, hint=HINT, raw=raw,
        )  # fmt: skip
