"""Collectives: over all nodes, on each rail by itself, and inside every node.

Engines: nccl-tests on GPUs, MPI on processors, torch on either. They print rows of size, time, bandwidths and wrong
values; bandwidths are defined as in nccl-tests (rackproof.core.collective). NCCL uses all rails at once; MPI runs over
one rail after the other, and the slowest rail counts. Every launch gives one sample a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rackproof.bench.collectives.command import sizes
from rackproof.bench.collectives.engines import ENGINES, Engine, Sweep, split_by_rails
from rackproof.bench.collectives.launch import Way, launch_of, way_of
from rackproof.bench.collectives.reader import ALGBW, BUSBW, IN_PLACE, RAIL, RAIL_WRONG, WRONG, read_collectives
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason, shown, unmeasured
from rackproof.core import collective
from rackproof.core.architecture import Architecture, CollectiveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Rack
from rackproof.core.wording import counted
from rackproof.parse import ParseError

METRICS: Final = (BUSBW, ALGBW, WRONG)
PER_SIZE_S: Final = 2.0
START_S: Final = 15.0
MARGIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Part:
    """One step: an operation, between these nodes, in one way."""

    op: str
    scope: Scope
    nodes: tuple[str, ...]
    sweep: Sweep
    interfaces: tuple[str, ...]
    """One command for each in every launch."""
    algorithm: str | None = None
    rail: int | None = None

    def id(self, engine: Engine) -> str:
        where = () if self.scope is Scope.RACK else (self.scope.value,)
        how = () if self.algorithm is None else (self.algorithm,)
        rail = () if self.rail is None else (f"rail{self.rail}",)
        return "/".join(("collectives", engine.name, *where, self.op, *how, *rail))

    def title(self, engine: Engine) -> str:
        between = f"{'over' if self.scope is Scope.RACK else 'in each of'} {counted(len(self.nodes), 'node')}"
        how = "" if self.algorithm is None else f", {self.algorithm}"
        rail = "" if self.rail is None else f", rail {self.rail}"
        return f"{self.op} {between} ({engine.name}{how}{rail})"

    def environment(self, engine: Engine, interface: str, ranks_per_node: int) -> dict[str, str]:
        split = {} if self.rail is None else split_by_rails(self.rail, ranks_per_node)
        return {**engine.environment(interface, self.algorithm), **split}


def plan(architecture: Architecture, profile: CollectiveProfile, rack: Rack) -> list[Step]:
    """Steps over all nodes of the group, one per operation and algorithm; then those of rails and single nodes."""
    nodes = tuple(node.name for node in rack.group(profile.members))
    engine = ENGINES[profile.engine]
    if not nodes:
        return []
    interfaces: tuple[str, ...] = ("lo",)
    if architecture.fabric:
        rails = range(architecture.fabric.rails if engine.one_rail else 1)
        interfaces = tuple(f"{architecture.fabric.interface_prefix}{rail}" for rail in rails)
    parts = list(_parts(architecture, profile, nodes, interfaces))
    return [_step(architecture, rack, engine, part, profile) for part in parts]


def _parts(
    architecture: Architecture, profile: CollectiveProfile, nodes: tuple[str, ...], interfaces: tuple[str, ...]
) -> Iterator[Part]:
    sweep = Sweep(profile.min_bytes, profile.max_bytes)
    for op in profile.ops:
        for algorithm in profile.algorithms or (None,):
            yield Part(op, Scope.RACK, nodes, sweep, interfaces, algorithm)
    if split := profile.rails:
        for op in split.ops:
            for rail in range(architecture.rails):
                yield Part(op, Scope.RACK, nodes, Sweep(split.min_bytes, split.max_bytes), interfaces, None, rail)
    if inside := profile.node:
        for op in inside.ops:
            for algorithm in inside.algorithms or (None,):
                yield Part(op, Scope.NODE, nodes, Sweep(inside.min_bytes, inside.max_bytes), interfaces, algorithm)


def _step(architecture: Architecture, rack: Rack, engine: Engine, part: Part, profile: CollectiveProfile) -> Step:
    id_ = part.id(engine)
    steps = list(sizes(part.sweep.low, part.sweep.high, profile.factor))
    places = _places(engine, part, steps, id_)
    seconds = START_S + PER_SIZE_S * len(steps)
    limit, alone = seconds * 2 + MARGIN_S, part.scope is Scope.NODE

    def execute(context: BenchContext) -> Iterator[Measurement]:
        session = context.session
        alive = session.alive(list(part.nodes), context.say)
        if len(alive) < len(part.nodes):
            gone = ", ".join(sorted(set(part.nodes) - set(alive)))
            for place in places:
                yield unmeasured(place, f"{gone} does not answer")
            return
        try:
            launch = launch_of(context, engine, part.nodes, profile, limit, alone=alone)
        except ParseError as error:
            yield from (unmeasured(place, error.reason) for place in places)
            return
        answers = launch.read()
        with sampled_links(session, id_, part.nodes if engine.loads_gpus else (), limit * profile.runs, context.say):
            for _ in range(profile.runs):
                for interface in part.interfaces:
                    answers += launch.run(*_words(launch, engine, part, profile, interface), launch.declared)
                    answers += launch.read()
        read = read_collectives(answers, session.architecture)
        for place in places:
            launcher = part.nodes[0] if part.scope is Scope.RACK else place.members[0]
            own = [answer for answer in answers if part.scope is Scope.RACK or answer.node == launcher]
            yield reading_or_reason(place, read, outputs_of(own), who=f"{launcher}: ")

    def commands() -> Iterator[str]:
        way = way_of(architecture, rack, engine, part.nodes, profile, limit, alone=alone)
        for interface in part.interfaces:
            yield way.commands(*_words(way, engine, part, profile, interface))[part.nodes[0]]

    estimate = seconds * len(part.interfaces) * profile.runs
    return Step(id_, part.title(engine), estimate, places, execute, commands=shown(commands))


def _words(
    way: Way, engine: Engine, part: Part, profile: CollectiveProfile, interface: str
) -> tuple[str, dict[str, str], str]:
    """Program, environment and interface of one launch."""
    environment = part.environment(engine, interface, profile.ranks_per_node)
    return program_of(way, engine, part, profile), environment, interface


def program_of(way: Way, engine: Engine, part: Part, profile: CollectiveProfile) -> str:
    """Command line of one process."""
    program = engine.program(part.op, profile, part.sweep, way.python)
    if engine.source:
        return program
    return program + f" -g {way.ranks_per_node if way.alone else 1}" + ("" if part.rail is None else " -a 0")


def _places(engine: Engine, part: Part, steps: Iterable[int], id_: str) -> tuple[Measurement, ...]:
    labels: dict[str, str] = {}
    if part.algorithm is not None:
        labels["algorithm"] = part.algorithm
    if part.rail is not None:
        labels["rail"] = str(part.rail)
    metrics: tuple[str, ...] = METRICS if part.rail is None else (RAIL, RAIL_WRONG)
    if engine.name == "nccl-tests" and part.rail is None and part.op in collective.IN_PLACE:
        metrics += (IN_PLACE,)
    groups = [part.nodes] if part.scope is Scope.RACK else [(node,) for node in part.nodes]
    return tuple(
        expected(metric, part.scope, members, {"op": part.op, "bytes": str(size), "engine": engine.name, **labels}, id_)
        for members in groups
        for size in steps
        for metric in metrics
    )
