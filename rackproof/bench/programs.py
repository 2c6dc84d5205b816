"""Check before all measurements that the measuring programs are as their packages, or the deploy, made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rackproof.bench.collectives.launch import mpirun_of
from rackproof.bench.step import BenchContext, Step
from rackproof.configure.collectives.inputs import CollectiveInputs
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, Measurement, Scope
from rackproof.core.group_testing import METRIC
from rackproof.core.metrics import BESIDE_METRICS
from rackproof.core.programs import (
    CHECK,
    HINT,
    IMAGE,
    PROTECTS,
    TOOLS,
    in_image,
    judge_program,
    measured_inside,
    packaged,
    programs_of,
)
from rackproof.core.rack import Rack, fold
from rackproof.errors import RemoteError
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.measuring_programs import MARK, parse_programs_found
from rackproof.remote.command import CommandResult
from rackproof.shell import script

_TIMEOUT_S: Final = 300.0
_MPIRUN: Final = "mpirun"


def check_programs(context: BenchContext, steps: Iterable[Step]) -> list[str]:
    """Record a result per node and program of the steps. Returns a line per fault."""
    session = context.session
    programs: dict[str, dict[str, None]] = {}
    launchers: dict[tuple[tuple[str, ...], bool], str] = {}
    for step in steps:
        nodes = tuple(dict.fromkeys(_node(member) for place in step.expects for member in place.members))
        for place in step.expects:
            launcher = _launcher(session.rack, place)
            if launcher == _MPIRUN and _MPIRUN in programs_of(place.metric, place.labels, launcher):
                key = nodes, place.labels.get("engine", "mpi") == "mpi"
                if key not in launchers:
                    launchers[key] = _mpirun(context, *key)
                launcher = launchers[key]
            names = programs_of(place.metric, place.labels, launcher)
            for member in place.members:
                node = _node(member)
                inside = step.in_image and _image(session, node) is not None
                own = measured_inside(place.metric, names, IMAGE) if inside else names
                programs.setdefault(node, {}).update(dict.fromkeys(own))
    containers = session.architecture.containers
    commands = {
        node: script(
            __name__, "programs", *dict.fromkeys([*names, *map(packaged, names)]), tools=TOOLS,
            engine=(containers.runtime if containers else None) or "none", image=_image(session, node) or "",
        )
        for node, names in programs.items() if names
    }  # fmt: skip
    faults: dict[str, list[str]] = {}
    for node, answer in session.run(commands, _TIMEOUT_S).items():
        for result in results(node, tuple(programs[node]), answer, session.outputs(answer)):
            session.store.append(Kind.CHECK, result)
            if result.outcome is not CheckOutcome.PASSED:
                faults.setdefault(result.message, []).append(node)
    return [f"{fold(dict.fromkeys(nodes))}: {text}" for text, nodes in faults.items()]


def names_of(rack: Rack, steps: Iterable[Step]) -> list[str]:
    """Names of the programs that are checked for these steps, as far as nodes' answers do not decide them."""
    places = [place for step in steps for place in step.expects]
    every = (name for place in places for name in programs_of(place.metric, place.labels, _launcher(rack, place)))
    return list(dict.fromkeys(every))


def _image(session: Session, node: str) -> str | None:
    return read_inputs(session.rack.node(node), IngestInputs).image


def _node(member: str) -> str:
    return member.partition("/")[0]


def _mpirun(context: BenchContext, nodes: Sequence[str], with_mpi4py: bool) -> str:
    """The mpirun that starts the ranks of those nodes that answer; the one on the PATH where that is unknown."""
    alive = context.session.alive(list(nodes), context.say)
    try:
        return mpirun_of(context, alive, with_mpi4py) if alive else _MPIRUN
    except (ParseError, RemoteError):
        return _MPIRUN


def _launcher(rack: Rack, place: Measurement) -> str:
    """Launcher of a collective; one within a node needs none."""
    if place.scope is Scope.NODE and place.metric != METRIC:
        return "ssh"
    launcher = str(read_inputs(rack.node(_node(place.members[0])), CollectiveInputs).launcher)
    return launcher if place.metric.startswith(("collective.", "group.", *BESIDE_METRICS)) else _MPIRUN


def is_question(command: str) -> bool:
    """Whether a recorded command is that of ``check_programs``."""
    return MARK in command


def results(node: str, names: tuple[str, ...], answer: CommandResult, raw: tuple[str, ...]) -> Iterator[CheckResult]:
    """Results from one node's answer, one per program: a packaged one where its built namesake is absent."""
    try:
        if not answer.ok:
            raise ParseError("programs.sh", answer.why)
        installed = parse_programs_found(answer.stdout)
    except ParseError as error:
        judged = {packaged(name): (CheckOutcome.UNMEASURED, str(error), True) for name in names}
    else:
        used = [name if installed.programs.get(name) else packaged(name) for name in names]
        contained = [name for name in installed.images if name.startswith(in_image(""))]
        used = [one for name in used for one in (contained if name == IMAGE and contained else [name])]
        judged = {name: judge_program(name, installed) for name in used}
    for name, (outcome, message, required) in judged.items():
        yield CheckResult(
            check=CHECK, node=node, item=name, outcome=outcome, required=required, message=message,
            protects=PROTECTS, hint=HINT, raw=raw,
        )  # fmt: skip
